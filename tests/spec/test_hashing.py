"""Page hashes: golden values of the chain, and that different pages have different hashes."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvcanon.spec.hashing import (
    decode_namespace,
    encode_namespace,
    namespace_seed,
    page_hash,
    page_hashes,
    wire_id,
)
from kvcanon.spec.types import Namespace, Page, make_key

# From `printf '\x01\0\0\0\x02\0\0\0' | sha256sum`, and the like for the others.
PAGE_1_2 = "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f"
PAGE_3_4_AFTER_1_2 = "c57b445f90651b9a650e516ab2238c965b21af35608a31c303e6d9e407f2915c"
BIGRAM_PAGE_1_2_3 = "ede8ef26a097f0fd889f9f39f6f5af921370630b164c4a4fa28eb716b2df9269"
SEED_A_NONE_EMPTY = "fded30d79045f8ec97c80c7047f8d4ce6bd296fe04364493955e0d8f995e4260"
PAGE_7_IN_A_NONE_EMPTY = "6f98f5844ce51ac049b15c474bfc1d984abdac5837cd6439a6ec338d6a8d33a4"

texts = st.none() | st.text(max_size=4)
namespaces = st.builds(Namespace, texts, texts, texts)
tokens = st.integers(0, (1 << 32) - 1)
pages = st.lists(tokens, min_size=1, max_size=4).map(tuple)
few = st.integers(0, 2)
paths = st.lists(st.tuples(few, few), min_size=1, max_size=4)
"""Few tokens, so that paths often begin alike."""


def by_hand(parent: bytes, *units: int) -> bytes:
    """The hash of a page, computed without code of ours."""
    return hashlib.sha256(parent + b"".join(struct.pack("<I", unit) for unit in units)).digest()


def test_page_hash_at_depth_zero_has_no_parent() -> None:
    """The first page of the default namespace is SHA-256 over its tokens, four bytes each."""
    assert page_hash(b"", (1, 2)) == by_hand(b"", 1, 2)
    assert page_hash(b"", (1, 2)).hex() == PAGE_1_2


def test_page_hash_follows_its_parent() -> None:
    """A later page is SHA-256 over the 32 bytes of its parent's hash and its own tokens."""
    parent = by_hand(b"", 1, 2)
    assert len(parent) == 32
    assert page_hash(parent, (3, 4)) == by_hand(parent, 3, 4)
    assert page_hash(parent, (3, 4)).hex() == PAGE_3_4_AFTER_1_2


def test_page_hashes_chain() -> None:
    """Consecutive pages are hashed one after another, each after the one before it."""
    chain = page_hashes(b"", make_key([1, 2, 3, 4], 2).pages)
    assert [name.hex() for name in chain] == [PAGE_1_2, PAGE_3_4_AFTER_1_2]
    assert page_hashes(chain[0], [(3, 4)]) == chain[1:]
    assert page_hashes(b"parent", []) == ()


def test_page_hash_of_bigrams_has_both_tokens() -> None:
    """A bigram is its two tokens, so that neighbouring bigrams repeat the shared one."""
    (page,) = make_key([1, 2, 3], 2, bigram=True).pages
    assert page == ((1, 2), (2, 3))
    assert page_hash(b"", page) == by_hand(b"", 1, 2, 2, 3)
    assert page_hash(b"", page).hex() == BIGRAM_PAGE_1_2_3


def test_page_hash_of_the_largest_token() -> None:
    """Token ids are unsigned: the largest is four bytes of ones."""
    assert page_hash(b"", ((1 << 32) - 1,)) == hashlib.sha256(b"\xff\xff\xff\xff").digest()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (bytes.fromhex(PAGE_1_2), 0x34FB5C825DE7CA4A),
        (bytes.fromhex("7fffffffffffffff" + "00" * 24), (1 << 63) - 1),
        (bytes.fromhex("8000000000000000" + "00" * 24), -(1 << 63)),
        (bytes.fromhex("ffffffffffffffff" + "00" * 24), -1),
        (bytes.fromhex("00" * 8 + "ff" * 24), 0),
    ],
)
def test_wire_id_is_the_first_half_signed(name: bytes, expected: int) -> None:
    """The wire id is the first 16 hex digits as an integer in two's complement."""
    assert wire_id(name) == expected
    unsigned = int(name.hex()[:16], 16)
    assert wire_id(name) == struct.unpack(">q", struct.pack(">Q", unsigned))[0]


