"""Keys as token lists, and page slots as token indices: most radix caches count in tokens.

A foreign radix cache takes a flat list of tokens and one index per token. The judge has pages, and
one slot per page. Page slot n stands for the token indices `n * page_size` up to the next page.

Nothing here repairs an answer: indices that are not those of whole pages raise `NotWholePages`,
which the judge reports as a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import index
from typing import SupportsIndex, cast

from kvcanon.spec.hashing import decode_namespace, encode_namespace
from kvcanon.spec.types import DEFAULT_NAMESPACE, Key, Namespace, Slot, Unit


class NotWholePages(Exception):
    """Token indices of a cache that are not those of whole pages: a fault of the cache."""


def tokens_of(key: Key) -> list[int]:
    """The tokens of a key, as one flat list. For a cache with `Offer(bigram=(False,))`."""
    return [cast("int", token) for page in key.pages for token in page]


def units_of(key: Key) -> list[Unit]:
    """The units of a key, as one flat list: tokens, or pairs of tokens where keys are bigrams."""
    return [unit for page in key.pages for unit in page]


def token_indices(slots: Iterable[Slot], page_size: int, padding_pages: int = 0) -> list[int]:
    """The token indices of page slots, `page_size` for each, in order.

    Some pools keep their first page, or pages, as padding: then slot 0 is the page after them.
    """
    firsts = ((slot + padding_pages) * page_size for slot in slots)
    return list(chain.from_iterable(range(first, first + page_size) for first in firsts))


def page_slots(
    indices: Iterable[SupportsIndex], page_size: int, padding_pages: int = 0
) -> tuple[Slot, ...]:
    """The page slots of token indices, also of those in a tensor: the inverse of `token_indices`.

    Raises: NotWholePages: the indices are not those of whole pages, each in order.
    """
    numbers = numbers_of(indices)
    slots = tuple(number // page_size - padding_pages for number in numbers[::page_size])
    if token_indices(slots, page_size, padding_pages) != numbers:
        raise NotWholePages(
            f"token indices {_shown(numbers)} are not those of whole pages of {page_size} tokens; "
            "check what the cache answers, or the page size that it was made with"
        )
    return slots


def numbers_of(indices: Iterable[SupportsIndex]) -> list[int]:
    """Indices as plain numbers; those of a tensor all at once, as one by one takes long."""
    as_list: Callable[[], Iterable[SupportsIndex]] | None = getattr(indices, "tolist", None)
    return list(map(index, indices if as_list is None else as_list()))


def page_count(tokens: SupportsIndex, page_size: int) -> int:
    """The number of pages of a number of tokens that a cache answers.

    Raises: NotWholePages: that is no whole number of pages. Rounding would hide it.
    """
    pages, rest = divmod(index(tokens), page_size)
    if rest:
        raise NotWholePages(f"{tokens} tokens are no whole pages of {page_size} tokens")
    return pages


def extra_key_of(namespace: Namespace) -> str | None:
    """Encode a namespace as one text, another for each namespace; None for the default one.

    For caches that keep prompts apart by one string, such as SGLang's `extra_key`.
    """
    if namespace == DEFAULT_NAMESPACE:
        return None
    return encode_namespace(namespace).decode("latin-1")


def namespace_of_extra_key(extra_key: str | None) -> Namespace:
    """Decode the text of `extra_key_of`."""
    if extra_key is None:
        return DEFAULT_NAMESPACE
    return decode_namespace(extra_key.encode("latin-1"))


def _shown(indices: Sequence[int]) -> str:
    text = str(list(indices[:16]))
    return text if len(indices) <= 16 else f"{text[:-1]}, ...]"  # As above.
