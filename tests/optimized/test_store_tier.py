"""The fast cache over the judge's store: agreement with the plain cache, and planted faults.

The faults are in what the fast cache does otherwise than the plain one: it reads pages late, holds
slots in arrays, and keeps what is stored in its native core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from kvcanon.conformance.cases.draw_stored import draw_stored_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_orders import HostReads, PageOrder
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.sealed_queue import SealedQueue
from kvcanon.optimized.store_tier import StoreTier, TrackedOrder
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import HostInserted, Ordered
from kvcanon.spec.tier import OrderId, OrderProgress
from kvcanon.spec.types import DISK, FULL, Counts, WritePolicy

CASES = 40
"""Cases in which a fault is to be found; one in four has three ranks."""


def found_in(cases: int, *, compared: bool) -> Iterator[Finding]:
    """The findings of drawn cases of the fast cache, by its states."""
    adapter = load_adapter("optimized")
    adapter = evolve(adapter, name="optimized", offer=evolve(adapter.offer, stores=True))
    for seed in range(cases):
        case = draw_stored_case(seed, adapter.offer, ranks=3 if seed % 4 == 1 else 1)
        findings, _ = play(case, [adapter], against=REFERENCE if compared else None)
        yield from findings


def test_the_fast_cache_agrees_with_the_plain_one_over_a_store() -> None:
    """Answers, events, states and what counts as stored are the same, on one rank and several."""
    for finding in found_in(8, compared=True):
        pytest.fail(finding.words)


# Planted faults.


def nothing_is_kept(reads: HostReads, slots: object) -> None:
    """A page that leaves the host before it is written is not copied."""


def first_pages_are_kept(order: PageOrder, page: int) -> None:
    """Only the first page of an order is copied when its slot is overwritten."""
    if page == 0:
        order._kept[0] = order.host.pages[order.slots[0]].copy()


def nothing_is_being_written(tier: StoreTier, run: object) -> bool:
    """Two open writes may write the same pages."""
    return False


def ranks_are_not_asked(tier: StoreTier) -> Mapping[OrderId, OrderProgress]:
    """Each rank counts what is done on it."""
    here = {
        each: tier._reported.get(each, OrderProgress(each, 0, ended=False)) for each in tier.orders
    }
    for each, progress in here.items():
        tier.orders[each].unused_pages = len(tier.orders[each].order) * progress.ended
    return here


def nothing_is_counted(tier: StoreTier, its: TrackedOrder, progress: OrderProgress) -> None:
    """Progress is noted, and pages do not count as stored."""
    its.pages, its.ended = progress.pages, progress.ended


def misses_count(tier: StoreTier, its: TrackedOrder, progress: OrderProgress) -> None:
    """A page that a fetch did not find goes on to count as stored."""
    was, its.pages, its.ended = its.pages, progress.pages, progress.ended
    if not its.cancelled:
        tier._tier.note_stored(its.order.run, was, its.pages)


def cancelled_orders_count(tier: StoreTier, its: TrackedOrder, progress: OrderProgress) -> None:
    """What an order did that a reset gave up counts as stored."""
    was, its.pages, its.ended = its.pages, progress.pages, progress.ended
    tier._tier.note_stored(its.order.run, was, its.pages)


def slots_are_not_freed(tier: StoreTier, its: TrackedOrder) -> None:
    """The slots of pages that did not arrive stay reserved."""
    del tier.orders[its.order.order_id]


def slots_are_freed_early(tier: StoreTier, order_id: OrderId) -> HostInserted:
    """The end of a prefetch frees slots that a late read still writes to."""
    its = tier.orders.get(order_id)
    if its is not None and its.order.kind == "fetch" and not (its.cancelled or its.ended):
        late = its.reserved[its.pages :]
        if len(late):
            tier.cache.abort_host(late)
            its.reserved = its.reserved[: its.pages]
    return ORIGINAL_END(tier, order_id)


def what_arrived_is_forgotten(
    tier: StoreTier, its: TrackedOrder, arrived: Sequence[int]
) -> HostInserted:
    """The pages that have arrived are dropped."""
    if len(arrived):
        tier.cache.abort_host(arrived)  # type: ignore[arg-type]  # It is an array.
    return HostInserted(0, 0, 0, len(arrived))


def store_is_never_let_go(tier: StoreTier, *, keep_store: bool) -> None:
    """A reset for new weights goes on with the store of the old ones."""
    ORIGINAL_START(tier, keep_store=True)


def resets_stop_nothing(tier: StoreTier, *, keep_store: bool) -> None:
    """A reset gives up orders without a word to the store."""
    for its in tier.orders.values():
        its.cancelled = True
    tier.is_open &= keep_store


def one_slot_less(tier: StoreTier, *given: Any) -> Ordered:  # noqa: ANN401  # As they are.
    """A prefetch that would take all free slots leaves the host as it is."""
    run = tier._tier.unfetched(*given[:2])
    if len(run) and len(run) == tier.cache.stats().pools[FULL, "CPU_PINNED"].free_slots:  # type: ignore[index]
        return Ordered(None, run.start_pages, 0)
    return ORIGINAL_PREFETCH(tier, *given)


ORIGINAL_END, ORIGINAL_START = StoreTier.end_prefetch, StoreTier.start_anew
ORIGINAL_PREFETCH = StoreTier.prefetch

FAULTS: tuple[tuple[type, str, Callable[..., object], str], ...] = (
    (HostReads, "keep", nothing_is_kept, "TIER-2"),
    (PageOrder, "keep", first_pages_are_kept, "TIER-2"),
    (StoreTier, "_is_being_written", nothing_is_being_written, "TIER-3"),
    (StoreTier, "_on_all_ranks", ranks_are_not_asked, "ASYNC-11"),
    (StoreTier, "_count", nothing_is_counted, "TIER-8"),
    (StoreTier, "_count", misses_count, "TIER-7"),
    (StoreTier, "_count", cancelled_orders_count, "TIER-7"),
    (StoreTier, "_close", slots_are_not_freed, "TIER-5"),
    (StoreTier, "end_prefetch", slots_are_freed_early, "DATA-1"),
    (StoreTier, "_place", what_arrived_is_forgotten, "RES-11"),
    (StoreTier, "start_anew", store_is_never_let_go, "TIER-12"),
    (StoreTier, "start_anew", resets_stop_nothing, "TIER-11"),
    (StoreTier, "prefetch", one_slot_less, "TIER-4"),
)


@pytest.mark.parametrize(
    ("owner", "name", "fault", "law"), FAULTS, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    fault: Callable[..., object],
    law: str,
) -> None:
    """The laws find it, and the one of which it is a breach is among those that are broken."""
    monkeypatch.setattr(owner, name, fault)
    broken: set[str] = set()
    for finding in found_in(CASES, compared=False):
        assert finding.grounds is Grounds.LAW, finding.words
        broken |= {*finding.broken}
        if law in broken:
            return
    pytest.fail(f"{CASES} cases broke {sorted(broken)}, and not {law}")


def test_a_fault_in_what_counts_is_found_by_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that counts nothing as stored does not agree with the plain one."""
    monkeypatch.setattr(StoreTier, "_count", nothing_is_counted)
    names = {finding.name for finding in found_in(8, compared=True)}
    assert names


