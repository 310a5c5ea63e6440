"""The disk tier at its limits. The judge plays the rest (`kvcanon check-store disk`)."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from disk_pages import (
    IDENTITY,
    LENGTH,
    content_of,
    crash,
    file_of,
    found,
    name_of,
    opened,
    page,
    put,
)
from kvcanon.disk import DiskIdentity, DiskStore, DiskUnusable, PageGet, PagePut
from kvcanon.disk.records import RECORD_BYTES, RecordKind, whole_records
from kvcanon.disk.slab import BLOCK_BYTES, Slab


def test_pages_outlive_a_close(tmp_path: Path) -> None:
    """All pages are found again, in the order of their use."""
    store = opened(tmp_path)
    assert put(store, range(20))
    store.close()
    store = opened(tmp_path)
    assert store.leading_run([name_of(number) for number in range(30)]) == 20
    assert found(store, range(30)) == list(range(20))
    store.close()


def test_a_closed_store_answers_no(tmp_path: Path) -> None:
    """Calls after a close are answered, and a second close does nothing."""
    store = opened(tmp_path)
    assert put(store, range(2))
    store.close()
    store.close()
    assert store.put([page(3)]) == [False]
    assert found(store, range(2)) == []
    assert store.exists([(name_of(0), 0)]) == [False]
    assert store.leading_run([name_of(0)]) == 0
    store.remove([(name_of(0), 0)])


@pytest.mark.parametrize("length", [0, 1, BLOCK_BYTES - 128, BLOCK_BYTES - 127, BLOCK_BYTES, 9000])
def test_a_page_of_any_length_is_found(tmp_path: Path, length: int) -> None:
    """Also one without bytes, and one that leaves no room for its record in its last block."""
    store = opened(tmp_path)
    assert put(store, range(3), length)
    store.close()
    store = opened(tmp_path)
    assert found(store, range(3), length) == [0, 1, 2]
    store.close()


def test_a_page_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    """It is refused, and no page is evicted for it."""
    store = opened(tmp_path, 1 << 20)
    assert put(store, range(3))
    assert not put(store, [9], 80_000)
    assert found(store, range(3)) == [0, 1, 2]
    store.close()


def test_a_capacity_without_room_is_refused(tmp_path: Path) -> None:
    """The message says how much is needed."""
    with pytest.raises(DiskUnusable, match="too small; give at least"):
        opened(tmp_path, 4096)


def test_pages_in_several_aligned_pieces_move_without_a_copy(tmp_path: Path) -> None:
    """Keys and values in two pieces of the host's memory are one page."""
    with mmap.mmap(-1, 4 * BLOCK_BYTES) as memory:
        view = memoryview(memory)
        first, second = view[:BLOCK_BYTES], view[2 * BLOCK_BYTES : 3 * BLOCK_BYTES]
        first[:], second[:] = content_of(1, BLOCK_BYTES), content_of(2, BLOCK_BYTES)
        store = opened(tmp_path)
        assert store.put([PagePut(name_of(0), (first, second))]) == [True]
        first[:], second[:] = bytes(BLOCK_BYTES), bytes(BLOCK_BYTES)
        assert store.get([PageGet(name_of(0), (first, second))]) == [2 * BLOCK_BYTES]
        assert bytes(first) == content_of(1, BLOCK_BYTES)
        assert bytes(second) == content_of(2, BLOCK_BYTES)
        store.close()
        for each in (first, second, view):
            each.release()


