"""Reads events that came by other ways than a watch: TensorRT-LLM's, Dynamo's, and raw batches.

- TensorRT-LLM answers `/kv_cache_events` with JSON: `{"event_id", "window_size", "data": {"type":
  "stored", ...}}`. One event is one batch here, with its number. Each window is a group of layers.
- Dynamo's routers dump what they know as JSON events: `{"worker_id", "event": {"event_id", "data":
  {"stored": ...}, "dp_rank"}}`; its recorders write the same inside `{"timestamp", "event"}`. A
  worker is a publisher. There are hashes of tokens and no tokens.
- Raw batches are the payloads of frames, one after the other, or whole frames as arrays of topic,
  number and payload.

JSON is one list, or a list or an event a line. A file is read whole, so it has a bound.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from attrs import define, field, frozen

from kvcanon.live._stream import MalformedFrame, value_ends
from kvcanon.live.frames import SEQUENCE_BYTES, Arrived, Frame, Source
from kvcanon.live.input_files import BadRecording, in_utf_8, read_whole, require_file
from kvcanon.live.stream_recording import FAMILY, Recording, open_recording

Fields: TypeAlias = dict[str, Any]

FORMATS = (
    "a recording of `kvcanon watch --record`, JSON of TensorRT-LLM's /kv_cache_events, JSON of "
    "Dynamo's router events, or raw batches in MessagePack"
)
PADDING = 0xFFFFFFFF
"""Fills the last block of a prompt, of which TensorRT-LLM announces the tokens that it has."""
_NO_EVENTS = (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What JSON of other things raises where it is read as events."""
_TRT_MEDIA = ("GPU", "CPU_PINNED")
"""By the levels of TensorRT-LLM's cache."""
_DYNAMO_BLOCK = 2
"""The hash of a block's tokens stands for them, as two numbers of 32 bits."""
_WORD = 0xFFFFFFFF


@frozen
class HeldRecording(Recording):
    """What was read of another plane, as if a watch had recorded it."""

    held: tuple[Frame, ...] = ()

    def frames(self) -> Iterator[Arrived]:
        """All frames, in their order."""
        yield from self.held

    def frames_backwards(self) -> Iterator[Arrived]:
        """All frames, the last first."""
        yield from reversed(self.held)


def open_stream(path: Path) -> Recording:
    """Open a recording, or read a file of another plane. Raises: BadRecording."""
    require_file(path)
    if _is_recording(path):
        return open_recording(path)
    contents = read_whole(path)
    if not contents:
        raise BadRecording(f"{path} is no recording: it is empty")
    try:
        text = in_utf_8(contents)
    except ValueError:
        text = b""
    if text.lstrip()[:1] in {b"[", b"{"}:
        return _of_json(path, text)
    return _of_batches(path, contents)


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(FAMILY)) == FAMILY
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}") from error


# Raw batches.


def _of_batches(path: Path, contents: bytes) -> Recording:
    """The frames of payloads, or of whole frames, in MessagePack. Raises: BadRecording."""
    frames, begin = [], 0
    try:
        ends = value_ends(contents)
        # A file that does not begin with a clear need not begin with the first batch.
        first = 0 if b"AllBlocksCleared" in contents[: ends[0]] else 1
        for number, end in enumerate(ends, first):
            frames.append(_raw_frame(number, contents[begin:end]))
            begin = end
    except (MalformedFrame, msgspec.MsgspecError, *_NO_EVENTS) as error:
        raise BadRecording(f"{path} is no recording; give {FORMATS}") from error
    return HeldRecording(path, (Source(path.name),), (), 0, held=tuple(frames))


def _raw_frame(number: int, value: bytes) -> Frame:
    """A frame of one value. Raises: ValueError, TypeError."""
    parts = msgspec.msgpack.decode(value)
    if not isinstance(parts, list) or len(parts) < 2:
        raise ValueError("is no batch")
    if all(isinstance(each, bytes) for each in parts):
        topic, sequence, payload = parts
        if len(sequence) != SEQUENCE_BYTES:
            raise ValueError("is no frame")
        return Frame(0, topic, int.from_bytes(sequence, "big"), payload, 0.0)
    if not isinstance(parts[1], list):
        raise TypeError("is no batch")
    return Frame(0, b"", number, value, float(parts[0]))


# JSON.


