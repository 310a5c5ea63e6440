"""Events as they were sent, turned into those of the spec, block by block, to fold into rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvcanon.conformance.show.event_rows import WIRE_BYTES
from kvcanon.live.decode import BlockHash, SentEvent, key_of
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.types import CPU, GPU, Medium, Namespace, Page

MEDIA: Mapping[object, Medium] = {
    None: GPU,  # The oldest forms have no medium, and know of the device alone.
    "CPU": CPU,
    **{medium.value: medium for medium in Medium},
}


def pages_sent(event: SentEvent) -> Iterator[Event]:
    """The events of an event's blocks; none where its medium is not known."""
    fields = event.fields
    medium = MEDIA.get(fields.get("medium"))
    if event.kind == "AllBlocksCleared":
        yield AllBlocksCleared()
    elif medium is None:
        return
    elif event.kind == "BlockRemoved":
        for each in event.hashes:
            yield BlockRemoved(wire_hash(each), medium)
    else:
        yield from _stored(event, medium)


def wire_hash(block_hash: BlockHash) -> bytes:
    """The 64 bits by which a block is known."""
    return key_of(block_hash).to_bytes(WIRE_BYTES, "big")


def _stored(event: SentEvent, medium: Medium) -> Iterator[Event]:
    parent = event.fields.get("parent_block_hash")
    before = None if parent is None else wire_hash(parent)
    hashes = event.hashes
    pages = _pages(event, len(hashes))
    namespace = _namespace(event.fields)
    for each, page in zip(hashes, pages, strict=True):
        block_hash = wire_hash(each)
        yield BlockStored(block_hash, before, page, medium, namespace)
        before = block_hash


def _pages(event: SentEvent, blocks: int) -> list[Page]:
    """The tokens of each block; empty where they are not there, or are no whole blocks."""
    tokens = event.fields.get("token_ids") or ()
    size = event.fields.get("block_size")
    if not isinstance(tokens, Sequence) or not isinstance(size, int) or not tokens:
        return [()] * blocks
    if size <= 0 or len(tokens) != size * blocks:
        return [()] * blocks
    units = [tuple(unit) if isinstance(unit, Sequence) else unit for unit in tokens]
    return [tuple(units[at : at + size]) for at in range(0, len(units), size)]


def _namespace(fields: Mapping[str, object]) -> Namespace:
    """What tells the prompts of tenants and adapters apart, as it was sent."""
    lora = fields.get("lora_name") or fields.get("lora_id")
    extra = fields.get("extra_key") or _first(fields.get("extra_keys"))
    salt = fields.get("cache_salt")
    given = (None if each is None else str(each) for each in (extra, salt, lora))
    return Namespace(*given)


def _first(extra_keys: object) -> object:
    """VLLM's extra keys of the first block; None where it has none."""
    if isinstance(extra_keys, Sequence) and extra_keys and extra_keys[0]:
        return ", ".join(map(str, extra_keys[0]))
    return None
