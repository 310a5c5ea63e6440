"""The order in which SGLang's controller makes a copy: what may follow what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fast.nodes import FULL, SWA
from kvcanon.optimized.sglang.copy_order import CallOutOfOrder, CopyOrder, CopyStage

STEPS: dict[str, Callable[[CopyOrder], object]] = {
    "name": lambda order: order.name_victim(7),
    "plan": lambda order: order.plan(7, (5, 7)),
    "plan another": lambda order: order.plan(8, (8,)),
    "commit": lambda order: order.commit(7),
    "commit another": lambda order: order.commit(8),
    "acknowledge": lambda order: order.acknowledge(7),
    "acknowledge another": lambda order: order.acknowledge(8),
    "another call": lambda order: order.give_up("begin_insert"),
    "forget": lambda order: order.forget(),
}


def played(*steps: str) -> CopyOrder:
    """An order after some steps."""
    order = CopyOrder()
    for step in steps:
        STEPS[step](order)
    return order


@pytest.mark.parametrize(
    "steps",
    [
        ("plan", "commit", "acknowledge", "another call"),
        ("name", "plan", "commit", "acknowledge", "name"),
        ("plan", "plan another", "commit another", "acknowledge another"),
        ("plan", "another call", "name", "another call"),
        ("plan", "commit", "forget", "plan another"),
    ],
)
def test_a_copy_in_order_is_taken(steps: tuple[str, ...]) -> None:
    """A copy is planned, committed and acknowledged, or given up before its commit."""
    played(*steps)


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ((), "commit"),
        ((), "acknowledge"),
        (("name",), "commit"),
        (("plan",), "commit another"),
        (("plan",), "acknowledge"),
        (("plan", "another call"), "commit"),
        (("plan", "commit"), "commit"),
        (("plan", "commit"), "acknowledge another"),
        (("plan", "commit"), "plan another"),
        (("plan", "commit"), "name"),
        (("plan", "commit"), "another call"),
        (("plan", "commit", "acknowledge"), "acknowledge"),
    ],
)
def test_a_call_out_of_order_is_refused(steps: tuple[str, ...], refused: str) -> None:
    """The refusal names the call, the last copy, and how far that was."""
    order = played(*steps)
    with pytest.raises(CallOutOfOrder, match=r"SGLang called .*, and of the last copy, of "):
        STEPS[refused](order)


def test_room_is_for_the_copy_that_is_being_made() -> None:
    """Between the plan and the commit room for its pools is for it, whatever the number."""
    order = played("name")
    order.expect((3, 0, 0), (1, 0, 0))
    STEPS["plan"](order)
    assert not order.needs(FULL)
    order.expect((3, 0, 0), (1, 0, 0))
    assert order.needs(FULL)
    assert not order.needs(SWA)
    order.commit(7)
    assert not order.needs(FULL)


def test_a_victim_needs_what_it_needed_when_it_was_named() -> None:
    """The spec of a victim that was named keeps what it needs, as that of another does not."""
    order = CopyOrder()
    order.name_victim(8)
    order.expect((3, 0, 0), (1, 0, 0))
    order.plan(8, (8,))
    assert order.needs(FULL)
    order.plan(7, (7,))
    assert not order.needs(FULL)


def test_a_lock_of_the_copy_holds_all_that_it_copies() -> None:
    """Only the lock of its name, after the commit and before the acknowledgement."""
    order = played("plan")
    assert order.locked_with(7) == ()
    order.commit(7)
    assert order.locked_with(7) == (5, 7)
    assert order.locked_with(5) == ()
    order.acknowledge(7)
    assert order.locked_with(7) == ()


def test_victims_are_copied_together() -> None:
    """The spec by the name of the first is of all, until it was built."""
    order = CopyOrder()
    order.name_victim(8, [9, 5])
    assert (order.victims(8), order.victims(9)) == ((8, 9, 5), ())
    order.plan(8, order.victims(8))
    assert order.victims(8) == ()
    assert order.commit(8) == (8, 9, 5)
    order.acknowledge(8)
    assert not order.ends_apart()


@pytest.mark.parametrize("is_planned", [False, True])
def test_victims_whose_copy_was_not_made_are_named_alone(is_planned: bool) -> None:
    """Those of the rest of the walk; one that was alone is not named again."""
    order = CopyOrder()
    order.name_victim(8, [9])
    if is_planned:
        order.plan(8, order.victims(8))
    assert order.ends_apart()
    assert (order.alone, order.stage) == (True, CopyStage.NONE)
    order.name_victim(8)
    order.expect((3, 0, 0), (1, 0, 0))
    assert not order.ends_apart()
    assert order.alone
    # Room that is asked for now is for something else: the victim leaves without a copy.
    assert not order.needs(FULL)
    order.end_walk()
    assert not order.alone


def test_a_copy_that_was_made_does_not_end_apart() -> None:
    """Its acknowledgement is to come."""
    order = CopyOrder()
    order.name_victim(8, [9])
    order.plan(8, order.victims(8))
    order.commit(8)
    assert not order.ends_apart()
    assert order.acknowledge(8) == (8, 9)
