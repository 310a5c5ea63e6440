"""SGLang 0.5.12.post1 stops at an eviction under write_back when the leaf does not fit on the host.

A leaf is copied to the host before it is evicted from the device. SGLang does not check whether the
copy was made: if the host is too small, the cache asserts that the leaf has a host copy, and the
scheduler ends.

    python leaf_without_copy_is_demoted.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

small = Small(2, host_tokens=1, write_policy="write_back")
small.insert([1, 2])
print(
    f"SGLang {RELEASE}: a prompt of 2 tokens is to leave the device, and the host has slots for 1"
)
try:
    freed = small.evict(tokens=2).num_tokens_evicted
except AssertionError:
    print("the eviction raises an AssertionError")
    sys.exit(1)
print(f"{freed} tokens were evicted")
