"""The guard: it finds what is wrong, says so, and is otherwise a cache like the one it wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest
from attrs import evolve

from kvcanon.conformance.observe.guard import GuardedCache, StepViolation, guard
from kvcanon.conformance.observe.stamps import write_stamps
from kvcanon.reference import InlineEngine, ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError, OutOfSlots, SpecViolation
from kvcanon.spec.events import AllBlocksCleared, BlockStored
from kvcanon.spec.law import LAWS, SHAPE, Kind, Law, Level, Premise, Violation
from kvcanon.spec.operations import HostPayload, Match, Matched, Operation, Refused
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Slots,
    WritePolicy,
    make_key,
)
from kvcanon.spec.views import Step
from writing import WritesAnywhere, WritesLittle

CONFIG = CacheConfig(
    page_size=2,
    window_tokens=4,
    mamba=True,
    device_slots=Counts(16, 16, 4),
    host_slots=Counts(16, 16, 4),
    write_policy=WritePolicy.WRITE_THROUGH,
)
KEY = make_key([1, 2, 3, 4, 5, 6], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6, 7, 8], 2)
OTHER = make_key([1, 2, 9, 9], 2)


def reference(config: CacheConfig = CONFIG) -> ReferenceCache:
    """A plain cache whose copies are done when somebody polls."""
    return ReferenceCache(config, InlineEngine())


def serve(cache: Cache, key: Key, *, write: bool = True) -> None:
    """What an engine does for one request."""
    matched = cache.match(key)
    receipt = cache.lock(key.prefix(matched.device_pages))
    missing = len(key) - matched.device_pages
    slots = cache.allocate(Counts(missing, missing, 1))
    if write:
        write_stamps(cache, key, slots)
    cache.insert(key, matched.device_pages, slots)
    cache.unlock(receipt)
    cache.poll()


def asking(check: Callable[[Step], Iterator[str]]) -> Law:
    """A law of a test's own, which is not in the book."""
    always = Premise[Step]("anything", lambda _: True)
    return Law(
        "TEST-1", Kind.STEP, always, Level.MUST, frozenset(), "asking", "A.", "B", "C", check
    )


class Script:
    """Stands for the guard's dice: judges where a test says so."""

    def __init__(self, judged: Sequence[bool]) -> None:
        self._judged = list(judged)

    def random(self) -> float:
        """Below the rate where the next operation is to be judged."""
        return 0.0 if self._judged.pop(0) else 1.0


def scripted(cache: Cache, *judged: bool) -> GuardedCache:
    """A guard that judges the operations that a test says."""
    guarded = guard(cache, rate=0.5)
    guarded._random = Script(judged)  # type: ignore[assignment]
    return guarded


# A sound cache.


def test_guard_of_a_sound_cache_is_silent() -> None:
    """A cache that obeys every law works under the guard as it does alone."""
    guarded: Cache = guard(reference())
    alone = reference()
    for cache in (guarded, alone):
        for key in (KEY, OTHER, LONGER, KEY):
            serve(cache, key)
        cache.evict(Counts(full=2))
        cache.load_back(KEY)
        cache.flush()
        cache.evict_host(Counts(full=1))
    assert guarded.take_events() == alone.take_events()
    assert guarded.snapshot() == alone.snapshot()
    assert guarded.config == CONFIG


def test_guard_counts_what_was_exercised() -> None:
    """A law counts where it was asked, though nothing came up that a cache could do wrong."""
    guarded = guard(reference())
    serve(guarded, KEY)
    assert guarded.steps == guarded.judged == 6
    # There is no node before the insert, and no event after the first but those of the insert.
    assert guarded.laws_exercised["TREE-1"] == 3
    assert guarded.laws_exercised["ALLOC-5"] == 1
    assert guarded.laws_exercised["MATCH-1"] == guarded.laws_exercised["EVICT-1"] == 0
    # Only a match that finds something written shows bytes.
    assert guarded.laws_exercised["DATA-1"] == 0
    guarded.match(KEY)
    assert guarded.laws_exercised["DATA-1"] == 1
    # Nobody says how copies end.
    assert LAWS.keys() - guarded.laws_exercised.keys() == {"ASYNC-10"}


