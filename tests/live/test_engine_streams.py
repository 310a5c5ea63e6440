"""Recorded streams of real engines: sound as they are, and with a fault each planted into them.

`tests/helpers/vllm_streams.py` and `tests/helpers/sglang_streams.py` record them, each in its
engine's environment; vllm-offloading is of the engine of `test_vllm_watched.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from attrs import evolve, frozen

from kvcanon.live.follower import FollowerConfig, RepeatRule, Streams
from kvcanon.live.frames import Frame, Source
from kvcanon.live.stream_faults import StreamFinding
from kvcanon.live.stream_recording import open_recording

GOLDEN = Path(__file__).parent / "golden" / "streams"
SOUND = sorted(path.stem for path in GOLDEN.glob("*.kvstream"))
NEVER_CLEARS = frozenset({"EVENT-13"})
"""What vLLM breaks at its start."""
USUAL = FollowerConfig(ignored=NEVER_CLEARS)

Event: TypeAlias = dict[str, Any]
Batch: TypeAlias = list[Event]
Suits: TypeAlias = Callable[[Event], bool]
Plant: TypeAlias = Callable[[list[Batch]], list[Batch]]


def batches_of(name: str) -> list[Batch]:
    """The events of a recording, by batches, which a test may change."""
    recording = open_recording(GOLDEN / f"{name}.kvstream")
    return [msgspec.msgpack.decode(each.payload)[1] for each in _frames(name, recording.path)]


def _frames(name: str, path: Path) -> Iterator[Frame]:
    for arrived in open_recording(path).frames():
        assert isinstance(arrived, Frame), name
        yield arrived


def folded(
    name: str, batches: list[Batch], config: FollowerConfig, rank: int = 0
) -> list[StreamFinding]:
    """What is wrong with a stream, which is the second of two; the first is sound."""
    streams = Streams(config, [Source("tcp://sound:1"), Source("tcp://planted:1", rank=0)])
    found = [finding for frame in _frames(name, GOLDEN / f"{name}.kvstream")
             for finding in streams.take(frame)]  # fmt: skip
    for number, events in enumerate(batches):
        payload = msgspec.msgpack.encode([1.0, events, rank])
        found += streams.take(Frame(1, b"kv", number, payload, 1.0))
    return found


@pytest.mark.parametrize("name", SOUND)
def test_streams_of_engines_are_sound(name: str) -> None:
    """Nothing is found; vLLM alone does not clear at its start."""
    assert folded(name, batches_of(name), USUAL) == []
    streams = Streams()
    for frame in _frames(name, GOLDEN / f"{name}.kvstream"):
        streams.take(frame)
    assert set(streams.by_law()) == (NEVER_CLEARS if name.startswith("vllm") else set())
    assert streams.pages > 100


@pytest.mark.parametrize("name", ["vllm-full", "vllm-window", "vllm-states"])
def test_copies_of_a_block_are_counted(name: str) -> None:
    """What is held in the end, by group, is what the manager held."""
    streams = Streams(USUAL)
    for frame in _frames(name, GOLDEN / f"{name}.kvstream"):
        streams.take(frame)
    held = {str(book.group): book.counts["distinct"] for book in streams.of(0).books()}
    assert held == json.loads((GOLDEN / "vllm-held.json").read_text(encoding="utf-8"))[name]


def test_reports_are_no_copies() -> None:
    """Of blocks that are reported again one remove takes each off."""
    reported = evolve(USUAL, repeats=RepeatRule.REPORTED)
    streams = Streams(reported)
    for frame in _frames("vllm-reports", GOLDEN / "vllm-reports.kvstream"):
        assert streams.take(frame) == []
    books = streams.of(0).books()
    assert [book.counts["repeated"] > 40 for book in books] == [True, True]
    held = json.loads((GOLDEN / "vllm-held.json").read_text(encoding="utf-8"))["vllm-reports"]
    # A copy that another request computed, and a window block that was reported and is not there.
    assert [book.counts["distinct"] - held[str(book.group)] for book in books] == [-1, 1]


# Faults.


def where(suits: Suits, change: Callable[[Batch, int], object], nth: int = 0) -> Plant:
    """Change the nth event that suits."""

    def plant(batches: list[Batch]) -> list[Batch]:
        left = nth
        for events in batches:
            for at, event in enumerate(events):
                if suits(event):
                    if left == 0:
                        change(events, at)
                        return batches
                    left -= 1
        raise AssertionError("no event suits")

    return plant


def stored(group: int | None = None, medium: str = "GPU", pages: int = 1) -> Suits:
    """Stores of a group, on a medium, of so many blocks at least."""
    return lambda event: (
        event["type"] == "BlockStored"
        and event.get("group_idx") == group
        and event["medium"] == medium
        and len(event["block_hashes"]) >= pages
        and len(event["token_ids"]) == len(event["block_hashes"]) * event["block_size"] != 0
    )


def first(group: int | None = None, medium: str = "GPU", pages: int = 1) -> Suits:
    """Stores that begin a prompt."""
    stores = stored(group, medium, pages)
    return lambda event: stores(event) and event["parent_block_hash"] is None


def child(group: int | None = None, medium: str = "GPU") -> Suits:
    """Stores that follow a block."""
    stores = stored(group, medium)
    return lambda event: stores(event) and event["parent_block_hash"] is not None


def removed(group: int | None = None, medium: str = "GPU") -> Suits:
    """Removes of a group from a medium."""
    return lambda event: (
        event["type"] == "BlockRemoved"
        and event.get("group_idx") == group
        and event["medium"] == medium
    )


def saying(**fields: object) -> Callable[[Batch, int], object]:
    """Send fields otherwise."""
    return lambda events, at: events[at].update(fields)


def double(events: Batch, at: int) -> None:
    """Send an event twice."""
    events.insert(at, events[at])


def leave_out(events: Batch, at: int) -> None:
    """Leave an event out."""
    del events[at]


def without(field: str) -> Callable[[Batch, int], object]:
    """Leave a field out."""
    return lambda events, at: events[at].pop(field)


def again(**fields: object) -> Callable[[Batch, int], object]:
    """Send a store twice, the second time with other fields."""
    return lambda events, at: events.insert(at + 1, events[at] | fields)


def first_block(events: Batch, at: int) -> None:
    """Remove a block after the store of it and of others that follow it."""
    event = events[at]
    events.insert(
        at + 1,
        {
            "type": "BlockRemoved",
            "block_hashes": event["block_hashes"][:1],
            "medium": event["medium"],
            "group_idx": event.get("group_idx"),
        },
    )


def removed_twice(events: Batch, at: int) -> None:
    """Remove a block after the store of it, and once more."""
    first_block(events, at)
    first_block(events, at)


def cut_token(events: Batch, at: int) -> None:
    """Send one token less."""
    events[at]["token_ids"].pop()


def other_tokens(events: Batch, at: int) -> None:
    """Send a store twice, the second time with other tokens."""
    again(token_ids=[token + 1 for token in events[at]["token_ids"]])(events, at)


def in_another_group(events: Batch, at: int) -> None:
    """Let a remove name a group that does not have the block."""
    events[at]["group_idx"] = 1 - events[at]["group_idx"]


def of_unknown_block(events: Batch, at: int) -> None:
    """Let a remove name a block that nobody stored."""
    events[at]["block_hashes"] = [77]


def ungrouped(batches: list[Batch]) -> list[Batch]:
    """Let removes name no group, as vLLM's once did."""
    for events in batches:
        for event in events:
            if event["type"] == "BlockRemoved":
                event.pop("group_idx", None)
    return batches


