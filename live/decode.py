"""Decodes batches into values, for printing and for excerpts; the native ledger has its own reader.

All forms that publishers have sent are read: maps tagged with `type`, and arrays. Fields and types
of events that are not known are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from attrs import frozen

BlockHash: TypeAlias = int | bytes

STORED_PLACES = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
)
REMOVED_PLACES = ("type", "block_hashes", "medium", "group_idx")
_PLACES = {
    "BlockStored": STORED_PLACES,
    "BlockRemoved": REMOVED_PLACES,
    "AllBlocksCleared": ("type",),
}


class _Fields(msgspec.Struct):
    """What fields can be, as the ledger reads them."""

    block_hashes: list[int | bytes] | None
    parent_block_hash: int | bytes | None
    token_ids: list[object] | None
    medium: str | None


class UnreadableBatch(ValueError):
    """Bytes that are no batch of events."""


@frozen
class SentEvent:
    """An event as it was sent, whatever its form: its type, and its fields by name."""

    index: int
    kind: str
    fields: Mapping[str, Any]

    @property
    def hashes(self) -> list[BlockHash]:
        """The hashes of its blocks."""
        return list(self.fields.get("block_hashes") or ())

    @property
    def group(self) -> int:
        """The group of layers; 0 where none is named by a number."""
        return int(self.fields["group_idx"]) if self.names_group else 0

    @property
    def names_group(self) -> bool:
        """Whether it says which group of layers it is about."""
        return isinstance(self.fields.get("group_idx"), int)

    def as_map(self) -> dict[str, Any]:
        """The event as a map, as publishers send it now."""
        return {"type": self.kind, **self.fields}

    def only(self, page: int) -> SentEvent:
        """The event for one page of the batch."""
        fields = dict(self.fields)
        hashes = self.hashes
        fields["block_hashes"] = [hashes[page]]
        if self.kind == "BlockStored":
            tokens = list(fields.get("token_ids") or ())
            size = int(fields.get("block_size") or 0)
            if size and len(tokens) == size * len(hashes):
                fields["token_ids"] = tokens[page * size : (page + 1) * size]
                if page:
                    fields["parent_block_hash"] = hashes[page - 1]
            extra = fields.get("extra_keys")
            if isinstance(extra, Sequence) and len(extra) == len(hashes):
                fields["extra_keys"] = [extra[page]]
        return SentEvent(self.index, self.kind, fields)


@frozen
class SentBatch:
    """A batch as it was sent."""

    timestamp: float
    rank: int
    events: tuple[SentEvent, ...]


def decode_batch(payload: bytes) -> SentBatch:
    """Decode a payload. Raises: UnreadableBatch."""
    try:
        batch = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBatch(f"is no MessagePack: {error}") from error
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise UnreadableBatch("is no array of a time and a list of events")
    rank = batch[2] if len(batch) > 2 and isinstance(batch[2], int) else 0
    return SentBatch(float(batch[0]), rank, tuple(_events(batch[1])))


def key_of(block_hash: BlockHash) -> int:
    """The 64 bits by which the ledger knows a hash."""
    if isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[:8], "big")
    return block_hash & 0xFFFF_FFFF_FFFF_FFFF


def _events(sent: Sequence[object]) -> Iterator[SentEvent]:
    for index, event in enumerate(sent):
        if isinstance(event, Mapping):
            fields = dict(event)
        elif isinstance(event, list) and event:
            fields = dict(zip(_PLACES.get(str(event[0]), ("type",)), event, strict=False))
        else:
            raise UnreadableBatch(f"has {type(event).__name__} where an event is due")
        kind = str(fields.pop("type", ""))
        if kind in _PLACES:
            known = {name: fields.get(name) for name in _Fields.__struct_fields__}
            try:
                msgspec.convert(known, _Fields)
            except msgspec.ValidationError as error:
                raise UnreadableBatch(f"has a {kind} with a wrong field: {error}") from error
            yield SentEvent(index, kind, fields)
