"""The floor of a run with events: SHA-256 of the same pages by one core, without a cache.

With events each new page is hashed: the hash of the page before it and its tokens. SHA-256 works on
blocks of 64 bytes, and pads each message to whole blocks, by nine bytes or more.
"""

from __future__ import annotations

import hashlib
from time import perf_counter

BLOCK_BYTES = 64
LEAST_PADDING_BYTES = 9
HASH_BYTES = 32
TOKEN_BYTES = 4
SAMPLE_BYTES = 1 << 24
"""One message of this size shows how fast blocks are hashed, without a call for each page."""
REPEATS = 5


def page_blocks(page_size: int) -> int:
    """Count the blocks that SHA-256 works on for the hash of a page."""
    message = HASH_BYTES + TOKEN_BYTES * page_size + LEAST_PADDING_BYTES
    return -(-message // BLOCK_BYTES)


def sha256_seconds(pages: int, page_size: int) -> float:
    """Return how long SHA-256 takes for so many pages; measured now, the best of some trials."""
    if not pages:
        return 0.0
    sample = bytes(SAMPLE_BYTES)
    fastest = min(_seconds(sample) for _ in range(REPEATS))
    return pages * page_blocks(page_size) * BLOCK_BYTES / SAMPLE_BYTES * fastest


def _seconds(sample: bytes) -> float:
    began = perf_counter()
    hashlib.sha256(sample).digest()
    return perf_counter() - began
