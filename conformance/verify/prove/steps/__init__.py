"""Steps: where a law holds, and an operation is allowed, the law holds afterwards.

An operation is told here in flags: which nodes it takes what from, or gives what to. Whether it is
allowed, and what the law asks of a node, is decided by the kernels that the cache and the law call.

A proof of a step says nothing about a cache whose operations do other things. That the plain cache
does these steps is sampled by `tests/conformance/verify/test_prove_steps.py` and exhausted by the
explorer.
"""