def test_guard_counts_no_law_of_events_where_they_are_off() -> None:
    """A cache without events is not judged by them."""
    guarded = guard(reference(evolve(CONFIG, events=False)))
    serve(guarded, KEY)
    guarded.reset()
    exercised = {law_id for law_id, times in guarded.laws_exercised.items() if times}
    assert not any(law_id.startswith("EVENT") for law_id in exercised)
    assert "ALLOC-7" in exercised


# Faults.


def test_guard_names_law_and_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation says which law, in words, and after what."""
    match = ReferenceCache.match

    def talkative(self: ReferenceCache, key: Key) -> Matched:
        matched = match(self, key)
        self._state.events.append(AllBlocksCleared())
        return matched

    guarded = guard(reference())
    serve(guarded, KEY)
    monkeypatch.setattr(ReferenceCache, "match", talkative)
    with pytest.raises(SpecViolation) as caught:
        guarded.match(KEY)
    said = str(caught.value)
    assert "after operation 7, Match(key=<3 pages of Namespace(" in said
    assert "which was answered Matched(prefix_pages=3" in said
    assert "EVENT-5 silence: Match sent AllBlocksCleared" in said
    assert "The law: Operations that move no full data emit no events: matches, locks" in said
    assert "EVENT-4 stream_is_residency: the events are wrong about" in said
    assert isinstance(caught.value, StepViolation)
    assert {violation.law.law_id for violation in caught.value.violations} > {"EVENT-4", "EVENT-5"}
    assert caught.value.step.operation == Match(KEY)


def test_guard_passes_violations_on_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever collects violations gets all of them, and the answers of the cache."""
    found: list[tuple[str, Operation]] = []

    def collect(violation: Violation, step: Step) -> None:
        found.append((violation.law.law_id, step.operation))

    monkeypatch.setattr("kvcanon.reference.cache.emit_cleared", lambda state: None)
    guarded = guard(reference(), on_violation=collect)
    serve(guarded, KEY)
    guarded.flush()
    assert not found
    guarded.reset()
    assert ("EVENT-8", "Reset") in [(law_id, type(each).__name__) for law_id, each in found]
    count = len(found)
    assert guarded.match(KEY).prefix_pages == 0
    assert {law_id for law_id, _ in found[count:]} == {"EVENT-4"}


def test_guard_asks_only_the_laws_it_is_given() -> None:
    """A selection of laws is asked, and nothing else is reported but a broken shape."""
    refused = asking(lambda step: iter(["no"] if isinstance(step.outcome, Refused) else []))
    guarded = guard(reference(), laws=[refused])
    serve(guarded, KEY)
    assert guarded.laws_exercised == {"TEST-1": 6}
    with pytest.raises(StepViolation, match="TEST-1 asking: no"):
        guarded.allocate(Counts(full=17))


def test_guard_of_a_tree_without_shape_asks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws that walk the tree are not asked where there is none."""
    snapshot = ReferenceCache.snapshot

    def two_roots(self: ReferenceCache) -> Snapshot:
        state = snapshot(self)
        orphan = evolve(state.root, node_id=-1)
        return evolve(state, nodes={**state.nodes, -1: orphan})

    found: list[str] = []
    guarded = guard(reference(), on_violation=lambda broken, _: found.append(broken.law.law_id))
    monkeypatch.setattr(ReferenceCache, "snapshot", two_roots)
    guarded.match(KEY)
    guarded.match(KEY)
    assert "TREE-1" in found
    assert set(found) <= set(SHAPE)
    assert not any(guarded.laws_exercised.values())


def test_guard_that_knows_bytes_walks_on_no_broken_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that hangs on nothing makes the guard itself crash, and its law is not heard."""
    snapshot = ReferenceCache.snapshot

    def orphaned(self: ReferenceCache) -> Snapshot:
        state = snapshot(self)
        lost = next(state.below_root())
        nodes = {**state.nodes, lost.node_id: evolve(lost, parent_id=-1)}
        return evolve(state, nodes=nodes)

    guarded = guard(reference())
    serve(guarded, KEY)
    monkeypatch.setattr(ReferenceCache, "snapshot", orphaned)
    with pytest.raises(StepViolation, match="TREE-2"):
        guarded.match(KEY)


