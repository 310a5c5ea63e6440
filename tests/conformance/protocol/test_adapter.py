"""Adapters: the judge checks what they declare, and distinguishes usage errors from findings."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    Capability,
    Offer,
    Unoffered,
    make_request_subject,
    make_subject,
    why_no_engine,
)
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.tree import ESSENTIAL, TreeCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import Counts, WritePolicy
from serving import ADAPTER as SERVING
from serving import ServingCache

CONFIG = CacheConfig(device_slots=Counts(full=8))
REFERENCE = Adapter("reference", ReferenceCache)


def fault_of(adapter: Adapter) -> str:
    """Return the usage error for an adapter whose cache cannot be judged."""
    with pytest.raises(UsageError) as fault:
        make_subject(adapter, CONFIG)
    assert "\n" not in str(fault.value)
    return str(fault.value)


def raising(_config: CacheConfig) -> TreeCache:
    """A factory that fails."""
    raise ZeroDivisionError("no slots")


def test_factory_that_raises_is_a_fault_in_one_line() -> None:
    """An error in a factory is reported in one line that names its file and line."""
    said = fault_of(Adapter("mine", raising))
    assert said.startswith("mine made no cache: ZeroDivisionError: no slots (test_adapter.py:")
    assert "raise BadArgument" in said


def test_factory_may_not_offer_a_configuration() -> None:
    """A configuration that is not offered is skipped, and is not a crash."""

    def refusing(config: CacheConfig) -> TreeCache:
        raise BadArgument("config", "has a host tier")

    with pytest.raises(Unoffered, match="has a host tier"):
        make_subject(Adapter("mine", refusing), CONFIG)


def test_unoffered_case_is_counted_and_no_finding() -> None:
    """A case that one cache does not offer is counted as not offered, and played by the others."""

    def refusing(config: CacheConfig) -> TreeCache:
        raise BadArgument("config", "is too small")

    case = Case(CONFIG, (Action("serve"),))
    found, tallies = play(case, [Adapter("mine", refusing), REFERENCE])
    assert not found
    assert (tallies["mine"].unoffered, tallies["mine"].cases) == (1, 0)
    assert (tallies["reference"].unoffered, tallies["reference"].cases) == (0, 1)
    assert tallies["reference"].steps
    total = tallies["mine"]
    total.add(tallies["mine"])
    assert (total.unoffered, total.declined) == (2, 2)


def test_only_what_the_factory_refuses_is_declined() -> None:
    """A case that the judge cannot play on ranks is not offered, but not by the factory."""
    case = Case(evolve(CONFIG, host_slots=Counts(), write_policy=WritePolicy.NONE), (), ranks=2)
    _, tallies = play(case, [REFERENCE], JudgeConfig(ranks=2))
    assert (tallies["reference"].unoffered, tallies["reference"].declined) == (1, 0)


def test_a_factory_that_takes_anything_is_told_why_it_got_no_engine() -> None:
    """What `**kwargs` are for is not known; a factory that names `engine` gets one."""

    def anything(config: CacheConfig, **more: object) -> TreeCache:
        assert not more
        return ReferenceCache(config)

    def named(config: CacheConfig, engine: TransferEngine | None = None, **_: object) -> TreeCache:
        return ReferenceCache(config, engine=engine)

    mine = Adapter("mine", anything)
    assert make_subject(mine, CONFIG).copies is None
    assert "takes **more, and names no `engine`" in why_no_engine(mine)
    assert not why_no_engine(Adapter("named", named))
    assert not why_no_engine(Adapter("plain", ReferenceCache))


def test_model_that_does_not_offer_leaves_the_others_alone() -> None:
    """A case that the cache to agree with does not offer is not compared."""

    def refusing(config: CacheConfig) -> TreeCache:
        raise BadArgument("config", "is too small")

    case = Case(CONFIG, (Action("serve"),))
    found, tallies = play(case, [REFERENCE], against=Adapter("model", refusing))
    assert not found
    assert tallies["model"].unoffered == 1
    assert tallies["reference"].steps


class Half:
    """A cache with some of the methods."""

    config = CONFIG

    def match(self) -> None:
        """Find nothing."""

    lock = unlock = match


def test_what_a_cache_lacks_is_named() -> None:
    """A cache that lacks a method is refused by name before its first call."""
    said = fault_of(Adapter("mine", lambda _: Half()))  # type: ignore[arg-type,return-value]
    assert "mine made a Half, which lacks allocate, free, insert;" in said
    assert "a cache of CacheKind.TREE has match, lock, unlock" in said


def test_six_methods_are_essential() -> None:
    """The methods that the judge requires are those of the protocol."""
    assert ESSENTIAL == ("match", "lock", "unlock", "allocate", "free", "insert")
    beyond = {name for name in vars(Cache) if not name.startswith("_")} - {"config", *ESSENTIAL}
    assert {each.value for each in Capability} == beyond


def test_config_must_be_what_was_asked_for() -> None:
    """A cache with another configuration than it was given is refused."""
    said = fault_of(Adapter("mine", lambda _: ReferenceCache(CacheConfig(page_size=3))))
    assert "`config` is not what was asked for" in said


def test_profile_of_snapshots_must_be_the_declared_one() -> None:
    """An adapter whose profile is not that of its snapshots is refused."""
    declared = Profile(split_keeps_recency=False)
    said = fault_of(Adapter("mine", ReferenceCache, profile=declared))
    assert "split_keeps_recency is True, not False" in said


def test_snapshot_that_raises_is_a_fault_in_one_line() -> None:
    """A cache whose snapshot fails is refused in one line."""

    class NoSnapshot(ReferenceCache):
        def snapshot(self):  # type: ignore[no-untyped-def] # noqa: ANN202
            raise KeyError("recency")

    said = fault_of(Adapter("mine", NoSnapshot))
    assert "snapshot of a new cache raised KeyError: 'recency'" in said


def test_capabilities_are_declared_by_being_there() -> None:
    """Laws whose needs a cache lacks or hides are not checked."""

    class Quiet(ReferenceCache):
        take_events = None  # type: ignore[assignment]

    subject = make_subject(Adapter("mine", Quiet, hides=frozenset({Need.RECENCY})), CONFIG)
    assert Capability.TAKE_EVENTS not in subject.can
    assert Capability.EVICT in subject.can
    assert Need.EVENTS not in subject.shows
    assert Need.RECENCY not in subject.shows
    assert Need.BYTES in subject.shows


def test_factory_with_an_engine_leaves_its_copies_to_the_judge() -> None:
    """A cache that takes an engine gets one whose copies the judge controls."""
    engines: list[TransferEngine | None] = []

    def make(config: CacheConfig, engine: TransferEngine | None = None) -> ReferenceCache:
        engines.append(engine)
        return ReferenceCache(config, engine)

    def make_alone(config: CacheConfig) -> ReferenceCache:
        return make(config)

    left: object = make_subject(Adapter("mine", make), CONFIG).copies
    assert left is engines[0] is not None
    assert make_subject(Adapter("mine", make_alone), CONFIG).copies is None


def test_kinds_are_not_mixed_up() -> None:
    """A request cache that is used as a tree is refused with a clear error."""
    with pytest.raises(UsageError, match="is used by requests"):
        make_subject(SERVING, CONFIG)
    with pytest.raises(UsageError, match="is used by prefixes"):
        make_request_subject(REFERENCE, CONFIG)
    tree_as_requests = Adapter("mine", ReferenceCache, kind=CacheKind.REQUEST)
    with pytest.raises(UsageError, match="lacks admit, extend, finish, abort"):
        make_request_subject(tree_as_requests, CONFIG)


def test_caches_of_requests_are_not_compared() -> None:
    """Request caches are not compared with other caches."""
    case = Case(CONFIG, (Action("serve"),))
    for one, other in ((SERVING, REFERENCE), (REFERENCE, SERVING)):
        with pytest.raises(UsageError, match="request caches cannot be compared"):
            play(case, [one], against=other)


def test_adapters_of_requests_are_found_by_name() -> None:
    """A name may lead to an adapter or to a factory."""
    assert load_adapter("serving:ADAPTER") is SERVING
    assert load_adapter("serving:ServingCache").make is ServingCache


def test_unknown_name_says_what_there_is() -> None:
    """An unknown name of a cache is refused, and the error lists the known ones."""
    with pytest.raises(UsageError, match=r"package\.module:factory, or a child process as pipe:"):
        load_adapter("nothing like it")


@pytest.mark.nightly
def test_agreement_is_asked_of_what_both_can() -> None:
    """Caches are compared by operations that both have."""
    lacking = ("unlock_window", "flush", "reset", "take_events", "read", "write", "evict_host")
    make = type("Fewer", (ReferenceCache,), dict.fromkeys(lacking))
    fewer = Adapter("fewer", make, Offer(namespaces=False))
    for seed in range(40):
        found, _ = play(draw_case(seed, fewer.offer), [fewer], against=REFERENCE)
        assert not found, found[0].words
