"""SGLang's HiRadixCache emits no store for a prompt that is on the device again.

A prompt is evicted from the device and stays on the host; then a request computes it again and
inserts it. Its blocks are on the device, but their last events are removes, and no store follows. A
router sends the next request elsewhere. At the next eviction the removes are emitted again.

    python reinserted_prompt_emits_no_store.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

PROMPT = [1, 2]

small = Small(4, host_tokens=8, write_policy="write_through")
stored: set[int] = set()


def read_events(what: str) -> int:
    small.wait()
    unknown = 0
    for kind, hashes, _, medium in small.events():
        if medium == "GPU":
            print(f"{what}: {kind} of {len(hashes)} block on {medium}")
            unknown += kind == "BlockRemoved" and not stored.issuperset(hashes)
            (stored.update if kind == "BlockStored" else stored.difference_update)(hashes)
    return unknown


small.insert(PROMPT)
read_events("inserted")
small.evict(tokens=2)
read_events("evicted")
small.insert(PROMPT)
read_events("inserted again")
there, by_events = small.hit(PROMPT), len(stored)
print(f"SGLang {RELEASE}, {CLASS[0]}: {there} tokens are on the device; by its events {by_events}")
small.evict(tokens=2)
unknown = read_events("evicted again")
print(f"{unknown} blocks are removed that by its events are not there")
sys.exit(there != by_events or unknown > 0)