def test_guard_lets_other_errors_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is no refusal, and not the guard's to judge."""
    guarded = guard(reference())

    def crash(self: ReferenceCache) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceCache, "reset", crash)
        with pytest.raises(ZeroDivisionError):
            guarded.reset()
    serve(guarded, KEY)


# Refusals.


def test_guard_passes_a_refusal_through() -> None:
    """A refusal reaches the caller as the cache raised it, and counts as judged."""
    steps: list[Step] = []

    def note(step: Step) -> Iterator[str]:
        steps.append(step)
        return iter(())

    guarded = guard(reference(), laws=[asking(note), *LAWS.values()], thorough=True)
    with pytest.raises(OutOfSlots) as caught:
        guarded.allocate(Counts(full=17))
    assert steps[-1].outcome == Refused(caught.value)
    assert guarded.judged == 1


def test_guard_sees_a_refusal_that_changed_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused call leaves everything as it was, the events too."""

    def half_done(self: ReferenceCache, counts: Counts) -> Slots:
        self._state.events.append(AllBlocksCleared())
        raise OutOfSlots("full on GPU", 1, 0)

    monkeypatch.setattr(ReferenceCache, "allocate", half_done)
    with pytest.raises(SpecViolation, match="Allocate was refused and sent AllBlocksCleared"):
        guard(reference()).allocate(Counts(1))


# Sampling.


def judged_steps(seed: int, rate: float) -> list[Operation]:
    """The operations that a guard judges in a run of many."""
    judged: list[Operation] = []

    def note(step: Step) -> Iterator[str]:
        judged.append(step.operation)
        return iter(())

    guarded = guard(reference(), rate=rate, seed=seed, laws=[asking(note)], thorough=True)
    for tokens in range(40):
        guarded.match(make_key([tokens, tokens], 2))
    assert guarded.steps == 40
    assert guarded.judged == len(judged)
    return judged


def test_guard_draws_its_sample_from_the_seed() -> None:
    """The same seed judges the same steps; another seed others."""
    assert judged_steps(1, 0.5) == judged_steps(1, 0.5)
    assert judged_steps(1, 0.5) != judged_steps(2, 0.5)
    assert 5 < len(judged_steps(3, 0.5)) < 35


def test_guard_at_rate_one_judges_everything() -> None:
    """Every step is judged, and the state after one is the state before the next."""
    assert len(judged_steps(1, 1.0)) == 40


def test_guard_at_rate_zero_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that never judges takes no snapshot."""
    cache = reference()
    monkeypatch.setattr(ReferenceCache, "snapshot", lambda self: pytest.fail("a snapshot"))
    guarded = guard(cache, rate=0.0)
    serve(guarded, KEY)
    guarded.take_events()
    assert (guarded.steps, guarded.judged) == (7, 0)


