"""SGLang frees the slots of a prompt that a request has locked, when another computes it again.

The window data of the upper part of a prompt is evicted; a request that reads the prompt still has
its lock, and its full slots. Another request that finds no window data there computes the prompt
again and inserts it: the full slots of the first are freed for those of the second. They are handed
out at once, to a third, while the first still reads them.

    python healing_frees_locked_slots.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT = [1, 2, 3]

small = Small(8, window=1)
for end in range(1, len(PROMPT) + 1):
    # Turn by turn, so that each token is a node.
    small.insert(PROMPT[:end], reused=small.slots(small.match(PROMPT[: end - 1])))
read = small.match(PROMPT)
mine = small.slots(read).tolist()
small.cache.inc_lock_ref(read.last_device_node)
print(f"SGLang {RELEASE}: a request locks its prompt and reads slots {mine}")
evicted = small.evict(window_tokens=2)
print(f"{evicted.swa_num_tokens_evicted} tokens of window data above its window are evicted")
print(f"another request finds {small.hit(PROMPT[:2])} tokens of [1, 2], and computes them again")
small.insert(PROMPT[:2])
theirs = small.allocate(small.free_tokens()).tolist()
twice = sorted(set(mine) & set(theirs))
print(f"a third request is given slots {theirs}; {twice} of them are read by the first")
sys.exit(bool(twice))
