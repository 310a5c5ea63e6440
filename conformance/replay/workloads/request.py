"""A request: a prompt in a namespace, stored as a function that makes its tokens.

A trace of an hour has more prompt tokens than fit into a small machine's memory, so that a request
makes its tokens on demand, the same ones each time.

Equal token ids are the same Python object, shared by all prompts, so that a token in a cache costs
eight bytes. `spec.types.make_key` checks every token, and makes a new object of it; `Request.key`
cuts the same pages without either.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from kvcanon.spec.types import DEFAULT_NAMESPACE, Key, Namespace, Page


@frozen
class Request:
    """One prompt."""

    length_tokens: int
    """Prompt length in tokens."""
    make_tokens: Callable[[], tuple[int, ...]] = field(eq=False, repr=False)
    """Makes the token ids, each in 0 .. 2**32 - 1: `length_tokens` of them."""
    namespace: Namespace = DEFAULT_NAMESPACE
    arrival_ms: int = 0
    """Arrival, in milliseconds after the first request."""

    def key(self, page_size: int) -> Key:
        """Return the whole pages of the prompt, as `make_key` would cut them."""
        return Key(cut_pages(self.make_tokens(), page_size), self.namespace, checked=True)


def cut_pages(tokens: tuple[int, ...], page_size: int) -> tuple[Page, ...]:
    """Return the whole pages of a prompt, made of the same objects as `tokens`."""
    # One iterator, read `page_size` times per page: a partial last page is dropped.
    return tuple(zip(*[iter(tokens)] * page_size, strict=False))
