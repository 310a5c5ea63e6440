"""Compares two streams of the same requests: of two engines, or of two ranks of one model.

Blocks are compared by their tokens and everything before them, not by their hashes on the wire, so
that engines which hash otherwise can be compared. Batches may be cut otherwise, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

from attrs import evolve, frozen

from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame
from kvcanon.live.stream_recording import Recording

_DIGEST = 32
_RECORD, _HELD = 2 + _DIGEST, _DIGEST + 2
"""Bytes of a record of the trace, and of a block that is held, as the ledger writes them."""
_TIER_AT = 1 + _DIGEST
_KINDS = ("stored on", "removed from", "cleared")


@frozen
class Comparison:
    """How two streams differ."""

    happenings: tuple[int, int]
    """How much happened in each."""
    first_difference: int | None
    """The place where they first differ in order; None where they are equal."""
    at_difference: tuple[str | None, str | None]
    """What happened there, in words; None where nothing did."""
    only_first: Counter[str]
    """What happened in the first alone, counted by kind and medium, whatever the order."""
    only_second: Counter[str]
    resident: tuple[int, int, int]
    """Blocks on a medium in the end: in both streams, in the first alone, in the second alone."""

    @property
    def is_equal(self) -> bool:
        """Whether the same happened in the same order."""
        return self.first_difference is None

    @property
    def is_same_sum(self) -> bool:
        """Whether the same happened in any order, and is resident in the end."""
        return not self.only_first and not self.only_second and not any(self.resident[1:])


def compare(
    first: Recording, second: Recording, config: FollowerConfig, sources: tuple[int, int] = (0, 0)
) -> Comparison:
    """Compare one publisher of each recording. Raises: BadRecording."""
    tracing = evolve(config, tracing=True)
    followers = [Follower(source, tracing) for source in sources]
    over: Counter[bytes] = Counter()
    numbers, difference = [0, 0], None
    at_difference: tuple[bytes | None, bytes | None] = (None, None)
    pairs = zip_longest(_records(first, followers[0]), _records(second, followers[1]))
    for place, pair in enumerate(pairs):
        if difference is None and pair[0] != pair[1]:
            difference, at_difference = place, pair
        for side, record in enumerate(pair):
            if record is not None:
                numbers[side] += 1
                over[record] += 1 - 2 * side
                # What happened in both is no difference, so only what is left over is kept.
                if not over[record]:
                    del over[record]
    contents = [_contents(follower) for follower in followers]
    return Comparison(
        happenings=(numbers[0], numbers[1]),
        first_difference=difference,
        at_difference=(_in_words(at_difference[0]), _in_words(at_difference[1])),
        only_first=_by_kind(+over),
        only_second=_by_kind(-over),
        resident=(
            len(contents[0] & contents[1]),
            len(contents[0] - contents[1]),
            len(contents[1] - contents[0]),
        ),
    )


def _records(recording: Recording, follower: Follower) -> Iterator[bytes]:
    """What happened: a byte for the kind, the digest of the block, and the name of the tier."""
    for arrived in recording.frames():
        if isinstance(arrived, Frame) and arrived.source == follower.source:
            follower.take(arrived)
            trace = follower.ledger.take_trace()
            tiers = [each.encode() for each in follower.tiers()]
            for at in range(0, len(trace), _RECORD):
                kind, tier, digest = trace[at], trace[at + 1], trace[at + 2 : at + _RECORD]
                yield bytes([kind]) + digest + tiers[tier]


def _in_words(record: bytes | None) -> str | None:
    """One block that was stored or removed, or a clear."""
    if record is None:
        return None
    kind, block, tier = _KINDS[record[0]], record[1:9].hex(), record[_TIER_AT:].decode()
    return "all blocks cleared" if kind == "cleared" else f"block {block} {kind} {tier}"


def _by_kind(records: Counter[bytes]) -> Counter[str]:
    found: Counter[str] = Counter()
    for record, number in records.items():
        kind = _KINDS[record[0]]
        tier = record[_TIER_AT:].decode()
        found[kind if kind == "cleared" else f"{kind} {tier}"] += number
    return found


def _contents(follower: Follower) -> set[bytes]:
    """What is resident: a digest with the name of a tier, for each."""
    found: set[bytes] = set()
    tiers = [each.encode() for each in follower.tiers()]
    for book in follower.books():
        held = follower.ledger.contents(book.rank, book.group)
        for at in range(0, len(held), _HELD):
            digest, bits = held[at : at + _DIGEST], held[at + _DIGEST : at + _HELD]
            there = int.from_bytes(bits, "little")
            found.update(digest + name for number, name in enumerate(tiers) if there >> number & 1)
    return found