def test_a_file_system_without_direct_transfers_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages then go through the page cache."""
    real = os.open

    def open_as_there(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", open_as_there)
    store = opened(tmp_path)
    assert not store.parts.slab.direct
    assert put(store, range(20))
    assert found(store, range(20)) == list(range(20))
    store.close()


def test_each_page_that_leaves_is_told(tmp_path: Path) -> None:
    """Whatever took it: what came and was not told of is what is there."""
    store = opened(tmp_path, 1 << 20)
    gone: list[tuple[bytes, int]] = []
    store.on_drop = lambda name, pool: gone.append((name, pool))
    for prompt in range(200):
        assert put(store, [0], prompt=prompt)
    assert gone
    assert sorted(gone + store.pages()) == sorted((name_of(0, each), 0) for each in range(200))
    left = store.pages()
    gone.clear()
    store.remove([left[0]])
    store.remove([left[0]])
    assert gone == [left[0]]
    store.clear()
    assert sorted(gone) == sorted(left)
    assert store.pages() == []
    store.close()


def test_a_damaged_page_is_told_when_it_is_read(tmp_path: Path) -> None:
    """Once."""
    store = opened(tmp_path)
    assert put(store, range(2))
    gone: list[tuple[bytes, int]] = []
    store.on_drop = lambda name, pool: gone.append((name, pool))
    slab = file_of(tmp_path, "slab")
    data = bytearray(slab.read_bytes())
    data[data.index(content_of(1))] ^= 1
    slab.write_bytes(bytes(data))
    for _ in range(2):
        assert found(store, range(2)) == [0]
    assert gone == [(name_of(1), 0)]
    store.close()


def test_eviction_takes_the_end_of_the_prompt_that_was_used_least(tmp_path: Path) -> None:
    """What is left of a prompt begins with its first page."""
    store = opened(tmp_path, 1 << 20)
    assert put(store, range(40), prompt=0)
    assert put(store, range(40), prompt=1)
    used = found(store, range(40), prompt=0)
    assert used == list(range(40))
    for prompt in range(2, 5):
        assert put(store, range(15), prompt=prompt)
    left = found(store, range(40), prompt=1)
    assert left == list(range(len(left)))
    assert len(left) < 40
    assert found(store, range(40), prompt=0) == used
    assert store.statistics().evicted_pages == 40 - len(left)
    store.close()


def test_size_is_bounded_whatever_is_put_and_removed(tmp_path: Path) -> None:
    """Slab, journal and all stay within the capacity, over many restarts."""
    capacity = 400_000
    for turn in range(4):
        store = opened(tmp_path, capacity)
        for prompt in range(40):
            assert put(store, range(8), 300 + 3000 * (prompt % 5), prompt + 100 * turn)
            store.remove([(name_of(0, prompt), 0)])
        taken = sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
        assert taken <= capacity
        store.close()


def test_a_smaller_capacity_gives_room_back(tmp_path: Path) -> None:
    """A store that is opened with less keeps to it, and serves what is left."""
    store = opened(tmp_path, 4 << 20)
    assert all(put(store, range(8), prompt=prompt) for prompt in range(40))
    store.close()
    store = opened(tmp_path, 1 << 20)
    assert sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file()) <= 1 << 20
    left = [number for prompt in range(40) for number in found(store, range(8), prompt=prompt)]
    assert len(left) > 40
    assert put(store, range(8), prompt=99)
    store.close()


def test_journal_does_not_grow_without_end(tmp_path: Path) -> None:
    """It is written anew before it has twice as many records as there are slots, and some more."""
    store = opened(tmp_path, 500_000)
    for prompt in range(300):
        assert put(store, range(4), prompt=prompt)
    most = store.parts.room.most_records + 32
    assert file_of(tmp_path, "journal").stat().st_size <= most * RECORD_BYTES
    store.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """One process has a folder; the message says what to do. Another place has its own."""
    store = opened(tmp_path)
    with pytest.raises(DiskUnusable, match="open in another process; give each server a folder"):
        opened(tmp_path)
    other = DiskStore.open(tmp_path, DiskIdentity(IDENTITY.facts, "rank1of2"))
    other.close()
    store.close()
    opened(tmp_path).close()


def test_a_full_disk_refuses_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write fails, pages that were acknowledged stay, and the store goes on."""
    store = opened(tmp_path)
    assert put(store, range(4))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("pwrite", "pwritev", "fdatasync", "posix_fallocate"):
        with monkeypatch.context() as during:
            during.setattr(os, name, full)
            store.put([page(number) for number in range(4, 40)])
        assert found(store, range(4)) == [0, 1, 2, 3], name
    assert put(store, range(4, 8))
    crash(store)
    store = opened(tmp_path)
    assert found(store, range(8)) == list(range(8))
    store.close()


def test_a_failed_write_leaves_the_others_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses a block; only the page that needs it is not stored."""
    store = opened(tmp_path)
    with monkeypatch.context() as during:
        during.setattr(Slab, "write", _refusing(20))
        answers = store.put([page(number) for number in range(12)])
    stored = [number for number, good in enumerate(answers) if good]
    assert len(stored) == 11
    assert found(store, range(12)) == stored
    store.close()


def test_pages_of_a_segment_whose_label_failed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would find them without the journal. The label is written with the next put."""
    store = opened(tmp_path)
    with monkeypatch.context() as during:
        during.setattr(Slab, "write", _refusing(17))
        answers = store.put([page(number) for number in range(12)])
    assert answers == [True] * 8 + [False] * 4
    assert put(store, range(12))
    crash(store)
    file_of(tmp_path, "journal").unlink()
    store = opened(tmp_path)
    assert found(store, range(12)) == list(range(12))
    store.close()


