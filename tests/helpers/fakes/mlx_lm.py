"""A fake of mlx-lm: the caches of layers over numpy arrays, and a prompt cache over a list.

Entries are found by comparing tokens, evicted in the order of their insertion, and copied. It
contains no mlx-lm code and behaves as the adapter expects.
"""

# ruff: noqa: ANN401 # Like mlx-lm, the fakes accept any types.

from __future__ import annotations

import copy
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define, field

from kvcanon.conformance.engines.mlx_lm.layers import MLX


@define(eq=False)
class KVCache:
    """Keys and values of each token."""

    keys: Any = None
    values: Any = None
    offset: int = 0
    max_size: int | None = None

    def update_and_fetch(self, keys: Any, values: Any) -> None:
        added = keys.shape[2]
        if self.keys is not None:
            old_keys, old_values = self.keys_and_values()
            if self.max_size is None:
                keys = np.concatenate([old_keys, keys], 2)
                values = np.concatenate([old_values, values], 2)
            else:
                gone = max(0, old_keys.shape[2] - self.max_size + 1)
                keys = np.concatenate([keys, old_keys[:, :, gone:]], 2)
                values = np.concatenate([values, old_values[:, :, gone:]], 2)
        self.keys, self.values = keys, values
        self.offset += added

    def keys_and_values(self) -> tuple[Any, Any]:
        return self.keys[:, :, : self.offset], self.values[:, :, : self.offset]

    def is_trimmable(self) -> bool:
        return self.max_size is None or self.offset < self.max_size

    def trim(self, n: int) -> None:
        self.offset -= n


@define(eq=False)
class ArraysCache:
    """A recurrent state."""

    size: int
    cache: list[Any] = field()

    @cache.default
    def _blank(self) -> list[Any]:
        return [None] * self.size

    def is_trimmable(self) -> bool:
        return False


@define(eq=False)
class LRUPromptCache:
    """Entries by model and tokens."""

    max_size: int
    entries: dict[tuple[Hashable, tuple[int, ...]], list[Any]] = field(factory=dict)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self.entries)

    @property
    def _lru(self) -> SimpleNamespace:
        return SimpleNamespace(_lrus={"assistant": list(self.entries)})

    @property
    def _trie(self) -> SimpleNamespace:
        return SimpleNamespace(
            get=lambda model, tokens: SimpleNamespace(prompt_cache=self.entries[model, tokens])
        )

    def fetch_nearest_cache(self, model: Hashable, tokens: list[int]) -> tuple[Any, list[int]]:
        best, found = 0, None
        for (other, theirs), layers in self.entries.items():
            shared = _shared(tokens, theirs) if other == model else 0
            exact = shared == len(theirs)
            if shared > best and (exact or can_trim(layers)):
                best, found = shared, copy.deepcopy(layers)
                trim(found, len(theirs) - shared)
        return found, tokens[best:]

    def insert_cache(self, model: Hashable, tokens: list[int], prompt_cache: list[Any]) -> None:
        self.entries[model, tuple(tokens)] = prompt_cache

    def trim_to(self, *, n_sequences: int) -> None:
        while len(self.entries) > n_sequences:
            del self.entries[next(iter(self.entries))]


def _shared(tokens: list[int], theirs: tuple[int, ...]) -> int:
    pairs = zip(tokens, theirs, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(theirs)))


def can_trim(layers: list[Any]) -> bool:
    """Whether all layers can be trimmed."""
    return all(layer.is_trimmable() for layer in layers)


def trim(layers: list[Any], n: int) -> None:
    """Take tokens off all layers."""
    for layer in layers if n else ():
        layer.trim(n)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the adapter find this fake."""
    fakes: dict[str, Any] = {
        "ArraysCache": ArraysCache,
        "KVCache": KVCache,
        "LRUPromptCache": LRUPromptCache,
        "RotatingKVCache": lambda max_size: KVCache(max_size=max_size),
        "array": np.array,
        "can_trim_prompt_cache": can_trim,
        "trim_prompt_cache": trim,
    }
    assert set(fakes) == set(MLX.modules)
    monkeypatch.setattr(MLX, "_found", fakes)
