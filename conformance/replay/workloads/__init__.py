"""Workloads: requests to send through a cache, recorded or generated.

`request` defines a request, `trace` reads recorded ones, `chat` generates them. A workload is a
list of prompts in order; which of their tokens hit depends on the cache.
"""
