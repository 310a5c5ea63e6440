"""vLLM's KV events as events of the spec, one page each.

vLLM sends its own block hashes. The block hashes of every request are learned with the page hashes
that they stand for; an unknown one is passed on as it is, which no law takes for a page hash.

vLLM sends events for every KV cache group. Those of window groups are left out, as the spec's
events are of full data only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

from attrs import Factory, define

from kvcanon.conformance.engines.vllm.peer_types import BlockHash, EventHash
from kvcanon.conformance.engines.vllm.prompts import namespace_of
from kvcanon.conformance.engines.vllm.release import named
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Key, Medium, Namespace

FULL_GROUP = 0
"""The group of layers with full attention."""


class VLLMEvent(Protocol):
    """An event of vLLM's, with the fields of the kinds that have any."""

    block_hashes: list[EventHash]
    parent_block_hash: EventHash | None
    token_ids: Sequence[int]
    block_size: int
    medium: str | None
    lora_name: str | None
    extra_keys: Sequence[Sequence[object] | None] | None
    group_idx: int | None


@define
class VLLMPageHashes:
    """The names of pages by the hashes of their blocks."""

    names: dict[EventHash, bytes] = Factory(dict)
    namespaces: dict[EventHash, Namespace] = Factory(dict)
    """Of the pages that were announced: only the first page of a prompt has its salt."""

    def learn(self, key: Key, block_hashes: Iterable[BlockHash]) -> None:
        """Know the pages of a key by the hashes that vLLM gives their blocks."""
        names = page_hashes(namespace_seed(key.namespace), key.pages)
        for block_hash, name in zip(block_hashes, names, strict=True):
            self.names[named("maybe_convert_block_hash")(block_hash)] = name

    def name(self, sent: EventHash) -> bytes:
        """The name that a hash stands for; the hash itself, if it stands for none."""
        itself = sent if isinstance(sent, bytes) else sent.to_bytes(8, "big")
        return self.names.get(sent, itself)

    def translated(self, sent: Iterable[object]) -> Iterator[Event]:
        """Events of vLLM's, one after another."""
        for each in sent:
            kind = type(each).__name__
            if kind == "AllBlocksCleared":
                yield AllBlocksCleared()
            elif kind not in ("BlockStored", "BlockRemoved"):
                raise TypeError(f"vLLM sent a {kind}, which is no event that is known")
            elif (event := cast("VLLMEvent", each)).group_idx == FULL_GROUP:
                yield from self._stored(event) if kind == "BlockStored" else self._removed(event)

    def _removed(self, sent: VLLMEvent) -> Iterator[Event]:
        for each in sent.block_hashes:
            yield BlockRemoved(self.name(each), _medium(sent))

    def _stored(self, sent: VLLMEvent) -> Iterator[Event]:
        first, size = sent.parent_block_hash, sent.block_size
        namespace = _first_namespace(sent) if first is None else self.namespaces.get(first)
        parent = None if first is None else self.name(first)
        for at, each in enumerate(sent.block_hashes):
            page = tuple(sent.token_ids[at * size : (at + 1) * size])
            of = namespace if namespace is not None else Namespace(lora=sent.lora_name)
            self.namespaces[each] = of
            yield BlockStored(self.name(each), parent, page, _medium(sent), of)
            parent = self.name(each)


@define
class BlockCounter:
    """The stream as one hears it who counts the blocks that hold a page."""

    blocks: Counter[bytes] = Factory(Counter)

    def heard(self, events: Iterable[Event]) -> Iterator[Event]:
        """The first store of a page, and the remove of its last block."""
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
    """The namespace of a prompt, by what is told with its first page: adapter, then salt."""
    told = list((sent.extra_keys or [None])[0] or ())
    if sent.lora_name is not None:
        told = told[1:]
    return namespace_of(cast("str", told[0]) if told else None, sent.lora_name)


def _medium(sent: VLLMEvent) -> Medium:
    return Medium(sent.medium) if sent.medium is not None else Medium.GPU
