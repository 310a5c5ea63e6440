"""Transfers of the plain cache: the order in which copies settle, and the effects of failures."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Completion, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, TransferId
from scenes import Plain, Scene, plain

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through"
)
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED


def load(s: Plain, prompt: str) -> TransferId:
    """Enqueue the load of a prompt."""
    transfer_id = s.load(prompt).transfer_id
    assert transfer_id is not None
    return transfer_id


# Order.


def test_settle_in_order_of_enqueueing() -> None:
    """Copies settle in the order of their enqueues, whichever is acknowledged first."""
    s = plain(FULL_ONLY)
    first, second, third = s.back_up("1", "12", "123")
    assert s.end(third, second) == ()
    assert s.see("123", FULL, CPU) == "~~~"
    assert s.end(first) == ((first, DONE), (second, DONE), (third, DONE))
    assert s.cache.poll().transfers == ()
    assert s.heard() == "cleared, stored GPU 1 2 3, stored CPU 1 2 3"


def test_settle_each_direction_on_its_own() -> None:
    """A load settles although a backup that was enqueued before it is in flight."""
    s = plain(FULL_ONLY, "fetch 89")
    (backup,) = s.back_up("1")
    loaded = load(s, "89")
    assert s.end(loaded) == ((loaded, DONE),)
    assert s.end(backup) == ((backup, DONE),)


def test_flush_waits_for_all_copies() -> None:
    """After a flush no copy is in flight, and all have settled."""
    s = plain(FULL_ONLY, "fetch 89")
    first, second = s.back_up("1", "12")
    loaded = load(s, "89")
    s.end(second)
    assert dict(s.cache.flush().transfers) == {first: DONE, second: DONE, loaded: DONE}
    assert (s.cache.snapshot().transfers, s.cache.snapshot().holds) == ((), ())
    assert s.cache.flush().transfers == ()


class CarelessEngine(ManualEngine):
    """Reports completions of orders that are not open."""

    extra: tuple[Completion, ...] = ()

    def poll(self) -> tuple[Completion, ...]:
        return (*super().poll(), *self.extra)


def test_completion_that_nothing_waits_for_is_a_violation() -> None:
    """A second completion of a copy, or one of an unknown copy, raises SpecViolation."""
    engine = CarelessEngine()
    s = Scene(ReferenceCache(FULL_ONLY, engine), engine)
    s.put("1")
    (second,) = s.back_up("12")
    for completions in (
        (Completion(second + 100, ok=True),),
        (Completion(second, ok=True), Completion(second, ok=False)),
    ):
        s.copies.extra = completions
        with pytest.raises(SpecViolation, match="completed"):
            s.cache.poll()


# Failure.


def test_failed_backup_leaves_free_slots_and_no_word() -> None:
    """After a failed backup its slots and locks are free, and no event was emitted."""
    s = plain(BOTH)
    (backup,) = s.back_up("12")
    s.heard()
    s.copies.perform(backup)
    assert s.end(failed=backup) == ((backup, FAILED),)
    assert [s.free_slots(CPU)[c] for c in (FULL, SWA, MAMBA)] == [16, 16, 4]
    assert [s.see("12", c, CPU) for c in (FULL, SWA, MAMBA)] == [".."] * 3
    assert s.refs("12", FULL) == "00"
    assert s.heard() == ""
    assert s.hit("12") == 2
    assert len(s.put("12").backups) == 1


def test_failed_load_leaves_free_slots_and_the_host_copy() -> None:
    """After a failed load its device slots and locks are free, and the host copy is there."""
    s = plain(BOTH, "fetch 12 window=2 state=1")
    loaded = load(s, "12")
    s.heard()
    assert s.end(failed=loaded) == ((loaded, FAILED),)
    assert [s.free_slots()[c] for c in (FULL, SWA, MAMBA)] == [16, 16, 4]
    assert s.cache.snapshot().swa_of_full == {}
    assert s.refs("12", FULL) == "00"
    assert s.heard() == ""
    matched = s.cache.match(s.key("12"))
    assert (matched.prefix_pages, matched.device_pages, matched.pending) == (2, 0, ())
    load(s, "12")
    s.cache.flush()
    s.check_bytes("12")


def test_failed_backup_cancels_those_that_build_on_it() -> None:
    """If the backup of a parent fails, the backups of its children are cancelled."""
    s = plain(FULL_ONLY)
    first, below, beside = s.back_up("12", "123", "8")
    assert s.end(beside, failed=first) == ((first, FAILED),)
    assert s.see("123", FULL, CPU) == "..."
    assert s.end(below) == ((below, CANCELLED), (beside, DONE))
    assert s.see("8", FULL, CPU) == "#"
    assert s.free_slots(CPU)[FULL] == 15


def test_cancelled_copy_owns_its_targets_until_it_ends() -> None:
    """The targets of a cancelled copy are not free before the engine completes it."""
    s = plain(evolve(FULL_ONLY, host_slots=Counts(4)))
    first, below = s.back_up("12", "1234")
    s.end(failed=first)
    assert s.free_slots(CPU)[FULL] == 2
    assert s.fetch("89").placed_pages == 2
    s.end(below)
    assert s.free_slots(CPU)[FULL] == 2
    load(s, "89")
    s.cache.flush()
    s.check_bytes("89")


def test_failed_backup_of_a_node_that_was_cut_fails_in_both_parts() -> None:
    """Both parts of a cut node lose a failed copy, and copies below either are cancelled."""
    s = plain(WINDOW)
    first, *rest = s.put("1234", window=2).backups
    branch = s.put("19").backups
    assert s.ends("1234") == [1, 2, 4]
    s.end(failed=first)
    assert s.see("1234", FULL, CPU) == "...."
    assert s.see("19", FULL, CPU) == ".."
    assert s.cache.flush().transfers == tuple((each, CANCELLED) for each in (*rest, *branch))
    assert s.free_slots(CPU)[FULL] == s.free_slots(CPU)[SWA] == 16
    assert s.hit("1234") == 4


def test_failed_backup_cancels_window_data_on_its_way_to_the_same_node() -> None:
    """If the backup of full data fails, that of healed window data of the node is cancelled."""
    s = plain(WINDOW)
    (first,) = s.put("12", window=0).backups
    (healed,) = s.put("12", start=0).backups
    assert s.end(healed, failed=first) == ((first, FAILED), (healed, CANCELLED))
    assert s.see("12", SWA, CPU) == ".."
    assert s.see("12", SWA) == "##"


def test_failed_window_backup_keeps_the_full_copies() -> None:
    """A failed backup of window data leaves the host copies of full data as they are."""
    s = plain(WINDOW, "put 12 window=0; flush")
    (healed,) = s.put("12", start=0).backups
    (below,) = s.back_up("123")
    assert s.end(below, failed=healed) == ((healed, FAILED), (below, DONE))
    assert s.see("123", FULL, SWA, CPU) == "### ..#"


def test_failed_load_cancels_the_window_data_above_it() -> None:
    """If a load of full data fails, the load of window data to these pages is cancelled."""
    s = plain(WINDOW, "fetch 12 window=2; fetch 1234 start=2 window=2")
    full = load(s, "1234")
    window = load(s, "12")
    assert (s.see("1234", FULL), s.see("1234", SWA)) == ("~~~~", "~~~~")
    assert s.end(failed=full) == ((full, FAILED),)
    assert s.see("1234", SWA) == "...."
    assert s.free_slots()[SWA] == 14
    assert s.end(window) == ((window, CANCELLED),)
    assert (s.free_slots()[FULL], s.free_slots()[SWA]) == (16, 16)
    assert s.cache.snapshot().swa_of_full == {}
    assert s.hit("1234") == 4


def test_failed_load_cancels_those_that_build_on_it() -> None:
    """If a load fails, loads of pages after it are cancelled."""
    s = plain(WINDOW, "fetch 1234 window=2")
    first, below = load(s, "1"), load(s, "1234")
    s.copies.acknowledge(below)
    s.copies.fail(first)
    assert s.cache.poll().transfers == ((first, FAILED), (below, CANCELLED))
    assert (s.free_slots()[FULL], s.free_slots()[SWA]) == (16, 16)
    assert s.cache.snapshot().swa_of_full == {}


def test_load_again_while_a_cancelled_one_ends() -> None:
    """A load that replaces a cancelled one is not undone when the cancelled one ends."""
    s = plain(WINDOW, "fetch 123 window=2")
    first, below = load(s, "1"), load(s, "123")
    s.end(failed=first)
    again = load(s, "123")
    assert s.end(again) == ()
    assert s.end(below) == ((below, CANCELLED), (again, DONE))
    assert s.cache.match(s.key("123")).device_pages == 3
    s.check_bytes("123")
    assert (s.free_slots()[FULL], s.free_slots()[SWA]) == (13, 14)


def test_failed_load_under_a_request_s_lock_keeps_the_lock() -> None:
    """A failed load does not release a request's lock, which is released correctly later."""
    s = plain(BOTH, "fetch 12 window=2 state=1")
    receipt = s.lock("12")
    s.copies.fail(load(s, "12"))
    s.cache.poll()
    assert s.refs("12", FULL) == "11"
    assert s.evict_host(16, 16, 4) == Counts()
    s.cache.unlock(receipt)
    assert s.evict_host(16, 16, 4) == Counts(2, 2, 1)


