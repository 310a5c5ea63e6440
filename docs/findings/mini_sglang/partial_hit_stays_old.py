"""mini-sglang's radix cache does not make a prefix recent if the hit ends inside a node."""

import sys

import torch
from minisgl.core import Context, set_global_ctx
from minisgl.kvcache.radix_cache import RadixPrefixCache

set_global_ctx(Context(page_size=1))
cache = RadixPrefixCache(torch.device("cpu"))


def tokens(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


cache.insert_prefix(tokens(1, 2, 3, 4), tokens(11, 12, 13, 14))
cache.insert_prefix(tokens(7, 8), tokens(17, 18))
# The second use of 1, 2 is the most recent use of all. It cuts the node 1, 2, 3, 4 in two.
hit = cache.match_prefix(tokens(1, 2, 5)).cuda_handle
print("hit:", hit.get_matched_indices().tolist())

print("evicted first:", cache.evict(2).tolist())
second = cache.evict(2).tolist()
print("evicted second:", second, "- the hit" if second == [11, 12] else "- not the hit")
sys.exit(1 if second == [11, 12] else 0)
