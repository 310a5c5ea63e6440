"""SGLang's HiRadixCache evicts nothing under write_back if the host is full.

A leaf without a host copy is not evicted if no copy can be made, though `evictable_size` counts it:
no request gets its slots. Without storage the host always has free slots, as it must be larger than
the device. Here a prefetch from storage holds host slots until it is done.

    python eviction_stops_at_full_host.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

small = Small(2, host_tokens=3, write_policy="write_back")
small.insert([1, 2])
fetched = small.cache.cache_controller.mem_pool_host.alloc(2)
counted = small.cache.evictable_size()
freed = small.evict(tokens=1).num_tokens_evicted
print(f"SGLang {RELEASE}, {CLASS[0]}: {len(fetched)} of 3 slots of the host are being fetched to")
print(f"of {counted} evictable tokens {freed} are evicted")
sys.exit(freed < 1)
