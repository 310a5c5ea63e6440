"""SGLang drops window data without a host copy, though the host has free slots.

Under write_back window data that leaves the device alone, inside the tree, is copied by 0.5.23, but
not by 0.5.13. By neither, and under neither policy, it is copied where the full data of its node
has a copy from before, when the window data was not there. What is dropped is missing on the host,
where the rest is of no use without it.

    python evicted_window_data_not_copied.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT = [1, 2]


def found_on_host(
    write_policy: str, *, window_first: bool = False, copied_before: bool = False
) -> int:
    """How many tokens of `[1]` are found on the host after all has left the device."""
    small = Small(8, window=1, host_tokens=12, write_policy=write_policy)
    if copied_before:
        # At first the request has no window data of token 1 any more; what there is is copied.
        small.insert(PROMPT, window_gone=1)
        small.evict(tokens=8)
        small.wait()
    small.insert(PROMPT)
    small.wait()
    assert small.hit([1]) == 1
    if window_first:
        small.match(PROMPT)
        assert small.evict(window_tokens=1).swa_num_tokens_evicted == 1
        assert small.hit(PROMPT) == len(PROMPT)
    small.evict(tokens=8)
    small.wait()
    return int(small.match([1]).host_hit_length)


lost = 0
for policy in ("write_through", "write_back"):
    whole = found_on_host(policy)
    window_first = found_on_host(policy, window_first=True)
    copied_before = found_on_host(policy, copied_before=True)
    print(
        f"SGLang {RELEASE}, {policy}: {whole} token is found on the host after it left the device"
    )
    print(f"    {window_first}, if its window data leaves first")
    print(f"    {copied_before}, if its full data had a copy before, without window data")
    lost += 2 * whole - window_first - copied_before
sys.exit(lost > 0)
