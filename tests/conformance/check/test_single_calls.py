"""A case in single calls makes the calls of the case, one action each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve

import block_manager
from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.recorded_calls import (
    Call,
    RecordedCall,
    RequestCall,
    StampWrite,
    StoreDecision,
    TransferDecision,
    WaitDecision,
)
from kvcanon.conformance.check.single_calls import (
    in_single_calls,
    spelled_by_page,
    spelled_by_place,
)
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import method_of
from kvcanon.spec.types import Counts, Key

BLOCK_MANAGER = block_manager.of_BlockManager
UNJUDGED = JudgeConfig(black_box=True, laws=())
SMALL = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(8, 8, 3),
    host_slots=Counts(8, 8, 3),
    write_policy="write_through",
)


def calls_of(case: Case, adapter: Adapter = REFERENCE) -> list[RecordedCall]:
    """The operations of a case."""
    recorder = CallRecorder()
    run = CaseRun(adapter, case, UNJUDGED, clients=recorder)
    for action in case.actions:
        run.act(action)
        recorder.action += 1
    if case.drain:
        run.drain(case.drain)
    return [call for call in recorder.calls if call.number]


def in_calls(case: Case, adapter: Adapter = REFERENCE) -> Case:
    """The first of the cases in single calls."""
    return next(in_single_calls(case, adapter, UNJUDGED))


def methods(calls: Sequence[RecordedCall]) -> list[str]:
    """The names of the calls, and whether each was refused."""
    return [
        f"{_method(each.call)}{' refused' * isinstance(each.answer, BaseException)}"
        for each in calls
    ]


def _method(call: Call) -> str:
    decisions = TransferDecision | WaitDecision | StoreDecision
    assert not isinstance(call, StampWrite | decisions), "have no number"
    return call.method if isinstance(call, RequestCall) else method_of(type(call))


@pytest.mark.parametrize(
    "actions",
    [
        (Action("serve", 0, 1, 1), Action("serve", 0, 5, 1), Action("evict", 1, 1, 1)),
        (Action("admit", 0, 1, 3), Action("slide", 0, 2), Action("grow", 0, 3, 1)),
        (Action("serve", 0, 0, 4), Action("lock", 0, 1), Action("unlock", 0, 0, 1)),
        (Action("lock"), Action("unlock_window"), Action("unlock", 0, 0, 1), Action("unlock")),
        (Action("fetch_and_load", 0, 1, 2), Action("copy"), Action("poll"), Action("take_events")),
        (Action("back_up_and_fail", 1, 1), Action("flush"), Action("evict_host", 2, 1, 1)),
        (Action("squeeze_and_load", 0, 1, 1), Action("demote_and_load", 1, 1, 2)),
        (Action("evict_above_a_bare_tail"), Action("fragment", 1, 2, 1), Action("rank", 0, 1, 6)),
        (Action("serve", 0, 1, 1), Action("load_back", 0, 1, 4), Action("reset", 0, 1)),
    ],
    ids=lambda actions: actions[0].name,
)
def test_calls_are_the_same(actions: tuple[Action, ...]) -> None:
    """Each call of the actions and the drain is made by one exact action, with the same outcome."""
    case = Case(SMALL, actions)
    single = in_calls(case)
    assert methods(calls_of(single)) == methods(calls_of(case))
    assert single.drain == ()
    drawn = {each.name for each in single.actions if each.name in ACTIONS}
    assert drawn <= {*OF_ONE_CALL}


OF_ONE_CALL = (
    *("finish", "abort", "slide", "unlock", "unlock_window"),
    *("copy", "poll", "flush", "reset", "take_events"),
)


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_most_drawn_cases_are_the_same_in_single_calls(seed: int) -> None:
    """A drawn case makes the same operations if no action stayed as it was."""
    case = draw_case(seed, REFERENCE.offer)
    case = evolve(case, actions=case.actions[:12])
    cases = list(in_single_calls(case, REFERENCE, UNJUDGED))
    assert cases
    whole = [each for each in cases if not each.drain]
    assert len(calls_of(whole[0])) <= len(calls_of(case))


def test_an_action_that_no_exact_one_makes_stays() -> None:
    """A prompt of an unusual token is none that can be spelled: its action stays."""
    case = Case(SMALL, (Action("serve", 0, 1, 1), Action("serve_twin", 0, 1, 0)), ())
    names = [each.name for each in in_calls(case).actions]
    assert names[:2] == ["know_exactly", "match_exactly"]
    assert methods(calls_of(in_calls(case))) == methods(calls_of(case))


def test_a_cache_of_requests_is_played_in_single_calls() -> None:
    """So is the case of a cache that is used by requests."""
    config = CacheConfig(device_slots=Counts(full=8))
    actions = (Action("serve", 0, 0, 3), Action("admit", 0, 1, 2), Action("grow", 0, 1, 1))
    case = Case(config, (*actions, Action("hit_again", 0, 1), Action("finish")))
    cases = list(in_single_calls(case, BLOCK_MANAGER, UNJUDGED))
    assert cases
    for single in cases:
        assert methods(calls_of(single, BLOCK_MANAGER)) == methods(calls_of(case, BLOCK_MANAGER))


def test_keys_are_spelled_by_page_or_by_place() -> None:
    """Equal pages have equal letters, or the pages below a prefix are numbered."""
    keys = [Key(((7,), (9,))), Key(((9,), (7,))), Key(((7,), (8,)))]
    assert [spelled_by_page(keys)[key] for key in keys] == [[0, 1], [1, 0], [0, 2]]
    assert [spelled_by_place(keys)[key] for key in keys] == [[0, 0], [1, 0], [0, 1]]
    many = [Key(((page,),)) for page in range(5)]
    assert [key in spelled_by_page(many) for key in many] == [True] * 4 + [False]
    assert Key(((0,),) * 13) not in spelled_by_place([Key(((0,),) * 13)])
