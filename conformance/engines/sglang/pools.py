"""SGLang's pools, whose slots are tokens, as pools whose slots are pages.

A page of a device pool is `page_size` consecutive tokens, and page 0 is padding: slot n is page
n + 1. A host pool has no padding: slot n is page n.

Free slots are read from the allocator's own free list, each time. A slot that the list has twice is
returned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

from attrs import frozen

from kvcanon.conformance.engines.sglang.peer_types import Tensor
from kvcanon.spec.types import Slot


class BrokenPage(Exception):
    """Token slots that do not form whole pages, so that the page cannot be read."""


@frozen(eq=False)
class SlotPool:
    """The slots of one component on one medium."""

    capacity: int
    page_size: int
    """Tokens per slot; 1 for mamba states."""
    padding: int
    """Pages before slot 0."""
    free_pages: Callable[[], Sequence[int]]
    """Returns the free pages, in the allocator's numbers."""
    planes: Sequence[Tensor]
    """Tensors with one row per token; a slot has a part of its bytes in each."""

    def free_slots(self) -> tuple[Slot, ...]:
        """The free slots, in the order of the free list."""
        return tuple([page - self.padding for page in self.free_pages()])

    def tokens(self, slots: Iterable[Slot]) -> Tensor:
        """The token slots of page slots, on the device of the pool."""
        torch, there = import_module("torch"), self.planes[0].device
        pages = torch.tensor(list(slots), dtype=torch.int64, device=there) + self.padding
        offsets = torch.arange(self.page_size, dtype=torch.int64, device=there)
        return (pages[:, None] * self.page_size + offsets).reshape(-1)

    def slots(self, tokens: Tensor | None) -> tuple[Slot, ...] | None:
        """The page slots of token slots. Raises: BrokenPage."""
        return None if tokens is None else self.slots_of(tokens.tolist())

    def slots_of(self, tokens: Sequence[int]) -> tuple[Slot, ...]:
        """The page slots of token slots. Raises: BrokenPage."""
        size = self.page_size
        if size == 1:
            return tuple([token - self.padding for token in tokens])
        firsts = tokens[::size]
        whole = [first + offset for first in firsts for offset in range(size)]
        if whole != list(tokens) or any(first % size for first in firsts):
            raise BrokenPage(f"tokens {list(tokens)} are no pages of {size} tokens each")
        return tuple([first // size - self.padding for first in firsts])

    def read(self, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        rows = self.tokens((slot,))
        return b"".join(bytes(plane[rows].reshape(-1).tolist()) for plane in self.planes)

    def write(self, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a slot."""
        rows, at = self.tokens((slot,)), 0
        for plane in self.planes:
            part = plane[rows]
            values = list(data[at : at + part.numel()])
            plane[rows] = part.new_tensor(values).reshape(part.shape)
            at += part.numel()


def pages_of_allocator(allocator: Tensor) -> Callable[[], Sequence[int]]:
    """The free pages of a device allocator, with those not yet merged into its free list."""

    def free() -> Sequence[int]:
        if hasattr(allocator, "get_all_free_pages"):
            every: list[int] = allocator.get_all_free_pages().tolist()
            return every
        pages: list[int] = allocator.free_pages.tolist()
        waiting: list[int] = allocator.release_pages.tolist()
        return pages + waiting

    return free


def pages_of_slots(owner: Tensor, page_size: int) -> Callable[[], Sequence[int]]:
    """The free pages of a pool whose free list has token slots or states.

    Slots that the pool keeps aside after they were freed count as free, too.
    """

    def free() -> Sequence[int]:
        listed: list[int] = owner.free_slots.tolist()
        for aside in getattr(owner, "release_slots", ()):
            listed += aside.tolist()
        return [token // page_size for token in listed if token % page_size == 0]

    return free
