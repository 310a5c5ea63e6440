"""mlx-lm 0.32.2: the system prompt's entry is removed, and what replaces it is evicted first.

    python system_entries_lose_their_kind.py

It ends with exit code 1 where the fault shows. It needs no GPU.
"""

import sys

import mlx.core as mx
from mlx_lm.models.cache import KVCache, LRUPromptCache


def kv_of(tokens):
    """The cache of a model with full attention."""
    layer = KVCache()
    kv = mx.array([[[[token] for token in tokens]]])
    layer.update_and_fetch(kv, kv)
    return [layer]


system = [1, 2, 3]
prompts = LRUPromptCache(max_size=4)
prompts.insert_cache("model", system, kv_of(system), cache_type="system")
for answer in range(10, 14):
    # Four conversations, of which only the first has this system prompt.
    tokens = [*system, answer] if answer == 10 else [answer, answer]
    prompts.insert_cache("model", tokens, kv_of(tokens), cache_type="assistant")
kinds = {kind: stats["n_sequences"] for kind, stats in prompts.stats_by_type().items()}
print(f"entries by kind: {kinds}")
prompts.insert_cache("model", [20, 20], kv_of([20, 20]), cache_type="assistant")
found, _ = prompts.fetch_nearest_cache("model", [*system, 99])
print(f"after one more conversation the system prompt is {'gone' if found is None else 'cached'}")
sys.exit(found is None)
