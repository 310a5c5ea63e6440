"""Slot memory: the bytes behind device slots, for a cache that never moves data.

A prefix cache hands out slots, and the model writes KV to that memory. The judge plays the model:
it writes stamps, and reads them again where a match says that they are. For a cache that only keeps
books this memory is an array beside it. The array may not follow the cache: nothing is cleared on
an eviction, nothing is copied, so that a slot given to two prompts shows the wrong bytes.

A cache that copies data itself, to a host tier or to defragment its pool, must be given memory that
it really copies; then write the adapter's `read` and `write` over that.
"""

from __future__ import annotations

from attrs import define, field

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import GPU, Component, Medium, Slot


@define(eq=False)
class SlotMemory:
    """The bytes of each device slot; zeros before they are written."""

    config: CacheConfig
    _bytes: dict[tuple[Component, Slot], bytes] = field(factory=dict, init=False)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes of a slot. Raises: BadArgument: there is no such slot."""
        self._check(component, medium, slot)
        return self._bytes.get((component, slot), bytes(self.config.slot_bytes))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot. Whether a request holds it is for `SlotLedger.check_writable`.

        Raises: BadArgument: there is no such slot, or the data is not of its size.
        """
        self._check(component, GPU, slot)
        if len(data) != self.config.slot_bytes:
            raise BadArgument("data", f"has {len(data)} bytes; a slot has {self.config.slot_bytes}")
        self._bytes[component, slot] = data

    def _check(self, component: Component, medium: Medium, slot: Slot) -> None:
        capacity = self.config.capacity(component, medium) if medium is GPU else 0
        if not 0 <= slot < capacity:
            raise BadArgument("slot", f"is {slot}; {component} on {medium} has {capacity} slots")
