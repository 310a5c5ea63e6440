"""Faults planted into the stream of a fast cache that evicts, backs up and loads back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest

from array_api import insert, new_cache
from kvcanon.live.dialects import DIALECTS
from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Namespace

Event: TypeAlias = dict[str, Any]
Frames: TypeAlias = list[tuple[int, list[Any]]]
"""Batches, each with its number."""

STEPS = 300
WRITE_THROUGH = FollowerConfig(host_is_closed=True)
NAMESPACES = (Namespace(), Namespace(cache_salt="tenant"), Namespace(lora="tuned"))


@cache
def payloads(dialect: int) -> tuple[bytes, ...]:
    """The batches of a run: prompts that share, in three namespaces, in a pool too small."""
    pools = {"device_slots": Counts(400), "host_slots": Counts(900)}
    config = CacheConfig(page_size=4, write_policy="write_through", **pools)  # type: ignore[arg-type]
    tree, drawn = new_cache(config), np.random.default_rng(3)
    shared = drawn.integers(0, 90_000, 4 * 150, dtype=np.uint32)
    sent = []
    for step in range(STEPS):
        own = drawn.integers(0, 90_000, 4 * 20, dtype=np.uint32)
        prompt = np.concatenate([shared[: 4 * int(drawn.integers(1, 150))], own])
        if tree.free_slot_counts()[0] < 200:
            tree.evict(200)
        insert(tree, prompt, namespace=tree.namespace(NAMESPACES[step % 3]))
        tree.flush()
        sent.append(tree.take_packed_events().encode(dialect, float(step), 0))
    return tuple(sent)


def frames(dialect: int = 0) -> Frames:
    """The run's batches as values that a test may change."""
    return [(n, msgspec.msgpack.decode(each)) for n, each in enumerate(payloads(dialect))]


def laws_of(sent: Frames) -> list[str]:
    """The laws that a stream breaks, in the order in which they are found."""
    follower = Follower(config=WRITE_THROUGH)
    return [
        finding.law_id
        for number, batch in sent
        for finding in follower.take(Frame(0, b"", number, msgspec.msgpack.encode(batch), 0.0))
    ]


