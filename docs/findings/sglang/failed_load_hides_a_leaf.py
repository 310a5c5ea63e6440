"""SGLang loses a leaf for good when a load below it finds too few slots.

A load locks its path, and unlocks it if there are too few slots. With a window, the unlock checks
the device leaf while its window data is still locked, and not again later, so the leaf is in no
list of evictable leaves. `evictable_size` counts it, and nothing can evict it.

    python failed_load_hides_a_leaf.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

TOKENS = 4

small = Small(TOKENS, window=2, host_tokens=8)
small.insert([1])
small.insert([1, 2], reused=small.slots(small.match([1])))
small.wait()
small.evict(tokens=1)
found = small.match([1, 2])
print(f"SGLang {RELEASE}: {small.hit([1, 2])} token of [1, 2] is on the device, both on the host")
small.allocate(small.free_tokens())
small.load(found)
print(f"requests hold all free slots; a load leaves {small.hit([1, 2])} token on the device")
counted = small.cache.full_evictable_size()
freed = small.evict(tokens=1).num_tokens_evicted
print(f"{counted} token counts as evictable; {freed} is evicted")
sys.exit(freed < counted)
