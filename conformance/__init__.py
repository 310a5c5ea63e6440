"""The judge: it holds any prefix KV cache to the law in `kvcanon.spec`.

A cache is judged through an adapter, never through its own internals, so that one suite serves
caches of every make and language. Nothing here imports `kvcanon.optimized`: the project's own fast
cache is judged as a stranger's would be. A run in which nothing was judged fails.
"""
