"""SGLang 0.5.12.post1 evicts full data for a load though full slots are free: window slots are few.

A prompt of four tokens is on the host and is loaded back. There are six free full slots, and two
free window slots, of which it needs one. The load computes min(full free, window free) and takes
two counts of free slots: it evicts another prompt, for nothing.

    python load_evicts_full_data_for_window_slots.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT, OTHER = [1, 2, 3, 4], [8, 9]

small = Small(8, window=1, host_tokens=16)
small.insert(PROMPT)
small.wait()
small.evict(tokens=8)
small.insert(OTHER)
small.wait()
# Requests at work hold the other window slots.
windows = small.allocator.swa_attn_allocator
windows.alloc(windows.available_size() - 2)

print(
    f"SGLang {RELEASE}: {small.hit(OTHER)} of 2 tokens of {OTHER} are on the device, and none of "
    f"{PROMPT}; {small.free_tokens()} full and {windows.available_size()} window slots are free"
)
small.load(small.match(PROMPT))
left = small.hit(OTHER)
print(f"{PROMPT} is loaded: {small.hit(PROMPT)} of 4 tokens are on the device")
print(f"{left} of 2 tokens of {OTHER} are on the device")
sys.exit(left < len(OTHER))
