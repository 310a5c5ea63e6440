"""vLLM's KV events as events of the spec, one page each.

vLLM emits its own block hashes. The translator learns the block hashes of every request with their
page hashes. An unknown block hash is passed on as it is, and no law accepts it as a page hash.

vLLM emits events for every KV cache group. Events of window groups are dropped, since the spec has
events for full data only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import Factory, define

from kvcanon.conformance.engines.event_translator import EventTranslator, medium_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.vllm.factory import NAMES
from kvcanon.conformance.engines.vllm.prompts import namespace_of
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Key, Namespace

FULL_GROUP = 0
"""The index of the KV cache group with full attention."""


@define
class VLLMEventTranslator(EventTranslator):
    """Translates vLLM's events."""

    engine = "vLLM"
    namespaces: dict[int | bytes, Namespace] = Factory(dict)
    """Namespaces of stored pages: only the event of a prompt's first page has the salt."""

    def learn(self, key: Key, block_hashes: Iterable[bytes]) -> None:
        """Remember the page hashes of a key, by the block hashes that vLLM gives its pages."""
        hashes = page_hashes(namespace_seed(key.namespace), key.pages)
        for block_hash, page_hash in zip(block_hashes, hashes, strict=True):
            self.page_hashes[NAMES["maybe_convert_block_hash"](block_hash)] = page_hash

    def page_hash(self, sent: int | bytes) -> bytes:
        """The page hash of a block hash; the block hash itself if it is unknown."""
        itself = sent if isinstance(sent, bytes) else sent.to_bytes(8, "big")
        return self.page_hashes.get(sent, itself)

    def _removed(self, sent: EngineObject) -> Iterator[Event]:
        if sent.group_idx == FULL_GROUP:
            for each in sent.block_hashes:
                yield BlockRemoved(self.page_hash(each), medium_of(sent))

    def _stored(self, sent: EngineObject) -> Iterator[Event]:
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


def _first_namespace(sent: EngineObject) -> Namespace:
    """The namespace of a prompt, from the extra keys of its first page: LoRA name, then salt."""
    extra_keys = list((sent.extra_keys or [None])[0] or ())
    if sent.lora_name is not None:
        extra_keys = extra_keys[1:]
    return namespace_of(extra_keys[0] if extra_keys else None, sent.lora_name)
