"""The native core: what optimized/native/bind_*.cpp give to Python."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# --------------------------------------------------------------------------------------------------
# Names of pages (bind_hashing.cpp)
# --------------------------------------------------------------------------------------------------

def hash_ways() -> list[str]:
    """Name the ways in which this processor can compute SHA-256, the fastest first."""

def page_hashes(
    seed: bytes, words: NDArray[np.uint32], words_per_page: int, way: str | None = None
) -> NDArray[np.uint8]:
    """Return the names of the whole pages of one chain: an array of 32 bytes a page.

    They are those of `kvcanon.spec.hashing.page_hashes`, where the words of a page are its tokens,
    or of a page of bigrams the two tokens of each.
    """

def page_hashes_batch(
    seeds: Sequence[bytes],
    words: Sequence[NDArray[np.uint32]],
    words_per_page: int,
    way: str | None = None,
) -> list[NDArray[np.uint8]]:
    """Return the names of the pages of several chains, in less time than one after another."""
