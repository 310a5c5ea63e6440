"""SGLang's KV events as events of the spec, one page each.

SGLang sends 64-bit block hashes: the first bytes of the page hash. Every key that is inserted is
learned, so that its 64-bit hashes are known; an unknown one is passed on as its 8 bytes, which no
law takes for a page hash.

Later releases put many pages into one event. Of pages that are removed by one event the deepest
comes first here, as one event has no order in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from attrs import Factory, define

from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes, wire_id
from kvcanon.spec.types import Key, Medium, Page


class SGLangEvent(Protocol):
    """An event of SGLang's, with the fields of the kinds that have any."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int | tuple[int, int]]
    block_size: int
    medium: str | None


@define
class SGLangPageHashes:
    """The names of pages by their ids."""

    names: dict[int, bytes] = Factory(dict)
    depths: dict[int, int] = Factory(dict)
    """How many pages come before a page."""

    def learn(self, key: Key) -> None:
        """Know the pages of a key."""
        for depth, name in enumerate(page_hashes(namespace_seed(key.namespace), key.pages)):
            self.names[wire_id(name)] = name
            self.depths[wire_id(name)] = depth

    def name(self, page_id: int) -> bytes:
        """The name that an id stands for; the id itself, if it stands for none."""
        return self.names.get(page_id) or page_id.to_bytes(8, "big", signed=True)

    def translated(self, sent: Iterable[object]) -> Iterator[Event]:
        """Events of SGLang's, one after another."""
        for each in sent:
            kind = type(each).__name__
            if kind == "AllBlocksCleared":
                yield AllBlocksCleared()
            elif kind == "BlockRemoved":
                removed = cast("SGLangEvent", each)
                deepest_first = sorted(removed.block_hashes, key=self._height)
                for page_id in deepest_first:
                    yield BlockRemoved(self.name(page_id), _medium(removed))
            elif kind == "BlockStored":
                yield from self._stored(cast("SGLangEvent", each))
            else:
                raise TypeError(f"SGLang sent a {kind}, which is no event that is known")

    def _height(self, page_id: int) -> int:
        return -self.depths.get(page_id, 0)

    def _stored(self, sent: SGLangEvent) -> Iterator[Event]:
        first = sent.parent_block_hash
        parent = None if first is None else self.name(first)
        for at, page_id in enumerate(sent.block_hashes):
            name = self.name(page_id)
            yield BlockStored(name, parent, _page(sent, at), _medium(sent))
            parent = name


def _page(sent: SGLangEvent, at: int) -> Page:
    """The units of the page at a place of the event; the last has what is left."""
    size = sent.block_size
    begin = at * size
    end = None if at == len(sent.block_hashes) - 1 else begin + size
    return tuple(
        unit if isinstance(unit, int) else (unit[0], unit[1]) for unit in sent.token_ids[begin:end]
    )


def _medium(sent: SGLangEvent) -> Medium:
    return Medium(sent.medium) if sent.medium is not None else Medium.GPU
