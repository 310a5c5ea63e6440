"""SGLang counts no hit at the upper part of a leaf that it cuts at its window.

A new leaf that is longer than a window is cut where the window begins, and then the hit is counted,
at the lower part alone. So the first token of a prompt that came twice has been hit once; under
write_through_selective, which copies to the host what was hit twice, it is not copied, and is lost.

    python sglang_leaf_cut_counts_no_hit.py

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from sglang_small import RELEASE, Small

PROMPT, OTHER_END = [1, 2], [1, 3]


def kept_on_host(window: int) -> int:
    """How many tokens of what two prompts share are on the host after all has left the device."""
    small = Small(8, window=window, host_tokens=12, write_policy="write_through_selective")
    small.insert(PROMPT)
    # Both begin with the same token; so that token is a node of its own, whatever cuts the leaf.
    small.insert(OTHER_END, reused=small.slots(small.match(OTHER_END)))
    small.wait()
    small.evict(tokens=8)
    small.wait()
    return int(small.match(PROMPT[:1]).host_hit_length)


right, wrong = kept_on_host(window=2), kept_on_host(window=1)
print(f"SGLang {RELEASE}: two prompts share a token, and write_through_selective copies it")
print(f"{right} token is on the host, with a window of 2; {wrong} with a window of 1")
sys.exit(wrong < right)
