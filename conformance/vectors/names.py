"""Names: what a script calls the keys, slots, receipts and transfers of the plain cache.

A slot keeps its name as long as it holds the same page. Once it was freed it gets a new name, as
another cache may take another slot there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import GPU, Component, Slot
from kvcanon.spec.views import COLUMN, PageNumber, PageNumbers, page_rows

PlacedSlot: TypeAlias = tuple[str, Slot]
"""A component, and one of its slots on the device."""
Owners: TypeAlias = Mapping[PlacedSlot, PageNumber | None]
"""The page that each used slot holds; None where a request holds the slot."""

_POOLS = frozenset(component.value for component in Component)
_NAMESPACE = {"extra_key": None, "cache_salt": None, "lora": None}


class ScriptNames:
    """The names that were given so far."""

    def __init__(self) -> None:
        self.keys: dict[str, object] = {}
        self._known: dict[tuple[str, object], str] = {}
        """Names by what they are given to: a kind of number, and the number."""
        self._given: dict[str, int] = {}

    def of_call(self, value: object) -> object:
        """A call with names in it; a slot that has no name now stays a number."""
        return self._named(value, "", binds=False)

    def of_answer(self, value: object) -> object:
        """An answer with names in it; what comes up first gets a name."""
        return self._named(value, "", binds=True)

    def transfer(self, transfer_id: int) -> str:
        """The name of a copy."""
        return self._name("transfer", transfer_id)

    def knows_transfer(self, transfer_id: int) -> bool:
        """Whether a copy has a name."""
        return ("transfer", transfer_id) in self._known

    def forget_slots(self, before: Owners, after: Owners) -> None:
        """Take their names from slots that were freed, or that hold another page now."""
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
        assert isinstance(namespace, dict)  # noqa: S101  # As the wire has it.
        key = {"pages": value["pages"], "namespace": {**_NAMESPACE, **namespace}}
        text = json.dumps(key)
        name = self._name("key", text)
        # As JSON has it: tuples are lists.
        self.keys.setdefault(name, json.loads(text))
        return name

    def _name(self, kind: str, of: object) -> str:
        if (kind, of) not in self._known:
            self._given[kind] = self._given.get(kind, 0) + 1
            self._known[kind, of] = f"${kind}_{self._given[kind]}"
        return self._known[kind, of]


def slot_owners(state: Snapshot, numbers: PageNumbers) -> Owners:
    """Who has each device slot that is not free."""
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
