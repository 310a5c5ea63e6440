"""State actions: inserts that hand over mamba states at several pages of their key."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from attrs import evolve

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.state_actions import MOST_STATES, STATES, with_states
from kvcanon.conformance.protocol.adapter import Subject, make_subject
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Insert, Operation
from kvcanon.spec.types import GPU, MAMBA, Counts

CONFIG = CacheConfig(
    mamba=True, window_tokens=2, device_slots=Counts(20, 20, 6), host_slots=Counts()
)
BARE = evolve(REFERENCE.offer, states_within=False)


class Watched(WrappedCache):
    """A cache that keeps the operations that are asked of it, and those that it serves."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.cache)
        self.asked: list[Operation] = []
        self.served: list[Operation] = []

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        self.asked.append(operation)
        answer = call(*args, **kwargs)
        self.served.append(operation)
        return answer


def client_of(config: CacheConfig = CONFIG) -> tuple[Client, Watched]:
    """Return a client of the plain cache, and the cache that it calls."""
    subject = make_subject(REFERENCE, config)
    watched = Watched(subject)
    client = Client(watched, subject.can, subject.copies, Stamps(config.slot_bytes))
    client.states_within = True
    return client, watched


def inserts(operations: list[Operation]) -> list[Insert]:
    """Return the inserts that hand over states at pages that they name."""
    return [each for each in operations if isinstance(each, Insert) and each.state_pages]


@pytest.mark.parametrize("name", ["serve_in_chunks", "part_from_cached"])
def test_states_are_handed_over_before_the_end(name: str) -> None:
    """Requests hand over states before their end, a few at most, and hold nothing afterwards."""
    client, cache = client_of()
    for number in range(40):
        act(client, "serve", number, number * 7, number * 3)
        act(client, name, number, number * 5, number)
    served = inserts(cache.served)
    assert any(call.state_pages[0] < len(call.key) for call in served)
    assert any(len(call.state_pages) > 2 for call in served) or name == "part_from_cached"
    assert all(len(call.state_pages) <= MOST_STATES for call in served)
    assert not client.requests
    assert not cache.snapshot().pools[MAMBA, GPU].held


def test_prompt_that_parts_finds_the_state_there() -> None:
    """Of two prompts that part from what is cached, the second finds the state of the first."""
    client, cache = client_of(CacheConfig(mamba=True, device_slots=Counts(20, 0, 6)))
    act(client, "serve", 0, 0, 3)
    act(client, "part_from_cached", 0, 1, 0)
    first, second = inserts(cache.served)
    assert (first.start_pages, second.start_pages) == (0, first.state_pages[0])


def test_misplaced_states_are_refused() -> None:
    """Inserts with states at wrong pages are refused, and their slots freed."""
    client, cache = client_of()
    act(client, "misplace_states", 0, 0, 0)
    assert len(inserts(cache.asked)) == 6
    assert not inserts(cache.served)
    assert not cache.snapshot().pools[MAMBA, GPU].held


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("mamba", [True, False])
def test_they_do_nothing_where_they_are_not_offered(name: str, *, mamba: bool) -> None:
    """A cache that does not offer it, or has no states, is not called."""
    client, cache = client_of(evolve(CONFIG, mamba=mamba))
    client.states_within = not mamba
    act(client, name, 1, 2, 3)
    assert not cache.asked


def test_draw_has_them_only_where_they_are_offered() -> None:
    """They come on top of a case that is otherwise the same, and only where they are offered."""
    with_them = 0
    for seed in range(60):
        case, bare = draw_case(seed, REFERENCE.offer), draw_case(seed, BARE)
        others = tuple(action for action in case.actions if action.name not in STATES)
        assert (case.config, others, case.drain) == (bare.config, bare.actions, bare.drain)
        drawn = len(case.actions) - len(others)
        assert not drawn or case.config.mamba
        with_them += drawn > 0
    assert with_them > 10


def test_drawn_actions_are_known() -> None:
    """Every state action is drawn now and then."""
    drawn = {each.name for seed in range(20) for each in with_states(Random(seed), ())}
    assert drawn == set(STATES)
    assert all(isinstance(each, Action) for each in with_states(Random(1), ()))
