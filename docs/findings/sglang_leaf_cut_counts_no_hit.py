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


def twice(window: int) -> tuple[int, int]:
    """The hits of the first token of two prompts, and how many of its tokens are on the host."""
    small = Small(8, window=window, host_tokens=8, write_policy="write_through_selective")
    small.insert(PROMPT)
    # Both prompts begin with the same token; so whatever cuts the leaf, that token is a node.
    small.insert(OTHER_END, reused=small.slots(small.match(OTHER_END)))
    small.wait()
    first = small.match(PROMPT[:1])
    node = small.node(first.last_device_node)
    hits = node.hit_count
    small.evict(tokens=8)
    small.wait()
    return hits, small.match(PROMPT[:1]).host_hit_length


right, wrong = twice(window=2), twice(window=1)
for window, (hits, kept) in ((2, right), (1, wrong)):
    print(
        f"SGLang {RELEASE}, window of {window}: the first token of two prompts has {hits} hits; "
        f"when all has left the device, {kept} of it is on the host"
    )
sys.exit(wrong != right)
