"""Each law that a stream shows is seen broken by a planted fault, and by no sound stream.

Faults are planted into a small stream that is written out here, and into the stream of a fast cache
that evicts, backs up and loads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest
from attrs import evolve

from fast.caches import insert, new_cache
from kvcanon.live.dialects import DIALECTS
from kvcanon.live.follower import Follower, FollowerConfig, HashRule
from kvcanon.live.frames import Frame
from kvcanon.live.stream_faults import FAULTS, SEQUENCE_FAULTS, Fault
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import Counts, Namespace
from kvcanon.spec.wire import WIRE_LAWS
from sent_events import CLEARED, followed, frame, remove, store, tail

Event: TypeAlias = dict[str, Any]
Batches: TypeAlias = list[tuple[int, list[Event]]]
"""The events of batches, each with its number."""
Plant: TypeAlias = Callable[[Batches], Batches]

PROMPT = store([10, 20, 30])
HASHES: list[int] = PROMPT["block_hashes"]
OTHER = store([10, 50])
HOST = PROMPT | {"medium": "CPU_PINNED"}
SALTED = store([10, 20], cache_salt="tenant")
TENANT = {"cache_salt": "tenant"}
OTHER_GONE = [remove([OTHER["block_hashes"][1]]), remove(reversed(HASHES))]
SMALL = [
    [CLEARED],
    [PROMPT],
    [HOST],
    [SALTED],
    [tail(OTHER, 1)],
    OTHER_GONE,
    [PROMPT],
    [remove(reversed(HASHES), "CPU_PINNED")],
]
"""A stream without a fault: stores, a copy on the host, removes, and a second prompt."""
STEPS = 300
"""Of the fast cache."""


@cache
def payloads(dialect: int) -> tuple[bytes, ...]:
    """The batches of a run: prompts that share, in three namespaces, in a pool too small."""
    namespaces = (Namespace(), Namespace(cache_salt="tenant"), Namespace(lora="tuned"))
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
        insert(tree, prompt, namespace=tree.namespace(namespaces[step % 3]))
        tree.flush()
        sent.append(tree.take_packed_events().encode(dialect, float(step), 0))
    return tuple(sent)


def small() -> Batches:
    """The small stream, which a test may change."""
    return deepcopy(list(enumerate(SMALL)))


def large() -> Batches:
    """The stream of the fast cache, which a test may change."""
    return [(n, msgspec.msgpack.decode(each)[1]) for n, each in enumerate(payloads(0))]


def planted(
    kind: str, suits: Callable[[Event], bool], plant: Callable[[list[Event], int], object]
) -> Plant:
    """Plant a fault at the first event of a kind that suits; of a long stream, a late one."""

    def planting(sent: Batches) -> Batches:
        for _, events in sent[len(sent) // 2 :] if len(sent) == STEPS else sent:
            for at, event in enumerate(events):
                if event["type"] == kind and suits(event):
                    plant(events, at)
                    return sent
        raise AssertionError("no event suits")

    return planting


def stored(suits: Callable[[Event], bool], **fields: object) -> Plant:
    """Send fields of a store otherwise."""
    return planted("BlockStored", suits, lambda events, at: events[at].update(fields))


def removed(suits: Callable[[Event], bool], **fields: object) -> Plant:
    """Send fields of a remove otherwise."""
    return planted("BlockRemoved", suits, lambda events, at: events[at].update(fields))


def changed(number: int, *events: Event) -> Plant:
    """Replace one batch."""
    return lambda sent: [*sent[:number], (number, list(events)), *sent[number + 1 :]]


def on(
    medium: str, *, pages: int = 1, has_parent: bool | None = None, salted: bool = False
) -> Callable[[Event], bool]:
    """Which events suit: those about a medium, of so many pages, with a parent or without."""

    def suits(event: Event) -> bool:
        parent = event.get("parent_block_hash") is not None
        return (
            event.get("medium") == medium
            and len(event["block_hashes"]) >= pages
            and has_parent in (None, parent)
            and ("cache_salt" in event or not salted)
        )

    return suits


GPU, MANY, CHILD = on("GPU"), on("GPU", pages=3), on("GPU", has_parent=True)
ON_HOST, HOST_RUN = on("CPU_PINNED"), on("CPU_PINNED", pages=3)


def leave_out(events: list[Event], at: int) -> None:
    """Leave an event out."""
    del events[at]


def double(events: list[Event], at: int) -> None:
    """Send an event twice."""
    events.insert(at, events[at])


def reverse(field: str) -> Callable[[list[Event], int], None]:
    """Send a list of an event backwards."""
    return lambda events, at: events[at][field].reverse()


def begin_again_without_clear(sent: Batches) -> Batches:
    """Begin the stream again, and lose its clear."""
    again = [(len(sent) + number, events) for number, events in large()]
    again[0][1].pop(0)
    return [*sent, *again]


IN_BOTH: dict[Fault, dict[str, Plant]] = {
    Fault.LOST: {
        "a lost frame": lambda sent: sent[: len(sent) // 2] + sent[len(sent) // 2 + 1 :],
        "reordered frames": lambda sent: [*sent[:2], sent[3], sent[2], *sent[4:]],
    },
    Fault.REPEATED: {"a doubled frame": lambda sent: [*sent[:3], sent[2], *sent[3:]]},
    Fault.PARENT_ABSENT: {
        "a store that is lost": planted("BlockStored", MANY, leave_out),
        "a wrong parent": stored(CHILD, parent_block_hash=12345),
    },
    Fault.STORED_TWICE: {"a doubled store": planted("BlockStored", GPU, double)},
    Fault.REMOVED_ABSENT: {
        "a lost host store": planted("BlockStored", ON_HOST, leave_out),
        "a wrong medium in a store": stored(ON_HOST, medium="DISK"),
        "a wrong medium in a remove": removed(GPU, medium="EXTERNAL"),
        "a doubled remove": planted("BlockRemoved", GPU, double),
    },
    Fault.WRONG_HASH: {
        "a wrong hash": planted(
            "BlockStored", CHILD, lambda events, at: events[at]["block_hashes"].__setitem__(0, 7)
        ),
        "a wrong token": planted("BlockStored", CHILD, reverse("token_ids")),
        "no parent": stored(CHILD, parent_block_hash=None),
        "a tenant's block for all": planted(
            "BlockStored",
            on("GPU", has_parent=False, salted=True),
            lambda events, at: events[at].pop("cache_salt"),
        ),
    },
    Fault.OTHER_NAMESPACE: {"a parent of another tenant": stored(CHILD, cache_salt="another")},
    Fault.MISALIGNED: {
        "tokens that are cut": planted(
            "BlockStored", GPU, lambda events, at: events[at]["token_ids"].pop()
        ),
        "a block size of none": stored(GPU, block_size=0),
        "blocks of twice the size": stored(MANY, block_size=8),
    },
    Fault.NO_TOKENS: {"a host store without tokens": stored(ON_HOST, token_ids=[], block_size=0)},
    Fault.NOT_CLEARED_FIRST: {
        "no clear at the start": lambda sent: [(0, sent[0][1][1:]), *sent[1:]]
    },
    Fault.UNKNOWN_MEDIUM: {
        "a store on a medium of no name": stored(ON_HOST, medium="TAPE"),
        "a remove from a medium of no name": removed(GPU, medium="HBM"),
    },
}
IN_SMALL: dict[Fault, dict[str, Plant]] = {
    Fault.PARENT_ABSENT: {
        "a store that skips a page": changed(1, tail(PROMPT, 1)),
        "a parent on another medium": changed(
            5, remove([OTHER["block_hashes"][1], *reversed(HASHES)]), tail(PROMPT, 2)
        ),
        "a host store without its parent": changed(2, tail(HOST, 1)),
    },
    Fault.STORED_TWICE: {
        "a remove that is lost": changed(5),
        "a clear that is lost": changed(2, PROMPT),
    },
    Fault.REMOVED_ABSENT: {
        "a host page removed twice": changed(7, *[remove(HASHES[::-1], "CPU_PINNED")] * 2),
    },
    Fault.WRONG_HASH: {
        "a first page with a wrong hash": changed(3, SALTED, store([70]) | {"block_hashes": [7]}),
        "the parent of another branch": stored(CHILD, parent_block_hash=HASHES[1]),
        "no hash follows from tokens": changed(1, store([70]) | {"block_hashes": [7]}),
    },
    Fault.UNSEEDED_HASH: {"a hash without its namespace": changed(3, store([80, 90]) | TENANT)},
    Fault.OTHER_CONTENT: {
        "the hash of another page": changed(2, HOST | {"token_ids": list(range(12))}),
    },
    Fault.OTHER_NAMESPACE: {
        "the hash of another namespace": changed(3, PROMPT | TENANT | {"medium": "DISK"}),
    },
    Fault.OTHER_BLOCK_SIZE: {"another block size": changed(4, store([70], size=8))},
    Fault.GROUP_UNSAID: {
        "a remove without a group": changed(2, PROMPT | {"group_idx": 1}, remove(reversed(HASHES))),
    },
    Fault.CHILD_STAYS: {
        "a parent that leaves first": changed(5, *[remove([each]) for each in HASHES]),
        "a host parent that leaves first": changed(
            7, *[remove([each], "CPU_PINNED") for each in HASHES]
        ),
    },
}
IN_LARGE: dict[Fault, dict[str, Plant]] = {
    Fault.LOST: {"ten lost frames": lambda sent: sent[:150] + sent[160:]},
    Fault.STORED_TWICE: {"a clear that is lost": begin_again_without_clear},
    Fault.WRONG_HASH: {"swapped hashes": planted("BlockStored", MANY, reverse("block_hashes"))},
    Fault.CHILD_STAYS: {
        "a lost remove": planted("BlockRemoved", GPU, leave_out),
        "a host block left out of a remove": planted(
            "BlockRemoved", HOST_RUN, lambda events, at: events[at]["block_hashes"].pop(0)
        ),
    },
}
STRICT_HOST = FollowerConfig(closed=frozenset({"CPU_PINNED"}))
OPAQUE = FollowerConfig(hashes=HashRule.OPAQUE)
CONFIGS = {
    "a host store without its parent": STRICT_HOST,
    "a host parent that leaves first": STRICT_HOST,
    "no hash follows from tokens": FollowerConfig(hashes=HashRule.TOKENS),
    "the hash of another page": OPAQUE,
    "the hash of another namespace": OPAQUE,
}
"""Of faults in the small stream that the usual rules do not show."""
PLANTED = [
    (stream, fault, name, plant)
    for stream, tables in ((small, (IN_BOTH, IN_SMALL)), (large, (IN_BOTH, IN_LARGE)))
    for table in tables
    for fault, named in table.items()
    for name, plant in named.items()
]


@pytest.mark.parametrize(
    ("stream", "fault", "name", "plant"),
    PLANTED,
    ids=[f"{stream.__name__}-{name}" for stream, _, name, _ in PLANTED],
)
def test_planted_faults_are_found(
    stream: Callable[[], Batches], fault: Fault, name: str, plant: Plant
) -> None:
    """A planted fault is the first that is found, under the law that it breaks."""
    follower = Follower(config=CONFIGS.get(name) if stream is small else STRICT_HOST)
    sent = [frame(number, *events) for number, events in plant(stream())]
    found = [finding for each in sent for finding in follower.take(each)]
    assert found
    assert found[0].fault is fault
    assert "{" not in found[0].what + found[0].belief


def test_every_fault_of_events_is_planted() -> None:
    """No fault is only claimed to be found; its law is one of the book or of the wire."""
    assert {fault for _, fault, _, _ in PLANTED} | SEQUENCE_FAULTS == set(Fault) == set(FAULTS)
    assert {each.law_id for each in FAULTS.values()} <= {*LAWS, *WIRE_LAWS}


@pytest.mark.parametrize("dialect", range(len(DIALECTS)))
def test_the_stream_of_the_fast_cache_is_sound(dialect: int) -> None:
    """Without a fault nothing is found; the run stores, removes, and moves between media."""
    follower = Follower(config=STRICT_HOST)
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


@pytest.mark.parametrize("hashes", HashRule)
def test_sound_streams_break_nothing(hashes: HashRule) -> None:
    """A stream without a fault breaks no law, however strictly it is judged."""
    follower, found = followed(*SMALL, config=evolve(STRICT_HOST, hashes=hashes))
    assert not found
    (book,) = follower.books()
    assert book.complete
    assert book.blocks() == {"GPU": 5, "CPU_PINNED": 0}
    assert book.counts["verified"] == (0 if hashes is HashRule.OPAQUE else 12)


def faults_of(follower: Follower, number: int, *events: object, rank: int = 0) -> list[Fault]:
    """What a batch breaks."""
    return [each.fault for each in follower.take(frame(number, *events, rank=rank))]


@pytest.mark.parametrize("rank", [0, 3])
def test_ranks_are_folded_apart(rank: int) -> None:
    """The same page on two ranks is stored once on each."""
    follower, _ = followed([CLEARED, PROMPT])
    assert not faults_of(follower, 1, CLEARED, PROMPT, rank=rank)
    assert not faults_of(follower, 2, PROMPT, rank=7), "a clear before it was never seen"


def test_groups_of_layers_are_folded_apart() -> None:
    """The blocks of a window group are no second copies of those of full attention."""
    _, found = followed([CLEARED], [PROMPT | {"group_idx": 0}], [PROMPT | {"group_idx": 1}])
    assert not found
    _, found = followed([CLEARED], [PROMPT], [PROMPT | {"group_idx": 0}])
    assert found


def test_a_stream_that_is_joined_late_is_not_blamed() -> None:
    """What events before the first could explain is not judged, and counted as such."""
    follower = Follower()
    assert not faults_of(follower, 70, tail(OTHER, 1), remove(HASHES), remove([5]))
    (book,) = follower.books()
    assert (book.complete, book.counts["unjudged"]) == (False, 5)
    assert faults_of(follower, 71, tail(OTHER, 1)) == [Fault.STORED_TWICE]
    faults_of(follower, 72, CLEARED)
    assert faults_of(follower, 73, remove([5])) == [Fault.REMOVED_ABSENT]


def test_a_gap_is_shown_and_what_it_explains_is_not_blamed() -> None:
    """After a gap a second store may follow a remove that was lost."""
    follower, _ = followed([CLEARED, PROMPT])
    (gap,) = follower.take(frame(4, PROMPT))
    assert gap.fault is Fault.LOST
    assert "1 to 3" in gap.what
    assert (follower.counts.gaps, follower.counts.lost) == (1, 3)
    assert faults_of(follower, 5, PROMPT) == [Fault.STORED_TWICE] * 3


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ((0, 1, 2), []),
        ((0, 1, 1), [Fault.REPEATED]),
        ((0, 2, 1), [Fault.LOST, Fault.OUT_OF_ORDER]),
        ((0, 2), [Fault.LOST]),
    ],
)
def test_sequence_faults_are_found(numbers: Sequence[int], faults: list[Fault]) -> None:
    """A lost, doubled or reordered batch is found by its number, and is not folded twice."""
    follower, events = Follower(), [CLEARED, PROMPT, SALTED]
    found = [fault for each in numbers for fault in faults_of(follower, each, events[each])]
    assert found == faults


def test_a_restarted_publisher_begins_anew() -> None:
    """Number 0 with another batch is another publisher: nothing of the first is there any more."""
    follower, _ = followed([CLEARED], [PROMPT], [SALTED])
    assert not faults_of(follower, 0, CLEARED, PROMPT)
    assert follower.counts.restarts == 1
    assert follower.books()[0].blocks()["GPU"] == 3
    # That the first one sent the same batch does not make it a repeated one.
    assert faults_of(follower, 2, CLEARED) == [Fault.LOST]
    assert faults_of(follower, 1, PROMPT) == [Fault.OUT_OF_ORDER]
    assert faults_of(follower, 0, store([70])) == [Fault.NOT_CLEARED_FIRST]


def test_blocks_that_come_back_are_counted() -> None:
    """A page that is stored again after it left counts as one that a larger cache had hit."""
    follower, _ = followed([CLEARED], [PROMPT], [remove(HASHES[::-1])], [PROMPT], [store([70])])
    counts = follower.books()[0].counts
    assert (counts["fresh"], counts["came_back"]) == (7, 3)


def test_namespaces_are_forgotten_with_their_last_block() -> None:
    """Salts that clients choose take no memory once nothing of them is left."""
    follower, _ = followed([CLEARED])
    for number in range(1, 2001, 2):
        salted = store([10], cache_salt=f"salt {number}")
        assert not faults_of(follower, number, salted)
        assert not faults_of(follower, number + 1, remove(salted["block_hashes"]))
    assert follower.ledger.namespaces == 0
    assert follower.books()[0].counts["distinct"] == 0


def test_ignored_laws_are_not_reported() -> None:
    """A law that a user ignores is neither reported nor counted."""
    ignoring = FollowerConfig(ignored=frozenset({"EVENT-13"}))
    follower, found = followed([PROMPT], config=ignoring)
    assert not found
    assert not follower.counts.by_law
