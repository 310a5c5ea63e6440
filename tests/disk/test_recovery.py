"""What is found in a folder after a crash, after damage, and where something else was."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from disk_pages import IDENTITY, SEGMENT_BYTES, crash, file_of, found, name_of, opened, put
from kvcanon.disk import DiskIdentity, DiskStore, DiskUnusable
from kvcanon.disk.folders import remove_folder
from kvcanon.disk.records import RECORD_BYTES

EVERY = list(range(24))


def filled(root: Path, *, closed: bool) -> None:
    """Write pages in several groups, and end."""
    store = opened(root)
    for first in range(0, len(EVERY), 6):
        assert put(store, EVERY[first : first + 6])
    if closed:
        store.close()
    else:
        crash(store)


def after(root: Path, harm: Callable[[Path], None] | None = None) -> list[int]:
    """The pages that are found, after something was done to the folder."""
    if harm is not None:
        (folder,) = root.iterdir()
        harm(folder)
    store = opened(root)
    good = found(store, EVERY)
    assert put(store, EVERY)
    assert found(store, EVERY) == EVERY
    store.close()
    return good


def change(name: str, how: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Change the bytes of a file."""

    def harm(folder: Path) -> None:
        path = folder / name
        path.write_bytes(how(path.read_bytes()))

    return harm


