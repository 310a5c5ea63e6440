"""Workloads: requests to send through a cache, recorded or generated.

`request` says what a request is, `mooncake` reads recorded ones, `chat` makes them up.

What readers get wrong: a workload knows nothing of caches. It is a list of prompts in an order;
which of their tokens are found somewhere is for the cache to say.
"""
