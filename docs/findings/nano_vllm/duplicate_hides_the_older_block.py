"""nano-vllm finds a block no more once a duplicate of it was reused for something else."""

import sys

from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import Sequence

Sequence.block_size = BLOCK = 4
manager = BlockManager(num_blocks=6, block_size=BLOCK)


def admit(tokens: list[int]) -> Sequence:
    """Allocate and compute a prompt, as the scheduler does; returns the sequence."""
    sequence = Sequence(tokens)
    cached = manager.can_allocate(sequence)
    assert cached >= 0
    manager.allocate(sequence, cached)
    sequence.num_scheduled_tokens = len(sequence) - sequence.num_cached_tokens
    manager.hash_blocks(sequence)
    return sequence


prompt = list(range(8))
first = admit(prompt)
print("first: blocks", first.block_table, "- it runs until the end")

# The last block of a prompt is always computed again: here it is a duplicate of block 1.
second = admit(prompt)
print("second: blocks", second.block_table)
manager.deallocate(second)

# Other prompts take all free blocks, also the duplicate.
other = admit(list(range(100, 116)))
print("other: blocks", other.block_table)
manager.deallocate(other)

# The first request still holds the blocks 0 and 1, with the data of the whole prompt.
longer = Sequence([*prompt, 50])
found = manager.can_allocate(longer)
print(f"a longer prompt finds {found} of the 2 blocks that the first request holds")
sys.exit(0 if found == 2 else 1)
