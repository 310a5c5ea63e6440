"""SGLang 0.5.12.post1 copies no leaf to the host that it has cut where the request's window begins.

Under write_through each prompt is copied to the host when it comes. One whose first token has left
the window already is cut there into two nodes, and the hit is counted at the lower one alone. That
is to be copied now; but its parent has no copy, so nothing is. When they leave the device they are
gone, and the prompt is computed again.

    python leaf_below_uncopied_parent_not_copied.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT = [1, 2]


small = Small(8, window=1, host_tokens=12)
small.insert(PROMPT, window_gone=1)
small.wait()
small.evict(tokens=8)
found = small.match(PROMPT).host_hit_length
print(
    f"SGLang {RELEASE}: of a prompt of 2 tokens, the first of which had left the window, {found} "
    "are found on the host"
)
sys.exit(found < len(PROMPT))
