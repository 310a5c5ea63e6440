"""The same decoder without a cache: no pages, no slots, no reuse. Its logits are the right ones.

Comparing a cache with itself, cold and warm, does not find what is wrong both times. So this memory
shares no code with the paged one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model import Decoder, Shape


class PlainMemory:
    """Keys and values in the order of their positions, a pair of tensors for each layer."""

    def __init__(self, shape: Shape) -> None:
        size = (shape.layers, shape.max_tokens, shape.heads, shape.head_dim)
        self.keys, self.values = torch.full(size, torch.nan), torch.full(size, torch.nan)

    def open_layer(self, layer: int) -> None:
        """Do nothing: all layers are here."""

    def write(self, layer: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Write keys and values of consecutive positions."""
        self.keys[layer, first : first + len(keys)] = keys
        self.values[layer, first : first + len(values)] = values

    def read(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Read keys and values of positions `first` to `end`."""
        return self.keys[layer, first:end], self.values[layer, first:end]


def plain_logits(decoder: Decoder, tokens: Sequence[int]) -> Tensor:
    """The logits of all tokens of a prompt."""
    memory, page_size = PlainMemory(decoder.shape), decoder.shape.page_size
    pages = [tokens[at : at + page_size] for at in range(0, len(tokens), page_size)]
    return torch.cat(
        [decoder.forward(page, at * page_size, memory) for at, page in enumerate(pages)]
    )
