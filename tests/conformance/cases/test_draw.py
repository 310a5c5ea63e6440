"""The walker: a seed determines a case, and cases are of all kinds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.added_actions import ADDED, BY_REQUESTS
from kvcanon.conformance.cases.case import DRAIN, PICKS
from kvcanon.conformance.cases.draw import LONG, draw_case
from kvcanon.conformance.cases.long_actions import OF_SMALL_POOLS
from kvcanon.conformance.cases.wait_actions import WAITS
from kvcanon.conformance.check.play import play
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import CacheKind, Offer
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.protocol.drawn_config import usual_config
from kvcanon.spec.types import WritePolicy

CASES = [draw_case(seed, Offer()) for seed in range(400)]


def test_a_case_is_a_function_of_its_seed() -> None:
    """A seed draws the same case each time, and two seeds draw two cases."""
    assert [draw_case(seed, Offer()) for seed in range(50)] == CASES[:50]
    assert all(one != other for one, other in pairwise(CASES))


def test_cases_are_of_all_kinds() -> None:
    """Every action, policy and drain order is drawn."""
    more = [draw_case(seed, Offer()) for seed in range(400, 800)]  # Long actions are seldom.
    drawn = {action.name for case in (*CASES, *more) for action in case.actions}
    assert drawn == {*ACTIONS, *OF_SMALL_POOLS, *WAITS, *ADDED} - {"mend_wait"}
    assert {case.config.write_policy for case in CASES} == set(WritePolicy)
    assert len({case.drain for case in CASES}) == 6
    assert all(sorted(case.drain) == sorted(DRAIN) for case in CASES)
    picks = [pick for case in CASES for action in case.actions for pick in action[1:]]
    assert min(picks) == 0
    assert max(picks) == PICKS - 1


def test_some_cases_are_lopsided() -> None:
    """Some cases repeat one action often."""
    shares = [
        Counter(action.name for action in case.actions).most_common(1)[0][1] / len(case.actions)
        for case in CASES
        if len(case.actions) > 50
    ]
    assert min(shares) < 0.2
    assert max(shares) > 0.25


def test_some_cases_are_long_and_some_as_usual() -> None:
    """Some cases are long, and some have the usual configuration."""
    assert 5 < sum(len(case.actions) >= LONG for case in CASES) < 40
    assert 25 < sum(case.config == usual_config() for case in CASES) < 80


def test_only_what_is_offered_is_drawn() -> None:
    """Only offered configurations are drawn."""
    offer = Offer(page_sizes=(16,), windows_tokens=(None, 64), least_slots=30)
    configs = [draw_case(seed, offer).config for seed in range(60)]
    assert {config.page_size for config in configs} == {16}
    assert {config.window_tokens for config in configs} == {None, 64}
    assert min(config.device_slots.full for config in configs) >= 30


def test_a_given_configuration_is_taken() -> None:
    """A given configuration is used."""
    assert draw_case(3, Offer(), usual_config()).config == usual_config()
    assert draw_case(3, Offer(), usual_config()).actions == CASES[3].actions


# Cases on the reference.


@pytest.mark.parametrize("black_box", [False, True], ids=["by states", "from outside"])
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 400), marks=pytest.mark.nightly)]
)
def test_drawn_cases_keep_every_law(seeds: range, black_box: bool) -> None:
    """Drawn cases break no law on the reference; each ends with a drain."""
    for seed in seeds:
        found, _ = play(CASES[seed], [REFERENCE], JudgeConfig(black_box))
        assert not found, f"seed {seed}: {found[0].words}"


@pytest.mark.nightly
def test_cache_agrees_with_itself() -> None:
    """Two reference caches agree in drawn cases."""
    for seed in range(20):
        found, _ = play(CASES[seed], [REFERENCE], against=REFERENCE)
        assert not found, f"seed {seed}: {found[0].words}"


def test_request_caches_get_what_they_know() -> None:
    """Of the added actions, cases of request caches have only those that do something there."""
    cases = [draw_case(seed, Offer(), kind=CacheKind.REQUEST) for seed in range(200)]
    drawn = {action.name for case in cases for action in case.actions}
    assert drawn & ADDED.keys() == set(BY_REQUESTS)


def test_cases_of_ranks_poll_early() -> None:
    """A case of ranks is that of one cache, with one more action."""
    for seed in range(20):
        case = draw_case(seed, Offer(), on_ranks=True)
        (at, *_) = (at for at, action in enumerate(case.actions) if action.name == "poll_early")
        before, after = case.actions[:at], case.actions[at + 1 :]
        same = (action.name for action in CASES[seed].actions)
        assert Counter(action.name for action in (*before, *after)) == Counter(same)
        assert case.config == CASES[seed].config
