"""SGLang 0.5.12.post1 emits only some stores of a host copy if its node was cut meanwhile.

A prompt is copied to the host. Before the copy is acknowledged another prompt cuts its node. Then a
store on the host is emitted for the lower part alone, though both parts are there.

    python split_during_backup_loses_stores.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

PROMPT = [1, 2, 3]

small = Small(8, host_tokens=16, write_policy="write_through")
small.insert(PROMPT)
small.hit([1, 9])
small.wait()
stores = [each for each in small.events() if each[0] == "BlockStored" and each[3] != "GPU"]
small.evict(tokens=len(PROMPT))
there = small.match(PROMPT).host_hit_length
for kind, hashes, parent, medium in stores:
    print(f"{kind} {hashes[0]:#x} on {medium}, below {parent and hex(parent)}")
# Later releases put several blocks into one event.
blocks = sum(len(hashes) for _, hashes, _, _ in stores)
print(
    f"SGLang {RELEASE}, {CLASS[0]}: {there} tokens are on the host, {blocks} are emitted as "
    "stored there"
)
sys.exit(there != blocks)
