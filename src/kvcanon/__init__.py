"""The canon of prefix KV caches.

`kvcanon.spec` says: the law, as types, oracle functions and laws over states, steps and events.
`kvcanon.reference` shows: a plain cache that obeys it in ordinary data structures.
`kvcanon.optimized` runs: a fast cache that behaves the same, for engines.
`kvcanon.conformance` judges: it holds any cache to the law, and says in words what broke.
"""

from importlib.metadata import version

__version__ = version("kvcanon")
