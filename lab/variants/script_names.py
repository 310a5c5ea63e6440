"""Script names: names for the keys, slots, receipts and transfers of the plain cache.

A slot keeps its name as long as it holds the same page. After it was freed it gets a new name, as
another cache may use another slot there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import GPU, Component, Slot
from kvcanon.spec.views import COLUMN, PageNumber, PageNumbers, page_rows

PlacedSlot: TypeAlias = tuple[str, Slot]
"""A component, and the number of a device slot."""
Owners: TypeAlias = Mapping[PlacedSlot, PageNumber | None]
"""The page in each used slot; None if a request holds the slot."""

_POOLS = frozenset(component.value for component in Component)
_NAMESPACE = {"extra_key": None, "cache_salt": None, "lora": None}


class ScriptNames:
    """The names given so far."""

    def __init__(self) -> None:
        self.keys: dict[str, object] = {}
        self._known: dict[tuple[str, object], str] = {}
        """Names by the kind of number and the number."""
        self._given: dict[str, int] = {}

    def of_call(self, value: object) -> object:
        """Replace numbers in a call by names; a slot without a name stays a number."""
        return self._named(value, "", binds=False)

    def of_answer(self, value: object) -> object:
        """Replace numbers in an answer by names; a number that is new gets a name."""
        return self._named(value, "", binds=True)

    def transfer(self, transfer_id: int) -> str:
        """Return the name of a copy."""
        return self._name("transfer", transfer_id)

    def knows_transfer(self, transfer_id: int) -> bool:
        """Whether a copy has a name."""
        return ("transfer", transfer_id) in self._known

    def forget_slots(self, before: Owners, after: Owners) -> None:
        """Drop the names of slots that were freed, or that hold another page now."""
        for slot, page in before.items():
            if slot not in after or (page is not None and after[slot] != page):
                self._known.pop(slot, None)

    def _named(self, value: object, field: str, *, binds: bool) -> object:
        if isinstance(value, dict):
            if "pages" in value:
                return self._key(value)
            pool = value.get("component")
            return {
                name: self._named(each, f"{pool} slot" if name == "slot" else name, binds=binds)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            if field == "transfers":
                return [[self.transfer(transfer_id), status] for transfer_id, status in value]
            inner = f"{field} slot" if field in _POOLS else field
            return [self._named(each, inner, binds=binds) for each in value]
        if type(value) is not int:
            return value
        return self._number(value, field, binds=binds)

    def _number(self, value: int, field: str, *, binds: bool) -> object:
        match field.split(" "):
            case ["receipt_id"]:
                return self._name("receipt", value)
            case ["transfer_id" | "backups" | "pending"]:
                return self.transfer(value)
            case [pool, "slot"] if binds or (pool, value) in self._known:
                return self._name(pool, value)
            case _:
                return value

    def _key(self, value: dict[str, object]) -> str:
        namespace = value.get("namespace") or {}
        assert isinstance(namespace, dict)  # The wire format demands it.
        key = {"pages": value["pages"], "namespace": {**_NAMESPACE, **namespace}}
        text = json.dumps(key)
        name = self._name("key", text)
        # JSON has lists, not tuples.
        self.keys.setdefault(name, json.loads(text))
        return name

    def _name(self, kind: str, of: object) -> str:
        if (kind, of) not in self._known:
            self._given[kind] = self._given.get(kind, 0) + 1
            self._known[kind, of] = f"${kind}_{self._given[kind]}"
        return self._known[kind, of]


def slot_owners(state: Snapshot, numbers: PageNumbers) -> Owners:
    """Return the page in each device slot that is not free; None for slots of requests."""
    owners: dict[PlacedSlot, PageNumber | None] = {}
    for (component, medium), pool in state.pools.items():
        if medium is GPU:
            owners.update({(component.value, slot): None for slot in pool.held})
    for number, row in page_rows(state, numbers, state.below_root()).items():
        for component, column in COLUMN.items():
            slot = row.device[column]
            if slot is not None:
                owners[component.value, slot] = number
    return owners