def _of_json(path: Path, contents: bytes) -> Recording:
    """The frames of events in JSON. Raises: BadRecording."""
    try:
        events = list(_listed(contents))
        read = _dynamo if _is_dynamo(events[0]) else _tensorrt
        sources, frames = read(events)
    except _NO_EVENTS as error:
        raise BadRecording(f"{path} is no recording; give {FORMATS}") from error
    return HeldRecording(path, sources, (), 0, held=tuple(frames))


def _listed(contents: bytes) -> Iterator[Fields]:
    """Each event of a list, or of a list or an event a line. Raises: ValueError, TypeError."""
    try:
        whole = [json.loads(contents)]
    except json.JSONDecodeError:
        whole = [json.loads(line) for line in contents.splitlines() if line.strip()]
    for value in whole:
        for event in value if isinstance(value, list) else [value]:
            if not isinstance(event, dict):
                raise TypeError("is no event")
            yield event


def _is_dynamo(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("event"), dict)


def _packed(events: Sequence[Fields], at: float, rank: int) -> bytes:
    return msgspec.msgpack.encode([at, list(events), rank])


def _key(block_hash: int | str) -> int | bytes:
    """A hash on the wire: a number, or bytes of a text in hexadecimal digits."""
    return bytes.fromhex(block_hash) if isinstance(block_hash, str) else int(block_hash)


def _sequence(event_id: object) -> int:
    """The number of a batch. Raises: ValueError, TypeError."""
    if not isinstance(event_id, int) or not 0 <= event_id < 1 << 8 * SEQUENCE_BYTES:
        raise ValueError("is no number of an event")
    return event_id


# Dynamo.


def _dynamo(events: Sequence[Fields]) -> tuple[tuple[Source, ...], list[Frame]]:
    """The publishers and frames of router events."""
    workers: dict[int, int] = {}
    dumped: Counter[int] = Counter()
    frames = []
    for number, written in enumerate(events):
        inner = written["event"]
        is_dump = "worker_id" not in inner
        event = written if is_dump else inner
        at = float(written.get("timestamp", number))
        source = workers.setdefault(int(event["worker_id"]), len(workers))
        told = event["event"]
        sent = [_dynamo_event(told["data"], _dynamo_medium(event.get("storage_tier")))]
        sequence = _sequence(told["event_id"])
        if is_dump:
            # It is all that a worker has, whatever its numbers.
            sequence = dumped[source]
            sent = [{"type": "AllBlocksCleared"}] * (sequence == 0) + sent
            dumped[source] += 1
        payload = _packed(sent, at, int(told.get("dp_rank") or 0))
        frames.append(Frame(source, b"", sequence, payload, at))
    return tuple(Source(f"worker {worker}") for worker in workers), frames


def _dynamo_medium(tier: object) -> str:
    names = {"host_pinned": "CPU_PINNED", "disk": "DISK", "external": "EXTERNAL"}
    return names.get(str(tier).lower(), "GPU")


def _dynamo_event(data: object, medium: str) -> Fields:
    """One event, with the hash of a block's tokens in their place."""
    if isinstance(data, str) or "cleared" in data:  # type: ignore[operator]
        return {"type": "AllBlocksCleared"}
    told: Fields = dict(data)  # type: ignore[call-overload]
    if "removed" in told:
        hashes = [_key(each) for each in told["removed"]["block_hashes"]]
        return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}
    stored = told["stored"]
    parent = stored.get("parent_hash")
    blocks = stored["blocks"]
    tokens = [int(each["tokens_hash"]) for each in blocks]
    return {
        "type": "BlockStored",
        "block_hashes": [_key(each["block_hash"]) for each in blocks],
        "parent_block_hash": None if parent is None else _key(parent),
        "token_ids": [word for each in tokens for word in (each >> 32 & _WORD, each & _WORD)],
        "block_size": _DYNAMO_BLOCK,
        "lora_id": None,
        "medium": medium,
    }


# TensorRT-LLM.


