"""SGLang drops window data under write_back that it has no copy of, while the host is empty.

Window data that leaves the device alone, inside the tree, is copied by 0.5.23, but not by 0.5.13.
By neither it is copied where the full data of its node has a copy from before, when the window data
was not there. What is dropped is missing on the host, where the rest is of no use without it.

    python sglang_window_lost_under_write_back.py

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from sglang_small import RELEASE, Small

PROMPT = [1, 2]


def found_on_host(*, window_first: bool = False, copied_before: bool = False) -> int:
    """How many tokens of `[1]` are found on the host after all has left the device."""
    small = Small(8, window=1, host_tokens=8, write_policy="write_back")
    if copied_before:
        # At first the request has no window data of token 1 any more; what there is is copied.
        small.insert(PROMPT, window_gone=1)
        small.evict(tokens=8)
        small.wait()
    small.insert(PROMPT)
    assert small.hit([1]) == 1
    if window_first:
        small.match(PROMPT)
        assert small.evict(window_tokens=1).swa_num_tokens_evicted == 1
        assert small.hit(PROMPT) == len(PROMPT)
    small.evict(tokens=8)
    small.wait()
    return int(small.match([1]).host_hit_length)


whole = found_on_host()
window_first = found_on_host(window_first=True)
copied_before = found_on_host(copied_before=True)
print(f"SGLang {RELEASE}: {whole} token is found on the host after its data has left the device")
print(f"{window_first}, if its window data leaves first")
print(f"{copied_before}, if its full data had a copy before, without window data")
sys.exit(min(window_first, copied_before) < whole)
