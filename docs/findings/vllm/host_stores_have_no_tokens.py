"""vLLM 0.33.0 publishes blocks that come to the host without tokens, parent and block size.

A router that finds prompts by their tokens cannot use such a block. Only with the option
`self_describing_kv_events`, which is off, does vLLM send them for full attention.

    python host_stores_have_no_tokens.py

It needs vLLM alone, and no GPU. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import OffloadingEventsTracker
from vllm.v1.kv_offload.base import OffloadingKVEventsConfig, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

manager = CPUOffloadingManager(num_chunks=4, enable_events=True)
# The second is the option's default.
config = OffloadingKVEventsConfig(enable_kv_cache_events=True, self_describing_kv_events=False)
tracker = OffloadingEventsTracker(config)
context = ReqContext(req_id="one")
keys = [make_offload_key(bytes([number]) * 32, 0) for number in (1, 2)]
manager.on_new_request(context)
assert manager.prepare_store(keys, context) is not None
manager.complete_store(keys, context)
empty = 0
for event in tracker.take_events(manager.take_events()):
    print(
        f"{type(event).__name__} on {event.medium}: {len(event.token_ids)} tokens, "
        f"block size {event.block_size}, parent {event.parent_block_hash}"
    )
    empty += not event.token_ids
sys.exit(empty > 0)
