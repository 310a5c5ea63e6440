"""Request caches: lawful ones pass every case, and planted faults are found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from hash_blocks import ADAPTER as HASH_BLOCKS
from hash_blocks import DUPLICATING
from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.client import Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.exact_actions import exact_action
from kvcanon.conformance.cases.request_client import RequestClient, act_by_requests
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds, Tally
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, make_request_subject
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.errors import CacheBusy, CacheError, OutOfSlots
from kvcanon.spec.law import LAWS
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Namespace, make_key
from nights import at_night
from serving import (
    AnnouncesRefused,
    AnnouncesWhatLeft,
    BoastsOfRoom,
    ChildrenLast,
    Compacting,
    EndsTwice,
    EvictsMoreThanItSays,
    EvictsNothing,
    Expiring,
    ForgetsNamespaces,
    KeepsWhatWasAborted,
    LeaksOnAbort,
    LetsGoAtOnce,
    LosesLastPage,
    RemembersAfterReset,
    ReusesTooMuch,
    SeenTwice,
    ServingCache,
    SharesSlots,
    ShortTables,
    SilentReset,
    SwallowsEvents,
    TurnsTables,
)

BLACK_BOX = JudgeConfig(black_box=True)


def adapter_of(make: type[ServingCache]) -> Adapter:
    """Return the adapter of a request cache."""
    return Adapter(make.__name__, make, kind=CacheKind.REQUEST)


class Blind(ServingCache):
    """A cache without optional methods."""

    evict = None  # type: ignore[assignment]
    reset = None  # type: ignore[assignment]
    take_events = None  # type: ignore[assignment]
    snapshot = None  # type: ignore[assignment]
    read = None  # type: ignore[assignment]
    write = None  # type: ignore[assignment]


def played(
    make: type[ServingCache], judges: JudgeConfig, cases: int
) -> Iterator[tuple[list[Finding], Tally]]:
    """Play cases of consecutive seeds; of each the findings, and the laws that were exercised."""
    adapter = adapter_of(make)
    for seed in range(cases):
        found, tallies = play(draw_case(seed, adapter.offer, kind=adapter.kind), [adapter], judges)
        yield found, tallies[adapter.name]


def campaign(
    make: type[ServingCache], judges: JudgeConfig, cases: int
) -> tuple[list[Finding], Tally]:
    """Return the findings in cases of consecutive seeds, and the laws that were exercised."""
    findings, total = list[Finding](), Tally()
    for found, tally in played(make, judges, cases):
        findings += found
        total.add(tally)
    return findings, total


def finds(make: type[ServingCache], law_id: str, cases: int) -> bool:
    """Whether a case breaks a law, from outside; none is played after it."""
    return any(
        law_id in finding.broken for found, _ in played(make, BLACK_BOX, cases) for finding in found
    )


@pytest.mark.parametrize("judges", [JudgeConfig(), BLACK_BOX], ids=["whole", "black box"])
@pytest.mark.parametrize("make", [Blind, *at_night(ServingCache)])
def test_lawful_cache_has_no_findings(make: type[ServingCache], judges: JudgeConfig) -> None:
    """A lawful cache passes in every configuration, with and without its state."""
    findings, total = campaign(make, judges, cases=250)
    assert not findings, findings[0].words
    assert total.steps > 4000
    assert total.laws["MATCH-2"] > 100


def test_another_lawful_cache_has_no_findings() -> None:
    """A lawful cache that chooses differently from the plain one passes."""
    total = Tally()
    for seed in range(250):
        found, tallies = play(
            draw_case(seed, HASH_BLOCKS.offer, kind=HASH_BLOCKS.kind), [HASH_BLOCKS], BLACK_BOX
        )
        assert not found, found[0].words
        total.add(tallies[HASH_BLOCKS.name])
    for law_id in ("MATCH-3", "MATCH-6", "EVENT-4", "EVENT-12", "LOCK-4", "EVICT-1", "REFUSE-1"):
        assert total.laws[law_id], law_id


@pytest.mark.parametrize(
    ("make", "profile"),
    [
        (Expiring, Profile(retention=Choosing.OWN)),
        (SeenTwice, Profile(admission=Choosing.OWN)),
        (Compacting, Profile(placement=Choosing.OWN)),
    ],
)
def test_a_choice_that_is_declared_is_no_fault(make: type[ServingCache], profile: Profile) -> None:
    """A lawful cache that chooses for itself has no findings where it declares so, and some else.

    Its block tables and refusals are judged all the same.
    """
    bare = type(make.__name__, (make,), dict.fromkeys(("snapshot", "take_events")))
    declared = evolve(adapter_of(bare), profile=profile)
    total, accused = Tally(), set[str]()
    for seed in range(120):
        case = draw_case(seed, declared.offer, kind=declared.kind)
        found, tallies = play(case, [declared], BLACK_BOX)
        assert not found, found[0].words
        total.add(tallies[declared.name])
        if not accused:
            accused |= {each.name for each in play(case, [adapter_of(bare)], BLACK_BOX)[0]}
    assert accused
    assert total.laws["ALLOC-5"]
    assert bool(total.laws["MATCH-6"]) == (make is Compacting)


@pytest.mark.nightly
def test_pages_without_a_beginning_are_found() -> None:
    """A store of a page whose parent was removed is reported."""
    spoken = set[str]()
    for seed in range(600):
        found, _ = play(
            draw_case(seed, DUPLICATING.offer, kind=DUPLICATING.kind), [DUPLICATING], BLACK_BOX
        )
        spoken.update(each.name for each in found)
    assert "EVENT-1" in spoken


def test_what_is_not_shown_is_not_judged() -> None:
    """Laws that are not checked are not counted as exercised."""
    _, total = campaign(Blind, JudgeConfig(), cases=20)
    assert total.laws["MATCH-1"]
    assert not total.laws["EVENT-4"]
    assert not total.laws["DATA-1"]
    assert not total.laws["TREE-1"]


FAULTS = [
    (ForgetsNamespaces, "MATCH-1"),
    (ReusesTooMuch, "MATCH-2"),
    (SharesSlots, "ALLOC-1"),
    (KeepsWhatWasAborted, "MATCH-3"),
    (KeepsWhatWasAborted, "DATA-1"),
    (LosesLastPage, "MATCH-6"),
    (SwallowsEvents, "EVENT-4"),
    (LeaksOnAbort, "REFUSE-1"),
    (EndsTwice, "LOCK-10"),
    (TurnsTables, "MATCH-3"),
    (LetsGoAtOnce, "LOCK-4"),
    (ShortTables, "ALLOC-5"),
    (ChildrenLast, "EVENT-12"),
    (SilentReset, "EVENT-8"),
    (RemembersAfterReset, "ALLOC-7"),
    (EvictsNothing, "EVICT-1"),
    (BoastsOfRoom, "ALLOC-3"),
    (AnnouncesWhatLeft, "EVENT-10"),
    (AnnouncesRefused, "EVENT-5"),
]


@pytest.mark.parametrize(
    ("make", "law_id"), FAULTS, ids=[f"{make.__name__} {law_id}" for make, law_id in FAULTS]
)
def test_fault_is_found(make: type[ServingCache], law_id: str) -> None:
    """Each planted fault is found, under its law."""
    assert finds(make, law_id, cases=150)


class ChildrenLastUnseen(ChildrenLast):
    """The same cache, without snapshots."""

    snapshot = None  # type: ignore[assignment]


def test_declared_order_of_removes_is_not_accused() -> None:
    """A cache whose profile removes a node's pages in any order passes."""
    profile = Profile(removes_end_first=False)
    plain = adapter_of(ChildrenLastUnseen)
    declared = evolve(plain, profile=profile)
    for seed in range(60):
        found, _ = play(draw_case(seed, declared.offer, kind=declared.kind), [declared], BLACK_BOX)
        assert not found, found[0].words