# Bytes.


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_bytes_follow_their_page_wherever_it_goes(policy: str) -> None:
    """A page has its own bytes after cuts, backups and loads."""
    s = plain(evolve(BOTH, write_policy=policy), "put 12345 window=3; put 129; hit 1238")
    for _ in range(2):
        s.cache.flush()
        s.evict(full=16)
        s.put("678")
        s.load("12345")
        s.load("129")
        s.put("675")
        s.cache.flush()
        for tokens in ([1, 2, 3, 4, 5], [1, 2, 9], [6, 7, 8], [6, 7, 5]):
            assert s.cache.match(s.key(tokens)).device_pages == len(tokens)
            s.check_bytes(tokens)


def test_copy_that_is_made_at_the_last_moment_reads_the_right_bytes() -> None:
    """A copy that is performed late reads the bytes of its own pages."""
    s = plain(WINDOW)
    (backup,) = s.back_up("12")
    s.play("put 15; put 78; evict full=16 swa=16; put 12 start=0")
    s.copies.wait(backup)
    s.play("flush; evict full=16 swa=16; load 12; evict_host full=16 swa=16; fetch 34 window=2")
    s.cache.flush()
    assert s.cache.match(s.key("12")).device_pages == 2
    s.check_bytes("12")
    assert s.see("12", SWA, GPU) == "##"