# What no drawn case meets.


def cache_over(config: CacheConfig) -> PrefixCache:
    """A cache over the judge's store."""
    pools = Pools(config, dict.fromkeys(config.components, PageLayout(1, (1,))))
    return PrefixCache(config, pools, store=SealedQueue(ManualQueue(DISK), config))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (CacheConfig(device_slots=Counts(full=4)), "needs a host tier above it"),
        (
            CacheConfig(
                mamba=True,
                device_slots=Counts(4, 0, 4),
                host_slots=Counts(4, 0, 4),
                write_policy=WritePolicy.WRITE_THROUGH,
            ),
            "keeps full data alone",
        ),
    ],
)
def test_a_store_where_it_cannot_serve_is_refused(config: CacheConfig, problem: str) -> None:
    """Without a host tier, or with more than full data, one line says what is missing."""
    with pytest.raises(BadArgument, match=problem):
        cache_over(config)


def test_calls_of_a_cache_without_a_store_are_refused() -> None:
    """They name what is missing; a poll has nothing to say."""
    cache, tokens = PrefixCache(CacheConfig()), np.arange(4, dtype=np.uint32)
    for call in (
        lambda: cache.store(tokens),
        lambda: cache.prefetch(tokens),
        lambda: cache.end_prefetch(1),
    ):
        with pytest.raises(BadArgument, match="store: is none"):
            call()
    assert cache.poll_store() == ()
