"""A request: a prompt in a namespace, told by how to get its tokens rather than by them.

A trace of an hour has more prompt tokens than a small machine has room for, so that a request makes
its tokens when it is asked, and the same ones each time.

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
    """Tokens of the prompt."""
    make_tokens: Callable[[], tuple[int, ...]] = field(eq=False, repr=False)
    """Makes the token ids, each in 0 .. 2**32 - 1: `length_tokens` of them."""
    namespace: Namespace = DEFAULT_NAMESPACE
    arrival_ms: int = 0
    """When it came, in milliseconds after the first."""

    def key(self, page_size: int) -> Key:
        """The whole pages of the prompt: what `make_key` would cut from the same tokens."""
        return Key(cut_pages(self.make_tokens(), page_size), self.namespace, checked=True)


def cut_pages(tokens: tuple[int, ...], page_size: int) -> tuple[Page, ...]:
    """The whole pages of a prompt, made of the very objects that `tokens` holds."""
    # One iterator, taken from `page_size` times a page: the last, partial page falls off.
    return tuple(zip(*[iter(tokens)] * page_size, strict=False))