def as_it_is(batches: list[Batch]) -> list[Batch]:
    """Plant nothing."""
    return batches


@frozen
class Planted:
    """A fault, and what must be found first of it."""

    name: str
    stream: str
    law_id: str
    plant: Plant
    group: int | None = None
    config: FollowerConfig = USUAL
    rank: int = 0


CLOSED = evolve(USUAL, closed=frozenset({"CPU_PINNED", "DISK", "EXTERNAL"}))
ONCE = evolve(USUAL, repeats=RepeatRule.ONCE)
EVERY = FollowerConfig()
IMAGE = [["another-image", 1]]


def on_tier(**tier: str) -> Callable[[Batch, int], object]:
    """Store a block on storage, too, and remove it from another tier of the same medium."""

    def plant(events: Batch, at: int) -> None:
        event = events[at]
        hashes = event["block_hashes"]
        store = event | {"medium": "STORAGE", "ownership": "fs", "locality": "LOCAL"}
        gone = {"type": "BlockRemoved", "block_hashes": hashes, "medium": "STORAGE"}
        gone |= {"group_idx": event["group_idx"], "ownership": "fs", "locality": "LOCAL"} | tier
        events[at + 1 : at + 1] = [store, gone]

    return plant


def tail_on(medium: str) -> Callable[[Batch, int], object]:
    """Store blocks on another medium, too, without those before them."""
    return lambda events, at: events.insert(at + 1, events[at] | {"medium": medium})


