"""kvcanon as vLLM's host tier: a KV connector that keeps in host memory what leaves the device.

vLLM keeps its own device cache. The scheduler's half (`scheduler_half`) decides what is copied to
the host and what is loaded from there; the worker's half (`worker_half`) copies. They share nothing
but `step_copies`. `connector` gives both to vLLM; besides it `start_checks`, `tier_stats` and
`rank_disk` know vLLM.

Below the host may be a disk: `disk_half` decides what is written there and read, and `disk_copies`
moves it. Its pages outlive the engine, under names of their own (`disk_names`).

A page is what one block holds: `block_tokens` tokens of one group of layers. It is named by vLLM's
hash of its tokens and all before them, with salt and LoRA adapter, as in vLLM's device cache. A
tree of tokens would not do here: under write_back the host has pages whose parents are on the
device alone, and vLLM evicts block by block, and tells nobody.
"""
