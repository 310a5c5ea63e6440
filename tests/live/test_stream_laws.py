"""Each law that a stream shows is seen broken by a planted fault, and by no sound stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from attrs import evolve

from kvcanon.live.follower import Follower, FollowerConfig, HashRule
from kvcanon.live.stream_faults import FAULTS, SEQUENCE_FAULTS, Fault
from kvcanon.spec.law import LAWS
from kvcanon.spec.wire import WIRE_LAWS
from sent_events import CLEARED, followed, frame, head, remove, store, tail

Batches: TypeAlias = list[list[dict[str, Any]]]
Plant: TypeAlias = Callable[[Batches], Batches]

PROMPT = store([10, 20, 30])
HASHES: list[int] = PROMPT["block_hashes"]
OTHER = store([10, 50])
HOST = PROMPT | {"medium": "CPU_PINNED"}
SALTED = store([10, 20], cache_salt="tenant")
TENANT = {"cache_salt": "tenant"}


def sound() -> Batches:
    """A stream without a fault: stores, a copy on the host, removes, and a second prompt."""
    return [
        [CLEARED],
        [PROMPT],
        [HOST],
        [SALTED],
        [tail(OTHER, 1)],
        [remove([OTHER["block_hashes"][1]]), remove(reversed(HASHES))],
        [PROMPT],
        [remove(reversed(HASHES), "CPU_PINNED")],
    ]


def changed(number: int, *events: dict[str, Any]) -> Plant:
    """Replace one batch."""
    return lambda batches: [*batches[:number], list(events), *batches[number + 1 :]]


def without(number: int) -> Plant:
    """Leave the events of one batch out, as if they had never been emitted."""
    return lambda batches: batches[:number] + batches[number + 1 :]


def hashed(event: dict[str, Any], page: int, value: int) -> dict[str, Any]:
    """The store with another hash of one page."""
    hashes = list(event["block_hashes"])
    hashes[page] = value
    return event | {"block_hashes": hashes}


PLANTED: dict[Fault, dict[str, Plant]] = {
    Fault.PARENT_ABSENT: {
        "a store that is lost": changed(1, head(PROMPT, 0), CLEARED),
        "a store that skips a page": changed(1, tail(PROMPT, 1)),
        "a wrong parent": changed(4, tail(OTHER, 1) | {"parent_block_hash": 99}),
        "a parent on another medium": changed(
            5, remove([OTHER["block_hashes"][1], *reversed(HASHES)]), tail(PROMPT, 2)
        ),
        "a host store without its parent": changed(2, tail(HOST, 1)),
    },
    Fault.STORED_TWICE: {
        "a page stored twice": changed(2, HOST, PROMPT),
        "a remove that is lost": without(5),
        "a clear that is lost": lambda batches: [*batches[:2], [PROMPT], *batches[2:]],
    },
    Fault.REMOVED_ABSENT: {
        "a wrong medium in a store": changed(2, HOST | {"medium": "DISK"}),
        "a wrong medium in a remove": changed(7, remove(HASHES, "EXTERNAL")),
        "a page removed twice": changed(7, *[remove(HASHES[::-1], "CPU_PINNED")] * 2),
    },
    Fault.WRONG_HASH: {
        "a wrong hash": changed(4, hashed(tail(OTHER, 1), 0, 7)),
        "a first page with a wrong hash": changed(3, SALTED, hashed(store([70]), 0, 7)),
        "wrong tokens": changed(4, tail(OTHER, 1) | {"token_ids": [1, 2, 3, 4]}),
        "the parent of another branch": changed(
            4, tail(OTHER, 1) | {"parent_block_hash": HASHES[1]}
        ),
        "no hash follows from tokens": changed(1, hashed(store([70]), 0, 7)),
    },
    Fault.UNSEEDED_HASH: {
        "a hash without its namespace": changed(3, store([80, 90]) | TENANT),
    },
    Fault.OTHER_CONTENT: {
        "the hash of another page": changed(2, HOST | {"token_ids": list(range(12))}),
    },
    Fault.OTHER_NAMESPACE: {
        "the hash of another namespace": changed(3, PROMPT | TENANT | {"medium": "DISK"}),
        "a parent in another namespace": changed(4, tail(OTHER, 1) | TENANT),
    },
    Fault.MISALIGNED: {
        "tokens that are cut": changed(1, PROMPT | {"token_ids": PROMPT["token_ids"][:-1]}),
        "a block size of none": changed(1, PROMPT | {"block_size": 0}),
    },
    Fault.NO_TOKENS: {
        "a host store without tokens": changed(2, HOST | {"token_ids": [], "block_size": 0}),
    },
    Fault.OTHER_BLOCK_SIZE: {"another block size": changed(4, store([70], size=8))},
    Fault.CHILD_STAYS: {
        "a parent that leaves first": changed(5, *[remove([each]) for each in HASHES]),
        "a host parent that leaves first": changed(
            7, *[remove([each], "CPU_PINNED") for each in HASHES]
        ),
    },
    Fault.NOT_CLEARED_FIRST: {"no clear at the beginning": without(0)},
    Fault.UNKNOWN_MEDIUM: {"a medium that nobody knows": changed(2, HOST | {"medium": "TAPE"})},
}
STRICT_HOST = FollowerConfig(host_is_closed=True)
OPAQUE = FollowerConfig(hashes=HashRule.OPAQUE)
CONFIGS = {
    "a host store without its parent": STRICT_HOST,
    "a host parent that leaves first": STRICT_HOST,
    "no hash follows from tokens": FollowerConfig(hashes=HashRule.TOKENS),
    "the hash of another page": OPAQUE,
    "the hash of another namespace": OPAQUE,
}
"""Of faults that the usual rules do not show."""


@pytest.mark.parametrize(
    ("fault", "name"), [(fault, name) for fault, named in PLANTED.items() for name in named]
)
def test_planted_faults_are_found(fault: Fault, name: str) -> None:
    """A planted fault is the first that is found, under the law that it breaks."""
    _, found = followed(*PLANTED[fault][name](sound()), config=CONFIGS.get(name))
    assert found, name
    assert found[0].fault is fault
    assert "{" not in found[0].what + found[0].belief


def test_every_fault_of_events_is_planted() -> None:
    """No fault is only claimed to be found; its law is one of the book or of the wire."""
    assert PLANTED.keys() | SEQUENCE_FAULTS == set(Fault) == set(FAULTS)
    assert {each.law_id for each in FAULTS.values()} <= {*LAWS, *WIRE_LAWS}


@pytest.mark.parametrize("hashes", HashRule)
def test_sound_streams_break_nothing(hashes: HashRule) -> None:
    """A stream without a fault breaks no law, however strictly it is judged."""
    follower, found = followed(*sound(), config=evolve(STRICT_HOST, hashes=hashes))
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
