"""Encodes events of `kvcanon.spec` for the wire, one batch at a time.

Events of consecutive pages become one event, as engines send them: stores that follow each other on
one medium, and removes on one medium. The events of the fast cache are encoded natively instead
(`PrefixCache.take_packed_events`), to the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from kvcanon.live.dialects import Dialect, media_name
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import wire_id

Fields: TypeAlias = dict[str, object]

_MASK = (1 << 64) - 1


class VllmStore(msgspec.Struct, tag="BlockStored", omit_defaults=True):
    """The fields of vLLM's BlockStored, in its order, and our extra key.

    A class with as many fields as vLLM's, since the encoding of a map begins with how many there
    can be.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[object]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[list[str] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[list[int]] | None = None
    extra_key: str | None = None


def encode_batch(
    events: Iterable[Event], dialect: Dialect, timestamp: float, rank: int = 0
) -> bytes:
    """The batch `[timestamp, events, rank]` as MessagePack."""
    sent = [_encode(_fields(run, dialect), dialect) for run in _runs(events)]
    return msgspec.msgpack.encode([timestamp, sent, rank])


def hash_on_wire(block_hash: bytes, dialect: Dialect) -> int:
    """The integer that stands for a page hash; 64 bits can collide."""
    if dialect is Dialect.VLLM:
        return int.from_bytes(block_hash, "big") & _MASK
    return wire_id(block_hash)


def _encode(fields: Fields, dialect: Dialect) -> object:
    if dialect is Dialect.LEGACY:
        return list(fields.values())
    if dialect is Dialect.VLLM and fields["type"] == "BlockStored":
        return msgspec.convert(fields, VllmStore)
    return fields


def _fields(run: Sequence[Event], dialect: Dialect) -> Fields:
    """The event of the wire for a run, with its fields in the order in which they are sent."""
    stores = [event for event in run if isinstance(event, BlockStored)]
    if stores:
        return _stored(stores, dialect)
    removes = [event for event in run if isinstance(event, BlockRemoved)]
    if not removes:
        return {"type": "AllBlocksCleared"}
    return {
        "type": "BlockRemoved",
        "block_hashes": [hash_on_wire(event.block_hash, dialect) for event in removes],
        "medium": media_name(removes[0].medium, dialect),
    }


def _runs(events: Iterable[Event]) -> list[list[Event]]:
    """The events in groups that one event of the wire can carry."""
    runs: list[list[Event]] = []
    for event in events:
        if runs and _continues(runs[-1][-1], event):
            runs[-1].append(event)
        else:
            runs.append([event])
    return runs


def _continues(before: Event, event: Event) -> bool:
    if isinstance(before, BlockStored) and isinstance(event, BlockStored):
        return (
            event.parent_hash == before.block_hash
            and event.medium is before.medium
            and event.namespace == before.namespace
            and len(event.page) == len(before.page)
        )
    both = isinstance(before, BlockRemoved) and isinstance(event, BlockRemoved)
    return both and getattr(before, "medium", None) is getattr(event, "medium", None)


def _stored(run: Sequence[BlockStored], dialect: Dialect) -> Fields:
    first = run[0]
    parent = first.parent_hash
    fields: Fields = {
        "type": "BlockStored",
        "block_hashes": [hash_on_wire(event.block_hash, dialect) for event in run],
        "parent_block_hash": None if parent is None else hash_on_wire(parent, dialect),
        "token_ids": [unit for event in run for unit in event.page],
        "block_size": len(first.page),
        "lora_id": None,
        "medium": media_name(first.medium, dialect),
    }
    if dialect is Dialect.LEGACY:
        return fields
    namespace = first.namespace
    if dialect is Dialect.VLLM:
        fields["lora_name"] = namespace.lora
        if namespace.lora is not None or namespace.cache_salt is not None:
            # The LoRA is hashed with each block, the salt with the first of all.
            keys = [namespace.lora] if namespace.lora is not None else []
            salt = [namespace.cache_salt] if namespace.cache_salt is not None else []
            first_keys = keys + salt * (parent is None)
            fields["extra_keys"] = [each or None for each in (first_keys, *[keys] * (len(run) - 1))]
    else:
        if namespace.cache_salt is not None:
            fields["cache_salt"] = namespace.cache_salt
        if namespace.lora is not None:
            fields["lora_name"] = namespace.lora
    if namespace.extra_key is not None:
        # No engine sends it; its readers skip what they do not know.
        fields["extra_key"] = namespace.extra_key
    return fields
