"""The native core: what optimized/native/bind_*.cpp give to Python."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

# --------------------------------------------------------------------------------------------------
# Names of pages (bind_hashing.cpp)
# --------------------------------------------------------------------------------------------------

def hash_ways() -> list[str]:
    """Name the ways in which this processor can compute SHA-256, the fastest first."""

def page_hashes(
    seed: bytes, words: NDArray[np.uint32], words_per_page: int, way: str | None = None
) -> NDArray[np.uint8]:
    """Return the names of the whole pages of one chain: an array of 32 bytes a page.

    They are those of `kvcanon.spec.hashing.page_hashes`, where the words of a page are its tokens,
    or of a page of bigrams the two tokens of each.
    """

def page_hashes_batch(
    seeds: Sequence[bytes],
    words: Sequence[NDArray[np.uint32]],
    words_per_page: Sequence[int],
    way: str | None = None,
) -> list[NDArray[np.uint8]]:
    """Return the names of the pages of several chains.

    Two chains of one page size take little longer than one.
    """

# --------------------------------------------------------------------------------------------------
# The tree (bind_tree.cpp). Numbers stand for the members of the enums of kvcanon.spec, in their
# order there: components 0 full, 1 swa, 2 mamba; media 0 GPU, 1 CPU; directions 0 backup, 1 load.
# --------------------------------------------------------------------------------------------------

Three: TypeAlias = tuple[int, int, int]
"""So many slots of each component."""

class Matched:
    """What a match found; arrays are made when they are asked for."""

    @property
    def prefix_pages(self) -> int: ...
    @property
    def device_pages(self) -> int: ...
    @property
    def full(self) -> NDArray[np.int32]: ...
    @property
    def swa(self) -> NDArray[np.int32]: ...
    @property
    def mamba(self) -> NDArray[np.int32]: ...
    @property
    def pending(self) -> tuple[int, ...]: ...

class Inserted:
    """Where the slots of an insert went."""

    @property
    def present_pages(self) -> int: ...
    @property
    def adopted(self) -> list[int]: ...
    @property
    def freed(self) -> list[int]: ...
    @property
    def backups(self) -> tuple[int, ...]: ...
    @property
    def backup_declined_pages(self) -> int: ...

class LoadedBack:
    """What a load-back did.

    The slots are those of the whole key: what a match will give once the load has settled. Before
    that a layer may be read as soon as the engine says that it is there. Where nothing was enqueued
    they are empty.
    """

    @property
    def decision(
        self,
    ) -> Literal["enqueued", "nothing_to_load", "below_threshold", "over_quota", "no_room"]: ...
    @property
    def transfer_id(self) -> int | None: ...
    @property
    def loading(self) -> list[int]: ...
    @property
    def evicted(self) -> list[int]: ...
    @property
    def full(self) -> NDArray[np.int32]: ...
    @property
    def swa(self) -> NDArray[np.int32]: ...
    @property
    def mamba(self) -> NDArray[np.int32]: ...

class Event:
    """What is told of a stretch of pages on a medium, one page after the other."""

    @property
    def kind(self) -> Literal["stored", "removed", "cleared"]: ...
    @property
    def medium(self) -> Literal["GPU", "CPU_PINNED"]: ...
    @property
    def namespace(self) -> int: ...
    @property
    def pages(self) -> int: ...
    @property
    def parent_name(self) -> bytes | None: ...
    @property
    def names(self) -> bytes: ...
    @property
    def tokens(self) -> NDArray[np.uint32]: ...

class Engine(Protocol):
    """Who performs copies. A move is a component with its source and target slots."""

    def submit(
        self,
        transfer_id: int,
        direction: int,
        moves: list[tuple[int, NDArray[np.int32], NDArray[np.int32]]],
    ) -> None: ...
    def poll(self) -> Sequence[tuple[int, bool]]: ...
    def wait(self, transfer_id: int) -> None: ...

Tokens: TypeAlias = NDArray[np.uint32] | NDArray[np.int32] | NDArray[np.int64] | torch.Tensor
SlotArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | torch.Tensor

DataTuple: TypeAlias = tuple[
    tuple[int, ...] | None, tuple[int, ...] | None, int, int | None, int | None, int
]
NodeTuple: TypeAlias = tuple[
    int,
    int | None,
    tuple[int, ...],
    int,
    bytes,
    int,
    tuple[DataTuple, ...],
    int,
    int,
    int,
    int,
    bytes | None,
]
TransferTuple: TypeAlias = tuple[
    int,
    int,
    tuple[tuple[int, int], ...],
    tuple[tuple[int, ...] | None, ...],
    tuple[tuple[int, ...] | None, ...],
    bool,
]

class Tree:
    """The decision core: which pages are where, who holds them, and who leaves."""

    def __init__(
        self,
        *,
        page_size: int,
        unit_words: int,
        window_tokens: int,
        mamba: bool,
        device_slots: Three,
        host_slots: Three,
        write_policy: int,
        eviction_policy: int,
        load_back_threshold_pages: int,
        events: bool,
        engine: Engine | None,
        tag_bits: int = 32,
    ) -> None:
        """Few `tag_bits` make pages share their hash, which a test wants and nobody else."""
    def namespace(self, encoded: bytes, seed: bytes) -> int: ...
    def match(self, tokens: Tokens, namespace: int = 0) -> Matched: ...
    def lock(self, tokens: Tokens, namespace: int = 0, pages: int | None = None) -> int: ...
    def unlock(self, receipt: int) -> None: ...
    def unlock_window(self, receipt: int) -> None: ...
    def allocate(
        self, full: int, swa: int = 0, mamba: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]: ...
    def free(
        self, full: SlotArray, swa: SlotArray | None = None, mamba: SlotArray | None = None
    ) -> None: ...
    def insert(
        self,
        tokens: Tokens,
        start_pages: int,
        full: SlotArray,
        swa: SlotArray | None = None,
        mamba: SlotArray | None = None,
        namespace: int = 0,
        counted_pages: int = 0,
        priority: int = 0,
    ) -> Inserted: ...
    def evict(self, full: int, swa: int = 0, mamba: int = 0) -> list[int]: ...
    def evict_host(self, full: int, swa: int = 0, mamba: int = 0) -> list[int]: ...
    def load_back(
        self, tokens: Tokens, quota_pages: int | None = None, namespace: int = 0
    ) -> LoadedBack: ...
    def insert_host(
        self, tokens: Tokens, start_pages: int, payloads: Three, namespace: int = 0
    ) -> tuple[int, int, int, int, list[tuple[int, int, NDArray[np.int32]]]]: ...
    def poll(self) -> tuple[tuple[int, int], ...]: ...
    def flush(self) -> tuple[tuple[int, int], ...]: ...
    def reset(self) -> None: ...
    def take_events(self) -> list[Event]: ...
    def pending_events(self) -> list[Event]: ...
    def nodes(self) -> list[NodeTuple]: ...
    def pool(self, component: int, medium: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]: ...
    def holds_slot(self, component: int, slot: int) -> bool: ...
    def holds(self) -> list[tuple[int, int, int | None, bool, int | None]]: ...
    def transfers(self) -> list[TransferTuple]: ...
    def pairs(self) -> dict[int, int]: ...
    def usage(self, component: int) -> tuple[int, int]: ...
    def free_counts(self, medium: int) -> tuple[int, int, int]: ...
    def pool_counts(self, component: int, medium: int) -> tuple[int, int, int, int, int]: ...
    def counters(self) -> dict[str, int | Three]: ...
    def calls(self) -> dict[str, tuple[int, int, int]]: ...
    def check(self) -> None: ...
