"""Steps: where a law holds, and an operation is allowed, the law holds afterwards.

An operation is written here in flags: which nodes it takes data from or gives data to. The oracle
functions that cache and law call decide whether it is allowed, and what the law demands of a node.

A proof of a step says nothing about a cache whose operations do other things. That the plain cache
does these steps is sampled by `lab/tests/prove/test_prove_steps.py` and exhausted by the
explorer.
"""
