"""SGLang 0.5.23 emits the store of a block on the host twice.

A prompt is inserted without its window data, and copied to the host. Later it is inserted with
window data, which is copied, too; then a second store is emitted for the blocks, which are on the
host since the first copy. One remove is emitted, so a listener that counts copies has one left.
Under write_back the eviction of a leaf also copies the window data before it, and stores on the
host are emitted for these blocks, though their full data is not there.

    python sglang_host_store_told_twice.py

Beside SGLang it uses `sglang_small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys
from collections import Counter

from sglang_small import RELEASE, Small

PROMPT = [1, 2]

small = Small(8, window=2, host_tokens=8, write_policy="write_through")
told: Counter[int] = Counter()


def hear(what: str) -> None:
    small.wait()
    for kind, hashes, _, medium in small.events():
        if medium != "GPU":
            told.update(dict.fromkeys(hashes, 1 if kind == "BlockStored" else -1))
            print(f"{what}: {kind} of {len(hashes)} blocks on {medium}")


small.insert(PROMPT, window_gone=len(PROMPT))
hear("without window data")
small.insert(PROMPT)
hear("with window data")
small.evict(tokens=8)
small.cache.evict_host(8)
hear("evicted from the device and the host")
print(
    f"SGLang {RELEASE}: {sum(told.values())} copies are left by its events, and no block is there"
)
left = any(told.values())

small = Small(8, window=2, host_tokens=8, write_policy="write_back")
told.clear()
small.insert([1, 2, 3])
upper = small.match([1, 2])
small.evict(tokens=1)
hear("a leaf is evicted under write_back")
last = small.cache.is_backuped(upper.last_device_node) if hasattr(small.cache, "is_backuped") else 0
print(f"SGLang {RELEASE}: {len(told)} blocks are emitted; of the one before the leaf", end=" ")
print("there is full data on the host" if last else "there is no full data on the host")
sys.exit(left or len(told) > 1)
