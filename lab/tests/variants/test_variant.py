"""The variant: it breaks no law, and each variation makes a difference."""

from __future__ import annotations

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.draw_stored import draw_stored_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.judge import ALL_JUDGES, JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.variants.registry import VARIATIONS
from kvcanon.lab.variants.variant import CHOSEN, VARIANT, varied
from kvcanon.spec.config import CANON, CacheConfig, Choosing, Profile, choices
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, Counts, Slots, make_key
from paths import DOCS

REFERENCE = load_adapter("reference")
NAMES = ("high_slots_first", "scattered_ids", "upper_parts_keep_ids")
"""Variations of slot numbers and ids, which no comparison looks at."""
SLOTS = ("new_slots_heal", "compaction")
"""Variations of which page has which slot, which no comparison looks at, either."""
OUTSIDE = JudgeConfig(black_box=True)
CASES_AT_MOST = 400

SHOWN_IN = {
    "slots_are_checked_first": 187,
    "locks_of_the_device": 156,
    "independent_copies_settle_early": 122,
    "states_on_the_path": 52,
    "impossible_loads_declined_first": 50,
}
"""The case in which a variation that few cases show makes a difference; it is tried first."""


OFFERED = {
    "one_state_a_path": Offer(states_within=True),
    "fetches_end_at_host_pages": Offer(stores=True),
}
"""What a cache must offer, so that cases are drawn that show its variation."""


def findings(
    seed: int,
    adapter: Adapter,
    judges: JudgeConfig = ALL_JUDGES,
    against: Adapter | None = None,
    offer: Offer = Offer(),  # noqa: B008  # It is frozen.
) -> list[str]:
    """Return the findings in the case of a seed."""
    case = draw_stored_case(seed, offer) if offer.stores else draw_case(seed, offer)
    found, _ = play(case, [adapter], judges, against)
    return [_in_words(each) for each in found]


def _in_words(finding: Finding) -> str:
    return f"{finding.grounds} {finding.name}: {finding.words}"


@pytest.mark.unsampled
@pytest.mark.parametrize("name", VARIATIONS)
def test_lawful_variation_is_not_accused(name: str) -> None:
    """No law is broken by a single variation."""
    alone = varied(name, [name])
    for seed in range(4):
        assert findings(seed, alone) == []
        assert findings(seed, alone, OUTSIDE) == []


@pytest.mark.unsampled
@pytest.mark.parametrize(
    ("name", "seed"), [("allocations_evict", 11), ("unused_leaves_expire", 54), ("prefetches", 244)]
)
def test_events_of_its_own_may_be_too_many_to_wait(name: str, seed: int) -> None:
    """A log that overflows by what a cache does on its own is not held against the call."""
    assert findings(seed, varied(name, [name])) == []


@pytest.mark.unsampled
def test_variant_is_not_accused() -> None:
    """No law is broken by the cache with all variations at once."""
    for seed in range(20):
        assert findings(seed, VARIANT) == []


@pytest.mark.parametrize("name", [name for name in VARIATIONS if name not in NAMES + SLOTS])
def test_variation_makes_a_difference(name: str) -> None:
    """Each variation differs from the plain cache in some case."""
    one_law = JudgeConfig(laws=("TREE-1",))
    alone = varied(name, [name])
    seeds = (SHOWN_IN.get(name, 0), *range(CASES_AT_MOST))
    offer = OFFERED.get(name, Offer())
    assert any(findings(seed, alone, one_law, REFERENCE, offer) for seed in seeds)


@pytest.mark.parametrize("name", NAMES)
def test_other_names_are_given(name: str) -> None:
    """The variant has other slot numbers and ids than the plain cache."""
    plain, other = _cut_in_two(REFERENCE), _cut_in_two(varied(name, [name]))
    assert _named(plain) != _named(other)


def test_healing_moves_full_slots() -> None:
    """A variation that heals with new slots moves full data to other slots."""

    def slots_of_healed(adapter: Adapter) -> tuple[Slots, Slots]:
        """Return the slots of a tombstone, and those of the same page after it is healed."""
        config = CacheConfig(window_tokens=1, device_slots=Counts(full=8, swa=8))
        cache, key = make_subject(adapter, config).cache, make_key([1, 2], 1)
        cache.insert(key, 0, cache.allocate(Counts(full=2, swa=2)))
        cache.evict(Counts(swa=1))
        before = cache.match(key).slots
        cache.insert(key, 0, cache.allocate(Counts(full=2, swa=2)))
        return before, cache.match(key).slots

    before, after = slots_of_healed(REFERENCE)
    assert (before.full, len(before.swa), len(after.swa)) == (after.full, 1, 2)
    before, after = slots_of_healed(varied("mine", SLOTS))
    assert before.full[0] != after.full[0]
    assert before.full[1] == after.full[1]


