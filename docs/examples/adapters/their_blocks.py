"""A block manager of somebody else: sequences in, block tables out, blocks found by hashes.

It stands for the block managers of vLLM's kind: blocks have reference counts, a block that is free
keeps its content until it is taken again, and the oldest free block is taken first.
`their_blocks_adapter.py` judges it.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import NamedTuple


class BlockEvent(NamedTuple):
    """The first block with some content is stored, or the last one is removed."""

    stored: bool
    block_hash: str
    parent_hash: str | None = None
    tokens: tuple[int, ...] = ()
    salt: str | None = None


class Sequence:
    """A request: its tokens, and the blocks that it has."""

    def __init__(self, tokens: list[int], salt: str | None = None) -> None:
        self.tokens = tokens
        self.salt = salt
        self.block_table: list[int] = []
        self.computed_blocks = 0


class BlockManager:
    """Allocates blocks to sequences, and shares those with the same content."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free_blocks = dict.fromkeys(range(num_blocks))  # In the order of their release.
        self.ref_counts = [0] * num_blocks
        self.hashes: dict[int, str] = {}
        self.blocks_of: defaultdict[str, list[int]] = defaultdict(list)
        self.events: list[BlockEvent] = []

    def block_hashes(self, seq: Sequence) -> list[str]:
        """The hash of each full block of a sequence, with all that comes before it."""
        found, parent = [], repr(seq.salt)
        for at in range(0, len(seq.tokens) - self.block_size + 1, self.block_size):
            text = f"{parent}{seq.tokens[at : at + self.block_size]}"
            parent = sha256(text.encode(errors="surrogatepass")).hexdigest()
            found.append(parent)
        return found

    def allocate(self, seq: Sequence) -> bool:
        """Give a new sequence its blocks, cached ones first; False if there are too few."""
        shared = self._cached_blocks(seq)
        resting = sum(self.ref_counts[block] == 0 for block in shared)
        if self._missing(seq) - len(shared) > len(self.free_blocks) - resting:
            return False
        for block in shared:
            self.free_blocks.pop(block, None)
            self.ref_counts[block] += 1
        seq.block_table += shared
        seq.computed_blocks = len(shared)
        self._take_missing(seq)
        return True

    def append(self, seq: Sequence, tokens: list[int]) -> bool:
        """Make a sequence longer; False, and no change, if there are too few blocks."""
        longer = Sequence(seq.tokens + tokens)
        longer.block_table = seq.block_table
        if self._missing(longer) > len(self.free_blocks):
            return False
        seq.tokens = longer.tokens
        self._take_missing(seq)
        return True

    def mark_computed(self, seq: Sequence) -> None:
        """The model has filled all full blocks of a sequence: from now on they can be shared."""
        hashes = self.block_hashes(seq)
        for at in range(seq.computed_blocks, len(hashes)):
            block, parent = seq.block_table[at], hashes[at - 1] if at else None
            if not self.blocks_of[hashes[at]]:
                page = tuple(seq.tokens[at * self.block_size : (at + 1) * self.block_size])
                self.events.append(BlockEvent(True, hashes[at], parent, page, seq.salt))
            self.hashes[block] = hashes[at]
            self.blocks_of[hashes[at]].append(block)
        seq.computed_blocks = len(hashes)

    def release(self, seq: Sequence) -> None:
        """Take the blocks of a sequence back, the last first, so that it is reused first."""
        for block in reversed(seq.block_table):
            self.ref_counts[block] -= 1
            if not self.ref_counts[block]:
                self.free_blocks[block] = None
        seq.block_table = []

    def take_events(self) -> list[BlockEvent]:
        """The events since the last call."""
        taken, self.events = self.events, []
        return taken

    def _cached_blocks(self, seq: Sequence) -> list[int]:
        """A block for each leading page that is cached."""
        found: list[int] = []
        for block_hash in self.block_hashes(seq):
            if not self.blocks_of[block_hash]:
                break
            found.append(self.blocks_of[block_hash][0])
        return found

    def _missing(self, seq: Sequence) -> int:
        """How many blocks a sequence lacks."""
        return -(-len(seq.tokens) // self.block_size) - len(seq.block_table)

    def _take_missing(self, seq: Sequence) -> None:
        for _ in range(self._missing(seq)):
            block = next(iter(self.free_blocks))
            del self.free_blocks[block]
            self._forget(block)
            self.ref_counts[block] = 1
            seq.block_table.append(block)

    def _forget(self, block: int) -> None:
        """Drop the content of a block that is used for something else."""
        block_hash = self.hashes.pop(block, None)
        if block_hash is not None:
            self.blocks_of[block_hash].remove(block)
            if not self.blocks_of[block_hash]:
                self.events.append(BlockEvent(False, block_hash))
