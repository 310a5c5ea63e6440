"""The attributes of mlx-lm's objects that the adapter uses, as types. They have many more."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

MlxArray: TypeAlias = Any
"""An array of MLX."""


class MlxLayer(Protocol):
    """A prompt's cache in one layer; which attributes it has depends on its kind."""

    keys: MlxArray
    """None before the first token."""
    values: MlxArray
    offset: int
    """How many tokens were computed, less those that were trimmed."""
    cache: list[MlxArray]
    """The arrays of a recurrent state."""

    def update_and_fetch(self, keys: MlxArray, values: MlxArray) -> object:
        """Append tokens."""

    def keys_and_values(self) -> tuple[MlxArray, MlxArray]:
        """What is kept: of each batch and head, one row for each token."""


class MlxEntry(Protocol):
    """An entry of the cache."""

    prompt_cache: list[MlxLayer]


class MlxTrie(Protocol):
    """The entries by prompt."""

    def get(self, model: Hashable, tokens: list[int]) -> MlxEntry:
        """The entry of exactly this prompt."""


class MlxOrder(Protocol):
    """The prompts in the order of eviction, by kind of entry."""

    _lrus: Mapping[str, Iterator[tuple[Hashable, list[int]]]]


class MlxPromptCache(Protocol):
    """An LRUPromptCache."""

    _trie: MlxTrie
    _lru: MlxOrder

    def __len__(self) -> int:
        """How many entries there are."""

    def fetch_nearest_cache(
        self, model: Hashable, tokens: list[int]
    ) -> tuple[list[MlxLayer] | None, list[int]]:
        """A copy of the nearest entry, trimmed to what it shares with a prompt; and the rest."""

    def insert_cache(
        self, model: Hashable, tokens: list[int], prompt_cache: list[MlxLayer]
    ) -> None:
        """Keep the cache of a prompt."""

    def trim_to(self, *, n_sequences: int) -> None:
        """Evict entries until there are at most so many."""
