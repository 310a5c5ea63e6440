"""The fast cache, which runs: same operations, outcomes and events as `kvcanon.reference`.

It is not written yet. Importing it fails at once and says so: falling back to the reference in
silence would let someone measure, or serve from, a cache that they did not ask for.
"""

raise ImportError(
    "kvcanon.optimized, the fast cache, is not part of this release yet; "
    "use kvcanon.reference, which behaves the same."
)
