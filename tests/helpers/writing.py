"""Caches that are wrong about which slots may be read and written."""

from __future__ import annotations

from kvcanon.reference import ReferenceCache
from kvcanon.spec.errors import BadArgument, SlotNotHeld
from kvcanon.spec.types import Component, Medium, Slot


class WritesAnywhere(ReferenceCache):
    """Lets anybody write behind any slot, and takes slots for there that are not."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Say nothing."""

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Count slots from the end, too."""
        return super().read(component, medium, max(0, slot))


class WritesLittle(ReferenceCache):
    """Takes slots below the third for nobody's."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Refuse some slots."""
        if slot < 2:
            raise SlotNotHeld(f"{component} on GPU", slot)
        super().write(component, slot, data)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Refuse some slots."""
        if slot < 2:
            raise BadArgument("slot", "is not liked")
        return super().read(component, medium, slot)
