"""Steps: where a law holds, and an operation is allowed, the law holds afterwards.

An operation is told here in flags: which nodes it takes what from, or gives what to. Whether it is
allowed, and what the law asks of a node, is decided by the kernels that the cache and the law call.

What readers get wrong: a step proves nothing of a cache whose operations do other things. That the
plain cache does these is what `tests/test_proving_steps.py` samples and the explorer exhausts.
"""
