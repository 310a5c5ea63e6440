"""SGLang counts no hits under write_back, so that lfu and slru evict like lru.

One prompt is used five times, then another once. The first is evicted, though the policy is lfu.

    python sglang_no_hits_under_write_back.py

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from sglang_small import RELEASE, Small

OFTEN, ONCE = [1, 2], [3, 4]


def evicted_first(write_policy: str) -> str:
    small = Small(8, host_tokens=12, write_policy=write_policy, eviction_policy="lfu")
    for _ in range(5):
        small.insert(OFTEN)
    small.insert(ONCE)
    small.wait()
    small.evict(tokens=1)
    return "the prompt that came once" if small.hit(OFTEN) else "the prompt that came five times"


victims = {policy: evicted_first(policy) for policy in ("write_through", "write_back")}
for policy, victim in victims.items():
    print(f"SGLang {RELEASE}, lfu, {policy}: {victim} is evicted first")
sys.exit(len(set(victims.values())) > 1)
