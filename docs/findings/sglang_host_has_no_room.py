"""SGLang's HiRadixCache evicts nothing under write_back where the host has no room for it.

A leaf that has no copy on the host is not evicted when no copy can be made, though `evictable_size`
counts it. No request gets its slots any more.

    python sglang_host_has_no_room.py hi-radix

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from sglang_small import CLASS, RELEASE, Small

small = Small(2, host_tokens=1, write_policy="write_back")
small.insert([1, 2])
counted = small.cache.evictable_size()
freed = small.evict(tokens=1).num_tokens_evicted
print(f"SGLang {RELEASE}, {CLASS[0]}: of {counted} evictable tokens {freed} are evicted")
sys.exit(freed < 1)
