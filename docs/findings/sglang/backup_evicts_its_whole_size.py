"""SGLang's HiRadixCache evicts as much from the host as it copies there, though some of it is free.

Two prompts of three tokens are on the host alone, and three host slots are free. A third prompt of
four tokens is copied to the host. One slot is missing, so only the older prompt must be evicted.
Both are.

    python backup_evicts_its_whole_size.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

OLDER, LATER, INCOMING = [1, 2, 3], [4, 5, 6], [11, 12, 13, 14]

small = Small(8, host_tokens=9, write_policy="write_through")
for prompt in (OLDER, LATER):
    small.insert(prompt)
    small.wait()
small.evict(tokens=6)
small.insert(INCOMING)
small.wait()
older, later = (small.match(prompt).host_hit_length for prompt in (OLDER, LATER))
print(f"SGLang {RELEASE}, {CLASS[0]}: 3 of 9 host slots are free, and 4 tokens are copied there")
print(f"{older} tokens of {OLDER} and {later} of {LATER} are on the host afterwards")
sys.exit(later < len(LATER))