def head_leaves(medium: str) -> Callable[[Batch, int], object]:
    """Store blocks on another medium, too, and remove the first of them."""

    def plant(events: Batch, at: int) -> None:
        tail_on(medium)(events, at)
        first_block(events, at + 1)

    return plant


ALL = [
    Planted("a store without its parent's", "vllm-full", "EVENT-1",
            where(stored(0, pages=3), leave_out, 1), 0),
    Planted("a wrong parent", "vllm-full", "EVENT-1",
            where(child(0), saying(parent_block_hash=12345), 3), 0),
    Planted("a parent that leaves first", "vllm-full", "EVENT-12",
            where(stored(0, pages=3), first_block), 0),
    Planted("a doubled remove", "vllm-full", "EVENT-2", where(removed(0), double, 5), 0),
    Planted("a remove of nothing", "vllm-full", "EVENT-2",
            where(removed(0), of_unknown_block, 5), 0),
    Planted("a token too few", "vllm-full", "EVENT-9", where(stored(0), cut_token, 3), 0),
    Planted("another block size", "vllm-full", "EVENT-9",
            where(stored(0, pages=2), saying(block_size=3), 3), 0),
    Planted("no tokens", "vllm-full", "EVENT-9",
            where(stored(0), saying(token_ids=[], block_size=0), 3), 0),
    Planted("other tokens under one hash", "vllm-full", "EVENT-7",
            where(stored(0), other_tokens, 3), 0),
    Planted("two images under one hash", "vllm-full", "EVENT-7",
            where(stored(0), again(extra_keys=[IMAGE]), 3), 0),
    Planted("an image under the hash of a later block", "vllm-full", "EVENT-7",
            where(stored(0, pages=2), again(extra_keys=[None, IMAGE]), 3), 0),
    Planted("another adapter under one hash", "vllm-full", "EVENT-7",
            where(stored(0), again(lora_name="other"), 3), 0),
    Planted("a medium of no name", "vllm-full", "WIRE-3",
            where(stored(0), saying(medium="TAPE"), 3), 0),
    Planted("batches of another rank", "vllm-full", "WIRE-5", as_it_is, rank=3),
    Planted("a second store where copies are not counted", "vllm-full", "EVENT-2",
            where(stored(0), double, 3), 0, ONCE),
    Planted("no clear at the start", "vllm-full", "EVENT-13", as_it_is, 0, EVERY),
    Planted("a doubled remove in a window", "vllm-window", "EVENT-2",
            where(removed(1), double, 5), 1),
    Planted("a remove of nothing in a window", "vllm-window", "EVENT-2",
            where(removed(1), of_unknown_block, 5), 1),
    Planted("a remove that names another group", "vllm-window", "EVENT-12",
            where(removed(1), in_another_group), 0),
    Planted("removes without a group", "vllm-window", "WIRE-4", ungrouped, 0),
    Planted("a token too few in a window", "vllm-window", "EVENT-9",
            where(stored(1), cut_token, 3), 1),
    Planted("other tokens under one hash in a window", "vllm-window", "EVENT-7",
            where(stored(1), other_tokens, 3), 1),
    Planted("a parent of the full group that leaves first", "vllm-window", "EVENT-12",
            where(stored(0, pages=3), first_block), 0),
    Planted("a doubled remove of a state", "vllm-states", "EVENT-2",
            where(removed(1), double, 2), 1),
    Planted("other tokens under one hash of a state", "vllm-states", "EVENT-7",
            where(stored(1), other_tokens, 3), 1),
    Planted("a host store without tokens", "vllm-offloading", "EVENT-9",
            where(stored(0, "CPU"), saying(token_ids=[], block_size=0), 3), 0),
    Planted("a doubled remove from the host", "vllm-offloading", "EVENT-2",
            where(stored(0, "CPU"), removed_twice, 3), 0),
    Planted("other tokens on the host", "vllm-offloading", "EVENT-7",
            where(stored(0, "CPU"), saying(token_ids=[1] * 32), 3), 0),
    Planted("a remove from another owner's tier", "vllm-full", "EVENT-2",
            where(stored(0), on_tier(ownership="obj"), 3), 0),
    Planted("a remove from the remote tier", "vllm-full", "EVENT-2",
            where(stored(0), on_tier(locality="REMOTE"), 3), 0),
    Planted("a tail without its head on storage", "vllm-full", "EVENT-1",
            where(child(0), tail_on("STORAGE"), 3), 0, CLOSED),
    Planted("a tail without its head on disk", "sglang-full", "EVENT-1",
            where(child(), tail_on("DISK"), 3), None, CLOSED),
    Planted("a head that leaves the disk first", "sglang-full", "EVENT-12",
            where(first(pages=2), head_leaves("DISK")), None, CLOSED),
    Planted("a doubled store", "sglang-full", "EVENT-2", where(stored(), double, 3)),
    Planted("a lost remove", "sglang-full", "EVENT-12", where(removed(), leave_out, 3)),
    Planted("a wrong hash", "sglang-full", "EVENT-6",
            where(child(), lambda events, at: events[at]["block_hashes"].__setitem__(0, 7), 3)),
    Planted("a wrong token", "sglang-full", "EVENT-6",
            where(child(), lambda events, at: events[at]["token_ids"].reverse(), 3)),
    Planted("a hash without its namespace", "sglang-full", "EVENT-6",
            where(first(), saying(cache_salt="tenant"), 3)),
    Planted("a parent of another tenant", "sglang-full", "EVENT-7",
            where(child(), saying(cache_salt="tenant"), 3)),
    Planted("a child of the window model's full cache that stays", "sglang-window", "EVENT-12",
            where(stored(pages=2), first_block, 2)),
    Planted("a host store twice", "sglang-hicache", "EVENT-2",
            where(stored(medium="CPU_PINNED"), double, 2)),
    Planted("a lost store on the host", "sglang-hicache", "EVENT-2",
            where(stored(medium="CPU_PINNED"), leave_out)),
    Planted("a remove from the wrong medium", "sglang-hicache", "EVENT-2",
            where(removed(medium="CPU_PINNED"), saying(medium="DISK"), 2)),
    Planted("a head that leaves the host first", "sglang-hicache", "EVENT-12",
            where(stored(medium="CPU_PINNED", pages=2), first_block), None, CLOSED),
    Planted("a doubled remove under write_back", "sglang-write-back", "EVENT-2",
            where(removed(), double, 4)),
]  # fmt: skip


