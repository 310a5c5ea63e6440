"""SGLang's HiRadixCache emits the remove of a block while blocks below it are still there.

Under write_back a leaf that has no copy on the host stays on the device until the copy is done, and
what is above it has a copy, and leaves at once. Its remove is emitted before that of the leaf. A
router that keeps a tree of blocks drops the leaf with it, and does not know the second removal.

    python parent_removed_before_child.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

PARENT, CHILD = [1], [1, 2]

small = Small(4, host_tokens=8, write_policy="write_back")
small.insert(PARENT)
small.evict(tokens=1)
small.insert(PARENT)
small.insert(CHILD)
parents: dict[int, int | None] = {}
for kind, hashes, parent, medium in small.events():
    if kind == "BlockStored" and medium == "GPU":
        parents[hashes[0]] = parent
small.evict(tokens=2)
there = set(parents)
too_early = 0
for kind, hashes, _, medium in small.events():
    if kind == "BlockRemoved" and medium == "GPU":
        left_behind = [each for each in there if parents[each] in hashes]
        print(f"{kind} {hashes[0]:#x} on {medium}, while {len(left_behind)} below it are there")
        too_early += len(left_behind)
        there.difference_update(hashes)
print(f"SGLang {RELEASE}, {CLASS[0]}: {too_early} removals of a block before those of its children")
sys.exit(too_early > 0)
