"""Faults that a stream of events can show by itself, and which law each breaks.

The laws are those of `kvcanon.spec.laws.event` and of `kvcanon.spec.wire`; here stands only how a
stream shows that one is broken, and what a router would believe because of it.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen


class Fault(IntEnum):
    """What is wrong; the numbers up to 99 are those of `live/native/ledger.hpp`."""

    PARENT_ABSENT = 0
    STORED_TWICE = 1
    REMOVED_ABSENT = 2
    WRONG_HASH = 3
    UNSEEDED_HASH = 4
    OTHER_CONTENT = 5
    OTHER_NAMESPACE = 6
    MISALIGNED = 7
    NO_TOKENS = 8
    OTHER_BLOCK_SIZE = 9
    CHILD_STAYS = 10
    NOT_CLEARED_FIRST = 11
    UNKNOWN_MEDIUM = 12
    GROUP_UNSAID = 13
    LOST = 100
    REPEATED = 101
    OUT_OF_ORDER = 102
    MALFORMED = 103
    TWO_PUBLISHERS = 104
    OTHER_RANK = 105


@frozen
class FaultWords:
    """A fault in words; the fields in braces are those of `StreamFinding`."""

    law_id: str
    what: str
    belief: str
    """What a router believes wrongly."""


FAULTS = {
    Fault.PARENT_ABSENT: FaultWords(
        "EVENT-1",
        "block {block} was stored on {medium} while the block before it, {other}, was not there",
        "A router that keeps a tree cannot place {block} and drops it: up to {pages} of prefix "
        "are never requested here. One that looks up hashes promises a prefix with a gap.",
    ),
    Fault.STORED_TWICE: FaultWords(
        "EVENT-2",
        "block {block} was stored on {medium}, where it was already",
        "A router that counts copies keeps {block} after its next remove: it goes on sending "
        "prompts for what is gone, {pages}.",
    ),
    Fault.REMOVED_ABSENT: FaultWords(
        "EVENT-2",
        "block {block} was removed from {medium}, where it was not",
        "A router that counts copies is one short: it drops {block} while it is still on some "
        "medium, or never learned that it was there.",
    ),
    Fault.WRONG_HASH: FaultWords(
        "EVENT-6",
        "block {block} does not have the hash of its tokens after its parent, {expected}",
        "A router that computes hashes from prompts looks for {expected} and does not find it: "
        "{pages} of prefix are computed again elsewhere. It finds {block} for other tokens.",
    ),
    Fault.UNSEEDED_HASH: FaultWords(
        "EVENT-6",
        "block {block} has the hash of its tokens without its namespace",
        "Two tenants with the same tokens have one block to a router: it promises one the cache of "
        "the other, and a remove for one drops both.",
    ),
    Fault.OTHER_CONTENT: FaultWords(
        "EVENT-7",
        "block {block} was stored with other tokens, extra keys or another parent than before",
        "A router attaches {block} to two prefixes, and promises it to prompts that it does not "
        "serve.",
    ),
    Fault.OTHER_NAMESPACE: FaultWords(
        "EVENT-7",
        "block {block} was stored in another namespace than its parent, or than before",
        "A router promises {pages} to prompts of another tenant.",
    ),
    Fault.MISALIGNED: FaultWords(
        "EVENT-9",
        "an event that begins with block {block} has {number} tokens, not a block of them each",
        "A router cuts the tokens elsewhere, and computes wrong hashes for all blocks after that.",
    ),
    Fault.NO_TOKENS: FaultWords(
        "EVENT-9",
        "{number} blocks from {block} on were stored on {medium} without tokens",
        "A router that computes hashes from prompts cannot know which prompts they serve: nothing "
        "on {medium} is ever requested.",
    ),
    Fault.OTHER_BLOCK_SIZE: FaultWords(
        "EVENT-9",
        "block {block} has another size than the blocks before it, {number}",
        "A router that cuts prompts into blocks of one size never finds it.",
    ),
    Fault.CHILD_STAYS: FaultWords(
        "EVENT-12",
        "block {block} was removed from {medium} before {number} blocks that follow it",
        "Until those leave, a router promises prefixes whose beginning is gone.",
    ),
    Fault.NOT_CLEARED_FIRST: FaultWords(
        "EVENT-13",
        "the first batch of the publisher does not begin with AllBlocksCleared",
        "A router that knew the engine before a restart goes on requesting blocks that are gone.",
    ),
    Fault.UNKNOWN_MEDIUM: FaultWords(
        "WIRE-3",
        "an event names a medium that is not known",
        "A router ignores the event, or takes the blocks to be on the device.",
    ),
    Fault.GROUP_UNSAID: FaultWords(
        "WIRE-4",
        "a remove of block {block} from {medium} names no group of layers, and {number} groups "
        "hold it",
        "A router takes the block off one group, or off all: in the others it stays, or is missed.",
    ),
    Fault.LOST: FaultWords(
        "WIRE-1",
        "batches {first} to {last} never arrived, and no replay has them",
        "A router does not know what they stored and removed. What it holds is a guess until the "
        "next AllBlocksCleared.",
    ),
    Fault.REPEATED: FaultWords(
        "WIRE-1",
        "batch {first} arrived twice",
        "A router that folds it twice counts its blocks twice.",
    ),
    Fault.OUT_OF_ORDER: FaultWords(
        "WIRE-1",
        "batch {first} arrived after later ones",
        "A router that folds it late brings back blocks that were removed since.",
    ),
    Fault.MALFORMED: FaultWords(
        "WIRE-2",
        "batch {first} cannot be read: {problem}",
        "A router skips the whole batch: what it stored is never requested, what it removed is "
        "requested in vain.",
    ),
    Fault.TWO_PUBLISHERS: FaultWords(
        "WIRE-5",
        "two publishers send here: batch {first} goes on where the one before was",
        "A router takes them for one engine that restarts again and again: it drops what one holds "
        "when the other begins, and promises the cache of each for the other.",
    ),
    Fault.OTHER_RANK: FaultWords(
        "WIRE-5",
        "batches name rank {rank}, and the address is that of rank {last}",
        "A router credits the blocks to another rank: it sends requests to one that does not hold "
        "them.",
    ),
}

SEQUENCE_FAULTS = frozenset(
    {
        Fault.LOST,
        Fault.REPEATED,
        Fault.OUT_OF_ORDER,
        Fault.MALFORMED,
        Fault.TWO_PUBLISHERS,
        Fault.OTHER_RANK,
    }
)
"""Faults of frames; the others are of events in a frame."""


@frozen
class StreamFinding:
    """A fault at one place of one stream."""

    fault: Fault
    source: int
    sequence: int
    """Of the batch that shows it."""
    rank: int = 0
    event: int = 0
    page: int = 0
    group: int | None = None
    """Of layers; None where the stream names no groups."""
    medium: str = ""
    """With it, where several tiers share a medium, which of them it is."""
    key: int = 0
    other: int = 0
    depth: int = 0
    """Pages of the prompt up to the block; 0 where they are not known."""
    last: int = 0
    """Of batches that were lost, the last; of a wrong rank, the right one."""
    problem: str = ""

    @property
    def law_id(self) -> str:
        """The broken law."""
        return FAULTS[self.fault].law_id

    @property
    def what(self) -> str:
        """What is wrong, in one sentence without a full stop."""
        return self._filled(FAULTS[self.fault].what)

    @property
    def belief(self) -> str:
        """What a router would believe wrongly."""
        return self._filled(FAULTS[self.fault].belief)

    def _filled(self, words: str) -> str:
        pages = f"{self.depth} blocks" if self.depth > 1 else "a block"
        return words.format(
            block=shown_key(self.key),
            other=shown_key(self.other),
            expected=shown_key(self.other),
            number=self.other,
            medium=self.medium,
            pages=pages,
            first=self.sequence,
            last=self.last,
            problem=self.problem,
            rank=self.rank,
        )


def shown_key(key: int) -> str:
    """The 64 bits of a hash, as text."""
    return f"{key & 0xFFFF_FFFF_FFFF_FFFF:016x}"
