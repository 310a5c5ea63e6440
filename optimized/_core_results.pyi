"""The results of the native core's calls: a part of `_core`, which has no module of its own."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

class Matched:
    """The longest usable prefix of a prompt.

    `full` has one device slot a page, from page 0 on; `swa` those of the last pages, as far back as
    there is window data; `mamba` the one at the end. The arrays are made when they are read.
    """

    @property
    def prefix_pages(self) -> int:
        """Pages of the prefix, on any medium."""
    @property
    def device_pages(self) -> int:
        """Pages of the prefix that can be used on the device now."""
    @property
    def full(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def swa(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def mamba(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the load-backs in flight along the prefix."""

class Inserted:
    """Where the slots of an insert went, by component."""

    @property
    def present_pages(self) -> int:
        """Pages of the prompt that the tree had before."""
    @property
    def adopted(self) -> list[int]:
        """Slots that the tree took over."""
    @property
    def freed(self) -> list[int]:
        """Slots that came free, because the tree had their pages."""
    @property
    def backups(self) -> tuple[int, ...]:
        """Ids of the backups that the insert enqueued."""
    @property
    def backup_declined_pages(self) -> int:
        """Pages that were not backed up, because the host had too few free slots."""

class LoadedBack:
    """What a load-back did.

    `full`, `swa` and `mamba` are the slots of the whole prompt, as a match returns them once the
    transfer has settled; they are empty where nothing was enqueued. A layer may be read as soon as
    `wait_layer` returns for it.
    """

    @property
    def decision(
        self,
    ) -> Literal["enqueued", "nothing_to_load", "below_threshold", "over_quota", "no_room"]:
        """A value of kvcanon.spec.operations.LoadDecision."""
    @property
    def transfer_id(self) -> int | None:
        """Id of the transfer; None where nothing was enqueued."""
    @property
    def loading(self) -> list[int]:
        """Slots that are being filled, by component."""
    @property
    def evicted(self) -> list[int]:
        """Device slots that were evicted for the load, by component."""
    @property
    def full(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def swa(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def mamba(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""

class HostSlots:
    """Where a prompt is on the host.

    `full` has one host slot a page, from page 0 on; `swa` those of the last pages, as far back as
    there is window data; `mamba` the one at the end. The arrays are made when they are read.
    """

    @property
    def pages(self) -> int:
        """Pages of the prompt that are on the host."""
    @property
    def full(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def swa(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""
    @property
    def mamba(self) -> NDArray[np.int32]:
        """Slots, an int32 array that is made when it is read."""

PackedPart: TypeAlias = tuple[int, int, int, int | None, bytes, bytes]
"""What happened, namespace, medium, the hash of the page before, hashes and tokens."""

class PackedEvents:
    """Events that were taken, ready to be encoded by any thread."""

    def __len__(self) -> int:
        """How many events."""
    @property
    def pages(self) -> int:
        """Pages that were stored or removed."""
    def encode(self, dialect: int, timestamp: float, rank: int) -> bytes:
        """Encode the batch as MessagePack. The GIL is released.

        The dialect is its place in `kvcanon.live.dialects.DIALECTS`.
        """

class Event:
    """A run of consecutive pages that was stored on a medium or removed from it."""

    @property
    def kind(self) -> Literal["stored", "removed", "cleared"]:
        """What happened: "stored", "removed", or "cleared" for all pages at once."""
    @property
    def medium(self) -> Literal["GPU", "CPU_PINNED"]:
        """A value of kvcanon.spec.types.Medium."""
    @property
    def namespace(self) -> int:
        """Number of the namespace."""
    @property
    def pages(self) -> int:
        """How many pages."""
    @property
    def parent_hash(self) -> bytes | None:
        """Hash of the page before the first; None where there is none."""
    @property
    def hashes(self) -> bytes:
        """Page hashes, 32 bytes each; of removed pages the last comes first."""
    @property
    def tokens(self) -> NDArray[np.uint32]:
        """Tokens of the pages: uint32[pages, words a page]."""