@pytest.mark.parametrize("planted", ALL, ids=[each.name for each in ALL])
def test_planted_faults_are_found_in_engines_streams(planted: Planted) -> None:
    """The law is the one that is broken, in the group and at the publisher of the fault."""
    batches = planted.plant(batches_of(planted.stream))
    found = folded(planted.stream, batches, planted.config, planted.rank)
    if planted.config is EVERY:
        found = [each for each in found if each.source == 1]
    assert found
    first = found[0]
    assert (first.law_id, first.group, first.source) == (planted.law_id, planted.group, 1)
    assert {each.source for each in found} == {1}
    assert "{" not in first.what + first.belief


def numbers_of(name: str) -> list[tuple[int, bytes]]:
    """The payloads of a recording, with their numbers."""
    return [(each.sequence, each.payload) for each in _frames(name, GOLDEN / f"{name}.kvstream")]


def taken_twice(sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Send a batch twice."""
    return [*sent[:30], sent[29], *sent[30:]]


def lost(sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Leave a batch out."""
    return sent[:30] + sent[31:]


def late(sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Send a batch after the one that follows it."""
    return [*sent[:30], sent[31], sent[30], *sent[32:]]


def cut(sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Leave the last bytes of a batch out."""
    return [*sent[:30], (30, sent[30][1][:-3]), *sent[31:]]


def with_another(sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Let another engine send at the same address, from the middle on."""
    other = [
        (number, msgspec.msgpack.encode([0.5, events, 0]))
        for number, events in enumerate(batches_of("sglang-window"))
    ]
    pairs = zip(other, sent[40:], strict=False)
    return [*sent[:40], *(each for pair in pairs for each in pair)]


@pytest.mark.parametrize(
    ("plant", "law_id"),
    [
        (taken_twice, "WIRE-1"),
        (lost, "WIRE-1"),
        (late, "WIRE-1"),
        (cut, "WIRE-2"),
        (with_another, "WIRE-5"),
    ],
)
def test_planted_faults_of_frames_are_found(
    plant: Callable[[list[tuple[int, bytes]]], list[tuple[int, bytes]]], law_id: str
) -> None:
    """A batch that is lost, doubled, late or damaged, and a second publisher, are said as that."""
    streams = Streams(USUAL)
    found = [
        finding
        for number, payload in plant(numbers_of("sglang-full"))
        for finding in streams.take(Frame(0, b"kv", number, payload, 1.0))
    ]
    assert found[0].law_id == law_id
    if plant is with_another:
        assert [each.law_id for each in found] == ["WIRE-5"]
