"""SGLang's KV events as events of the spec, one page each.

SGLang emits 64-bit block hashes: the first 8 bytes of the page hash. The translator learns every
inserted key, to find the page hash of a block hash. An unknown block hash is passed on as its 8
bytes, which no law accepts as a page hash.

Later releases put many pages into one event. The pages of one remove event come deepest first here,
since one event has no order in time.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import Factory, define

from kvcanon.conformance.engines.event_translator import EventTranslator, medium_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes, wire_id
from kvcanon.spec.types import Key, Page


@define
class SGLangEventTranslator(EventTranslator):
    """Translates SGLang's events; it knows a page hash by its first 64 bits."""

    engine = "SGLang"
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

    def _removed(self, sent: EngineObject) -> Iterator[Event]:
        for block_hash in sorted(sent.block_hashes, key=lambda each: -self.depths.get(each, 0)):
            yield BlockRemoved(self.page_hash(block_hash), medium_of(sent))

    def _stored(self, sent: EngineObject) -> Iterator[Event]:
        first = sent.parent_block_hash
        parent = None if first is None else self.page_hash(first)
        for at, block_hash in enumerate(sent.block_hashes):
            page_hash = self.page_hash(block_hash)
            yield BlockStored(page_hash, parent, _page(sent, at), medium_of(sent))
            parent = page_hash


def _page(sent: EngineObject, at: int) -> Page:
    """The tokens, or bigrams, of one page of an event; the last page has the rest."""
    size = sent.block_size
    begin = at * size
    end = None if at == len(sent.block_hashes) - 1 else begin + size
    return tuple(
        unit if isinstance(unit, int) else (unit[0], unit[1]) for unit in sent.token_ids[begin:end]
    )