def test_wire_id_of_the_second_page() -> None:
    """The ids of a chain are those that SGLang's events carry."""
    assert wire_id(bytes.fromhex(PAGE_3_4_AFTER_1_2)) == -4216701448867210342


def test_namespace_seed_of_the_default_is_empty() -> None:
    """The default namespace adds nothing, so that its hashes are SGLang's."""
    assert namespace_seed(Namespace()) == b""


def test_namespace_seed_golden() -> None:
    """A seed is SHA-256 over the tag and, for each field, presence, length and text."""
    namespace = Namespace(extra_key="a", cache_salt=None, lora="")
    framed = b"\1" + struct.pack("<I", 1) + b"a" + b"\0" + b"\1" + struct.pack("<I", 0)
    assert encode_namespace(namespace) == framed
    seed = hashlib.sha256(b"kvcanon-namespace-v1" + framed).digest()
    assert namespace_seed(namespace) == seed
    assert seed.hex() == SEED_A_NONE_EMPTY
    assert page_hash(seed, (7,)).hex() == PAGE_7_IN_A_NONE_EMPTY


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Namespace("a", "bc"), Namespace("ab", "c")),
        (Namespace("a", None, "b"), Namespace("ab")),
        (Namespace(""), Namespace(None)),
        (Namespace(None, ""), Namespace("", None)),
        (Namespace(lora="x"), Namespace(extra_key="x")),
        (Namespace(cache_salt="x"), Namespace(lora="x")),
        (Namespace("a\0"), Namespace("a")),
        (Namespace("é"), Namespace("e")),
    ],
)
def test_namespaces_that_look_alike_have_different_names(one: Namespace, other: Namespace) -> None:
    """Lengths, presence and a field's place cannot be confused (sgl#24638)."""
    assert encode_namespace(one) != encode_namespace(other)
    assert namespace_seed(one) != namespace_seed(other)
    assert page_hash(namespace_seed(one), (1,)) != page_hash(namespace_seed(other), (1,))


@given(namespaces)
def test_decode_namespace_undoes_encode(namespace: Namespace) -> None:
    """Decoding an encoded namespace gives it back, so no two encodings are equal."""
    assert decode_namespace(encode_namespace(namespace)) == namespace


@given(namespaces, namespaces, st.lists(pages, min_size=1, max_size=3))
def test_page_hashes_differ_over_namespaces(
    one: Namespace, other: Namespace, path: list[Page]
) -> None:
    """No page of one namespace has the hash of a page of another."""
    assume(one != other)
    ours = page_hashes(namespace_seed(one), path)
    theirs = page_hashes(namespace_seed(other), path)
    assert not set(ours) & set(theirs)


@given(paths, paths)
def test_page_hashes_differ_over_tokens_and_positions(one: list[Page], other: list[Page]) -> None:
    """Pages have equal hashes only if all pages up to them are equal, at the same depth."""
    ours, theirs = page_hashes(b"", one), page_hashes(b"", other)
    for i, our_name in enumerate(ours):
        for j, their_name in enumerate(theirs):
            assert (our_name == their_name) == (one[: i + 1] == other[: j + 1])


@given(pages)
def test_page_hash_differs_over_depth(page: Page) -> None:
    """The same tokens have another hash at each depth."""
    assert len(set(page_hashes(b"", [page] * 4))) == 4


def test_half_a_character_is_a_name_like_any_other() -> None:
    """A salt that JSON can carry and UTF-8 cannot is hashed like any other."""
    odd = Namespace(cache_salt="\ud800")
    assert decode_namespace(encode_namespace(odd)) == odd
    assert namespace_seed(odd) != namespace_seed(Namespace(cache_salt="\ud801"))
