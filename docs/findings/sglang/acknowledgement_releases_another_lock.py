"""SGLang 0.5.12.post1 releases a lock for each copy of write_back, and none was taken.

Under write_back a leaf is copied to the host when it is evicted from the device. When the copy is
acknowledged, SGLang releases a lock, as for copies of write_through. If the prompt was not inserted
again, the cache asserts that its data is on the device, and the scheduler ends. If it was, and a
request has locked it, that request loses its lock: the slots that it reads are evicted and
allocated to another request.

    python acknowledgement_releases_another_lock.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT = [1, 2]


def evicted() -> Small:
    """A cache whose prompt is being copied to the host."""
    small = Small(2, host_tokens=3, write_policy="write_back")
    small.insert(PROMPT)
    small.evict(tokens=2)
    return small


gone = evicted()
wrong = False
try:
    gone.wait()
    print(f"SGLang {RELEASE}: the copy of a prompt that left the device is acknowledged")
except AssertionError:
    wrong = True
    print(f"SGLang {RELEASE}: the acknowledgement of the copy raises an AssertionError")

back = evicted()
back.insert(PROMPT)
read = back.match(PROMPT)
mine = back.slots(read).tolist()
back.cache.inc_lock_ref(read.last_device_node)
print(f"the prompt comes back before that; a request locks it, and reads slots {mine}")
back.wait()
back.evict(tokens=2)
free = back.free_tokens()
theirs = back.allocate(free).tolist() if free else []
twice = sorted(set(mine) & set(theirs))
print(f"after an eviction another request is given slots {theirs}; {twice} are read by the first")
sys.exit(wrong or bool(twice))
