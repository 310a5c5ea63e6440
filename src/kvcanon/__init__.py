"""The canon of prefix KV caches.

`kvcanon.spec` says: the law, as types, oracle functions and laws over states, steps and events.
`kvcanon.reference` shows: a plain cache that obeys it in ordinary data structures.
`kvcanon.optimized` will run: a fast cache that behaves the same, in a later release.
`kvcanon.conformance` judges: it holds any cache to the law, and says in words what broke.
"""

from importlib.metadata import version

__version__ = version("kvcanon")
