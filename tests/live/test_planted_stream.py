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
        for finding in follower.take(number, msgspec.msgpack.encode(batch))
    ]


def late(sent: Frames, kind: str, suits: Callable[[Event], bool] = bool) -> tuple[list[Any], int]:
    """The events of a late batch, and the place among them of one that suits."""
    for _, batch in sent[STEPS // 2 :]:
        for place, event in enumerate(batch[1]):
            if event["type"] == kind and suits(event):
                return batch[1], place
    raise AssertionError("no event suits")


def edited(
    kind: str, suits: Callable[[Event], bool], edit: Callable[[Event], None]
) -> Callable[[Frames], Frames]:
    """Change one late event."""

    def plant(sent: Frames) -> Frames:
        events, place = late(sent, kind, suits)
        edit(events[place])
        return sent

    return plant


def dropped(kind: str, suits: Callable[[Event], bool]) -> Callable[[Frames], Frames]:
    """Leave one late event out."""

    def plant(sent: Frames) -> Frames:
        events, place = late(sent, kind, suits)
        del events[place]
        return sent

    return plant


def doubled(kind: str, suits: Callable[[Event], bool]) -> Callable[[Frames], Frames]:
    """Send one late event twice."""

    def plant(sent: Frames) -> Frames:
        events, place = late(sent, kind, suits)
        events.insert(place, events[place])
        return sent

    return plant


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


def set_to(**fields: object) -> Callable[[Event], None]:
    """Set fields of an event."""
    return lambda event: event.update(fields)


def swap_hashes(event: Event) -> None:
    """Give two blocks each other's hashes."""
    event["block_hashes"][:2] = event["block_hashes"][1::-1]


def host_run(event: Event) -> bool:
    """Whether an event is of several blocks on the host."""
    return host(event) and len(event["block_hashes"]) > 2


def leave_out(event: Event) -> None:
    """Leave the deepest block out of a remove."""
    del event["block_hashes"][0]


def without_namespace(event: Event) -> None:
    """Say that a tenant's block is of nobody."""
    del event["cache_salt"]


def cut_tokens(event: Event) -> None:
    """Leave the last token out."""
    event["token_ids"].pop()


def other_token(event: Event) -> None:
    """Send another first token."""
    event["token_ids"][0] += 1


def clear_lost(sent: Frames) -> Frames:
    """Begin the run again, and lose its clear."""
    again = [(STEPS + number, batch) for number, batch in frames()]
    again[0][1][1].pop(0)
    return [*sent, *again]


MANY: Callable[[Event], bool] = lambda event: gpu(event) and len(event["block_hashes"]) > 2  # noqa: E731

PLANTED: dict[str, tuple[str, Callable[[Frames], Frames]]] = {
    "a lost frame": ("WIRE-1", lambda sent: sent[:150] + sent[151:]),
    "ten lost frames": ("WIRE-1", lambda sent: sent[:150] + sent[160:]),
    "a doubled frame": ("WIRE-1", lambda sent: [*sent[:150], sent[149], *sent[150:]]),
    "reordered frames": ("WIRE-1", lambda sent: [*sent[:150], sent[151], sent[150], *sent[152:]]),
    "a lost store": ("EVENT-1", dropped("BlockStored", MANY)),
    "a lost host store": ("EVENT-2", dropped("BlockStored", host)),
    "a lost remove": ("EVENT-12", dropped("BlockRemoved", gpu)),
    "a host block left out of a remove": ("EVENT-12", edited("BlockRemoved", host_run, leave_out)),
    "a doubled store": ("EVENT-2", doubled("BlockStored", gpu)),
    "a doubled remove": ("EVENT-2", doubled("BlockRemoved", gpu)),
    "a lost clear": ("EVENT-2", clear_lost),
    "a wrong parent": ("EVENT-1", edited("BlockStored", child, set_to(parent_block_hash=12345))),
    "no parent": ("EVENT-6", edited("BlockStored", child, set_to(parent_block_hash=None))),
    "a store on the wrong medium": ("EVENT-2", edited("BlockStored", host, set_to(medium="DISK"))),
    "a remove from the wrong medium": (
        "EVENT-2",
        edited("BlockRemoved", gpu, set_to(medium="EXTERNAL")),
    ),
    "a medium of no name": ("WIRE-3", edited("BlockRemoved", gpu, set_to(medium="HBM"))),
    "swapped hashes": ("EVENT-6", edited("BlockStored", MANY, swap_hashes)),
    "a wrong token": ("EVENT-6", edited("BlockStored", gpu, other_token)),
    "a tenant's block for all": ("EVENT-6", edited("BlockStored", salted_root, without_namespace)),
    "a parent of another tenant": (
        "EVENT-7",
        edited("BlockStored", child, set_to(cache_salt="another")),
    ),
    "a token too few": ("EVENT-9", edited("BlockStored", gpu, cut_tokens)),
    "no tokens": ("EVENT-9", edited("BlockStored", host, set_to(token_ids=[], block_size=0))),
    "another block size": ("EVENT-9", edited("BlockStored", MANY, set_to(block_size=8))),
    "no clear at the start": (
        "EVENT-13",
        lambda sent: [(0, [0.0, sent[0][1][1][1:], 0]), *sent[1:]],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_by_its_law(name: str) -> None:
    """The first law that is found broken is the one that the fault breaks."""
    law_id, plant = PLANTED[name]
    found = laws_of(plant(frames()))
    assert found, name
    assert found[0] == law_id


@pytest.mark.parametrize("dialect", range(len(DIALECTS)))
def test_the_stream_itself_is_sound(dialect: int) -> None:
    """Without a fault nothing is found; the run stores, removes, and moves between media."""
    follower = Follower(config=WRITE_THROUGH)
    found = [
        finding
        for number, payload in enumerate(payloads(dialect))
        for finding in follower.take(number, payload)
    ]
    # The oldest form has no namespaces, so two thirds of its hashes follow from nothing it says.
    assert {each.law_id for each in found} <= ({"EVENT-6"} if dialect == 2 else set())
    counts = follower.books()[0].counts
    assert min(counts["stored"][:2] + counts["removed"][:2]) > 100
    assert counts["came_back"]
