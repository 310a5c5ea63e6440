"""SGLang's HiRadixCache loads a prompt from slots on the host that it has given to another.

Under write_back a load evicts from the device; the victims are copied to the host, which evicts
from the host. The host copy to be loaded is not locked, and is evicted. The load still reads its
slots, which have the bytes of the other prompt, and the request computes with them.

    python load_reads_evicted_slots.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from small import CLASS, RELEASE, Small

COLD, WARM = [1, 2], [3, 4]

small = Small(2, host_tokens=3, write_policy="write_back")


def fill(tokens: list[int]) -> None:
    """Write the token itself where its data is."""
    slots = small.slots(small.match(tokens))
    for slot, token in zip(slots.tolist(), tokens, strict=True):
        small.memory.k_buffer[0][slot] = token


small.insert(COLD)
fill(COLD)
small.evict(tokens=2)
small.wait()
small.insert(WARM)
fill(WARM)
found = small.match(COLD)
print(f"SGLang {RELEASE}, {CLASS[0]}: {found.host_hit_length} tokens of {COLD} are on the host")
slots, _ = small.cache.init_load_back(
    SimpleNamespace(
        best_match_node=found.best_match_node,
        host_hit_length=found.host_hit_length,
        mem_quota=None,
        req=None,
    )
)
small.cache.ready_to_load_host_cache()
small.wait()
data = small.memory.k_buffer[0][slots].flatten().tolist()
print(f"the load returns slots {slots.tolist()}; they have the data of {data}")
print(f"{small.hit(COLD)} of them are found on the device afterwards")
sys.exit(bool(data) and data != COLD)