def planted(
    kind: str, suits: Callable[[Event], bool], plant: Callable[[list[Event], int], object]
) -> Callable[[Frames], Frames]:
    """Plant a fault at the first late event of a kind that suits."""

    def planting(sent: Frames) -> Frames:
        late = ((batch[1], at) for _, batch in sent[STEPS // 2 :] for at in range(len(batch[1])))
        for events, at in late:
            if events[at]["type"] == kind and suits(events[at]):
                plant(events, at)
                return sent
        raise AssertionError("no event suits")

    return planting


def stored(suits: Callable[[Event], bool], **fields: object) -> Callable[[Frames], Frames]:
    """Send fields of a store otherwise."""
    return planted("BlockStored", suits, lambda events, at: events[at].update(fields))


def removed(suits: Callable[[Event], bool], **fields: object) -> Callable[[Frames], Frames]:
    """Send fields of a remove otherwise."""
    return planted("BlockRemoved", suits, lambda events, at: events[at].update(fields))


def gpu(event: Event) -> bool:
    """Whether an event is about the device."""
    return event.get("medium") == "GPU"


def host(event: Event) -> bool:
    """Whether an event is about the host."""
    return event.get("medium") == "CPU_PINNED"


def child(event: Event) -> bool:
    """Whether a store on the device has a parent."""
    return gpu(event) and event["parent_block_hash"] is not None


def salted_root(event: Event) -> bool:
    """Whether a store is of a first page of the tenant."""
    return gpu(event) and "cache_salt" in event and event["parent_block_hash"] is None


def many(event: Event) -> bool:
    """Whether an event is of several blocks on the device."""
    return gpu(event) and len(event["block_hashes"]) > 2


def host_run(event: Event) -> bool:
    """Whether an event is of several blocks on the host."""
    return host(event) and len(event["block_hashes"]) > 2


def leave_out(events: list[Event], at: int) -> None:
    """Leave an event out."""
    del events[at]


def double(events: list[Event], at: int) -> None:
    """Send an event twice."""
    events.insert(at, events[at])


def swap_hashes(events: list[Event], at: int) -> None:
    """Give two blocks each other's hashes."""
    events[at]["block_hashes"][:2] = events[at]["block_hashes"][1::-1]


def other_token(events: list[Event], at: int) -> None:
    """Send another first token."""
    events[at]["token_ids"][0] += 1


def clear_lost(sent: Frames) -> Frames:
    """Begin the run again, and lose its clear."""
    again = [(STEPS + number, batch) for number, batch in frames()]
    again[0][1][1].pop(0)
    return [*sent, *again]


PLANTED: dict[str, dict[str, Callable[[Frames], Frames]]] = {
    "WIRE-1": {
        "a lost frame": lambda sent: sent[:150] + sent[151:],
        "ten lost frames": lambda sent: sent[:150] + sent[160:],
        "a doubled frame": lambda sent: [*sent[:150], sent[149], *sent[150:]],
        "reordered frames": lambda sent: [*sent[:150], sent[151], sent[150], *sent[152:]],
    },
    "WIRE-3": {"a medium of no name": removed(gpu, medium="HBM")},
    "EVENT-1": {
        "a lost store": planted("BlockStored", many, leave_out),
        "a wrong parent": stored(child, parent_block_hash=12345),
    },
    "EVENT-2": {
        "a lost host store": planted("BlockStored", host, leave_out),
        "a doubled store": planted("BlockStored", gpu, double),
        "a doubled remove": planted("BlockRemoved", gpu, double),
        "a lost clear": clear_lost,
        "a store on the wrong medium": stored(host, medium="DISK"),
        "a remove from the wrong medium": removed(gpu, medium="EXTERNAL"),
    },
    "EVENT-6": {
        "no parent": stored(child, parent_block_hash=None),
        "swapped hashes": planted("BlockStored", many, swap_hashes),
        "a wrong token": planted("BlockStored", gpu, other_token),
        "a tenant's block for all": planted(
            "BlockStored", salted_root, lambda events, at: events[at].pop("cache_salt")
        ),
    },
    "EVENT-7": {"a parent of another tenant": stored(child, cache_salt="another")},
    "EVENT-9": {
        "a token too few": planted(
            "BlockStored", gpu, lambda events, at: events[at]["token_ids"].pop()
        ),
        "no tokens": stored(host, token_ids=[], block_size=0),
        "another block size": stored(many, block_size=8),
    },
    "EVENT-12": {
        "a lost remove": planted("BlockRemoved", gpu, leave_out),
        "a host block left out of a remove": planted(
            "BlockRemoved", host_run, lambda events, at: events[at]["block_hashes"].pop(0)
        ),
    },
    "EVENT-13": {
        "no clear at the start": lambda sent: [(0, [0.0, sent[0][1][1][1:], 0]), *sent[1:]],
    },
}


@pytest.mark.parametrize(
    ("law_id", "name"), [(law_id, name) for law_id, named in PLANTED.items() for name in named]
)
def test_a_planted_fault_is_found_by_its_law(law_id: str, name: str) -> None:
    """The first law that is found broken is the one that the fault breaks."""
    found = laws_of(PLANTED[law_id][name](frames()))
    assert found, name
    assert found[0] == law_id


@pytest.mark.parametrize("dialect", range(len(DIALECTS)))
def test_the_stream_itself_is_sound(dialect: int) -> None:
    """Without a fault nothing is found; the run stores, removes, and moves between media."""
    follower = Follower(config=WRITE_THROUGH)
    found = [
        finding.law_id
        for number, payload in enumerate(payloads(dialect))
        for finding in follower.take(Frame(0, b"", number, payload, 0.0))
    ]
    # The oldest form has no namespaces, so two thirds of its hashes follow from nothing it says.
    assert set(found) <= ({"EVENT-6"} if dialect == 2 else set())
    counts = follower.books()[0].counts
    assert min(counts["stored"][:2] + counts["removed"][:2]) > 100
    assert counts["came_back"]
