"""A request: what is asked, how far it is computed, and what it holds of the cache for that.

What readers get wrong: of its first `tree_pages` pages a request owns no slot. They are the tree's,
and the receipt alone keeps them there; the slots of the pages behind are the request's own, until
it hands them over by an insert or gives them back.
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
    """The prompt, and the answer as far as it is known."""
    end_tokens: int
    """Length of both together, when the answer is complete."""
    namespace: int
    memory: PagedMemory

    computed_tokens: int = 0
    """So many leading tokens have their keys and values in the slots of the table."""
    prompt_tokens: int = 0
    """Where decoding began: these are inserted as soon as they are computed."""
    tree_pages: int = 0
    """Leading pages whose slots are the tree's."""
    counted_pages: int = 0
    """Leading pages that an insert of this request has reached; hits are counted once."""
    receipt: int | None = None
    may_load: bool = True
    """False once a load for it has failed."""

    logits: dict[int, Tensor] = field(factory=dict)
    """Of every position that was computed."""
    reused_pages: int = 0
    """Pages that were cached when it started last."""
    loaded_pages: int = 0
    """Those of them whose full data came from the host."""
    loaded_window_pages: int = 0
    retractions: int = 0

    @property
    def table(self) -> PageTable:
        """Where its pages are."""
        return self.memory.table

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return len(self.tokens) >= self.end_tokens

    def key(self, length_tokens: int) -> Tokens:
        """The first tokens, as the cache takes them."""
        return np.array(self.tokens[:length_tokens], dtype=np.int32)

    def own_slots(self, end_page: int | None = None) -> tuple[SlotArray, SlotArray]:
        """The slots of its own pages, up to `end_page`: full, and swa as far as it has them."""
        own = slice(self.tree_pages, end_page)
        window = [slot for slot in self.table.swa[own] if slot != NO_SLOT]
        return slot_array(self.table.full[own]), slot_array(window)


def slot_array(slots: Sequence[Slot]) -> SlotArray:
    """Slots, as the cache takes them."""
    return np.array(slots, dtype=np.int32)