def test_guard_takes_no_snapshot_of_steps_outside_the_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that is not judged costs a call and no more."""
    guarded = scripted(reference(), *[False] * 7)
    with monkeypatch.context() as patched:
        patched.setattr(ReferenceCache, "snapshot", lambda self: pytest.fail("a snapshot"))
        serve(guarded, KEY, write=False)
        guarded.take_events()
    assert guarded.judged == 0


# Events.


def test_guard_hears_events_of_steps_that_it_does_not_judge() -> None:
    """Events add up over steps outside the sample, taken or waiting."""
    guarded = scripted(
        reference(), *[False] * 6, True, False, *[False] * 6, True, *[False] * 7, True
    )
    serve(guarded, KEY)
    guarded.match(KEY)  # Judged: the events still wait, and are heard there.
    guarded.take_events()  # All of them were heard.
    serve(guarded, LONGER)
    guarded.take_events()  # Judged, with what came since.
    serve(guarded, OTHER)
    guarded.take_events()
    guarded.match(KEY)  # Judged, after events that are gone.
    assert guarded.judged == 3


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_guard_hears_each_event_once_at_any_rate(rate: float) -> None:
    """However the sample falls, no event is lost or heard twice."""
    for seed in range(3):
        guarded = guard(reference(), rate=rate, seed=seed)
        for at in range(30):
            guarded.evict(Counts(full=3 + at % 4, swa=3, mamba=1))
            serve(guarded, make_key([at % 3, at % 2, at % 5, 1, at % 7, 2], 2))
            if at % 3 == seed % 3:
                guarded.take_events()
        assert 0 < guarded.judged <= guarded.steps


def test_guard_says_what_was_broken_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation is not blamed for what one outside the sample did."""
    guarded = scripted(reference(), *[False] * 6, True)
    with monkeypatch.context() as patched:
        patched.setattr("kvcanon.reference.insert.emit_stored", lambda *_: None)
        serve(guarded, KEY)
    with pytest.raises(SpecViolation) as caught:
        guarded.match(KEY)
    said = str(caught.value)
    assert "EVENT-4" in said
    assert "broken before, by an operation that was not judged" in said


def test_guard_of_a_cache_that_is_at_work_already() -> None:
    """Whoever puts a cache under guard later starts from what is there."""
    cache = reference()
    serve(cache, KEY)
    cache.take_events()
    serve(cache, LONGER)
    guarded = guard(cache)
    serve(guarded, OTHER)
    guarded.take_events()
    serve(guarded, LONGER)


def test_guard_hears_a_new_cache_from_its_birth() -> None:
    """Of a cache whose first event still waits, every event is judged."""
    cache = reference()
    serve(cache, KEY)
    (store,) = [e for e in cache._state.events if isinstance(e, BlockStored)][:1]
    cache._state.events.remove(store)
    with pytest.raises(SpecViolation, match="EVENT-4"):
        guard(cache).match(KEY)


# Bytes.


def read_all(cache: Cache, key: Key) -> list[bytes]:
    """What is behind the full slots that a match returns."""
    return [cache.read(FULL, GPU, slot) for slot in cache.match(key).slots.full]


def spoil(cache: ReferenceCache, key: Key, component: Component = FULL) -> None:
    """Put other bytes behind the first slot that a match returns."""
    slot = cache.match(key).slots[component][0]
    cache._state.pools[component, GPU].payloads[slot] = b"\xff" * CONFIG.slot_bytes


@pytest.mark.parametrize("component", [FULL, SWA, MAMBA])
def test_guard_sees_wrong_bytes(component: Component) -> None:
    """What a match returns holds what was written for its page."""
    cache = reference()
    guarded = guard(cache)
    serve(guarded, KEY)
    guarded.match(KEY)
    spoil(cache, KEY, component)
    page = {FULL: 0, SWA: 0, MAMBA: 2}[component]
    with pytest.raises(
        SpecViolation, match=rf"DATA-1 .*page {page} of the key is in {component} slot .*ffffffff"
    ):
        guarded.match(KEY)