def test_a_label_is_written_as_the_segment_is_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its label failed, and then the segment was given slots of another size."""
    store = opened(tmp_path)
    with monkeypatch.context() as during:
        during.setattr(Slab, "write", _refusing(0))
        assert not put(store, range(8))
    assert put(store, range(4), 9000)
    assert not store.parts.room.unwritten
    crash(store)
    file_of(tmp_path, "journal").unlink()
    store = opened(tmp_path)
    assert found(store, range(4), 9000) == [0, 1, 2, 3]
    store.close()


def _refusing(bad: int) -> Callable[[Slab, int, Sequence[memoryview]], None]:
    """Writes of a slab that fail if they touch a block."""
    real = Slab.write

    def write(self: Slab, block: int, pieces: Sequence[memoryview]) -> None:
        if block <= bad < block + sum(map(len, pieces)) // BLOCK_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        real(self, block, pieces)

    return write


def test_a_put_grows_the_slab_once_and_writes_adjacent_slots_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels of its segments go with the slots behind them."""
    store = opened(tmp_path)
    calls: list[str] = []
    for name in ("posix_fallocate", "pwritev", "fdatasync"):
        monkeypatch.setattr(os, name, _counted(name, getattr(os, name), calls))
    assert put(store, range(80))
    assert calls == ["posix_fallocate", "pwritev", "fdatasync"]
    store.close()


def _counted(name: str, real: Callable[..., int], calls: list[str]) -> Callable[..., int]:
    def call(*given: object) -> int:
        calls.append(name)
        return real(*given)

    return call


def test_puts_and_gets_of_several_threads_agree(tmp_path: Path) -> None:
    """While pages are put and evicted, a get gives a page's own bytes, or nothing."""
    store = opened(tmp_path, 600_000)
    wrong: list[AssertionError] = []

    def work(prompt: int) -> None:
        try:
            for turn in range(20):
                put(store, range(6), prompt=prompt + turn % 4)
                for other in range(4):
                    found(store, range(6), prompt=other)
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(prompt,)) for prompt in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.statistics().damaged_pages == 0
    store.close()


def test_a_page_is_written_once(tmp_path: Path) -> None:
    """A put of a page that is there writes nothing; after a restart it is read first."""
    store = opened(tmp_path)
    assert put(store, range(3))
    assert put(store, range(3))
    assert store.statistics().written_pages == 3
    store.close()
    store = opened(tmp_path)
    assert put(store, range(3))
    assert (store.statistics().written_pages, store.statistics().kept_pages) == (0, 3)
    store.close()


def test_a_put_of_a_damaged_page_writes_it_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was damaged is found by the put, said once, and mended."""
    store = opened(tmp_path)
    assert put(store, range(2))
    store.close()
    slab = file_of(tmp_path, "slab")
    data = bytearray(slab.read_bytes())
    data[BLOCK_BYTES + 100] ^= 1
    slab.write_bytes(data)
    store = opened(tmp_path)
    with caplog.at_level(logging.WARNING, "kvcanon.disk"):
        assert put(store, range(2))
    assert "1 pages are damaged" in caplog.text
    assert found(store, range(2)) == [0, 1]
    assert store.statistics().written_pages == 1
    store.close()


def test_names_of_another_length_are_refused(tmp_path: Path) -> None:
    """A name has 32 bytes, and a pool is one that the store was opened with."""
    store = opened(tmp_path)
    content = (memoryview(bytes(LENGTH)),)
    assert store.put([PagePut(b"short", content), PagePut(name_of(0), content, pool=1)]) == [
        False,
        False,
    ]
    assert store.get([PageGet(name_of(0), (memoryview(bytearray(LENGTH)),), 1)]) == [None]
    store.close()


def test_clear_removes_all_pages(tmp_path: Path) -> None:
    """Also from the slots, so that a lost journal brings none of them back."""
    store = opened(tmp_path)
    assert put(store, range(5))
    store.clear()
    assert found(store, range(5)) == []
    crash(store)
    file_of(tmp_path, "journal").unlink()
    store = opened(tmp_path)
    assert found(store, range(5)) == []
    store.close()


def test_a_slot_is_used_again_only_after_the_journal_lost_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the write of a page then leaves none that the journal has and the slab has not."""
    store = opened(tmp_path, 300_000)
    real, seen = Slab.write, []

    def looks(self: Slab, block: int, pieces: list[memoryview]) -> None:
        records = whole_records(file_of(tmp_path, "journal").read_bytes())[0]
        gone = set(records["name"][records["kind"] == RecordKind.GONE].tolist())
        evicted = {name_of(number, prompt) for prompt in range(20) for number in range(8)}
        evicted -= store.parts.index.entries.keys()
        put_before = set(records["name"][records["kind"] == RecordKind.PAGE].tolist())
        seen.append((evicted & put_before) - gone)
        real(self, block, pieces)

    monkeypatch.setattr(Slab, "write", looks)
    for prompt in range(20):
        assert put(store, range(8), prompt=prompt)
    assert store.statistics().evicted_pages > 40
    assert len(seen) >= 20
    assert not any(seen[1:])
    store.close()
