"""Page hashes of native code equal those of spec, in every implementation of this processor.

The law is kvcanon.spec.hashing. Pages are drawn of sizes around those at which SHA-256 begins
another block of 64 bytes, because that is where a chain assembles its blocks in another way.
"""

import numpy as np
import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvcanon.optimized import _core
from kvcanon.spec import hashing
from kvcanon.spec.types import Namespace, Page

WAYS = _core.hash_ways()

SEEDS = (b"", hashing.namespace_seed(Namespace(cache_salt="salt")))

# A message is the 32 bytes of a name, or none, and 4 for each word; 9 bytes end it. So blocks of 64
# begin after 5 and 8 words, and then every 16; the next to those are where an error by one shows.
EDGES = sorted({edge + step for edge in (5, 8, 13, 16, 21, 24, 29, 32) for step in (-1, 0, 1)})


@frozen(eq=False)
class Chain:
    """Tokens after a seed, with what is left over after the last whole page."""

    seed: bytes
    words: NDArray[np.uint32]
    words_per_page: int

    def expected(self) -> NDArray[np.uint8]:
        """Return the hashes of the whole pages by spec."""
        names = hashing.page_hashes(self.seed, pages(self.words, self.words_per_page))
        return np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32)


def pages(words: NDArray[np.uint32], words_per_page: int) -> list[Page]:
    """Return the whole pages of the words, as spec takes them."""
    whole = len(words) // words_per_page
    return [
        tuple(page) for page in words[: whole * words_per_page].reshape(-1, words_per_page).tolist()
    ]


def words_of(draw_from: int, size: int) -> NDArray[np.uint32]:
    """Return words that look random, always the same for one number."""
    return np.random.default_rng(draw_from).integers(0, 1 << 32, size, np.uint32)


@st.composite
def chains(draw: st.DrawFn, words_per_page: int | None = None) -> Chain:
    """Draw a chain of up to nine pages."""
    size = words_per_page or draw(st.one_of(st.sampled_from(EDGES), st.integers(1, 200)))
    whole = draw(st.integers(0, 9))
    rest = draw(st.integers(0, size - 1))
    words = words_of(draw(st.integers(0, 99)), whole * size + rest)
    return Chain(draw(st.sampled_from(SEEDS)), words, size)


@st.composite
def batches(draw: st.DrawFn) -> list[Chain]:
    """Draw up to seven chains, long and short ones side by side, most of them of one page size."""
    usual = draw(st.one_of(st.sampled_from(EDGES), st.integers(1, 70)))
    sizes = st.one_of(st.just(usual), st.just(usual), st.sampled_from(EDGES))
    return draw(st.lists(sizes.flatmap(chains), max_size=7))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", SEEDS, ids=["default", "salted"])
@pytest.mark.parametrize("words_per_page", EDGES)
def test_hashes_at_block_boundary(words_per_page: int, seed: bytes, way: str) -> None:
    """Hashes are right for pages that end near the end of a block."""
    chain = Chain(seed, words_of(words_per_page, 3 * words_per_page), words_per_page)
    names = _core.page_hashes(seed, chain.words, words_per_page, way)
    assert names.dtype == np.uint8
    np.testing.assert_array_equal(names, chain.expected(), strict=True)


@pytest.mark.parametrize("way", WAYS)
@given(chain=chains())
def test_hashes_are_those_of_spec(chain: Chain, way: str) -> None:
    """Hashes equal those of kvcanon.spec.hashing; words after the last whole page are ignored."""
    names = _core.page_hashes(chain.seed, chain.words, chain.words_per_page, way)
    np.testing.assert_array_equal(names, chain.expected(), strict=True)


@pytest.mark.parametrize("way", WAYS)
@given(batch=batches())
@example(batch=[Chain(SEEDS[1], words_of(7, size), 4) for size in (0, 4, 40, 0, 3, 400, 8, 0)])
def test_batch_is_each_chain_alone(batch: list[Chain], way: str) -> None:
    """Chains of a batch do not affect each other, whichever ends first."""
    found = _core.page_hashes_batch(
        [chain.seed for chain in batch],
        [chain.words for chain in batch],
        [chain.words_per_page for chain in batch],
        way,
    )
    assert len(found) == len(batch)
    for names, chain in zip(found, batch, strict=True):
        np.testing.assert_array_equal(names, chain.expected(), strict=True)


def test_bigram_is_its_two_tokens() -> None:
    """A page of bigrams is hashed as the two tokens of each, in turn, in the way that is best.

    Every processor has the portable implementation, last because it is the slowest.
    """
    assert WAYS[-1] == "portable"
    assert len(set(WAYS)) == len(WAYS)
    bigrams = ((1, 2), (2, 3), (3, 4), (4, 5))
    (name,) = _core.page_hashes(b"", np.array(bigrams, np.uint32).ravel(), 8)
    assert name.tobytes() == hashing.page_hash(b"", bigrams)


@pytest.mark.parametrize(
    ("seed", "words_per_page", "way", "said"),
    [
        (b"short", 4, None, "A seed has no bytes .* or 32; this one has 5."),
        (b"", 0, None, "A page has at least one word."),
        (b"", 4, "abacus", "has no way 'abacus' to compute SHA-256; it has .*portable"),
    ],
)
def test_bad_call_is_refused(seed: bytes, words_per_page: int, way: str | None, said: str) -> None:
    """A wrong call raises one error line that says what is wrong."""
    with pytest.raises(ValueError, match=said):
        _core.page_hashes(seed, words_of(0, 8), words_per_page, way)
    for words, sizes in (([], [4]), ([words_of(0, 4)], [])):
        with pytest.raises(ValueError, match="Each chain has a seed, words and words a page"):
            _core.page_hashes_batch([b""], words, sizes)


def test_hashes_outlive_the_call() -> None:
    """The array owns its memory: later calls do not change it."""
    kept = _core.page_hashes(b"", words_of(1, 160), 16)
    before = kept.copy()
    for number in range(50):
        _core.page_hashes(b"", words_of(number, 160), 16)
    np.testing.assert_array_equal(kept, before)
