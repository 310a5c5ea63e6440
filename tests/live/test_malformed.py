"""No bytes end a follower: what cannot be read is counted and skipped, and changes nothing."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvcanon.live._stream import Ledger, MalformedFrame
from kvcanon.live.decode import STORED_PLACES, UnreadableBatch, decode_batch
from kvcanon.live.follower import Follower
from kvcanon.live.frames import BrokenFrame, Frame
from kvcanon.live.hash_seeds import seeds_of
from kvcanon.live.stream_faults import Fault
from kvcanon.spec.hashing import page_hashes
from sent_events import CLEARED, batch, followed, frame, remove, store

EXAMPLES = max(500, settings().max_examples)
"""10,000 of each kind in `make malformed`."""
GOOD = batch(CLEARED, store([10, 20, 30], cache_salt="s"), remove([1, 2]), rank=3)

FIELDS = [*STORED_PLACES, "cache_salt", "novel"]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=70)
    | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=7)
    ),
    max_leaves=12,
)


def taken(follower: Follower, number: int, payload: bytes) -> set[Fault]:
    """What a payload breaks."""
    return {each.fault for each in follower.take(Frame(0, b"", number, payload, 1.0))}


def fold(payload: bytes) -> bool:
    """Fold bytes; whether they are a batch. Nothing else than MalformedFrame may be raised."""
    try:
        Ledger(seeds_of).fold(payload, begins=True)
    except MalformedFrame:
        return False
    return True


def plain(value: object) -> bytes:
    """Any value as MessagePack."""
    return msgspec.msgpack.encode(value)


KINDS: dict[str, st.SearchStrategy[bytes]] = {
    "values": VALUES.map(plain),
    "events": st.lists(VALUES, max_size=4).map(lambda events: batch(*events)),
    "bytes": st.binary(max_size=200),
}
ODD = [
    plain([1.0, [{"type": "BlockStored", "block_hashes": [], "token_ids": []}]]),
    plain([1.0, [["BlockStored", [1], None, [1], 1]]]),
]


@pytest.mark.parametrize("kind", KINDS)
def test_any_frame_is_folded_or_counted(kind: str) -> None:
    """What is no batch is refused, is one finding and one more in the count, and changes nothing.

    `make malformed` prints how many there were.
    """
    follower, seen = Follower(), [0, 0]

    @settings(max_examples=EXAMPLES)
    @given(KINDS[kind])
    @example(ODD[0])
    @example(ODD[1])
    def take(payload: bytes) -> None:
        before = [book.blocks() for book in follower.books()]
        refused = Fault.MALFORMED in taken(follower, seen[0], payload)
        seen[0] += 1
        seen[1] += refused
        assert refused is not fold(payload)
        assert follower.counts.malformed == seen[1]
        assert not refused or [book.blocks() for book in follower.books()] == before

    take()
    print(f"{kind}: {seen[0]:,} frames, {seen[1]:,} malformed, each counted")
    assert seen[1] >= EXAMPLES // 10


def test_damaged_batches_are_folded_or_refused() -> None:
    """A batch with bytes changed, cut out or added is read, or counted as malformed: 10,000."""
    drawn = random.Random(17)
    follower = Follower()
    refused = 0
    for number in range(10_000):
        damaged = bytearray(GOOD)
        for _ in range(drawn.randint(1, 4)):
            at = drawn.randrange(len(damaged))
            change = drawn.randrange(3)
            if change == 0:
                damaged[at] = drawn.randrange(256)
            elif change == 1:
                del damaged[at : at + drawn.randint(1, 9)]
            else:
                damaged[at:at] = drawn.randbytes(drawn.randint(1, 5))
        is_refused = Fault.MALFORMED in taken(follower, number, bytes(damaged))
        assert is_refused is not fold(bytes(damaged))
        refused += is_refused
    assert follower.counts.malformed == refused
    assert follower.counts.batches == 10_000
    print(f"damaged batches: 10,000 frames, {refused:,} malformed, each counted")
    assert 3000 < refused < 10_000


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_cut_batch_is_refused(length: int) -> None:
    """Each beginning of a batch is refused."""
    assert not fold(GOOD[:length])


def test_a_malformed_batch_is_counted_and_changes_nothing() -> None:
    """It is one finding; what was folded before stays, and what comes after is folded."""
    follower, _ = followed([CLEARED, store([10, 20])])
    (found,) = follower.take(frame(1, store([50]), {"type": "BlockStored", "block_hashes": 5}))
    assert found.fault is Fault.MALFORMED
    assert "block_hashes is no array" in found.what
    assert follower.counts.malformed == 1
    assert follower.books()[0].blocks() == {"GPU": 2}
    assert not follower.take(frame(2, store([90])))
    assert follower.books()[0].blocks() == {"GPU": 3}
    (found,) = follower.take(BrokenFrame(0, "has 2 parts", 0.0))
    assert (found.fault, follower.counts.malformed) == (Fault.MALFORMED, 2)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "ends in the middle"),
        (batch() + b"\0", "bytes follow the batch"),
        (plain({"events": []}), "the batch is no array"),
        (plain([1.0]), "has no events"),
        (plain(["now", []]), "the time is no number"),
        (batch([]), "an event has no type"),
        (batch({"block_hashes": [1]}), "an event has no type"),
        (batch({"type": "BlockRemoved"}), "has no block_hashes"),
        (batch(store([1]) | {"token_ids": [-1]}), "a token is out of range"),
        (batch(store([1]) | {"token_ids": [[1, 2, 3]]}), "a pair of tokens has not two"),
        (batch(store([1]) | {"block_hashes": [b""]}), "has 0 bytes"),
        (batch(store([1]) | {"medium": 5}), "medium is no text"),
        (batch(store([1]) | {"group_idx": -1}), "group_idx is out of range"),
        (batch(rank=1 << 40), "the rank is out of range"),
        (b"\x92\x01" + b"\x91" * 100 + b"\xc0", "is no text"),
        (b"\x93\x01\x90" + b"\x91" * 100 + b"\xc0", "is nested too deeply"),
        (b"\x92\x01\xdd\xff\xff\xff\xff", "ends in the middle"),
    ],
)
def test_refusals_say_what_is_wrong(payload: bytes, problem: str) -> None:
    """A refusal names the part that is wrong."""
    with pytest.raises(MalformedFrame, match=problem):
        Ledger(seeds_of).fold(payload)


def test_what_is_not_known_is_skipped() -> None:
    """Fields, types of events and parts of a batch that are not known change nothing."""
    novel = {"type": "BlockLoaned", "to": [1, {"a": msgspec.msgpack.Ext(5, b"abc")}]}
    known = store([10, 20]) | {"novel": {"x": [1.5, None]}, "session_id": "s"}
    payload = plain([1.0, [CLEARED, novel, known], 2, "more", [1]])
    follower = Follower()
    assert not taken(follower, 0, payload)
    assert follower.counts.unknown_events == 1
    (book,) = follower.books()
    assert (book.rank, book.blocks()) == (2, {"GPU": 2})
    assert [each.kind for each in decode_batch(payload).events] == [
        "AllBlocksCleared",
        "BlockStored",
    ]


@pytest.mark.parametrize(
    "parts", [["BlockStored", [7], None, [1, 2], 2], ["BlockStored", [7], None, [1, 2], 2, None]]
)
def test_the_oldest_forms_have_no_medium(parts: list[object]) -> None:
    """Arrays without a medium, and batches without a rank, are of the device of rank 0."""
    follower = Follower()
    payload = plain([1, [["AllBlocksCleared"], parts]])
    assert not taken(follower, 0, payload)
    assert follower.books()[0].blocks() == {"GPU": 1}
    assert not taken(follower, 1, plain([2, [["BlockRemoved", [7]]]]))
    assert follower.books()[0].blocks() == {"GPU": 0}


def test_hashes_of_bytes_are_known_by_their_first_eight() -> None:
    """VLLM's hashes of 32 bytes are followed, and verified where they are the chain's."""
    hashes = list(page_hashes(b"", [(10, 11, 12, 13), (20, 21, 22, 23)]))
    follower, _ = followed([CLEARED, store([10, 20]) | {"block_hashes": hashes}])
    assert follower.books()[0].counts["verified"] == 2
    assert not follower.take(frame(1, {"type": "BlockRemoved", "block_hashes": hashes[::-1]}))


@pytest.mark.parametrize("payload", [b"", b"\xc1", plain([1, 2]), b"\x92\x01\x91\x05"])
def test_the_plain_decoder_refuses(payload: bytes) -> None:
    """The decoder for excerpts refuses what is no batch."""
    with pytest.raises(UnreadableBatch):
        decode_batch(payload)
