"""SGLang 0.5.12.post1 keeps window data that no match can reach, and evicts a prompt in its place.

A prompt of three tokens is used again. With a window of one token its end reads the window data of
its last token only. The first token's window data is never read again, but a match makes the window
data of the whole path recent. So the next eviction takes another prompt, which is lost.

    python unreachable_window_data_stays.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT, OTHER = [1, 2, 3], [9]

small = Small(8, window=1)
for end in range(1, len(PROMPT) + 1):
    # Turn by turn, so that each token is a node.
    small.insert(PROMPT[:end], reused=small.slots(small.match(PROMPT[: end - 1])))
small.insert(OTHER)
print(f"SGLang {RELEASE}: {PROMPT} is used again: {small.hit(PROMPT)} of 3 tokens found")
evicted = small.evict(window_tokens=1)
print(f"{evicted.swa_num_tokens_evicted} token of window data is evicted")
print(f"{small.hit(PROMPT)} of 3 tokens of {PROMPT} are found, which needs the last window alone")
left = small.hit(OTHER)
print(f"{left} of 1 token of {OTHER} is found, which was used after the first token of the other")
sys.exit(left == 0)
