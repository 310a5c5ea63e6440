"""The attributes of MAX's objects that the adapter uses, as types. MAX's objects have many more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

MaxParams: TypeAlias = object
"""MAX's description of a KV cache; the adapter only passes it on."""


class MaxTokens(Protocol):
    """The tokens of a request, the prompt first."""

    prompt_length: int
    processed_length: int
    generated_length: int

    def __len__(self) -> int:
        """How many tokens there are."""

    def skip_processing(self, n: int) -> None:
        """Note that the next tokens are computed."""


class MaxContext(Protocol):
    """A request of MAX's scheduler."""

    request_id: object
    tokens: MaxTokens
    cached_prefix_length: int | None
    """The tokens that the first allocation took from the cache."""

    def update(self, new_token: int) -> None:
        """Note that a forward pass processed all tokens, and which token came out."""


class MaxCount(Protocol):
    """How many pages a pool has."""

    free: int
    """Pages that no request holds, cached or not."""


class MaxBlock(Protocol):
    """A page of a leaf."""

    bid: int


class MaxStates(Protocol):
    """The jenga manager's coordinator of states."""

    successors: Mapping[object, MaxBlock]
    """The page that each request's state is copied to by its next checkpoint, if one is coming."""


class MaxManager(Protocol):
    """A KV cache manager, paged or jenga."""

    groups: Mapping[str, MaxStates]
    """The coordinators of a jenga manager's leaves."""

    def claim(self, ctx: MaxContext) -> None:
        """Begin a request."""

    def alloc(self, ctx: MaxContext) -> object:
        """Take a new request's prefix from the cache, and allocate pages for its tokens."""

    def step(self, ctx: MaxContext) -> None:
        """Put the pages that a forward pass filled into the cache."""

    def release(self, ctx: MaxContext) -> None:
        """End a request, and free its pages."""

    def get_req_blocks_per_leaf(self, ctx: MaxContext) -> dict[str, list[int]]:
        """The pages of a request."""

    def block_count(self) -> MaxCount:
        """The pages of the pool; of the jenga manager its huge blocks."""

    def reset_prefix_cache(self) -> None:
        """Empty the cache, except for pages of requests."""