HARMLESS = {
    "nothing": lambda _: None,
    "no journal": lambda folder: (folder / "journal").unlink(),
    "empty journal": change("journal", lambda _: b""),
    "cut journal": change("journal", lambda data: data[: len(data) // 2]),
    "journal cut between records": change("journal", lambda data: data[: 5 * RECORD_BYTES]),
    "header flipped": change("journal", lambda data: bytes([data[0] ^ 1]) + data[1:]),
    "record flipped": change(
        "journal", lambda data: data[:900] + bytes([data[900] ^ 8]) + data[901:]
    ),
    "journal of zeros": change("journal", lambda data: bytes(len(data))),
    "torn end": change("journal", lambda data: data + b"x" * 77),
    "rubbish at the end": change("journal", lambda data: data + bytes(range(256)) * 2),
    "half-written journal": lambda folder: (folder / "journal.new").write_bytes(b"half"),
    "no current header": lambda folder: (folder / "current").unlink(),
    "current header of zeros": change("current", lambda data: bytes(len(data))),
    "no facts": lambda folder: (folder / "identity.json").unlink(),
    "facts of zeros": change("identity.json", lambda data: bytes(len(data))),
    "label flipped": change("slab", lambda data: data[:4000] + b"?" + data[4001:]),
    "longer slab": change("slab", lambda data: data + b"behind"),
}
"""What a folder may suffer without losing a page."""


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("harm", HARMLESS.values(), ids=HARMLESS.keys())
def test_no_page_is_lost(tmp_path: Path, harm: Callable[[Path], None], *, closed: bool) -> None:
    """The journal and the slab each know enough to find every page without the other."""
    filled(tmp_path, closed=closed)
    assert after(tmp_path, harm) == EVERY


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
def test_a_cut_slab_loses_what_was_cut(tmp_path: Path, *, closed: bool) -> None:
    """What is left is served, and what is gone can be put again."""
    filled(tmp_path, closed=closed)
    half = after(tmp_path, change("slab", lambda data: data[: len(data) // 2]))
    assert 0 < len(half) < len(EVERY)


def test_a_journal_and_a_label_that_are_damaged_lose_one_segment_at_most(tmp_path: Path) -> None:
    """Every segment says itself how large its slots are."""
    filled(tmp_path, closed=False)

    def harm(folder: Path) -> None:
        change("journal", lambda _: b"")(folder)
        change(
            "slab", lambda data: data[:SEGMENT_BYTES] + b"?" * 4096 + data[SEGMENT_BYTES + 4096 :]
        )(folder)

    left = after(tmp_path, harm)
    assert len(EVERY) - 8 <= len(left) < len(EVERY)


def test_a_removed_page_does_not_come_back(tmp_path: Path) -> None:
    """Neither by a journal that lost the removal, nor by one that is gone."""
    store = opened(tmp_path)
    assert put(store, range(6))
    store.remove([(name_of(3), 0)])
    crash(store)
    change("journal", lambda data: data[:-RECORD_BYTES])(next(tmp_path.iterdir()))
    store = opened(tmp_path)
    assert found(store, range(6)) == [0, 1, 2, 4, 5]
    crash(store)
    file_of(tmp_path, "journal").unlink()
    store = opened(tmp_path)
    assert found(store, range(6)) == [0, 1, 2, 4, 5]
    store.close()


def test_a_power_cut_takes_the_end_of_the_journal_and_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of the journal was not forced to the disk may be gone, wherever it is cut."""
    forced: dict[int, int] = {}
    force = os.fdatasync

    def noted(file: int) -> None:
        force(file)
        forced[os.fstat(file).st_ino] = os.fstat(file).st_size

    monkeypatch.setattr(os, "fdatasync", noted)
    root = tmp_path / "store"
    store = opened(root, 300_000)
    cuts = 0
    for prompt in range(8):
        # From the third on each batch has to evict.
        assert put(store, range(6), prompt=prompt)
        there = {each: found(store, range(6), prompt=each) for each in range(prompt + 1)}
        journal = file_of(root, "journal")
        size, least = journal.stat().st_size, forced.get(journal.stat().st_ino, RECORD_BYTES)
        for cut in range(least, size + 1, RECORD_BYTES):
            copy = tmp_path / f"{prompt}-{cut}"
            shutil.copytree(root, copy)
            os.truncate(file_of(copy, "journal"), cut)
            again = opened(copy, 300_000)
            for each, pages in there.items():
                assert set(pages) <= set(found(again, range(6), prompt=each))
            again.close()
            shutil.rmtree(copy)
            cuts += 1
    assert cuts > 40
    assert store.statistics().evicted_pages > 20
    store.close()


def test_order_of_use_outlives_a_close(tmp_path: Path) -> None:
    """What was read last before a close is evicted last after it."""
    store = opened(tmp_path, 300_000)
    assert put(store, range(8), prompt=0)
    assert put(store, range(8), prompt=1)
    assert found(store, range(8), prompt=0) == list(range(8))
    store.close()
    store = opened(tmp_path, 300_000)
    assert put(store, range(12), prompt=2)
    assert found(store, range(8), prompt=0) == list(range(8))
    assert len(found(store, range(8), prompt=1)) < 8
    store.close()


def test_a_foreign_folder_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is kept under another name, the log says so, and a new store begins."""
    place = tmp_path / IDENTITY.folder
    place.mkdir()
    (place / "photos.zip").write_bytes(b"of the holidays")
    with caplog.at_level(logging.WARNING, "kvcanon.disk"):
        store = opened(tmp_path)
    assert put(store, range(3))
    store.close()
    assert (tmp_path / f"{place.name}.aside-1" / "photos.zip").read_bytes() == b"of the holidays"
    assert "was moved to" in caplog.text


def test_another_format_is_moved_aside(tmp_path: Path) -> None:
    """What a later version wrote is neither read nor removed."""
    filled(tmp_path, closed=True)
    facts = file_of(tmp_path, "identity.json")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"format": "2"}))
    store = opened(tmp_path)
    assert found(store, EVERY) == []
    store.close()
    assert (tmp_path / f"{IDENTITY.folder}.aside-1" / "slab").exists()


def test_a_file_in_place_of_the_folder_is_moved_aside(tmp_path: Path) -> None:
    """So is one in place of the lock, and one where the slab should be a file."""
    (tmp_path / IDENTITY.folder).write_text("a file")
    store = opened(tmp_path)
    assert put(store, range(2))
    store.close()
    folder = tmp_path / IDENTITY.folder
    (folder / "slab").unlink()
    (folder / "slab").mkdir()
    store = opened(tmp_path)
    assert put(store, range(2))
    store.close()


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """The message names the folder, and says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskUnusable, match=r"cannot be used .*: Not a directory; name a folder"):
        opened(tmp_path / "file" / "below")


def test_folders_of_other_models_give_way(tmp_path: Path) -> None:
    """The store of another model is removed when the room is needed, and not while it is open."""
    capacity = 500_000

    def store_of(weights: str) -> DiskStore:
        identity = DiskIdentity({"weights": weights})
        return DiskStore.open(tmp_path, identity, capacity, segment_bytes=SEGMENT_BYTES)

    old, served = store_of("old"), store_of("served")
    for store in (old, served):
        assert put(store, range(8))
    old.close()
    new = store_of("new")
    for prompt in range(30):
        assert put(new, range(8), prompt=prompt)
    assert not (tmp_path / DiskIdentity({"weights": "old"}).folder).exists()
    assert found(served, range(8)) == list(range(8))
    new.close()
    served.close()


@pytest.mark.parametrize("groups", [1, 11])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
def test_an_old_copy_of_a_journal_loses_nothing(
    tmp_path: Path, groups: int, *, closed: bool
) -> None:
    """A journal that was put back from a copy does not know the newer pages; their slots do."""
    store = opened(tmp_path, 300_000)
    assert put(store, range(8), prompt=0)
    store.close()
    old = file_of(tmp_path, "journal").read_bytes()
    store = opened(tmp_path, 300_000)
    for prompt in range(1, groups + 1):
        assert put(store, range(8), prompt=prompt)
    there = {
        (prompt, number) for prompt in range(12) for number in found(store, range(8), prompt=prompt)
    }
    if closed:
        store.close()
    else:
        crash(store)
    file_of(tmp_path, "journal").write_bytes(old)
    store = opened(tmp_path, 300_000)
    again = {
        (prompt, number) for prompt in range(12) for number in found(store, range(8), prompt=prompt)
    }
    assert again == there
    store.close()


def test_a_folder_that_was_opened_meanwhile_is_not_removed(tmp_path: Path) -> None:
    """Between the choice of a folder and its removal its model may be served again."""
    store = opened(tmp_path)
    assert not remove_folder(store.parts.folder.path)
    assert put(store, range(3))
    store.close()
    assert remove_folder(store.parts.folder.path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_no_reason_to_refuse_an_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are then served from what is there, after a crash too."""
    filled(tmp_path, closed=False)
    file_of(tmp_path, "identity.json").unlink()

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        for name in ("pwrite", "posix_fallocate", "fsync"):
            during.setattr(os, name, full)
        during.setattr(Path, "write_text", full)
        store = opened(tmp_path)
        assert found(store, EVERY) == EVERY
        assert not put(store, [99])
        store.close()
    assert after(tmp_path) == EVERY


def test_an_old_journal_from_before_a_lost_one_takes_no_page_away(tmp_path: Path) -> None:
    """Its records are older than what was written after the loss, whatever the slab has."""
    filled(tmp_path, closed=False)
    (folder,) = tmp_path.iterdir()
    HARMLESS["record flipped"](folder)
    store = opened(tmp_path)
    store.remove([(name_of(number), 0) for number in reversed(EVERY)])
    crash(store)
    old = (folder / "journal").read_bytes()
    (folder / "journal").unlink()
    store = opened(tmp_path)
    assert put(store, EVERY)
    crash(store)
    (folder / "journal").write_bytes(old)
    assert after(tmp_path) == EVERY
