"""sglang-jax says that fewer tokens were evicted than came free."""

import sys

from sgl_jax.srt.mem_cache.allocator import SWATokenToKVPoolAllocator
from sgl_jax.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams
from sgl_jax.srt.mem_cache.memory_pool import SWAKVPool
from sgl_jax.srt.mem_cache.radix_cache import RadixKey
from sgl_jax.srt.mem_cache.swa_radix_cache import SWARadixCache

memory = SWAKVPool.__new__(SWAKVPool)  # No memory is needed for what is shown here.
memory.full_kv_pool = memory.swa_kv_pool = None
allocator = SWATokenToKVPoolAllocator(size=16, size_swa=16, kvcache=memory, page_size=1)
cache = SWARadixCache(None, allocator, sliding_window_size=2, page_size=1)
prompt = [1, 2, 3, 4]

# The first two tokens are a node of their own, and lose their window data.
cache.insert(InsertParams(RadixKey(prompt[:2]), allocator.alloc(2)))
cache.insert(InsertParams(RadixKey(prompt), allocator.alloc(4)))
cache.evict(EvictParams(swa_num_tokens=1))

# Window data is short again: the leaf leaves, and with it the node above, which has none.
before = allocator.full_available_size()
answer = cache.evict(EvictParams(swa_num_tokens=1))
freed = allocator.full_available_size() - before
print(f"came free: {freed} full tokens; said to be evicted: {answer.num_tokens_evicted}")
sys.exit(0 if freed == answer.num_tokens_evicted else 1)
