"""Transfers of the plain cache: the order in which copies settle, and the effects of failures."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, TransferId
from scenes import (
    assert_right_bytes,
    cached_pages,
    fetch,
    free_slots,
    heard,
    lock,
    lock_refs,
    new_cache,
    node_ends,
    prompt,
    put,
    shown,
)

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through"
)
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED


def load(cache: ReferenceCache, tokens: list[int]) -> TransferId:
    """Enqueue the load of a prompt."""
    transfer_id = cache.load_back(prompt(cache, tokens)).transfer_id
    assert transfer_id is not None
    return transfer_id


# Order.


def test_settle_in_order_of_enqueueing() -> None:
    """Copies settle in the order of their enqueues, whichever is acknowledged first."""
    cache, engine = new_cache(FULL_ONLY)
    (first,) = put(cache, [1]).backups
    (second,) = put(cache, [1, 2]).backups
    (third,) = put(cache, [1, 2, 3]).backups
    engine.acknowledge(third)
    engine.acknowledge(second)
    assert cache.poll().transfers == ()
    assert shown(cache, [1, 2, 3], FULL, CPU) == "~~~"
    engine.acknowledge(first)
    assert cache.poll().transfers == ((first, DONE), (second, DONE), (third, DONE))
    assert cache.poll().transfers == ()
    stored = heard(cache, [1, 2, 3])
    assert stored[3:] == [("stored", CPU, 1), ("stored", CPU, 2), ("stored", CPU, 3)]


def test_settle_each_direction_on_its_own() -> None:
    """A load settles although a backup that was enqueued before it is in flight."""
    cache, engine = new_cache(FULL_ONLY)
    fetch(cache, [8, 9])
    (backup,) = put(cache, [1]).backups
    loaded = load(cache, [8, 9])
    engine.acknowledge(loaded)
    assert cache.poll().transfers == ((loaded, DONE),)
    engine.acknowledge(backup)
    assert cache.poll().transfers == ((backup, DONE),)


def test_flush_waits_for_all_copies() -> None:
    """After a flush no copy is in flight, and all have settled."""
    cache, engine = new_cache(FULL_ONLY)
    fetch(cache, [8, 9])
    (first,) = put(cache, [1]).backups
    (second,) = put(cache, [1, 2]).backups
    loaded = load(cache, [8, 9])
    engine.acknowledge(second)
    cache.poll()
    assert dict(cache.flush().transfers) == {first: DONE, second: DONE, loaded: DONE}
    assert (cache.snapshot().transfers, cache.snapshot().holds) == ((), ())
    assert cache.flush().transfers == ()


class CarelessEngine(ManualEngine):
    """Reports completions of orders that are not open."""

    extra: tuple[Completion, ...] = ()

    def poll(self) -> tuple[Completion, ...]:
        """Return the completions since the last poll, and the extra ones."""
        return (*super().poll(), *self.extra)


def test_completion_that_nothing_waits_for_is_a_violation() -> None:
    """A second completion of a copy, or one of an unknown copy, raises SpecViolation."""
    engine = CarelessEngine()
    cache = ReferenceCache(FULL_ONLY, engine)
    put(cache, [1])
    (second,) = put(cache, [1, 2]).backups
    for completions in (
        (Completion(second + 100, ok=True),),
        (Completion(second, ok=True), Completion(second, ok=False)),
    ):
        engine.extra = completions
        with pytest.raises(SpecViolation, match="completed"):
            cache.poll()


# Failure.


def test_failed_backup_leaves_free_slots_and_no_word() -> None:
    """After a failed backup its slots and locks are free, and no event was emitted."""
    cache, engine = new_cache(BOTH)
    (backup,) = put(cache, [1, 2]).backups
    cache.take_events()
    engine.perform(backup)
    engine.fail(backup)
    assert cache.poll().transfers == ((backup, FAILED),)
    assert [free_slots(cache, c, CPU) for c in (FULL, SWA, MAMBA)] == [16, 16, 4]
    assert [shown(cache, [1, 2], c, CPU) for c in (FULL, SWA, MAMBA)] == [".."] * 3
    assert not any(lock_refs(cache, [1, 2]))
    assert heard(cache, [1, 2]) == []
    assert cached_pages(cache, [1, 2]) == 2
    assert len(put(cache, [1, 2]).backups) == 1


def test_failed_load_leaves_free_slots_and_the_host_copy() -> None:
    """After a failed load its device slots and locks are free, and the host copy is there."""
    cache, engine = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    loaded = load(cache, [1, 2])
    cache.take_events()
    engine.fail(loaded)
    assert cache.poll().transfers == ((loaded, FAILED),)
    assert [free_slots(cache, c) for c in (FULL, SWA, MAMBA)] == [16, 16, 4]
    assert cache.snapshot().swa_of_full == {}
    assert not any(lock_refs(cache, [1, 2]))
    assert heard(cache, [1, 2]) == []
    matched = cache.match(prompt(cache, [1, 2]))
    assert (matched.prefix_pages, matched.device_pages, matched.pending) == (2, 0, ())
    load(cache, [1, 2])
    cache.flush()
    assert_right_bytes(cache, [1, 2])


def test_failed_backup_cancels_those_that_build_on_it() -> None:
    """If the backup of a parent fails, the backups of its children are cancelled."""
    cache, engine = new_cache(FULL_ONLY)
    (first,) = put(cache, [1, 2]).backups
    (below,) = put(cache, [1, 2, 3]).backups
    (beside,) = put(cache, [8]).backups
    engine.fail(first)
    engine.acknowledge(beside)
    assert cache.poll().transfers == ((first, FAILED),)
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..."
    engine.acknowledge(below)
    assert cache.poll().transfers == ((below, CANCELLED), (beside, DONE))
    assert shown(cache, [8], FULL, CPU) == "#"
    assert free_slots(cache, FULL, CPU) == 15


def test_cancelled_copy_owns_its_targets_until_it_ends() -> None:
    """The targets of a cancelled copy are not free before the engine completes it."""
    cache, engine = new_cache(evolve(FULL_ONLY, host_slots=Counts(4)))
    (first,) = put(cache, [1, 2]).backups
    (below,) = put(cache, [1, 2, 3, 4]).backups
    engine.fail(first)
    cache.poll()
    assert free_slots(cache, FULL, CPU) == 2
    assert fetch(cache, [8, 9]).placed_pages == 2
    engine.acknowledge(below)
    cache.poll()
    assert free_slots(cache, FULL, CPU) == 2
    load(cache, [8, 9])
    cache.flush()
    assert_right_bytes(cache, [8, 9])


def test_failed_backup_of_a_node_that_was_cut_fails_in_both_parts() -> None:
    """Both parts of a cut node lose a failed copy, and copies below either are cancelled."""
    cache, engine = new_cache(WINDOW)
    first, *rest = put(cache, [1, 2, 3, 4], window_pages=2).backups
    branch = put(cache, [1, 9]).backups
    assert node_ends(cache, [1, 2, 3, 4]) == [1, 2, 4]
    engine.fail(first)
    cache.poll()
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "...."
    assert shown(cache, [1, 9], FULL, CPU) == ".."
    settled = cache.flush().transfers
    assert settled == tuple((each, CANCELLED) for each in (*rest, *branch))
    assert free_slots(cache, FULL, CPU) == free_slots(cache, SWA, CPU) == 16
    assert cached_pages(cache, [1, 2, 3, 4]) == 4


def test_failed_backup_cancels_window_data_on_its_way_to_the_same_node() -> None:
    """If the backup of full data fails, that of healed window data of the node is cancelled."""
    cache, engine = new_cache(WINDOW)
    (first,) = put(cache, [1, 2], window_pages=0).backups
    (healed,) = put(cache, [1, 2], start_pages=0).backups
    engine.fail(first)
    engine.acknowledge(healed)
    assert cache.poll().transfers == ((first, FAILED), (healed, CANCELLED))
    assert shown(cache, [1, 2], SWA, CPU) == ".."
    assert shown(cache, [1, 2], SWA) == "##"


def test_failed_window_backup_keeps_the_full_copies() -> None:
    """A failed backup of window data leaves the host copies of full data as they are."""
    cache, engine = new_cache(WINDOW)
    put(cache, [1, 2], window_pages=0)
    cache.flush()
    (healed,) = put(cache, [1, 2], start_pages=0).backups
    (below,) = put(cache, [1, 2, 3]).backups
    engine.fail(healed)
    engine.acknowledge(below)
    assert cache.poll().transfers == ((healed, FAILED), (below, DONE))
    assert shown(cache, [1, 2, 3], FULL, CPU) == "###"
    assert shown(cache, [1, 2, 3], SWA, CPU) == "..#"


def test_failed_load_cancels_the_window_data_above_it() -> None:
    """If a load of full data fails, the load of window data to these pages is cancelled."""
    cache, engine = new_cache(WINDOW)
    fetch(cache, [1, 2], window_pages=2)
    fetch(cache, [1, 2, 3, 4], start_pages=2, window_pages=2)
    full = load(cache, [1, 2, 3, 4])
    window = load(cache, [1, 2])
    assert (shown(cache, [1, 2, 3, 4]), shown(cache, [1, 2, 3, 4], SWA)) == ("~~~~", "~~~~")
    engine.fail(full)
    assert cache.poll().transfers == ((full, FAILED),)
    assert shown(cache, [1, 2, 3, 4], SWA) == "...."
    assert free_slots(cache, SWA) == 14
    engine.acknowledge(window)
    assert cache.poll().transfers == ((window, CANCELLED),)
    assert (free_slots(cache, FULL), free_slots(cache, SWA)) == (16, 16)
    assert cache.snapshot().swa_of_full == {}
    assert cached_pages(cache, [1, 2, 3, 4]) == 4


def test_failed_load_cancels_those_that_build_on_it() -> None:
    """If a load fails, loads of pages after it are cancelled."""
    cache, engine = new_cache(WINDOW)
    fetch(cache, [1, 2, 3, 4], window_pages=2)
    first, below = load(cache, [1]), load(cache, [1, 2, 3, 4])
    engine.acknowledge(below)
    engine.fail(first)
    assert cache.poll().transfers == ((first, FAILED), (below, CANCELLED))
    assert (free_slots(cache, FULL), free_slots(cache, SWA)) == (16, 16)
    assert cache.snapshot().swa_of_full == {}


def test_load_again_while_a_cancelled_one_ends() -> None:
    """A load that replaces a cancelled one is not undone when the cancelled one ends."""
    cache, engine = new_cache(WINDOW)
    fetch(cache, [1, 2, 3], window_pages=2)
    first, below = load(cache, [1]), load(cache, [1, 2, 3])
    engine.fail(first)
    cache.poll()
    again = load(cache, [1, 2, 3])
    engine.acknowledge(again)
    assert cache.poll().transfers == ()
    engine.acknowledge(below)
    assert cache.poll().transfers == ((below, CANCELLED), (again, DONE))
    assert cache.match(prompt(cache, [1, 2, 3])).device_pages == 3
    assert_right_bytes(cache, [1, 2, 3])
    assert (free_slots(cache, FULL), free_slots(cache, SWA)) == (13, 14)


def test_failed_load_under_a_request_s_lock_keeps_the_lock() -> None:
    """A failed load does not release a request's lock, which is released correctly later."""
    cache, engine = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    receipt = lock(cache, [1, 2])
    engine.fail(load(cache, [1, 2]))
    cache.poll()
    assert lock_refs(cache, [1, 2]) == [1, 1]
    assert cache.evict_host(Counts(16, 16, 4)).freed == Counts()
    cache.unlock(receipt)
    assert cache.evict_host(Counts(16, 16, 4)).freed == Counts(2, 2, 1)


