"""SGLang's KV events as events of the spec, one page each.

SGLang emits 64-bit block hashes: the first 8 bytes of the page hash. The translator learns every
inserted key, to find the page hash of a block hash. An unknown block hash is passed on as its 8
bytes, which no law accepts as a page hash.

Later releases put many pages into one event. The pages of one remove event come deepest first here,
since one event has no order in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from attrs import Factory, define

from kvcanon.conformance.engines.event_translator import medium_of, translate_each
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes, wire_id
from kvcanon.spec.types import Key, Page


class SGLangEvent(Protocol):
    """SGLang's BlockStored; a BlockRemoved has `block_hashes` and `medium`."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int | tuple[int, int]]
    block_size: int
    medium: str | None


@define
class SGLangEventTranslator:
    """Translates SGLang's events, by the page hashes of the keys that were inserted."""

    page_hashes: dict[int, bytes] = Factory(dict)
    """Page hashes by their first 64 bits."""
    depths: dict[int, int] = Factory(dict)
    """How many pages come before a page, by block hash."""

    def learn(self, key: Key) -> None:
        """Remember the page hashes of a key."""
        for depth, page_hash in enumerate(page_hashes(namespace_seed(key.namespace), key.pages)):
            self.page_hashes[wire_id(page_hash)] = page_hash
            self.depths[wire_id(page_hash)] = depth

    def page_hash(self, block_hash: int) -> bytes:
        """The page hash that begins with these 64 bits; the 64 bits alone if it is unknown."""
        return self.page_hashes.get(block_hash) or block_hash.to_bytes(8, "big", signed=True)

    def translate(self, sent: Iterable[object]) -> Iterator[Event]:
        """Translate events to events of single pages. Raises: TypeError, for an unknown class."""
        by_kind = {"BlockStored": self._stored, "BlockRemoved": self._removed}
        return translate_each("SGLang", sent, by_kind)

    def _removed(self, event: object) -> Iterator[Event]:
        sent = cast("SGLangEvent", event)
        for block_hash in sorted(sent.block_hashes, key=lambda each: -self.depths.get(each, 0)):
            yield BlockRemoved(self.page_hash(block_hash), medium_of(sent))

    def _stored(self, event: object) -> Iterator[Event]:
        sent = cast("SGLangEvent", event)
        first = sent.parent_block_hash
        parent = None if first is None else self.page_hash(first)
        for at, block_hash in enumerate(sent.block_hashes):
            page_hash = self.page_hash(block_hash)
            yield BlockStored(page_hash, parent, _page(sent, at), medium_of(sent))
            parent = page_hash


def _page(sent: SGLangEvent, at: int) -> Page:
    """The tokens, or bigrams, of one page of an event; the last page has the rest."""
    size = sent.block_size
    begin = at * size
    end = None if at == len(sent.block_hashes) - 1 else begin + size
    return tuple(
        unit if isinstance(unit, int) else (unit[0], unit[1]) for unit in sent.token_ids[begin:end]
    )
