"""The translator of SGLang's and vLLM's KV events: what both have in common.

Both engines emit the classes BlockStored, BlockRemoved and AllBlocksCleared. They differ in the
block hashes, in the number of pages per event, and in the namespace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from attrs import Factory, define

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.types import Medium


@define
class EventTranslator(ABC):
    """Translates an engine's events, by the page hashes of the keys that it was given."""

    engine: ClassVar[str]
    page_hashes: dict[int | bytes, bytes] = Factory(dict)
    """Page hashes by the block hash in events."""

    def translate(self, sent: Iterable[EngineObject]) -> Iterator[Event]:
        """Translate events to events of single pages. Raises: TypeError, for an unknown class."""
        for each in sent:
            match type(each).__name__:
                case "AllBlocksCleared":
                    yield AllBlocksCleared()
                case "BlockStored":
                    yield from self._stored(each)
                case "BlockRemoved":
                    yield from self._removed(each)
                case kind:
                    raise TypeError(f"{self.engine} sent a {kind}, which is no event that is known")

    @abstractmethod
    def _stored(self, sent: EngineObject) -> Iterator[Event]: ...

    @abstractmethod
    def _removed(self, sent: EngineObject) -> Iterator[Event]: ...


def medium_of(sent: EngineObject) -> Medium:
    """The medium of an event; None means the device."""
    return Medium(sent.medium) if sent.medium is not None else Medium.GPU
