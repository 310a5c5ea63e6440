"""A fault that is planted in a plain store or the disk tier, and the registry of all of them.

A fault is a class that is derived from a store and overrides little of it. It is registered
with the law that it breaks; it may break others as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import frozen

from kvcanon.conformance.engines.disk.disk_store import disk_adapter
from kvcanon.conformance.stores.adapter import StoreAdapter
from kvcanon.conformance.stores.plain_stores import file_adapter, memory_adapter
from kvcanon.disk import DiskStore
from kvcanon.reference.stores.file_store import FileStore
from kvcanon.reference.stores.memory_store import MemoryServer, MemoryStore


@frozen
class StoreFault:
    """A planted fault."""

    name: str
    law_id: str
    what: str
    """The first sentence of its docstring."""
    adapter: StoreAdapter


STORE_FAULTS: dict[str, StoreFault] = {}
"""Every fault by name. Importing the modules of faults fills it."""

Faulty = TypeVar("Faulty", bound=type)


def breaks(law_id: str) -> Callable[[Faulty], Faulty]:
    """Register a class as a fault that breaks a law."""

    def register(faulty: Faulty) -> Faulty:
        name = faulty.__name__
        if issubclass(faulty, FileStore):
            adapter = file_adapter(name, faulty)
        elif issubclass(faulty, MemoryServer):
            adapter = memory_adapter(name, server_class=faulty)
        elif issubclass(faulty, MemoryStore):
            adapter = memory_adapter(name, faulty)
        elif issubclass(faulty, DiskStore):
            adapter = disk_adapter(name, faulty)
        else:
            raise TypeError(f"{name} is derived from no plain store")
        what = (faulty.__doc__ or "").strip().partition("\n")[0]
        STORE_FAULTS[name] = StoreFault(name, law_id, what, adapter)
        return faulty

    return register
