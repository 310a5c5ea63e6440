"""SGLang keeps host duplicates of device data, and has no host slots left for other data.

Under write_back a prompt that was evicted from the device is on the host. When it is inserted
again, its host copy is no longer needed, but stays: only data on the host alone may be evicted
there. While a request reads that prompt nothing else can be copied: an eviction frees nothing, or
ends in an AssertionError.

    python device_duplicates_fill_the_host.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

READ, OTHER = [1, 2], [3, 4]

small = Small(4, host_tokens=2, write_policy="write_back")
small.insert(READ)
small.evict(tokens=2)
small.insert(READ)
on_host = small.cache.cache_controller.mem_pool_host.available_size()
print(f"SGLang {RELEASE}: [1, 2] left the device and came back; {on_host} of 2 host slots are free")
small.cache.inc_lock_ref(small.match(READ).last_device_node)
small.insert(OTHER)
try:
    freed = small.evict(tokens=2).num_tokens_evicted
except AssertionError:
    print("[1, 2] is read; the eviction of [3, 4] raises an AssertionError")
    sys.exit(1)
print(f"[1, 2] is read; {freed} tokens of [3, 4] are evicted")
sys.exit(freed < len(OTHER))
