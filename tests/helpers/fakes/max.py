"""A fake of MAX: the API that the adapter calls, over plain lists.

It caches pages by their tokens, never serves the last token of a prompt, and gives pages in the
order of their numbers. It contains no MAX code and behaves as the adapter expects.
"""

# ruff: noqa: ANN401 # Like MAX, the fakes accept any types.

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from kvcanon.conformance.engines.max.factory import MAX


class InsufficientBlocksError(Exception):
    """There are too few pages."""


@define(eq=False)
class TokenBuffer:
    """The tokens of a request."""

    array: Any
    processed_length: int = 0
    generated_length: int = 0

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self.array) + self.generated_length

    @property
    def prompt_length(self) -> int:
        return len(self.array)

    def skip_processing(self, n: int) -> None:
        assert n < len(self) - self.processed_length, "no token would be left"
        self.processed_length += n


@define(eq=False)
class TextContext:
    """A request."""

    request_id: str
    max_length: int
    tokens: TokenBuffer
    cache_salt: str | None
    cached_prefix_length: int | None = None

    def update(self, new_token: int) -> None:
        self.tokens.processed_length = len(self.tokens)
        self.tokens.generated_length += 1


@define(eq=False)
class Manager:
    """The paged manager, and the jenga manager with its leaves."""

    options: dict[str, Any]
    leaves: tuple[str, ...] = ("full_group",)
    first: int = 0
    pages: int = 0
    rows: dict[str, list[int]] = field(factory=dict)
    null: dict[str, int] = field(factory=dict)
    """Leading null pages of each leaf's rows."""
    cached: dict[object, int] = field(factory=dict)
    groups: dict[str, SimpleNamespace] = field(factory=dict)
    calls: list[str] = field(factory=list)

    @property
    def page_size(self) -> int:
        params = self.options["params"]
        return int((params[0] if isinstance(params, list) else params).page_size)

    def block_count(self) -> SimpleNamespace:
        held = {page for row in self.rows.values() for page in row}
        return SimpleNamespace(free=self.pages - len(held))

    def claim(self, ctx: TextContext) -> None:
        assert ctx.request_id not in self.rows
        self.rows[ctx.request_id] = []

    def alloc(self, ctx: TextContext) -> None:
        self.calls.append("alloc")
        row = self.rows[ctx.request_id]
        prompt = ctx.tokens.prompt_length
        if not row and prompt > 1:
            found: list[int] = []
            while (len(found) + 1) * self.page_size < prompt:
                name = self._name(ctx, len(found) + 1)
                if name not in self.cached:
                    break
                found.append(self.cached[name])
            ctx.cached_prefix_length = len(found) * self.page_size
            row += found
        missing = -(-prompt // self.page_size) - len(row)
        if missing > self.block_count().free:
            raise InsufficientBlocksError("too few")
        held = {page for each in self.rows.values() for page in each}
        numbers = range(self.first, self.first + self.pages)
        free = [page for page in numbers if page not in held]
        free.sort(key=lambda page: page in self.cached.values())
        for page in free[:missing]:
            self.cached = {name: each for name, each in self.cached.items() if each != page}
            row.append(page)

    def step(self, ctx: TextContext) -> None:
        self.calls.append("step")
        for pages, page in enumerate(self.rows[ctx.request_id], 1):
            self.cached.setdefault(self._name(ctx, pages), page)

    def release(self, ctx: TextContext) -> None:
        self.calls.append("release")
        del self.rows[ctx.request_id]

    def reset_prefix_cache(self) -> None:
        self.cached.clear()

    def get_req_blocks_per_leaf(self, ctx: TextContext) -> dict[str, list[int]]:
        row = self.rows[ctx.request_id]
        return {
            leaf: [0] * self.null.get(leaf, 0) + row[self.null.get(leaf, 0) :]
            for leaf in self.leaves
        }

    def _name(self, ctx: TextContext, pages: int) -> object:
        return (ctx.cache_salt, *ctx.tokens.array[: pages * self.page_size].tolist())


def paged(**options: Any) -> Manager:
    """Make a paged manager."""
    return Manager(options, pages=options["total_num_pages"])


class Jenga:
    """Makes jenga managers."""

    longest: int | None = 64

    @classmethod
    def max_seq_len_fitting_in_cache(cls, params: Any, available_bytes: int) -> int | None:
        return cls.longest

    @classmethod
    def create(cls, **options: Any) -> Manager:
        names = [params.leaf for params in options["params"]]
        groups = {"state": SimpleNamespace(successors={})}
        return Manager(options, tuple(names), first=1, pages=64, groups=groups)


def _leaves(leaves: dict[str, Any]) -> list[Any]:
    for name, params in leaves.items():
        params.leaf = name if name == "state" else f"{name}.{name}_group"
    return list(leaves.values())


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the adapter find this fake."""
    fakes: dict[str, Any] = {
        "DType": SimpleNamespace(uint8="uint8"),
        "DeviceRef": SimpleNamespace(CPU=lambda: "cpu"),
        "InsufficientBlocksError": InsufficientBlocksError,
        "JengaKVCacheManager": Jenga,
        "MHAKVCacheParams": SimpleNamespace,
        "MultiKVCacheParams": SimpleNamespace(from_params=_leaves),
        "PagedKVCacheManager": paged,
        "RecurrentStateParams": SimpleNamespace,
        "RecurrentStateRegion": SimpleNamespace,
        "RequestID": str,
        "TextContext": TextContext,
        "TokenBuffer": TokenBuffer,
    }
    assert set(fakes) == set(MAX.modules)
    monkeypatch.setattr(MAX, "_found", fakes)
