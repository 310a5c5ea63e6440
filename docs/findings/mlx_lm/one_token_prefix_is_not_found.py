"""mlx-lm 0.32.2: LRUPromptCache does not find an entry of one token, if it cannot be trimmed.

    python one_token_prefix_is_not_found.py

It ends with exit code 1 where the fault shows. It needs no GPU.
"""

import sys

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, LRUPromptCache


def state_after(tokens):
    """The cache of a model with recurrent layers, which cannot be trimmed."""
    layer = ArraysCache(size=1)
    layer[0] = mx.array([sum(tokens)])
    return [layer]


faulty = False
for prefix in ([1], [2, 3]):
    prompts = LRUPromptCache()
    prompts.insert_cache("model", prefix, state_after(prefix))
    found, rest = prompts.fetch_nearest_cache("model", [*prefix, 9])
    faulty |= found is None
    print(f"{prefix} is cached; of {[*prefix, 9]} the tokens {rest} are left to compute")
sys.exit(faulty)