class BlindToNamespaces(ForgetsNamespaces):
    """The same fault, in a cache without optional methods."""

    evict = None  # type: ignore[assignment]
    reset = None  # type: ignore[assignment]
    take_events = None  # type: ignore[assignment]
    read = None  # type: ignore[assignment]
    write = None  # type: ignore[assignment]


def test_block_tables_alone_show_shared_namespaces() -> None:
    """Pages of another namespace are found without events and bytes, too."""
    findings, _ = campaign(BlindToNamespaces, BLACK_BOX, cases=150)
    assert {finding.name for finding in findings} <= {"MATCH-1", "MATCH-3", "ALLOC-1"}
    assert any(finding.name == "MATCH-1" for finding in findings)


def test_finding_tells_the_call_and_the_law() -> None:
    """A finding names the call, the law and what is wrong."""
    (finding, *_), _ = campaign(ReusesTooMuch, BLACK_BOX, cases=5)
    assert finding.grounds is Grounds.LAW
    assert "admit of request" in finding.words
    assert "no request has computed" in finding.words
    assert "The law: " in finding.words


class AnswersNothing(ServingCache):
    """A cache whose answer has a wrong type."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        super().admit(request_id, key)
        return None  # type: ignore[return-value]


def test_nonsense_is_a_finding() -> None:
    """An answer of a wrong type is a finding."""
    findings, _ = campaign(AnswersNothing, BLACK_BOX, cases=5)
    assert findings
    assert {finding.name for finding in findings} == {"REFUSE-4"}
    assert findings[0].text == "admit answered None; it must be an Admitted"


class RefusesReset(ServingCache):
    """A cache that refuses every reset."""

    def reset(self) -> None:
        raise CacheBusy(0)


class RefusesTooSoon(ServingCache):
    """A cache that admits no request when half of its slots are held."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        if 2 * len(key) > self.config.device_slots.full:
            raise OutOfSlots("full on GPU", len(key), 0)
        return super().admit(request_id, key)


