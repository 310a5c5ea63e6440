"""SGLang's RadixCache takes the upper part of a prompt that is cut for as young as the cut.

Under fifo the prompt inserted first is evicted first. Another prompt begins like the first one, so
a match cuts the first one's node, and the upper part gets the time of the match as its creation
time. So the second prompt is evicted before it.

    python sglang_cut_makes_young.py radix

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from sglang_small import CLASS, RELEASE, Small

FIRST, SECOND = [1, 2], [8, 9]

small = Small(4, eviction_policy="fifo")
small.insert(FIRST)
small.insert(SECOND)
print(f"SGLang {RELEASE}, {CLASS[0]}: under fifo, {FIRST} came before {SECOND}")
print(f"{small.hit([1, 7])} token of [1, 7] is found, which cuts {FIRST}")
evicted = small.evict(tokens=1).num_tokens_evicted
print(f"{evicted} token is evicted; then one more")
small.evict(tokens=1)
first, second = small.hit(FIRST), small.hit(SECOND)
print(f"{first} token of {FIRST} and {second} tokens of {SECOND} are left")
sys.exit(first > 0 and second < len(SECOND))
