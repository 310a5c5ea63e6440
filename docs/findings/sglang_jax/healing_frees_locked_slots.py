"""sglang-jax frees slots that a running request reads, and gives them to the next one."""

import sys

from sgl_jax.srt.mem_cache.allocator import SWATokenToKVPoolAllocator
from sgl_jax.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sgl_jax.srt.mem_cache.memory_pool import SWAKVPool
from sgl_jax.srt.mem_cache.radix_cache import RadixKey
from sgl_jax.srt.mem_cache.swa_radix_cache import SWARadixCache

memory = SWAKVPool.__new__(SWAKVPool)  # No memory is needed for what is shown here.
memory.full_kv_pool = memory.swa_kv_pool = None
allocator = SWATokenToKVPoolAllocator(size=16, size_swa=16, kvcache=memory, page_size=1)
cache = SWARadixCache(None, allocator, sliding_window_size=2, page_size=1)
prompt = [1, 2, 3, 4, 5, 6]

# Two requests have computed the first two tokens, and all six.
cache.insert(InsertParams(RadixKey(prompt[:2]), allocator.alloc(2)))
cache.insert(InsertParams(RadixKey(prompt), allocator.alloc(6)))

# Request B runs behind the six tokens.
found = cache.match_prefix(MatchPrefixParams(RadixKey(prompt)))
held = set(found.device_indices.tolist())
cache.inc_lock_ref(found.last_device_node)
print("request B reads the slots  ", sorted(held))

# Window data is short. B's window does not reach the first two tokens: theirs is freed.
cache.evict(EvictParams(swa_num_tokens=1))

# Request C computed the first two tokens itself, and hands them over.
cache.insert(InsertParams(RadixKey(prompt[:2]), allocator.alloc(2)))
free = set(allocator.full_attn_allocator.free_slots[0].tolist())
print("of these, free are         ", sorted(held & free))
given = set(allocator.alloc(len(free)).tolist())
print("and the next request gets  ", sorted(held & given))
sys.exit(1 if held & given else 0)
