"""Events, and batches as publishers send them, that the tests of kvcanon.live share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import kvcanon.spec.laws  # noqa: F401  Importing the laws is what registers them.
from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Arrived, Frame, Source
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import Recording, StreamRecorder, open_recording
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes, wire_id
from kvcanon.spec.types import DEFAULT_NAMESPACE, GPU, Medium, Namespace, Page

ENGINE = ("tcp://engine:5557",)
CLEARED: dict[str, Any] = {"type": "AllBlocksCleared"}
SALTED = Namespace(cache_salt="tenant")
TUNED = Namespace(lora="tuned", cache_salt="s")


def pages_of(*first_tokens: int, size: int = 4) -> list[Page]:
    """Pages of consecutive tokens, by the first token of each."""
    return [tuple(range(first, first + size)) for first in first_tokens]


def stores(
    *first_tokens: int, medium: Medium = GPU, namespace: Namespace = DEFAULT_NAMESPACE
) -> list[Event]:
    """The stores of a prompt's pages."""
    pages = pages_of(*first_tokens)
    hashes = page_hashes(namespace_seed(namespace), pages)
    parents = [None, *hashes[:-1]]
    return [
        BlockStored(digest, parent, page, medium, namespace)
        for digest, parent, page in zip(hashes, parents, pages, strict=True)
    ]


def removes(stored: Sequence[Event], medium: Medium = GPU) -> list[Event]:
    """The removes of stored pages, the last first."""
    hashes = [event.block_hash for event in stored if isinstance(event, BlockStored)]
    return [BlockRemoved(each, medium) for each in reversed(hashes)]


ALL_KINDS: list[Event] = [
    AllBlocksCleared(),
    *stores(10, 20, 70000),
    *stores(30, 40, medium=Medium.CPU),
    *stores(10, 200, namespace=SALTED),
    *stores(10, 20, namespace=TUNED),
    *removes(stores(10, 20, 70000)),
    *removes(stores(30, 40), medium=Medium.CPU),
]
"""Every kind of event, on two media, in three namespaces."""


def store(first_tokens: Sequence[int], *, size: int = 4, **changed: object) -> dict[str, Any]:
    """A store on the wire, of pages of consecutive tokens from a prompt's beginning."""
    pages = pages_of(*first_tokens, size=size)
    salt = changed.get("cache_salt")
    namespace = Namespace(cache_salt=str(salt)) if salt is not None else DEFAULT_NAMESPACE
    hashes = [wire_id(each) for each in page_hashes(namespace_seed(namespace), pages)]
    event: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": None,
        "token_ids": [token for page in pages for token in page],
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
    }
    return event | changed


def tail(event: dict[str, Any], pages: int) -> dict[str, Any]:
    """The store without its first pages, which are before it."""
    size, hashes = event["block_size"], event["block_hashes"]
    return event | {
        "block_hashes": hashes[pages:],
        "parent_block_hash": hashes[pages - 1],
        "token_ids": event["token_ids"][pages * size :],
    }


def head(event: dict[str, Any], pages: int) -> dict[str, Any]:
    """The store of its first pages alone."""
    tokens = event["token_ids"][: pages * event["block_size"]]
    return event | {"block_hashes": event["block_hashes"][:pages], "token_ids": tokens}


def remove(hashes: Iterable[int], medium: str = "GPU") -> dict[str, Any]:
    """A remove on the wire."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": medium}


def batch(*events: object, rank: int = 0, at: float = 1.0) -> bytes:
    """A batch as MessagePack."""
    return msgspec.msgpack.encode([at, list(events), rank])


def frame(number: int, *events: object, rank: int = 0, source: int = 0) -> Frame:
    """A batch as it arrives."""
    return Frame(source, b"", number, batch(*events, rank=rank), 1.0)


def followed(
    *batches: Sequence[object], config: FollowerConfig | None = None
) -> tuple[Follower, list[StreamFinding]]:
    """Fold batches of events, from number 0 on; the follower and what it found."""
    follower = Follower(config=config)
    found: list[StreamFinding] = []
    for number, events in enumerate(batches):
        found += follower.take(frame(number, *events))
    return follower, found


def recorded(
    path: Path, arrived: Iterable[Arrived], *endpoints: str, flush_each: bool = False
) -> Recording:
    """A recording of what arrived, of publishers at some addresses."""
    with StreamRecorder(path, [Source(each) for each in endpoints or ENGINE]) as recorder:
        for each in arrived:
            recorder.write(each)
            if flush_each:
                recorder.flush()
    return open_recording(path)


def frames_of(*batches: Sequence[object]) -> list[Frame]:
    """Batches of events as they arrive a second apart, from number 0 and second 1 on."""
    return [
        Frame(0, b"", number, batch(*events), 1.0 + number) for number, events in enumerate(batches)
    ]
