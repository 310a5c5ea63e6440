"""SGLang 0.5.13 holds window data that a load does not need, and declines the load.

The lock of a load measures the window by the window data that is on the device, and what is to be
loaded is not: so it also locks the window data before it. Three tokens are loaded, one window slot
is free, and two could be evicted from before the window. The load gives up. Once somebody else has
evicted them it works.

    python load_locks_beyond_its_window.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

HEAD, COLD, BRANCH = [1, 2], [1, 2, 3, 4, 5], [1, 2, 9, 8, 7]

small = Small(20, window=3, window_tokens=6, host_tokens=40, write_policy="write_through")
small.insert(HEAD)
small.insert(COLD, reused=small.slots(small.match(HEAD)))
small.wait()
small.evict(tokens=3)
small.insert(BRANCH, reused=small.slots(small.match(HEAD)))
small.wait()
small.cache.inc_lock_ref(small.match(BRANCH).last_device_node)


def loaded() -> int:
    """Load what the host has of the prompt; how much of it is on the device afterwards."""
    small.load(small.match(COLD))
    return small.hit(COLD)


free, first = small.allocator.swa_available_size(), loaded()
small.evict(window_tokens=2)
after = loaded()
print(f"SGLang {RELEASE}: 3 tokens are to be loaded; {free} window slots are free, 2 can be")
print(f"after the load {first} tokens of {COLD} are on the device")
print(f"after an eviction of two window slots and another load {after} are")
sys.exit(first < after)
