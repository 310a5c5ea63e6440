"""The records of SGLang's copies: the tree is read for new records alone."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

from kvcanon.conformance.engines.sglang.transfers import RECORDS, PendingCopies
from kvcanon.spec.snapshot import HoldState
from kvcanon.spec.transfer import Direction

BACKUP = Direction.BACKUP


class CountingTree:
    """A tree that counts how often a node is read: with the Rust core each is a whole walk."""

    def __init__(self) -> None:
        self.reads = 0

    def node(self, handle: object) -> object:
        """Read a node."""
        self.reads += 1
        return handle


def test_tree_is_read_for_new_records_alone() -> None:
    """Copies in flight that are known cost no look at the tree, however many there are."""
    tree, records = CountingTree(), dict[int, object]()
    cache = SimpleNamespace(**{RECORDS[BACKUP]: records})
    copies = PendingCopies(cache, tree, count(1))  # type: ignore[arg-type]
    for number in range(50):
        records[number] = (f"node {number}", object())
        (entry,) = copies.new_entries(BACKUP)
        assert str(entry.locked) == f"node {number}"
        hold = HoldState(number, number, None, state_held=False, transfer_id=None)
        copies.add(BACKUP, entry, ({}, {}), hold)
    assert tree.reads == 100
    assert not copies.settle().transfers
    del records[7]
    ((ended, _),) = copies.settle().transfers
    assert ended == 8
    assert tree.reads == 100
