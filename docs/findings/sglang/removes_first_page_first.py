"""SGLang 0.5.13 emits the removes of a node from the front: a page before its children.

A prompt of three pages is one node. When it is evicted there is a `BlockRemoved` for each page,
that of the first page first. A router that keeps a tree of blocks drops what hangs below a removed
block, and does not know the next one any more.

    python removes_first_page_first.py

Beside SGLang it uses `small.py`, and Dynamo's router (`ai-dynamo-runtime`) if it is there.
It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

from small import CLASS, RELEASE, Small

try:
    from dynamo._core import RadixTree
except ImportError:
    RadixTree = None

small = Small(3, window=3 if CLASS[0] == "SWARadixCache" else None)
router: Any = RadixTree and RadixTree()
numbers = count(1)


def apply_event(data: dict[str, object]) -> None:
    """Tell Dynamo's router, if it is there."""
    event = {"event_id": next(numbers), "dp_rank": 0, "data": data}
    try:
        if router is not None:
            router.apply_event(1, json.dumps(event).encode())
    except RuntimeError as error:
        print(f"    Dynamo: {error}")


small.insert([1, 2, 3])
parents: dict[int, int | None] = {}
resident: set[int] = set()
too_early = 0
for kind, hashes, first_parent, _ in small.events():
    parent = first_parent
    for each in hashes:
        print(f"{kind} {each:#x}, below {parent and hex(parent)}")
        block = {"block_hash": each % 2**64, "tokens_hash": each % 2**64}
        apply_event({"stored": {"parent_hash": parent and parent % 2**64, "blocks": [block]}})
        parents[each], parent = parent, each
        resident.add(each)
small.evict(tokens=3)
for kind, hashes, _, _ in small.events():
    left_behind = [each for each in resident if parents[each] in hashes and each not in hashes]
    for each in hashes:
        print(
            f"{kind} {each:#x}, while {[hex(one) for one in left_behind]} below it are still listed"
        )
    apply_event({"removed": {"block_hashes": [each % 2**64 for each in hashes]}})
    resident.difference_update(hashes)
    too_early += len(left_behind)
print(f"SGLang {RELEASE}: {too_early} removals of a block before those of its children")
sys.exit(too_early > 0)
