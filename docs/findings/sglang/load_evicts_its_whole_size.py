"""SGLang's HiRadixCache evicts as much as it loads, though most of the slots are free.

A load of three tokens needs three slots, and two are free. It evicts three tokens instead of one:
two prompts are evicted from the device for nothing.

    python load_evicts_its_whole_size.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

COLD, OTHERS = [1, 2, 3], [[10], [20], [30]]

small = Small(5, host_tokens=20, write_policy="write_through")
small.insert(COLD)
small.wait()
small.evict(tokens=3)
for prompt in OTHERS:
    small.insert(prompt)
small.wait()
free = small.free_tokens()
small.load(small.match(COLD))
left = sum(small.hit(prompt) for prompt in OTHERS)
short = len(COLD) - free
print(
    f"SGLang {RELEASE}, {CLASS[0]}: {len(COLD)} tokens are loaded, {free} slots were free; of "
    f"{len(OTHERS)} other prompts {left} are left, and {len(OTHERS) - short} could be"
)
sys.exit(left < len(OTHERS) - short)
