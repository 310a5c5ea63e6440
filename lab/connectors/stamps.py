"""Bytes that say which tokens they are of, and the device memory that holds them.

The stamp of a token depends on all tokens before it, on the namespace, on the epoch of the weights,
on the layer and on the rank. Groups of layers overlay the same bytes, as in vLLM: a block is of one
group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kvcanon.lab.connectors.block_pool import NULL_BLOCK_ID
from kvcanon.lab.connectors.engine_shape import EngineShape

Stamps = NDArray[np.int64]

_FACTOR = 6_364_136_223_846_793_005
_ADDEND = 1_442_695_040_888_963_407
_BITS = (1 << 63) - 1


def token_stamps(namespace: object, weights: object, tokens: Sequence[int]) -> Stamps:
    """A stamp for each token, of it and of all before it. Shape: [tokens]."""
    return np.fromiter(_chain(_number((namespace, weights)), tokens), np.int64, len(tokens))


def _chain(stamp: int, tokens: Sequence[int]) -> Iterator[int]:
    for token in tokens:
        stamp = (stamp * _FACTOR + token + _ADDEND) & _BITS
        yield stamp


def _number(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=7).digest(), "big")


class StampedMemory:
    """The memory of one rank: for each layer [blocks, 1, block_tokens, 2] stamps."""

    def __init__(self, shape: EngineShape, rank: int) -> None:
        most = max(len(group.layers) for group in shape.groups)
        size = (shape.blocks + 1, 1, shape.block_tokens, 2)
        self._overlaid = [np.full(size, -1, np.int64) for _ in range(most)]
        self._shape = shape
        self._marks = [
            [np.int64(_number((layer, rank))) for layer in group.layers] for group in shape.groups
        ]

    def layers(self) -> Mapping[str, Stamps]:
        """The memory of each layer, by name; those of several groups are the same memory."""
        return {
            layer: self._overlaid[at]
            for group in self._shape.groups
            for at, layer in enumerate(group.layers)
        }

    def write(self, table: Sequence[Sequence[int]], stamps: Stamps, first: int, end: int) -> None:
        """Write the stamps of tokens `first` to `end` into the blocks of a table."""
        size = self._shape.block_tokens
        at = np.arange(first, end)
        for row, marks in zip(table, self._marks, strict=True):
            blocks = np.asarray(row, np.int64)[at // size]
            real = blocks != NULL_BLOCK_ID
            for memory, mark in zip(self._overlaid, marks, strict=False):
                marked = stamps[first:end][real] ^ mark
                memory[blocks[real], 0, at[real] % size, 0] = marked
                memory[blocks[real], 0, at[real] % size, 1] = ~marked

    def wrong_places(
        self, table: Sequence[Sequence[int]], stamps: Stamps, end: int
    ) -> Iterator[tuple[str, int]]:
        """The layer and the first token whose bytes are not its stamps, of each layer that has one.

        Nothing is read of null blocks.
        """
        at = np.arange(end)
        size = self._shape.block_tokens
        for group, row, marks in zip(self._shape.groups, table, self._marks, strict=True):
            blocks = np.asarray(row, np.int64)[at // size]
            real = blocks != NULL_BLOCK_ID
            for layer, memory, mark in zip(group.layers, self._overlaid, marks, strict=False):
                found = memory[blocks[real], 0, at[real] % size]
                marked = stamps[:end][real] ^ mark
                wrong = (found[:, 0] != marked) | (found[:, 1] != ~marked)
                if wrong.any():
                    yield layer, int(at[real][wrong.argmax()])
