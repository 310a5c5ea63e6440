"""The plain stores: what each does at its limits. The judge plays the rest."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kvcanon.reference.stores import FileStore, MemoryServer, MemoryStore
from kvcanon.reference.stores.memory_store import DEADLINE_SECONDS, PAUSE_SECONDS
from kvcanon.spec.stores import PageKey, StoreIdentity

IDENTITY = StoreIdentity(page_size=1)
KEYS = [PageKey(tuple(range(length))) for length in (1, 2, 3, 4)]
PAGE = bytes(100)


def read(store: FileStore | MemoryStore, key: PageKey) -> int | None:
    """Get one page."""
    (length,) = store.get([(key, memoryview(bytearray(len(PAGE))))])
    return length


def test_full_server_evicts_the_end_of_a_prompt() -> None:
    """With room for three pages the fourth of another prompt takes the last of the first."""
    store = MemoryStore(MemoryServer(3 * len(PAGE)), IDENTITY)
    assert store.put([(key, PAGE) for key in KEYS[:3]]) == [True] * 3
    assert store.put([(PageKey((9,)), PAGE)]) == [True]
    assert store.exists(KEYS[:3]) == [True, True, False]
    assert store.leading_run(KEYS) == 2


def test_page_that_never_fits_is_refused() -> None:
    """Nothing is evicted for a page that is larger than the capacity."""
    store = MemoryStore(MemoryServer(len(PAGE)), IDENTITY)
    assert store.put([(KEYS[0], PAGE)]) == [True]
    assert store.put([(PageKey((9,)), bytes(101))]) == [False]


def test_stopped_server_costs_one_deadline_and_is_used_again() -> None:
    """The second call returns at once; after the pause the pages are there."""
    server = MemoryServer()
    store = MemoryStore(server, IDENTITY)
    store.put([(KEYS[0], PAGE)])
    server.running.clear()
    assert read(store, KEYS[0]) is None
    begin = time.monotonic()
    assert read(store, KEYS[0]) is None
    assert time.monotonic() - begin < DEADLINE_SECONDS
    server.running.set()
    time.sleep(PAUSE_SECONDS)
    assert read(store, KEYS[0]) == len(PAGE)


def test_damaged_file_is_removed_and_written_again(tmp_path: Path) -> None:
    """A miss, and then the next put."""
    store = FileStore(tmp_path, IDENTITY)
    assert store.put([(KEYS[0], PAGE)]) == [True]
    store.file_of(KEYS[0]).write_bytes(b"zeros")
    assert read(store, KEYS[0]) is None
    assert store.exists(KEYS[:1]) == [False]
    assert store.put([(KEYS[0], PAGE)]) == [True]
    assert read(store, KEYS[0]) == len(PAGE)


def test_file_under_another_name_is_no_page(tmp_path: Path) -> None:
    """The header has the name, so that a file that was moved proves nothing."""
    store = FileStore(tmp_path, IDENTITY)
    store.put([(KEYS[0], PAGE)])
    store.file_of(KEYS[0]).rename(store.file_of(KEYS[1]))
    assert read(store, KEYS[1]) is None


def test_unfinished_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    """Those of a process that runs are another writer's."""
    store = FileStore(tmp_path, IDENTITY)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    ended = store.home / f"page.{pid}.0.tmp"
    running = store.home / f"page.{os.getppid()}.0.tmp"
    for path in (ended, running):
        path.touch()
    FileStore(tmp_path, IDENTITY)
    assert not ended.exists()
    assert running.exists()
