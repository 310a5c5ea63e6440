"""The block table of each request, a list of blocks a group, and hits in the device's blocks.

Names are those of vLLM's `KVCacheManager` and `KVCacheBlocks`, as far as connectors use them.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from kvcanon.lab.connectors.block_pool import PoolBlock, StandInPool, hash_in_group
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape

Table = list[list[PoolBlock]]
"""For each group the blocks of a request, null blocks where nothing is read any more."""


@frozen
class BlocksByGroup:
    """Blocks of each group, as connectors take them."""

    blocks: tuple[list[PoolBlock], ...]

    def get_block_ids(self) -> tuple[list[int], ...]:
        """Their numbers."""
        return tuple([block.block_id for block in group] for group in self.blocks)

    def get_unhashed_block_ids(self) -> list[int]:
        """The numbers of those in the first group that cannot be found."""
        return [block.block_id for block in self.blocks[0] if block.block_hash is None]


class BlockTables:
    """Allocates and frees the blocks of requests."""

    def __init__(self, shape: EngineShape) -> None:
        self.shape = shape
        self.block_pool = StandInPool(shape.blocks)
        self._tables: dict[str, Table] = {}

    def blocks_of(self, request_id: str) -> BlocksByGroup:
        """The table of a request; empty if it has none."""
        empty: Table = [[] for _ in self.shape.groups]
        return BlocksByGroup(tuple(list(group) for group in self._tables.get(request_id, empty)))

    get_blocks = blocks_of

    def held(self) -> dict[str, int]:
        """How many blocks each request has."""
        return {
            name: sum(not block.is_null for group in table for block in group)
            for name, table in self._tables.items()
        }

    def local_hit(self, request: StandInRequest) -> tuple[Table, int]:
        """The longest prefix whose blocks all groups need are there, and its tokens.

        The last token is always computed.
        """
        size, pool = self.shape.block_tokens, self.block_pool
        nothing: Table = [[] for _ in self.shape.groups]
        if request.skip_reading_prefix_cache:
            return nothing, 0
        longest = (request.num_tokens - 1) // size
        found: Table = []
        for number, group in enumerate(self.shape.groups):
            row: list[PoolBlock] = []
            needed = group.blocks_of_hit(size)
            blocks = [
                pool.cached_block_hash_to_block.get_one_block(hash_in_group(each, number))
                for each in request.block_hashes[:longest]
            ]
            end = _end_of_hit(blocks, needed)
            first = 0 if needed is None else max(0, end - needed)
            for at, block in enumerate(blocks[:end]):
                row.append(block if block is not None and at >= first else pool.null_block)
            found.append(row)
            # Full groups come first, and a prefix of what they hold is held by them, too.
            longest = end
        return [row[:longest] for row in found], longest * size

    def need(
        self, request: StandInRequest, tokens: int, computed: int, hits: Table | None = None
    ) -> int:
        """How many free blocks it takes to have slots for so many tokens.

        `computed` tokens will have been computed by then. Hits that nobody holds are free blocks.
        """
        return sum(
            self._need_of(number, request, -(-tokens // self.shape.block_tokens), computed, hits)
            for number in range(len(self.shape.groups))
        )

    def need_of_whole(
        self, request: StandInRequest, computed: int, hits: Table | None = None
    ) -> int:
        """How many free blocks it takes to compute all of a request; windows give theirs back."""
        size = self.shape.block_tokens
        blocks = -(-request.num_tokens // size)
        return sum(
            self._need_of(
                number,
                request,
                min(blocks, group.most_blocks(self.shape.step_tokens, size) or blocks),
                computed,
                hits,
            )
            for number, group in enumerate(self.shape.groups)
        )

    def _need_of(
        self,
        number: int,
        request: StandInRequest,
        blocks: int,
        computed: int,
        hits: Table | None,
    ) -> int:
        row = self._tables.get(request.request_id, [[] for _ in self.shape.groups])[number]
        found = hits[number] if hits else []
        skipped = self.shape.groups[number].skipped_blocks(computed, self.shape.block_tokens)
        free = sum(block.ref_cnt == 0 and not block.is_null for block in found[skipped:])
        return max(0, blocks - (len(row) or max(len(found), skipped))) + free

    def adopt(self, request: StandInRequest, hits: Table, computed: int) -> None:
        """Give a request the blocks of a local hit, and blocks that a load fills."""
        size, pool = self.shape.block_tokens, self.block_pool
        table: Table = []
        for group, row in zip(self.shape.groups, hits, strict=True):
            # What has left the window is not held, though it was found.
            skipped = min(group.skipped_blocks(computed, size), computed // size)
            kept = row[skipped:]
            pool.touch(block for block in kept if not block.is_null)
            table.append([pool.null_block] * skipped + kept)
        for row in table:
            row.extend(pool.get_new_blocks(computed // size - len(row)))
        self._tables[request.request_id] = table

    def grow(self, request: StandInRequest, tokens: int) -> tuple[list[int], ...]:
        """Allocate blocks for so many tokens in all. Returns: the new ones, by group."""
        table = self._tables.setdefault(request.request_id, [[] for _ in self.shape.groups])
        added = []
        for row in table:
            new = self.block_pool.get_new_blocks(
                max(0, -(-tokens // self.shape.block_tokens) - len(row))
            )
            row.extend(new)
            added.append([block.block_id for block in new])
        return tuple(added)

    def drop_skipped(self, request: StandInRequest, computed: int) -> None:
        """Free what has left the window, the last block first."""
        pool = self.block_pool
        for group, row in zip(
            self.shape.groups, self._tables.get(request.request_id, ()), strict=False
        ):
            dropped = []
            for at in range(group.skipped_blocks(computed, self.shape.block_tokens) - 1, -1, -1):
                if at < len(row):
                    if row[at].is_null:
                        break
                    dropped.append(row[at])
                    row[at] = pool.null_block
            pool.free_blocks(dropped)

    def cache(self, request: StandInRequest, tokens: int) -> None:
        """Let the whole blocks of the first tokens be found."""
        for number, row in enumerate(self._tables.get(request.request_id, ())):
            whole = min(tokens // self.shape.block_tokens, len(row), len(request.block_hashes))
            for at in range(whole):
                block, hashed = row[at], request.block_hashes[at]
                if not block.is_null and block.block_hash is None:
                    tokens = (at + 1) * self.shape.block_tokens
                    self.block_pool.cache_block(block, hash_in_group(hashed, number), tokens)

    def free(self, request: StandInRequest) -> None:
        """Free the blocks of a request, the last to be evicted first."""
        for row in self._tables.pop(request.request_id, ()):
            self.block_pool.free_blocks(reversed(row))


def _end_of_hit(blocks: Sequence[PoolBlock | None], needed: int | None) -> int:
    """How many leading blocks are a hit, if the last `needed` of them must be there, or all."""
    if needed is None:
        return next((at for at, block in enumerate(blocks) if block is None), len(blocks))
    row = 0
    for at in range(len(blocks) - 1, -1, -1):
        row = row + 1 if blocks[at] is not None else 0
        if row and row >= needed:
            return at + row
    return row