class CannotFinish(ServingCache):
    """A cache that refuses every finish."""

    def finish(self, request_id: RequestId) -> None:
        raise CacheBusy(1)


@pytest.mark.parametrize("make", [RefusesReset, RefusesTooSoon, CannotFinish])
def test_refusal_without_reason_is_found(make: type[ServingCache]) -> None:
    """A refusal without a reason is reported."""
    assert finds(make, "REFUSE-1", cases=100)


class LosesASlot(ServingCache):
    """A cache whose snapshots lack a free slot."""

    def snapshot(self) -> Snapshot:
        state = super().snapshot()
        pools = {name: evolve(pool, free=pool.free[1:]) for name, pool in state.pools.items()}
        return evolve(state, pools=pools)


def test_state_is_judged_where_it_is_shown() -> None:
    """The laws of states are checked of a request cache with snapshots."""
    findings, _ = campaign(LosesASlot, JudgeConfig(), cases=5)
    assert {finding.name.partition("-")[0] for finding in findings} == {"ALLOC"}
    assert not campaign(LosesASlot, BLACK_BOX, cases=5)[0]


def test_all_actions_are_total() -> None:
    """Every action can be done on a request cache."""
    config = CacheConfig(device_slots=Counts(full=8))
    picks = [(0, 0, 0), (1, 2, 3), (4095, 4095, 4095)]
    actions = tuple(Action(name, *three) for three in picks for name in ACTIONS)
    found, tallies = play(Case(config, actions), [adapter_of(ServingCache)])
    assert not found
    assert tallies["ServingCache"].actions == len(actions)


def client_of(make: type[ServingCache], config: CacheConfig) -> RequestClient:
    """Return a client of a new cache."""
    subject = make_request_subject(adapter_of(make), config)
    return RequestClient(subject.cache, subject.can, Stamps(config.slot_bytes))


def test_drain_asks_for_the_whole_pool() -> None:
    """The drain reports a single leaked slot."""
    config = CacheConfig(device_slots=Counts(full=8))
    leaking, tight = client_of(LeaksOnAbort, config), client_of(ServingCache, config)
    for client in (leaking, tight):
        client.admit(make_key([1, 2, 3], 1))
    tight.drain(())
    with pytest.raises(CacheError):
        leaking.drain(())


def test_an_eviction_takes_pages_from_the_end_of_a_prompt() -> None:
    """A finished prompt is found after an eviction, but for as many pages as that freed."""
    actions = (
        exact_action("allocate_exactly", (0, 1, 2)),
        Action("finish"),
        Action("evict_exactly", 1),
        exact_action("allocate_exactly", (0, 1, 2)),
    )
    case = Case(CacheConfig(device_slots=Counts(full=8)), actions)
    assert not play(case, [adapter_of(ServingCache)], BLACK_BOX)[0]
    (found,) = play(case, [adapter_of(EvictsMoreThanItSays)], BLACK_BOX)[0]
    assert found.name == "MATCH-6"
    assert "without those that evictions freed since" in found.text


def test_request_is_extended_only_to_a_longer_key() -> None:
    """A case whose keys were made smaller extends no request to a key that its own does not begin.

    No engine makes that call, and a sound cache would break a law by it.
    """
    config = CacheConfig(device_slots=Counts(full=8))
    for letters, namespace, pages in (
        ((0, 1, 2), 0, 3),
        ((0,), 0, 2),
        ((), 0, 2),
        ((0, 1), 0, 2),
        ((0, 2, 1), 0, 2),
        ((0, 1, 2), 1, 2),
    ):
        client = client_of(ServingCache, config)
        for action in (
            exact_action("allocate_exactly", (0, 1)),
            exact_action("extend_exactly", letters, namespace),
        ):
            act_by_requests(client, action.name, action.a, action.b, action.c)
        (key,) = client.running.values()
        assert len(key) == pages


def test_whole_request_is_found_again() -> None:
    """A finished prompt is reused by the next request where slots were never short."""
    client = client_of(ServingCache, CacheConfig(device_slots=Counts(full=8)))
    key = make_key([1, 2, 3], 1)
    client.end(client.admit(key), client.cache.finish)
    assert client.cache.admit(7, key).reused_pages == 3
    other = Key(key.pages, Namespace(lora="a"))
    assert client.cache.admit(8, other).reused_pages == 0


def test_every_law_that_is_judged_is_in_the_book() -> None:
    """Every law that is checked is in `LAWS`."""
    _, total = campaign(ServingCache, BLACK_BOX, cases=30)
    assert set(total.laws) <= set(LAWS)