@define
class _TrtCache:
    """What is told of blocks later by their hashes alone: where they are, and their tokens."""

    block_size: int
    windows: Sequence[int]
    stores: dict[tuple[int, int | bytes], Fields] = field(factory=dict)
    """The last store of each block, by the group and the hash."""

    def group(self, event: Mapping[str, Any]) -> int:
        """The group of layers of an event's window."""
        return self.windows.index(int(event.get("window_size") or 0))

    def kind(self, group: int) -> Fields:
        """What the layers of a group keep: the largest window is taken for full attention."""
        if group == len(self.windows) - 1:
            return {"kv_cache_spec_kind": "full_attention"}
        window = self.windows[group]
        return {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": window}


def _tensorrt(events: Sequence[Fields]) -> tuple[tuple[Source, ...], list[Frame]]:
    """The frames of TensorRT-LLM's events; of each rank a publisher, as each numbers its own."""
    stored = [
        block
        for event in events
        if event["data"]["type"] == "stored"
        for block in event["data"]["blocks"]
    ]
    size = max((len(each["tokens"]) for each in stored), default=1)
    windows = sorted({int(each.get("window_size") or 0) for each in events})
    ranks: dict[int, _TrtCache] = {}
    frames = []
    for number, event in enumerate(events):
        rank = int(event.get("attention_dp_rank") or 0)
        cache = ranks.setdefault(rank, _TrtCache(size, windows))
        sent = _TRT_EVENTS[event["data"]["type"]](cache, cache.group(event), event["data"])
        payload = _packed(list(sent), float(number), rank)
        source = list(ranks).index(rank)
        frames.append(Frame(source, b"", _sequence(event["event_id"]), payload, float(number)))
    return tuple(Source(f"rank {rank}", rank=rank) for rank in ranks), frames


def _trt_created(cache: _TrtCache, _group: int, _data: Fields) -> Iterator[Fields]:
    """A new cache is empty; each window tells it, and the first is enough."""
    if not cache.stores:
        yield {"type": "AllBlocksCleared"}


def _trt_stored(cache: _TrtCache, group: int, data: Fields) -> Iterator[Fields]:
    """A store for each block, since each has a level of its own."""
    parent = data.get("parent_hash")
    for block in data["blocks"]:
        key = _key(block["block_hash"])
        tokens = [_trt_token(each) for each in block["tokens"]]
        extra = [
            list(each) if isinstance(each, list) else each for each in block.get("mm_keys") or ()
        ]
        extra += [each["token_extra_id"] for each in block["tokens"] if each.get("token_extra_id")]
        store = {
            "type": "BlockStored",
            "block_hashes": [key],
            "parent_block_hash": None if parent is None else _key(parent),
            "token_ids": tokens + [PADDING] * (cache.block_size - len(tokens)),
            "block_size": cache.block_size,
            "lora_id": block.get("lora_id"),
            "medium": _TRT_MEDIA[int(block.get("cache_level") or 0)],
            "lora_name": None if block.get("lora_id") is None else str(block["lora_id"]),
            "extra_keys": [extra] if extra else None,
            "cache_salt": block.get("cache_salt"),
            "group_idx": group,
            **cache.kind(group),
        }
        cache.stores[group, key] = store
        yield store
        parent = block["block_hash"]


def _trt_token(token: Mapping[str, Any]) -> int:
    told = token["token_id"]
    return int(told) if isinstance(told, int) else int(str(told)[:8], 16)


def _trt_removed(cache: _TrtCache, group: int, data: Fields) -> Iterator[Fields]:
    """A remove from where each block was last."""
    for each in data["block_hashes"]:
        store = cache.stores.pop((group, _key(each)), None)
        medium = "GPU" if store is None else store["medium"]
        yield _trt_remove(_key(each), group, medium)


def _trt_updated(cache: _TrtCache, group: int, data: Fields) -> Iterator[Fields]:
    """A block that moves leaves one level and comes to another; priorities are no residency."""
    key, level = _key(data["block_hash"]), data.get("cache_level")
    store = cache.stores.get((group, key))
    if not level or store is None:
        return
    moved = store | {"medium": _TRT_MEDIA[int(level["new_value"])]}
    cache.stores[group, key] = moved
    yield moved
    yield _trt_remove(key, group, _TRT_MEDIA[int(level["old_value"])])


def _trt_remove(key: int | bytes, group: int, medium: str) -> Fields:
    fields = {"type": "BlockRemoved", "block_hashes": [key], "medium": medium}
    return fields | {"group_idx": group}


_TRT_EVENTS: Mapping[str, Callable[[_TrtCache, int, Fields], Iterator[Fields]]] = {
    "created": _trt_created,
    "stored": _trt_stored,
    "removed": _trt_removed,
    "updated": _trt_updated,
}
