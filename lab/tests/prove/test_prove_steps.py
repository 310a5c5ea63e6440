"""The proved steps are those of the plain cache: each operation is compared with its step.

A page is a node here, so that cuts do not matter. For each operation of random cases, the premise
of its step holds for the state before, and the step's result holds for the state after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.lab.mutants.kill_matrix import NO_LAWS
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.lab.prove.steps.locks import cover, minus
from kvcanon.lab.variants.override import overriding
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import (
    Evict,
    EvictHost,
    Flush,
    Insert,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Lock,
    Operation,
    Poll,
    Settled,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import HoldState, Snapshot
from kvcanon.spec.transfer import TransferEngine, TransferStatus
from kvcanon.spec.types import CPU, GPU, Key, Medium, WritePolicy
from stepping import SPAN, Seen, deepest_first, less

CASES = range(80)

OFFER = Offer(
    write_policies=(
        WritePolicy.NONE,
        WritePolicy.WRITE_THROUGH,
        WritePolicy.WRITE_THROUGH_SELECTIVE,
    )
)
"""Under write_back a host copy may lack a copy of its parent; these steps do not cover it."""

SEEN = (
    "insert_grounds_device",
    "load_back_grounds_device",
    "eviction_grounds_device",
    "host_eviction_grounds_host",
    "backup_grounds_host",
    "host_insert_grounds_host",
    "copies_are_enqueued_root_first",
    "ended_copy_stands_on_what_arrived",
    "failed_copy_leaves_nothing_on_it",
    "lock_keeps_order",
    "early_release_keeps_order",
)
"""The steps that operations are. Cuts, and slots that change hands, are no operations."""

FAULTY_CASES = range(800)
"""As many cases as the rarest of these faults may need."""
FAULTY = (
    "backed_nodes_leave_before_their_children",
    "load_starts_below_its_anchor",
    "fetched_pages_hang_on_anything",
    "evict_locked_leaves",
    "release_walks_to_the_root",
)
"""Faults of the plain cache that make an operation differ from its step."""


def compare_insert(seen: Seen, key: Key) -> None:
    """An insert puts full data on the device along the whole path."""
    pages = seen.pages
    if key.pages:
        device = seen.step(
            "insert_grounds_device",
            pages.parents,
            pages.there(seen.before, GPU),
            pages.pending(seen.before, GPU),
            pages.end_of(key),
        )
        assert device == pages.there(seen.after, GPU)
    compare_enqueued(seen, CPU)


def compare_enqueued(seen: Seen, medium: Medium) -> None:
    """One transfer enqueues the data that a path lacks, root first."""
    pages = seen.pages
    there = host_evicted(seen) if medium is CPU else pages.there(seen.before, medium)
    after = pages.there(seen.after, medium)
    new = list(deepest_first(less(after, there)))
    transfers = {transfer.transfer_id for transfer in seen.after.transfers} - {
        transfer.transfer_id for transfer in seen.before.transfers
    }
    if not new or len(transfers) != 1:
        return
    end, now = new[0], SPAN * min(transfers)
    if medium is CPU:
        host = seen.step("backup_grounds_host", pages.parents, there, end, end)
        assert host == after
    since = seen.step(
        "copies_are_enqueued_root_first",
        pages.parents,
        there,
        pages.pending(seen.before, medium),
        pages.since(seen.before, medium),
        end,
        end,
        now,
    )
    assert since == pages.since(seen.after, medium)


def compare_load(seen: Seen, key: Key) -> None:
    """A load allocates slots for all of a path; only loads that evict nothing are compared."""
    loaded = seen.answer
    assert isinstance(loaded, LoadedBack)
    if loaded.decision is not LoadDecision.ENQUEUED or loaded.evicted:
        return
    pages = seen.pages
    device = seen.step(
        "load_back_grounds_device",
        pages.parents,
        pages.there(seen.before, GPU),
        pages.pending(seen.before, GPU),
        pages.end_of(key),
    )
    assert device == pages.there(seen.after, GPU)
    compare_enqueued(seen, GPU)


def compare_evict(seen: Seen) -> None:
    """Pages are evicted from the device from the leaves up, each as a device leaf."""
    pages = seen.pages
    device, host = pages.there(seen.before, GPU), pages.there(seen.before, CPU)
    locked, after = pages.locked(seen.before), pages.there(seen.after, GPU)
    for victim in deepest_first(less(device, after)):
        device = seen.step("eviction_grounds_device", pages.parents, device, host, locked, victim)
    assert device == after


def host_evicted(seen: Seen) -> tuple[bool, ...]:
    """Pages are evicted from the host from the leaves up, each as a leaf of the tree."""
    pages = seen.pages
    device, host = pages.there(seen.before, GPU), pages.there(seen.before, CPU)
    locked, after = pages.locked(seen.before), pages.there(seen.after, CPU)
    for victim in deepest_first(less(host, after)):
        host = seen.step("host_eviction_grounds_host", pages.parents, device, host, locked, victim)
    return host


def compare_host_evict(seen: Seen) -> None:
    """Only these leaves are evicted from the host, and no data is added."""
    assert host_evicted(seen) == seen.pages.there(seen.after, CPU)


def compare_host_insert(seen: Seen) -> None:
    """Fetched pages fill a path from the root down, as far as they fit."""
    pages = seen.pages
    host, after = host_evicted(seen), pages.there(seen.after, CPU)
    new = less(after, host)
    if any(new):
        room = next(deepest_first(new))
        found = seen.step(
            "host_insert_grounds_host",
            pages.parents,
            host,
            pages.pending(seen.before, CPU),
            room,
            room,
        )
        assert found == after


def compare_hold(seen: Seen, hold: HoldState, whole: Snapshot, others: Snapshot) -> None:
    """A receipt locks a path, its window and its end, whatever other receipts hold."""
    pages = seen.pages
    if hold.window_from_pages is None or (end := pages.end_of_hold(whole, hold)) < 0:
        return
    less_refs, more_refs = pages.refs(others), pages.refs(whole)
    begin = hold.window_from_pages
    found = seen.step("lock_keeps_order", pages.parents, pages.starts, *less_refs, end, begin)
    assert found[:2] == more_refs[:2]
    assert found[2] == more_refs[2] or not whole.config.mamba


def compare_early(seen: Seen, before: HoldState) -> None:
    """An early release keeps the path locked, and the data that other receipts hold."""
    pages = seen.pages
    if before.window_from_pages is None or (end := pages.end_of_hold(seen.before, before)) < 0:
        return
    begin = before.window_from_pages
    ours = cover(pages.parents, pages.starts, end, begin)
    full, swa, mamba = minus(pages.refs(seen.before), ours)
    if not before.state_held:
        mamba = (0,) * len(pages.ids)
    found = seen.step(
        "early_release_keeps_order", pages.parents, pages.starts, full, swa, mamba, end, begin
    )
    assert found == pages.refs(seen.after)


def compare_settled(seen: Seen) -> None:
    """Copies end in the order of enqueueing; a failed one cancels those that build on it."""
    assert isinstance(seen.answer, Settled)
    pages = seen.pages
    for medium in (GPU, CPU):
        there, pending = pages.there(seen.before, medium), pages.pending(seen.before, medium)
        since = pages.since(seen.before, medium)
        for transfer_id, status in seen.answer.transfers:
            now = [
                flag and tick // SPAN == transfer_id
                for flag, tick in zip(pending, since, strict=True)
            ]
            filled = [at for at, flag in enumerate(now) if flag]
            if status is not TransferStatus.DONE and filled:
                there = seen.step(
                    "failed_copy_leaves_nothing_on_it", pages.parents, there, pending, filled[0]
                )
                pending = tuple([a and b for a, b in zip(pending, there, strict=True)])
                continue
            for at in filled:
                pending = seen.step(
                    "ended_copy_stands_on_what_arrived", pages.parents, there, pending, since, at
                )
        assert there == pages.there(seen.after, medium)
        assert pending == pages.pending(seen.after, medium)


def compare_lock(seen: Seen, _: Lock) -> None:
    """A lock adds what its receipt holds."""
    compare_hold(seen, seen.after.holds[-1], seen.after, seen.before)


def compare_unlock(seen: Seen, operation: Unlock) -> None:
    """A release removes what the lock would add if it came now."""
    compare_hold(seen, hold_of(seen, operation), seen.before, seen.after)


def hold_of(seen: Seen, operation: Unlock | UnlockWindow) -> HoldState:
    """Return what a receipt holds before its release."""
    receipt_id = operation.receipt.receipt_id
    return next(hold for hold in seen.before.holds if hold.receipt_id == receipt_id)


COMPARISONS: dict[type[Operation], Callable[[Seen, Any], None]] = {
    Insert: lambda seen, operation: compare_insert(seen, operation.key),
    LoadBack: lambda seen, operation: compare_load(seen, operation.key),
    Evict: lambda seen, _: compare_evict(seen),
    EvictHost: lambda seen, _: compare_host_evict(seen),
    InsertHost: lambda seen, _: compare_host_insert(seen),
    Lock: compare_lock,
    Unlock: compare_unlock,
    UnlockWindow: lambda seen, operation: compare_early(seen, hold_of(seen, operation)),
    Poll: lambda seen, _: compare_settled(seen),
    Flush: lambda seen, _: compare_settled(seen),
}
"""The comparison of each operation with its step; other operations have none."""


class Watched(WrappedCache):
    """A cache whose operations are compared with their steps."""

    def __init__(self, cache: Cache, counted: Counter[str]) -> None:
        super().__init__(cache)
        self._counted = counted

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        before = self._cache.snapshot()
        answer = call(*args, **kwargs)
        comparison = COMPARISONS.get(type(operation))
        if comparison is not None:
            seen = Seen(before, operation, answer, self._cache.snapshot(), self._counted)
            comparison(seen, operation)
        return answer


def departures(
    make: Callable[[CacheConfig, TransferEngine | None], Cache],
    counted: Counter[str],
    cases: range = CASES,
) -> Iterator[str]:
    """Return the first operation of each case that differs from its step."""

    def make_watched(config: CacheConfig, engine: TransferEngine | None = None) -> Cache:
        return Watched(make(config, engine), counted)

    trial = Trial(Adapter("watched", make_watched, OFFER), NO_LAWS)
    for number in cases:
        finding, _ = trial.play(draw_case(number, OFFER))
        if finding is not None:
            yield finding.text


def test_steps_are_what_the_plain_cache_does() -> None:
    """Each operation of the plain cache makes its proved step, under the step's premise."""
    counted: Counter[str] = Counter()
    assert list(departures(ReferenceCache, counted)) == []
    assert {name: counted[name] for name in SEEN if counted[name] < 5} == {}


@pytest.mark.parametrize("name", FAULTY)
def test_steps_are_not_what_a_faulty_cache_does(name: str) -> None:
    """An operation of a faulty cache differs from its step."""
    (fault,) = [each for each in MUTANTS if each.name == name]
    assert next(departures(overriding(fault.plant), Counter(), FAULTY_CASES), None) is not None
