"""A small decoder: full attention and a sliding window in turn, with random weights.

It has the parts of a large decoder: embeddings, norms, rotary positions, attention with several
heads, a gated feed-forward. It reads and writes keys and values through a `Memory`, and does not
know where they are: `paging` does.

What readers get wrong: the same token at the same position need not give the same bits. A sum of
floats depends on its order, and a library chooses the order by the shapes that it is given, so that
a row of a product may come out otherwise in a batch of three than in a batch of eight. Here every
position is always computed in the same shapes, whatever was reused before it. All but attention
works on batches of one page: row i is the i-th position of its page, whether the page comes whole
from a prompt or token by token while decoding, and rows without a token are ignored.
Attention goes query by query, over exactly the keys that the query sees, in the order of their
positions. And there is one thread, since a second one may cut a sum in two (`torch.set_num_threads`
in `serve`). Engines give this up for speed, and their logits then differ in the last bits with
every reuse, which is no fault of their cache but hides one. Here a single bit that differs is a
fault, and the test of this example looks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import rms_norm, silu


@frozen
class Shape:
    """The sizes of a decoder."""

    layers: int = 4
    """Even ones have full attention, odd ones a sliding window."""
    heads: int = 2
    head_dim: int = 16
    feed_forward: int = 64
    vocabulary: int = 97
    window_tokens: int = 8
    """A token of a sliding layer sees itself and so many tokens before it."""
    page_size: int = 4
    max_tokens: int = 512

    @property
    def hidden(self) -> int:
        """Size of what goes from layer to layer."""
        return self.heads * self.head_dim

    def slides(self, layer: int) -> bool:
        """Whether a layer has a sliding window."""
        return layer % 2 == 1

    def first_seen(self, layer: int, position: int) -> int:
        """The first position that a token sees in a layer."""
        return max(0, position - self.window_tokens) if self.slides(layer) else 0


class Memory(Protocol):
    """Keys and values: tensors (positions, heads, head_dim), layer by layer."""

    def open_layer(self, layer: int) -> None:
        """Return once what was computed before can be read in this layer."""

    def write(self, layer: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Write keys and values of consecutive positions of one page."""

    def read(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Read keys and values of positions `first` to `end`, without `end`."""


@frozen(eq=False)
class Layer:
    """The weights of a layer."""

    qkv: Tensor
    attended: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """The model; the same seed gives the same weights."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        drawn = torch.Generator().manual_seed(seed)

        def weights(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=drawn).div(rows**0.5)

        hidden, feed_forward = shape.hidden, shape.feed_forward
        self.shape = shape
        self.embedding = torch.randn(shape.vocabulary, hidden, generator=drawn)
        self.layers = [
            Layer(
                qkv=weights(hidden, 3 * hidden),
                attended=weights(hidden, hidden),
                gate_up=weights(hidden, 2 * feed_forward),
                down=weights(feed_forward, hidden),
            )
            for _ in range(shape.layers)
        ]
        self.vocabulary = weights(hidden, shape.vocabulary)
        # Computed once: a sine may have other bits at another place of a vector.
        turns = 10_000.0 ** -torch.linspace(0, 1, shape.head_dim // 2)
        angles = torch.arange(shape.max_tokens)[:, None] * turns
        self.cosines, self.sines = angles.cos()[:, None], angles.sin()[:, None]

    def forward(self, tokens: Sequence[int], first: int, memory: Memory) -> Tensor:
        """The logits of tokens of one page, of which the first stands at position `first`."""
        page_size = self.shape.page_size
        rows = slice(first % page_size, first % page_size + len(tokens))
        batch = torch.zeros(page_size, dtype=torch.long)
        batch[rows] = torch.tensor(tokens)
        hidden = self.embedding[batch]
        for layer, weights in enumerate(self.layers):
            memory.open_layer(layer)
            attended = self._attention(layer, normed(hidden), rows, first, memory)
            hidden = hidden + attended @ weights.attended
            gate, up = (normed(hidden) @ weights.gate_up).chunk(2, dim=-1)
            hidden = hidden + (silu(gate) * up) @ weights.down
        logits: Tensor = (normed(hidden) @ self.vocabulary)[rows]
        return logits

    def _attention(
        self, layer: int, hidden: Tensor, rows: slice, first: int, memory: Memory
    ) -> Tensor:
        shape = self.shape
        qkv = (hidden @ self.layers[layer].qkv).view(-1, 3, shape.heads, shape.head_dim)
        queries, keys, values = qkv.unbind(1)
        page = slice(first - rows.start, first - rows.start + shape.page_size)
        queries, keys = self._rotated(queries, page), self._rotated(keys, page)
        memory.write(layer, first, keys[rows], values[rows])
        attended = torch.zeros(shape.page_size, shape.hidden)
        for position, row in enumerate(range(rows.start, rows.stop), start=first):
            seen = memory.read(layer, shape.first_seen(layer, position), position + 1)
            attended[row] = attention(queries[row], *seen)
        return attended

    def _rotated(self, heads: Tensor, positions: slice) -> Tensor:
        cosines, sines = self.cosines[positions], self.sines[positions]
        one, other = heads.chunk(2, dim=-1)
        return torch.cat([one * cosines - other * sines, one * sines + other * cosines], dim=-1)


def attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The attention of one query over the keys and values that it sees."""
    scores = (keys * query).sum(dim=-1) / query.shape[-1] ** 0.5
    attended: Tensor = (scores.softmax(dim=0)[:, :, None] * values).sum(dim=0)
    return attended.flatten()


def normed(hidden: Tensor) -> Tensor:
    """The rows after RMS normalization."""
    rows: Tensor = rms_norm(hidden, hidden.shape[-1:])
    return rows
