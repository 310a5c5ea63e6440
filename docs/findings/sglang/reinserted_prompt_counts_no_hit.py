"""SGLang's HiRadixCache counts no hit where a prompt comes back that had left the device.

One prompt is used five times and evicted from the device after each use; another is used twice.
Under lfu the first prompt is evicted, as if it had been used once.

    python reinserted_prompt_counts_no_hit.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

OFTEN, TWICE = [1, 2], [3, 4]

small = Small(8, host_tokens=16, write_policy="write_through", eviction_policy="lfu")
for _ in range(5):
    small.evict(tokens=2)
    small.insert(OFTEN)
    small.wait()
for _ in range(2):
    small.insert(TWICE)
    small.wait()
small.evict(tokens=1)
often, twice = small.hit(OFTEN), small.hit(TWICE)
print(f"SGLang {RELEASE}, {CLASS[0]}, lfu: {OFTEN} came five times, and {TWICE} twice")
print(f"after an eviction {often} tokens of {OFTEN} and {twice} of {TWICE} are on the device")
sys.exit(often < twice)
