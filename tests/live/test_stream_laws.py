"""Each law that a stream shows is seen broken by a planted fault, and by no sound stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from attrs import evolve, frozen

from kvcanon.live.faults import FAULTS, SEQUENCE_FAULTS, Fault
from kvcanon.live.follower import Follower, FollowerConfig, HashRule
from kvcanon.spec.law import LAWS
from kvcanon.spec.wire import WIRE_LAWS
from sent_events import CLEARED, batch, followed, head, remove, store, tail

Batches: TypeAlias = list[list[dict[str, Any]]]

PROMPT = store([10, 20, 30])
OTHER = store([10, 50])
HOST = PROMPT | {"medium": "CPU_PINNED"}
SALTED = store([10, 20], cache_salt="tenant")


def sound() -> Batches:
    """A stream without a fault: stores, a copy on the host, removes, and a second prompt."""
    return [
        [CLEARED],
        [PROMPT],
        [HOST],
        [SALTED],
        [tail(OTHER, 1)],
        [remove([OTHER["block_hashes"][1]]), remove(reversed(PROMPT["block_hashes"]))],
        [PROMPT],
        [remove(reversed(PROMPT["block_hashes"]), "CPU_PINNED")],
    ]


@frozen
class Planted:
    """A fault in a stream."""

    fault: Fault
    plant: Callable[[Batches], Batches]
    config: FollowerConfig | None = None


def changed(number: int, *events: dict[str, Any]) -> Callable[[Batches], Batches]:
    """Replace one batch."""
    return lambda batches: [*batches[:number], list(events), *batches[number + 1 :]]


def without(number: int) -> Callable[[Batches], Batches]:
    """Leave the events of one batch out, as if they had never been emitted."""
    return lambda batches: batches[:number] + batches[number + 1 :]


def hashed(event: dict[str, Any], page: int, value: int) -> dict[str, Any]:
    """The store with another hash of one page."""
    hashes = list(event["block_hashes"])
    hashes[page] = value
    return event | {"block_hashes": hashes}


STRICT_HOST = FollowerConfig(host_is_closed=True)
HASHES: list[int] = PROMPT["block_hashes"]

PLANTED = {
    "a store that is lost": Planted(Fault.PARENT_ABSENT, changed(1, head(PROMPT, 0), CLEARED)),
    "a store that skips a page": Planted(Fault.PARENT_ABSENT, changed(1, tail(PROMPT, 1))),
    "a wrong parent": Planted(
        Fault.PARENT_ABSENT, changed(4, tail(OTHER, 1) | {"parent_block_hash": 99})
    ),
    "a parent on another medium": Planted(
        Fault.PARENT_ABSENT,
        changed(5, remove([OTHER["block_hashes"][1], *reversed(HASHES)]), tail(PROMPT, 2)),
    ),
    "a host store without its parent": Planted(
        Fault.PARENT_ABSENT, changed(2, tail(HOST, 1)), STRICT_HOST
    ),
    "a page stored twice": Planted(Fault.STORED_TWICE, changed(2, HOST, PROMPT)),
    "a remove that is lost": Planted(Fault.STORED_TWICE, without(5)),
    "a clear that is lost": Planted(
        Fault.STORED_TWICE, lambda batches: [*batches[:2], [PROMPT], *batches[2:]]
    ),
    "a wrong medium in a store": Planted(
        Fault.REMOVED_ABSENT, changed(2, HOST | {"medium": "DISK"})
    ),
    "a wrong medium in a remove": Planted(
        Fault.REMOVED_ABSENT, changed(7, remove(HASHES, "EXTERNAL"))
    ),
    "a page removed twice": Planted(
        Fault.REMOVED_ABSENT, changed(7, *[remove(HASHES[::-1], "CPU_PINNED")] * 2)
    ),
    "a wrong hash": Planted(Fault.WRONG_HASH, changed(4, hashed(tail(OTHER, 1), 0, 7))),
    "a first page with a wrong hash": Planted(
        Fault.WRONG_HASH, changed(3, SALTED, hashed(store([70]), 0, 7))
    ),
    "wrong tokens": Planted(
        Fault.WRONG_HASH, changed(4, tail(OTHER, 1) | {"token_ids": [1, 2, 3, 4]})
    ),
    "the parent of another branch": Planted(
        Fault.WRONG_HASH, changed(4, tail(OTHER, 1) | {"parent_block_hash": HASHES[1]})
    ),
    "no hash follows from tokens": Planted(
        Fault.WRONG_HASH,
        changed(1, hashed(store([70]), 0, 7)),
        FollowerConfig(hashes=HashRule.TOKENS),
    ),
    "a hash without its namespace": Planted(
        Fault.UNSEEDED_HASH, changed(3, store([80, 90]) | {"cache_salt": "tenant"})
    ),
    "the hash of another page": Planted(
        Fault.OTHER_CONTENT,
        changed(2, HOST | {"token_ids": list(range(12))}),
        FollowerConfig(hashes=HashRule.OPAQUE),
    ),
    "the hash of another namespace": Planted(
        Fault.OTHER_NAMESPACE,
        changed(3, PROMPT | {"cache_salt": "tenant", "medium": "DISK"}),
        FollowerConfig(hashes=HashRule.OPAQUE),
    ),
    "a parent in another namespace": Planted(
        Fault.OTHER_NAMESPACE, changed(4, tail(OTHER, 1) | {"cache_salt": "tenant"})
    ),
    "tokens that are cut": Planted(
        Fault.MISALIGNED, changed(1, PROMPT | {"token_ids": PROMPT["token_ids"][:-1]})
    ),
    "a block size of none": Planted(Fault.MISALIGNED, changed(1, PROMPT | {"block_size": 0})),
    "a host store without tokens": Planted(
        Fault.NO_TOKENS, changed(2, HOST | {"token_ids": [], "block_size": 0})
    ),
    "another block size": Planted(Fault.OTHER_BLOCK_SIZE, changed(4, store([70], size=8))),
    "a parent that leaves first": Planted(
        Fault.CHILD_STAYS, changed(5, *[remove([each]) for each in HASHES])
    ),
    "a host parent that leaves first": Planted(
        Fault.CHILD_STAYS,
        changed(7, *[remove([each], "CPU_PINNED") for each in HASHES]),
        STRICT_HOST,
    ),
    "no clear at the beginning": Planted(Fault.NOT_CLEARED_FIRST, without(0)),
    "a medium that nobody knows": Planted(
        Fault.UNKNOWN_MEDIUM, changed(2, HOST | {"medium": "TAPE"})
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str) -> None:
    """A planted fault is the first that is found, under the law that it breaks."""
    planted = PLANTED[name]
    _, found = followed(*planted.plant(sound()), config=planted.config)
    assert found, name
    assert found[0].fault is planted.fault
    assert "{" not in found[0].what + found[0].belief


def test_every_fault_of_events_is_planted() -> None:
    """No fault is only claimed to be found; its law is one of the book or of the wire."""
    assert {each.fault for each in PLANTED.values()} | SEQUENCE_FAULTS == set(Fault)
    assert set(FAULTS) == set(Fault)
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


@pytest.mark.parametrize("rank", [0, 3])
def test_ranks_are_folded_apart(rank: int) -> None:
    """The same page on two ranks is stored once on each."""
    follower = Follower()
    assert not follower.take(0, batch(CLEARED, PROMPT, rank=0))
    found = follower.take(1, batch(CLEARED, PROMPT, rank=rank))
    assert not found
    assert not follower.take(2, batch(PROMPT, rank=7)), "a clear before it was never seen"


def test_groups_of_layers_are_folded_apart() -> None:
    """The blocks of a window group are no second copies of those of full attention."""
    _, found = followed([CLEARED], [PROMPT | {"group_idx": 0}], [PROMPT | {"group_idx": 1}])
    assert not found
    _, found = followed([CLEARED], [PROMPT], [PROMPT | {"group_idx": 0}])
    assert found


def test_a_stream_that_is_joined_late_is_not_blamed() -> None:
    """What events before the first could explain is not judged, and counted as such."""
    follower = Follower()
    assert not follower.take(70, batch(tail(OTHER, 1), remove(HASHES), remove([5])))
    (book,) = follower.books()
    assert not book.complete
    assert book.counts["unjudged"] == 5
    assert [each.fault for each in follower.take(71, batch(tail(OTHER, 1)))] == [Fault.STORED_TWICE]
    follower.take(72, batch(CLEARED))
    assert [each.fault for each in follower.take(73, batch(remove([5])))] == [Fault.REMOVED_ABSENT]


def test_a_gap_is_shown_and_what_it_explains_is_not_blamed() -> None:
    """After a gap a second store may follow a remove that was lost."""
    follower = Follower()
    follower.take(0, batch(CLEARED, PROMPT))
    (gap,) = follower.take(4, batch(PROMPT))
    assert gap.fault is Fault.LOST
    assert "1 to 3" in gap.what
    assert (follower.counts.gaps, follower.counts.lost) == (1, 3)
    assert [each.fault for each in follower.take(5, batch(PROMPT))] == [Fault.STORED_TWICE] * 3


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
    follower = Follower()
    batches = {0: batch(CLEARED), 1: batch(PROMPT), 2: batch(SALTED)}
    found = [each for number in numbers for each in follower.take(number, batches[number])]
    assert [each.fault for each in found] == faults


def test_a_restarted_publisher_begins_anew() -> None:
    """Number 0 with another batch is another publisher: nothing of the first is there any more."""
    follower, _ = followed([CLEARED], [PROMPT], [SALTED])
    assert not follower.take(0, batch(CLEARED, PROMPT))
    assert follower.counts.restarts == 1
    assert follower.books()[0].blocks()["GPU"] == 3
    (found,) = follower.take(0, batch(store([70])))
    assert found.fault is Fault.NOT_CLEARED_FIRST


def test_blocks_that_come_back_are_counted() -> None:
    """A page that is stored again after it left counts as one that a larger cache had hit."""
    follower, _ = followed([CLEARED], [PROMPT], [remove(HASHES[::-1])], [PROMPT], [store([70])])
    counts = follower.books()[0].counts
    assert (counts["fresh"], counts["came_back"]) == (7, 3)


def test_namespaces_are_forgotten_with_their_last_block() -> None:
    """Salts that clients choose take no memory once nothing of them is left."""
    follower = Follower()
    follower.take(0, batch(CLEARED))
    for number in range(1, 2001, 2):
        salted = store([10], cache_salt=f"salt {number}")
        assert not follower.take(number, batch(salted))
        assert not follower.take(number + 1, batch(remove(salted["block_hashes"])))
    assert follower.ledger.namespaces == 0
    assert follower.books()[0].counts["distinct"] == 0


def test_ignored_laws_are_not_reported() -> None:
    """A law that a user ignores is neither reported nor counted."""
    ignoring = FollowerConfig(ignored=frozenset({"EVENT-13"}))
    follower, found = followed([PROMPT], config=ignoring)
    assert not found
    assert not follower.counts.by_law
