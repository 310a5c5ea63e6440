"""Caches that allow or refuse reads and writes of the wrong slots."""

from __future__ import annotations

from kvcanon.reference import ReferenceCache
from kvcanon.spec.errors import BadArgument, SlotNotHeld
from kvcanon.spec.types import Component, Medium, Slot


class WritesAnywhere(ReferenceCache):
    """Allows writes to any slot, and accepts slots that do not exist."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Ignore the write."""

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        return super().read(component, medium, max(0, slot))


class WritesLittle(ReferenceCache):
    """Refuses slots below the third as not held."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        if slot < 2:
            raise SlotNotHeld(f"{component} on GPU", slot)
        super().write(component, slot, data)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        if slot < 2:
            raise BadArgument("slot", "is not liked")
        return super().read(component, medium, slot)