def test_variant_departs_in_all_that_a_profile_can_say() -> None:
    """Each field of the profile is changed by a variation, but those for designs of one's own."""
    profile = VARIANT.profile
    same = [
        each.name
        for each in Profile.__attrs_attrs__
        if getattr(profile, each.name) == getattr(CANON, each.name)
    ]
    own = {name for name in same if type(getattr(profile, name)) is Choosing}
    assert set(same) - own == {"reserved_slots", "loads_whole_keys"}
    assert make_subject(VARIANT, CacheConfig()).cache.snapshot().profile == profile


def test_a_load_of_use_early_may_be_done_that_is_named_as_failed() -> None:
    """A load that was usable at its enqueue is done, also if a settle call names it as failed."""
    config = CacheConfig(
        device_slots=Counts(2), host_slots=Counts(2), write_policy="write_through", events=True
    )
    calls = ("insert_host_exactly", 1), ("load_back_exactly", 1), ("copy", 0), ("settle", 0)
    case = Case(config, tuple(Action(name, a) for name, a in calls))
    assert play(case, [varied("early", ["loads_of_use_early"])])[0] == []


def test_variant_has_a_name() -> None:
    """The variant can be checked from the command line."""
    assert load_adapter("variant") is VARIANT
    assert set(CHOSEN) <= VARIATIONS.keys()


def _cut_in_two(adapter: Adapter) -> Snapshot:
    """Return the state of a cache with one prompt whose first part is locked."""
    made = make_subject(adapter, CacheConfig(device_slots=Counts(full=8))).cache
    key = make_key([1, 2, 3, 4], 1)
    made.insert(key, 0, made.allocate(Counts(full=4)))
    made.lock(key.prefix(2))
    return made.snapshot()


def _named(state: Snapshot) -> list[tuple[object, ...]]:
    """Return the ids of nodes and the numbers of slots."""
    return sorted(
        (state.starts[node.node_id], node.node_id, node[FULL].device) for node in state.below_root()
    )


def test_the_docs_list_every_freedom() -> None:
    """docs/freedoms.md names each variation."""
    page = (DOCS / "freedoms.md").read_text("utf-8")
    assert [name for name in VARIATIONS if f"`{name}`" not in page] == []


def test_fields_name_variations_that_are_there() -> None:
    """A variation that a field names exists, and each variation of a field changes it."""
    for name, each in choices().items():
        assert each.variations.keys() <= VARIATIONS.keys(), name
        for one in each.variations:
            assert getattr(VARIATIONS[one].declared(CANON), name) != getattr(CANON, name)


HOST_ORDER_IS_NOT_BY_USE = Case(
    CacheConfig(
        window_tokens=2,
        device_slots=Counts(4, 3),
        host_slots=Counts(5, 4),
        write_policy="write_through",
    ),
    (
        Action("evict_above_a_bare_tail", 3, 0, 0),
        Action("evict_above_a_bare_tail", 0, 0, 0),
        Action("evict_above_a_bare_tail", 3, 1, 0),
    ),
    (),
)
"""An insert uses window data on the host, and backs up; that data left the device first."""

CANCELLED_COPIES_SETTLE = Case(
    CacheConfig(device_slots=Counts(4), host_slots=Counts(4), write_policy="write_through"),
    (
        Action("admit"),
        Action("grow"),
        Action("hit_again"),
        Action("copy", 0, 3),
        Action("grow"),
        Action("grow"),
        Action("hit_again"),
        Action("copy", 1),
    ),
)
"""Of three copies, each of which builds on the one before, the first fails and the last is done."""


@pytest.mark.parametrize("case", [HOST_ORDER_IS_NOT_BY_USE, CANCELLED_COPIES_SETTLE])
def test_what_was_taken_for_a_fault_once_is_lawful(case: Case) -> None:
    """A lawful choice that a law once reported wrongly breaks no law."""
    assert play(case, [load_adapter("variant")])[0] == []
