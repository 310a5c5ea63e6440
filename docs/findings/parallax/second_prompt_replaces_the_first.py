"""Parallax keeps one block for each first token, and loses the memory of the others.

    python second_prompt_replaces_the_first.py CHECKOUT

CHECKOUT is the folder of a checkout of Parallax; leave it out if `parallax` is installed. The
script ends with exit code 1 where the fault shows. It needs no GPU.
"""

import logging
import sys
from pathlib import Path

if len(sys.argv) > 1:
    sys.path.insert(0, str(Path(sys.argv[1]) / "src"))

from parallax.server.block_radix_cache import BlockRadixCache

logging.disable(logging.INFO)
BOS, PROMPTS, BLOCKS_EACH = 1, 100, 3


def serve(cache: BlockRadixCache, number: int, tokens: list[int], blocks: list[int]) -> None:
    """Make the calls that CacheManager makes for a request: match, insert, lock, release."""
    size = cache.block_size
    found, matched = cache.match_prefix(tokens)
    path = cache.get_path(tokens[:matched])
    for at in range(len(found), len(tokens) // size):
        path.append(cache.insert_block(tokens[at * size : (at + 1) * size], blocks[at], path))
    cache.register_request(str(number), path)
    cache.release_request(str(number))


def play(block_size: int) -> tuple[int, int]:
    """Serve prompts that begin with the same token, then evict all blocks.

    Returns how many prompts were found before, and how many blocks came free.
    """
    freed: list[int] = []
    cache = BlockRadixCache(block_size, on_block_evict=freed.append)
    length = BLOCKS_EACH * block_size
    prompts = [[BOS, *range(1000 * n, 1000 * n + length - 1)] for n in range(1, PROMPTS + 1)]
    next_block = 0
    for number, tokens in enumerate(prompts):
        blocks = list(range(next_block, next_block + BLOCKS_EACH))
        next_block += BLOCKS_EACH
        serve(cache, number, tokens, blocks)
    found = sum(cache.match_prefix(tokens)[1] == length for tokens in prompts)
    while cache.evict_lru_blocks(1):
        pass
    return found, len(freed)


lost = False
for size in (1, 16, 32):
    found, freed = play(size)
    # With blocks of one token all prompts share their first block.
    cached = PROMPTS * BLOCKS_EACH if size > 1 else PROMPTS * (BLOCKS_EACH - 1) + 1
    print(f"blocks of {size} tokens: {found} of {PROMPTS} prompts are found;", end=" ")
    print(f"{freed} of {cached} blocks come free when all are evicted")
    lost |= found < PROMPTS or freed < cached
sys.exit(lost)
