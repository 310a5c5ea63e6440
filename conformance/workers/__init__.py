"""The processes of the judge: workers that a cache may end or block, and what is known of each end.

Cache code never runs in the main process of `kvcanon check`. A worker writes what it does into a
memory that outlives it; its parent ends a worker that takes too long, and starts a new one.
"""