def test_guard_follows_bytes_to_the_host_and_back() -> None:
    """A page that was demoted and loaded again has its bytes, or is reported."""
    for spoiled in (False, True):
        cache = reference()
        guarded = guard(cache)
        serve(guarded, KEY)
        written = read_all(guarded, KEY)
        guarded.evict(Counts(full=16))
        assert guarded.match(KEY).device_pages == 0
        if spoiled:
            payloads = cache._state.pools[FULL, CPU].payloads
            payloads.update(dict.fromkeys(payloads, b"\x00" * 8))
        guarded.load_back(KEY)
        guarded.flush()
        if spoiled:
            with pytest.raises(SpecViolation, match="DATA-1"):
                guarded.match(KEY)
        else:
            assert read_all(guarded, KEY) == written


def test_guard_follows_bytes_through_steps_that_it_does_not_judge() -> None:
    """What was written and inserted outside the sample is known all the same."""
    cache = reference()
    guarded = scripted(cache, *[False] * 12, True, True)
    serve(guarded, OTHER)
    serve(guarded, KEY)
    guarded.match(KEY)
    spoil(cache, KEY)
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_expects_the_bytes_that_the_tree_kept() -> None:
    """Slots of pages that were there already are freed with their bytes."""
    cache = reference(evolve(CONFIG, window_tokens=None, mamba=False))
    guarded = guard(cache)
    both = [guarded.allocate(Counts(full=3)) for _ in range(2)]
    for fill, slots in zip((b"a", b"b"), both, strict=True):
        for slot in slots.full:
            guarded.write(FULL, slot, fill * 8)
    for slots in both:
        guarded.insert(KEY, 0, slots)
    assert read_all(guarded, KEY) == [b"a" * 8] * 3
    for slot in guarded.match(KEY).slots.full:
        cache._state.pools[FULL, GPU].payloads[slot] = b"b" * 8
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_does_not_compare_what_nobody_was_seen_writing() -> None:
    """Pages from before the guard, or whose slots were not written, have unknown bytes."""
    cache = reference()
    serve(cache, KEY)
    guarded = guard(cache)
    serve(guarded, OTHER)
    spoil(cache, KEY)
    guarded.match(KEY)
    serve(guarded, make_key([7, 7, 7, 7], 2), write=False)
    serve(guarded, make_key([7, 7, 7, 7], 2))
    guarded.match(make_key([7, 7, 7, 7], 2))
    serve(guarded, LONGER)
    assert guarded.match(LONGER).device_pages == 4


def test_guard_expects_fetched_bytes() -> None:
    """Bytes that came from storage are those of their pages."""
    for spoiled in (False, True):
        cache = reference()
        guarded = guard(cache)
        serve(guarded, OTHER)
        payload = HostPayload((b"1" * 8, b"2" * 8, b"3" * 8), (b"4" * 8, b"5" * 8), (b"6" * 8,))
        elsewhere = Key(KEY.pages, Namespace("elsewhere"))
        guarded.insert_host(elsewhere, 0, payload)
        if spoiled:
            (slot,) = [s for s, b in cache._state.pools[SWA, CPU].payloads.items() if b[:1] == b"5"]
            cache._state.pools[SWA, CPU].payloads[slot] = b"4" * 8
        guarded.load_back(elsewhere)
        guarded.flush()
        if spoiled:
            with pytest.raises(SpecViolation, match="in swa slot"):
                guarded.match(elsewhere)
        else:
            assert read_all(guarded, elsewhere) == [b"1" * 8, b"2" * 8, b"3" * 8]


