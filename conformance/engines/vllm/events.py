"""vLLM's KV events as events of the spec, one page each.

vLLM emits its own block hashes. The translator learns the block hashes of every request with their
page hashes. An unknown block hash is passed on as it is, and no law accepts it as a page hash.

vLLM emits events for every KV cache group. Events of window groups are dropped, since the spec has
events for full data only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

from attrs import Factory, define

from kvcanon.conformance.engines.event_translator import medium_of, translate_each
from kvcanon.conformance.engines.vllm.factory import NAMES
from kvcanon.conformance.engines.vllm.peer_types import BlockHash, EventHash
from kvcanon.conformance.engines.vllm.prompts import namespace_of
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Key, Namespace

FULL_GROUP = 0
"""The index of the KV cache group with full attention."""


class VLLMEvent(Protocol):
    """vLLM's BlockStored; a BlockRemoved has `block_hashes`, `medium` and `group_idx`."""

    block_hashes: list[EventHash]
    parent_block_hash: EventHash | None
    token_ids: Sequence[int]
    block_size: int
    medium: str | None
    lora_name: str | None
    extra_keys: Sequence[Sequence[object] | None] | None
    group_idx: int | None


@define
class VLLMEventTranslator:
    """Translates vLLM's events, by the page hashes of the requests that were made."""

    page_hashes: dict[EventHash, bytes] = Factory(dict)
    """Page hashes by the block hash in events."""
    namespaces: dict[EventHash, Namespace] = Factory(dict)
    """Namespaces of stored pages: only the event of a prompt's first page has the salt."""

    def learn(self, key: Key, block_hashes: Iterable[BlockHash]) -> None:
        """Remember the page hashes of a key, by the block hashes that vLLM gives its pages."""
        hashes = page_hashes(namespace_seed(key.namespace), key.pages)
        for block_hash, page_hash in zip(block_hashes, hashes, strict=True):
            self.page_hashes[NAMES["maybe_convert_block_hash"](block_hash)] = page_hash

    def page_hash(self, sent: EventHash) -> bytes:
        """The page hash of a block hash; the block hash itself if it is unknown."""
        itself = sent if isinstance(sent, bytes) else sent.to_bytes(8, "big")
        return self.page_hashes.get(sent, itself)

    def translate(self, sent: Iterable[object]) -> Iterator[Event]:
        """Translate events to events of single pages. Raises: TypeError, for an unknown class."""
        by_kind = {"BlockStored": self._stored, "BlockRemoved": self._removed}
        return translate_each("vLLM", sent, by_kind)

    def _removed(self, event: object) -> Iterator[Event]:
        sent = cast("VLLMEvent", event)
        if sent.group_idx == FULL_GROUP:
            for each in sent.block_hashes:
                yield BlockRemoved(self.page_hash(each), medium_of(sent))

    def _stored(self, event: object) -> Iterator[Event]:
        sent = cast("VLLMEvent", event)
        if sent.group_idx != FULL_GROUP:
            return
        first, size = sent.parent_block_hash, sent.block_size
        namespace = _first_namespace(sent) if first is None else self.namespaces.get(first)
        if namespace is None:
            namespace = Namespace(lora=sent.lora_name)
        parent = None if first is None else self.page_hash(first)
        for at, each in enumerate(sent.block_hashes):
            page = tuple(sent.token_ids[at * size : (at + 1) * size])
            self.namespaces[each] = namespace
            yield BlockStored(self.page_hash(each), parent, page, medium_of(sent), namespace)
            parent = self.page_hash(each)


@define
class BlockCounter:
    """A listener that counts the blocks of each page."""

    blocks: Counter[bytes] = Factory(Counter)

    def distinct(self, events: Iterable[Event]) -> Iterator[Event]:
        """Only the first store of a page, and the remove of its last block."""
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self.blocks.clear()
                yield event
                continue
            before = self.blocks[event.block_hash]
            after = before + (1 if isinstance(event, BlockStored) else -1)
            self.blocks[event.block_hash] = after
            if not (before and after):
                yield event


def _first_namespace(sent: VLLMEvent) -> Namespace:
    """The namespace of a prompt, from the extra keys of its first page: LoRA name, then salt."""
    extra_keys = list((sent.extra_keys or [None])[0] or ())
    if sent.lora_name is not None:
        extra_keys = extra_keys[1:]
    return namespace_of(cast("str", extra_keys[0]) if extra_keys else None, sent.lora_name)
