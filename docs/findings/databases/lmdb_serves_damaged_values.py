"""LMDB serves a value of which a bit was flipped; its file, cut, ends the process or does not open.

It needs the package lmdb: python lmdb_serves_damaged_values.py
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

import lmdb

PAGES, BYTES, MAP_BYTES = 32, 2048, 16 << 20


def name(page: int) -> bytes:
    """The key of a page."""
    return b"page %02d" % page


def stored(folder: str) -> Path:
    """Put pages in one transaction, which LMDB forces to the disk; returns the file."""
    with lmdb.open(folder, map_size=MAP_BYTES) as store, store.begin(write=True) as batch:
        for page in range(PAGES):
            batch.put(name(page), bytes([page + 1]) * BYTES)
    return Path(folder) / "data.mdb"


def in_a_process(folder: str) -> str:
    """Get all pages in a process of its own, and put one; returns what came of it."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, words_of(folder).encode())
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    os.close(write_end)
    said = os.read(read_end, 1000).decode()
    os.close(read_end)
    code = os.waitstatus_to_exitcode(status)
    return said if code == 0 else f"the process ended by {signal.Signals(-code).name}"


def words_of(folder: str) -> str:
    """What a user sees of the pages."""
    try:
        with lmdb.open(folder, map_size=MAP_BYTES) as store:
            with store.begin() as batch:
                got = [batch.get(name(page)) for page in range(PAGES)]
            wrong = sum(
                each is not None and each != bytes([page + 1]) * BYTES
                for page, each in enumerate(got)
            )
            words = f"{wrong} of {PAGES} pages have wrong bytes, {got.count(None)} are missing"
            with store.begin(write=True) as batch:
                batch.put(name(PAGES), bytes(BYTES))
            return f"{words}; a new page is stored"
    except lmdb.Error as error:
        return f"raises {type(error).__name__}"


found = []
for damage in ("none", "a bit flipped", "cut to an eighth", "emptied but for a byte"):
    with tempfile.TemporaryDirectory() as folder:
        file = stored(folder)
        data = bytearray(file.read_bytes())
        if damage == "a bit flipped":
            data[data.index(bytes([9]) * 64) + 10] ^= 1
        elif damage == "cut to an eighth":
            del data[len(data) // 8 :]
        elif damage != "none":
            del data[1:]
        file.write_bytes(data)
        found.append(in_a_process(folder))
        print(f"{damage}: {found[-1]}")
sys.exit(1 if found[1] != found[0] else 0)
