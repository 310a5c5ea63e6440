"""ASYNC-1 and ASYNC-6: in which order copies settle, and flushes."""

from __future__ import annotations

import pytest
from attrs import evolve

from copy_cases import BACKUP, CANCELLED, DONE, FAILED, LOAD_BACK, backups, copy, settled, state
from kvcanon.spec.operations import Evict, Flush, Poll
from kvcanon.spec.snapshot import (
    Snapshot,
)
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import (
    FULL,
    SWA,
    Component,
    Counts,
    TransferId,
)
from states import node, on
from telling import ask, step


def test_settles_in_order_holds() -> None:
    """The first copy settles first, and alone if the second is not done."""
    both, second, none = backups(8, 9), backups(9, done=(8,)), backups(done=(8, 9))
    assert ask("ASYNC-1", step(both, Poll(), second, settled((8, DONE)))) == []
    assert ask("ASYNC-1", step(both, Flush(), none, settled((8, DONE), (9, DONE)))) == []
    assert ask("ASYNC-1", step(both, Poll(), both, settled())) == []
    assert ask("ASYNC-1", step(both, Evict(Counts(1)), none)) == []


def test_settles_in_order_sees_a_second_before_the_first() -> None:
    """A copy that settles before one that it builds on is reported, in any operation."""
    both, first = backups(8, 9), backups(8, done=(9,))
    for operation, outcome in ((Poll(), settled((9, DONE))), (Evict(Counts(1)), None)):
        said = ask("ASYNC-1", step(both, operation, first, outcome))
        builds = "backup transfer 9 settled before transfer 8, on which it builds"
        assert said == [f"{builds}, and which is still in flight"]


def test_settles_in_order_sees_a_second_reported_first() -> None:
    """A poll that reports copies in another order than it settled them is reported."""
    before, after = backups(8, 9), backups(done=(8, 9))
    (said,) = ask("ASYNC-1", step(before, Poll(), after, settled((9, DONE), (8, DONE))))
    assert said == "backup transfer 9 settled before transfer 8, on which it builds"


def beside(*flying: TransferId, child_component: Component = FULL) -> Snapshot:
    """Nodes 1 and 3 beside each other, and node 2 below node 1; transfers 7, 8 and 9 copy them."""
    nodes = {
        7: node(1, 0, [1], full=on((0,), (0,), backing=7 if 7 in flying else None)),
        8: node(2, 1, [2], full=on((1,), (1,), backing=8 if 8 in flying else None)),
        9: node(3, 0, [9], full=on((2,), (2,), backing=9 if 9 in flying else None)),
    }
    copies = (
        copy(7, BACKUP, (0,), (0,), 1, component=child_component),
        copy(8, BACKUP, (1,), (1,), 2),
        copy(9, BACKUP, (2,), (2,), 3),
    )
    return state(*nodes.values(), transfers=tuple(c for c in copies if c.transfer_id in flying))


def test_settles_in_order_lets_independent_copies_overtake() -> None:
    """A copy of another path, or one below window data alone, need not wait."""
    assert ask("ASYNC-1", step(beside(7, 8, 9), Poll(), beside(7, 8), settled((9, DONE)))) == []
    ends = settled((9, DONE), (7, DONE), (8, DONE))
    assert ask("ASYNC-1", step(beside(7, 8, 9), Poll(), beside(), ends)) == []
    assert ask("ASYNC-1", step(beside(7, 8), Poll(), beside(7), settled((8, DONE))))
    before, after = beside(7, 8, child_component=SWA), beside(7, child_component=SWA)
    assert ask("ASYNC-1", step(before, Poll(), after, settled((8, DONE)))) == []


def test_settles_in_order_lets_cancelled_copies_end_when_they_do() -> None:
    """A cancelled copy may end before or after any other."""
    before = backups(8, cancelled=(9,))
    assert ask("ASYNC-1", step(before, Poll(), backups(8), settled((9, CANCELLED)))) == []


def test_settles_in_order_lets_directions_overtake() -> None:
    """Backups and load-backs do not wait for each other."""
    load = copy(9, LOAD_BACK, (5,), (5,), 2)
    before = evolve(backups(8), transfers=(*backups(8).transfers, load))
    assert ask("ASYNC-1", step(before, Poll(), backups(8), settled((9, DONE)))) == []


@pytest.mark.parametrize("ends", [((8, DONE),), ((8, DONE), (8, DONE), (9, DONE))])
def test_settles_in_order_sees_a_wrong_report(
    ends: tuple[tuple[TransferId, TransferStatus], ...],
) -> None:
    """A settled copy that is not reported, or reported twice, is reported."""
    before, after = backups(8, 9), backups(done=(8, 9))
    (said,) = ask("ASYNC-1", step(before, Poll(), after, settled(*ends)))
    assert "backup transfers [8, 9] settled; reported are" in said


def test_settles_in_order_sees_an_invention() -> None:
    """A settled copy that was not in flight is reported."""
    there = backups()
    (said,) = ask("ASYNC-1", step(there, Poll(), there, settled((7, DONE))))
    assert "transfer 7 is reported as settled, and was not in flight" in said


def test_flush_ends_all_holds() -> None:
    """After a flush nothing is in flight; a poll may leave copies."""
    before = backups(8, 9)
    ends = settled((8, DONE), (9, DONE))
    assert ask("ASYNC-6", step(before, Flush(), backups(done=(8, 9)), ends)) == []
    assert ask("ASYNC-6", step(before, Poll(), before, settled())) == []


def test_flush_ends_all_sees_a_copy_in_flight() -> None:
    """A copy in flight after a flush is reported, cancelled or not."""
    after = backups(cancelled=(9,))
    (said,) = ask("ASYNC-6", step(backups(8, 9), Flush(), after, settled((8, FAILED))))
    assert "backup transfer 9 is in flight after a flush" in said
