"""Keeps two pages of a prompt on a disk, and finds them after a restart."""

import hashlib
import tempfile
from pathlib import Path

from kvcanon.disk import DiskIdentity, DiskStore, PageGet, PagePut

IDENTITY = DiskIdentity({"weights": "revision-1", "kv_dtype": "bfloat16", "page_size": "16"})
FIRST = hashlib.sha256(b"the first 16 tokens").digest()
SECOND = hashlib.sha256(FIRST + b"the next 16 tokens").digest()


def opened(folder, identity=IDENTITY):
    """Open the store, with a gigabyte at most."""
    return DiskStore.open(Path(folder), identity, capacity_bytes=10**9)


def read(store, name):
    """Get a page of 128 KiB; None for a miss."""
    buffer = bytearray(131_072)
    (length,) = store.get([PageGet(name, (memoryview(buffer),))])
    return None if length is None else bytes(buffer[:length])


with tempfile.TemporaryDirectory() as folder:
    store = opened(folder)
    keys, values = b"k" * 65_536, b"v" * 65_536
    done = store.put(
        [
            PagePut(FIRST, (memoryview(keys), memoryview(values))),
            PagePut(SECOND, (memoryview(values), memoryview(keys)), parent=FIRST),
        ]
    )
    print("stored:", done)
    store.close()

    store = opened(folder)
    print("found after a restart:", store.leading_run([FIRST, SECOND]))
    print("equal:", read(store, SECOND) == values + keys)
    store.close()

    others = opened(folder, DiskIdentity({**IDENTITY.facts, "weights": "revision-2"}))
    print("with other weights:", others.leading_run([FIRST, SECOND]))
    others.close()
