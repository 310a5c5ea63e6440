"""Shared parts of the translators of SGLang's and vLLM's KV events: event kinds and the medium.

Both engines emit the classes BlockStored, BlockRemoved and AllBlocksCleared. They differ in the
block hashes, in the number of pages per event, and in the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.types import Medium


class OnMedium(Protocol):
    """An event with a medium; None means the device."""

    medium: str | None


def translate_each(
    engine: str, sent: Iterable[object], by_kind: Mapping[str, Callable[[object], Iterator[Event]]]
) -> Iterator[Event]:
    """Translate each event by its class. Raises: TypeError, for an unknown class."""
    for each in sent:
        kind = type(each).__name__
        if kind == "AllBlocksCleared":
            yield AllBlocksCleared()
        elif kind in by_kind:
            yield from by_kind[kind](each)
        else:
            raise TypeError(f"{engine} sent a {kind}, which is no event that is known")


def medium_of(sent: OnMedium) -> Medium:
    """The medium of an event."""
    return Medium(sent.medium) if sent.medium is not None else Medium.GPU
