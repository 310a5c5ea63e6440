"""The native ledger, as live/native/bind_stream.cpp binds it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kvcanon.live.ledger_types import BookCounts, BreachTuple

BLOCK_BYTES: int
"""Bytes of a block that is held, without its place in the index."""

class MalformedFrame(ValueError):
    """The bytes are no batch of events."""

FindSeeds: TypeAlias = Callable[[bytes | None, bytes | None, bytes | None, bytes], Sequence[bytes]]

class Ledger:
    """What a stream says is cached, by rank and group of layers."""

    def __init__(
        self,
        find_seeds: FindSeeds,
        hashes: int = 0,
        host_is_closed: bool = False,
        tracing: bool = False,
        finding_prompts: bool = False,
    ) -> None: ...
    def fold(
        self, payload: bytes, begins: bool = False
    ) -> tuple[int, float, int, int, int, list[BreachTuple]]:
        """Fold a batch: its rank, time, events, pages, unknown events, and what it breaks.

        `begins` says that it is the first of a publisher. Raises: MalformedFrame.
        """
    def lose(self) -> None:
        """Batches were lost: what may have been in them is no breach from now on."""
    def drop(self) -> None:
        """Another publisher took the place of this one, and its first batches were lost."""
    def take_trace(self) -> bytes:
        """What happened since the last call, 34 bytes each: kind, medium, digest."""
    def books(self) -> list[tuple[int, int, bool, BookCounts]]:
        """Each book: its rank, group, whether all was seen, and its counts."""
    @property
    def namespaces(self) -> int:
        """Namespaces that have blocks."""
    def contents(self, rank: int, group: int) -> bytes:
        """What a book holds, 33 bytes a block: the digest, and a bit for each medium."""
    def media_of(self, rank: int, group: int, seed: bytes, tokens: Sequence[int]) -> list[int]:
        """The media of a prompt's leading pages, as bits, up to the first that is nowhere."""