def test_guard_forgets_what_left_the_tree() -> None:
    """A page that comes again after it left, or after a reset, may have other bytes."""
    cache = reference(evolve(CONFIG, window_tokens=None, mamba=False))
    guarded = guard(cache)

    def insert(fill: bytes) -> None:
        slots = guarded.allocate(Counts(full=3))
        for slot in slots.full:
            guarded.write(FULL, slot, fill * 8)
        guarded.insert(KEY, 0, slots)
        guarded.flush()

    def drop() -> None:
        guarded.evict(Counts(full=16))
        guarded.evict_host(Counts(full=16))

    for fill, leave in ((b"a", drop), (b"b", guarded.reset), (b"c", drop), (b"d", drop)):
        insert(fill)
        assert read_all(guarded, KEY) == [fill * 8] * 3
        assert len(guarded._ledger._pages) == 3
        leave()
        assert len(guarded._ledger._pages) == 0
    insert(b"e")
    for slot in guarded.match(KEY).slots.full:
        cache._state.pools[FULL, GPU].payloads[slot] = b"d" * 8
    with pytest.raises(SpecViolation, match="DATA-1"):
        guarded.match(KEY)


def test_guard_keeps_no_more_bytes_than_the_tree_has() -> None:
    """What left outside the sample is forgotten before the ledger grows without end."""
    pools = Counts(full=64)
    config = CacheConfig(device_slots=pools)
    cache = reference(config)
    guarded = guard(cache, rate=0.05, seed=3)
    for at in range(400):
        key = make_key(range(at * 40, at * 40 + 32), 1)
        guarded.evict(Counts(full=32))
        slots = guarded.allocate(Counts(full=32))
        write_stamps(guarded, key, slots)
        guarded.insert(key, 0, slots)
        guarded.match(key)
    assert len(guarded._ledger._pages) < 4000
    assert not guarded._ledger._slots


def test_guard_forgets_slots_that_were_given_back() -> None:
    """Bytes in a slot that was freed are nobody's, whoever gets the slot next."""
    guarded = guard(reference())
    slots = guarded.allocate(Counts(full=3, swa=3))
    write_stamps(guarded, OTHER, Slots(slots.full[:2]))
    guarded.free(slots)
    serve(guarded, KEY, write=False)
    guarded.match(KEY)


def test_guard_follows_no_bytes_where_it_never_judges() -> None:
    """A guard that judges nothing remembers nothing."""
    guarded = guard(reference(), rate=0.0)
    serve(guarded, KEY)
    assert not guarded._ledger._pages
    with pytest.raises(CacheError):
        guarded.write(FULL, 0, b"x" * 8)


def test_guard_works_with_copies_that_come_late_and_fail() -> None:
    """Copies in flight, their failures and cancellations pass through the guard like all else."""
    engine = ManualEngine()
    guarded = guard(ReferenceCache(CONFIG, engine))
    serve(guarded, KEY)
    first, *_ = engine.open_orders
    serve(guarded, LONGER)
    engine.fail(first.transfer_id)
    guarded.poll()
    guarded.flush()
    guarded.match(LONGER)


SLOT_BYTES = bytes(CONFIG.slot_bytes)


@pytest.mark.parametrize(
    ("law_id", "make", "access"),
    [
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.write(FULL, 9, SLOT_BYTES)),
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.write(FULL, 0, SLOT_BYTES[1:])),
        ("REFUSE-3", WritesAnywhere, lambda cache: cache.read(FULL, CPU, -1)),
        ("REFUSE-1", WritesLittle, lambda cache: cache.write(FULL, 0, SLOT_BYTES)),
        ("REFUSE-1", WritesLittle, lambda cache: cache.read(SWA, GPU, 1)),
    ],
)
def test_reads_and_writes_are_judged_by_the_table_of_refusals(
    law_id: str, make: type[ReferenceCache], access: Callable[[Cache], object]
) -> None:
    """A write behind nobody's slot goes through, or one behind a held slot is refused."""
    for cache_of, heard in ((ReferenceCache, set[str]()), (make, {law_id})):
        found: list[str] = []

        def hear(violation: Violation, _: Step, found: list[str] = found) -> None:
            found.append(violation.law.law_id)

        cache = guard(cache_of(CONFIG, InlineEngine()), on_violation=hear)
        assert cache.allocate(Counts(1, 1)).full == (0,)
        with suppress(CacheError):
            access(cache)
        assert set(found) == heard
