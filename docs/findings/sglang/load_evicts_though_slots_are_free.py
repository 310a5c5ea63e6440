"""SGLang evicts as much window data as it loads, though most of the slots are free.

A load of three tokens needs three window slots, and two are free. It evicts three instead of one:
two prompts lose their window data needlessly, and are no longer found.

    python load_evicts_though_slots_are_free.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

COLD, OTHERS = [1, 2, 3], [[10], [20], [30]]

small = Small(20, window=3, window_tokens=5, host_tokens=40, write_policy="write_through")
small.insert(COLD)
small.wait()
small.evict(tokens=3)
for prompt in OTHERS:
    small.insert(prompt)
small.wait()
free = small.allocator.swa_available_size()
found = small.match(COLD)
small.load(found)
small.wait()
left = [prompt for prompt in OTHERS if small.hit(prompt)]
short = len(COLD) - free
print(
    f"SGLang {RELEASE}: {len(COLD)} tokens are loaded, {free} window slots were free; of "
    f"{len(OTHERS)} other prompts {len(left)} are left, and {len(OTHERS) - short} could be"
)
sys.exit(len(left) < len(OTHERS) - short)