# Bytes.


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_bytes_follow_their_page_wherever_it_goes(policy: str) -> None:
    """A page has its own bytes after cuts, backups and loads."""
    cache, _ = new_cache(evolve(BOTH, write_policy=policy))
    put(cache, [1, 2, 3, 4, 5], window_pages=3)
    put(cache, [1, 2, 9])
    cache.match(prompt(cache, [1, 2, 3, 8]))
    for _ in range(2):
        cache.flush()
        cache.evict(Counts(full=16))
        put(cache, [6, 7, 8])
        cache.load_back(prompt(cache, [1, 2, 3, 4, 5]))
        cache.load_back(prompt(cache, [1, 2, 9]))
        put(cache, [6, 7, 5])
        cache.flush()
        for tokens in ([1, 2, 3, 4, 5], [1, 2, 9], [6, 7, 8], [6, 7, 5]):
            assert cache.match(prompt(cache, tokens)).device_pages == len(tokens)
            assert_right_bytes(cache, tokens)


def test_copy_that_is_made_at_the_last_moment_reads_the_right_bytes() -> None:
    """A copy that is performed late reads the bytes of its own pages."""
    cache, engine = new_cache(WINDOW)
    (backup,) = put(cache, [1, 2]).backups
    put(cache, [1, 5])
    put(cache, [7, 8])
    cache.evict(Counts(16, 16))
    put(cache, [1, 2], start_pages=0)
    engine.wait(backup)
    cache.flush()
    cache.evict(Counts(16, 16))
    cache.load_back(prompt(cache, [1, 2]))
    cache.evict_host(Counts(16, 16))
    fetch(cache, [3, 4], window_pages=2)
    cache.flush()
    assert cache.match(prompt(cache, [1, 2])).device_pages == 2
    assert_right_bytes(cache, [1, 2])
    assert shown(cache, [1, 2], SWA, GPU) == "##"
