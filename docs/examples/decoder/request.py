"""A request: its tokens, how far it is computed, and what it holds in the cache.

The slots of its first `tree_pages` pages belong to the tree, and the receipt keeps them there. The
slots of later pages belong to the request, until it inserts or frees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import define, field
from torch import Tensor

from kvcanon.spec.types import Slot
from paging import NO_SLOT, PagedMemory, PageTable

Tokens: TypeAlias = npt.NDArray[np.int32]
SlotArray: TypeAlias = npt.NDArray[np.int32]


@define(eq=False)
class Request:
    """A prompt that grows by an answer."""

    tokens: list[int]
    """The prompt, and the answer so far."""
    end_tokens: int
    """Length of prompt and complete answer."""
    namespace: int
    memory: PagedMemory

    computed_tokens: int = 0
    """Leading tokens whose keys and values are in the slots of the table."""
    prompt_tokens: int = 0
    """Tokens before decoding began: their pages are inserted as soon as they are computed."""
    tree_pages: int = 0
    """Leading pages whose slots belong to the tree."""
    counted_pages: int = 0
    """Leading pages that this request has inserted: their hits are counted already."""
    receipt: int | None = None
    may_load: bool = True
    """False once a load for it has failed."""

    logits: dict[int, Tensor] = field(factory=dict)
    """By position, for every computed position."""
    reused_pages: int = 0
    """Pages that were cached at its last start."""
    loaded_pages: int = 0
    """Reused pages whose full data came from the host."""
    loaded_window_pages: int = 0
    retractions: int = 0

    @property
    def table(self) -> PageTable:
        """The slots of its pages."""
        return self.memory.table

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return len(self.tokens) >= self.end_tokens

    def key(self, length_tokens: int) -> Tokens:
        """The first tokens, as the cache takes them."""
        return np.array(self.tokens[:length_tokens], dtype=np.int32)

    def own_slots(self, end_page: int | None = None) -> tuple[SlotArray, SlotArray]:
        """The slots that the request owns, up to `end_page`: full slots, and window slots."""
        own = slice(self.tree_pages, end_page)
        window = [slot for slot in self.table.swa[own] if slot != NO_SLOT]
        return slot_array(self.table.full[own]), slot_array(window)


def slot_array(slots: Sequence[Slot]) -> SlotArray:
    """Slots, as the cache takes them."""
    return np.array(slots, dtype=np.int32)
