"""Keys: how a prompt is cut into pages, and which prompts are refused."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import Key, make_key


@pytest.mark.parametrize(
    ("page_size", "pages"),
    [(1, ((1,), (2,), (3,), (4,), (5,))), (2, ((1, 2), (3, 4))), (5, ((1, 2, 3, 4, 5),)), (6, ())],
)
def test_make_key_takes_whole_pages(page_size: int, pages: object) -> None:
    """A key has all whole pages of a prompt, and no partial page."""
    assert make_key([1, 2, 3, 4, 5], page_size).pages == pages


def test_make_key_of_bigrams_shares_tokens_between_pages() -> None:
    """Neighbouring bigrams share a token, and n tokens make n - 1 bigrams."""
    assert make_key([1, 2, 3, 4, 5], 2, bigram=True).pages == (((1, 2), (2, 3)), ((3, 4), (4, 5)))
    assert make_key([1], 1, bigram=True).pages == ()


@pytest.mark.parametrize(
    "tokens", [range(4), (0, 1, 2, 3), array("q", [0, 1, 2, 3]), bytes([0, 1, 2, 3])], ids=repr
)
def test_make_key_takes_any_sequence_of_integers(tokens: Sequence[int]) -> None:
    """The key does not depend on the type of the sequence."""
    assert make_key(tokens, 2) == make_key([0, 1, 2, 3], 2)


@pytest.mark.parametrize("token", [-1, 1 << 32, 1.5, "a", None])
def test_make_key_refuses_what_is_no_token(token: object) -> None:
    """A token that is not in 0 .. 2**32 - 1 is refused."""
    with pytest.raises(BadArgument, match="tokens: must be integers in 0"):
        make_key([1, token], 1)  # type: ignore[list-item]


def test_make_key_refuses_a_page_of_nothing() -> None:
    """A page size below 1 is refused."""
    with pytest.raises(BadArgument, match="page_size: is 0"):
        make_key([1], 0)


def test_key_equality_is_that_of_its_pages() -> None:
    """Keys are equal if their pages are, whether they are checked or not."""
    key = make_key([1, 2], 1)
    assert key == Key(((1,), (2,)))
    assert key.prefix(1) == Key(((1,),))
    assert key.prefix(1).checked
