"""mlx-lm 0.32.2: LRUPromptCache evicts the entry that was inserted first, however often it is hit.

    python hits_do_not_make_an_entry_recent.py

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


prompts = LRUPromptCache(max_size=2)
popular, unused = [1, 2, 3], [5, 6, 7]
prompts.insert_cache("model", popular, state_after(popular))
prompts.insert_cache("model", unused, state_after(unused))
for question in range(100, 200):
    found, rest = prompts.fetch_nearest_cache("model", [*popular, question])
    assert rest == [question]
prompts.insert_cache("model", [8, 9], state_after([8, 9]))

evicted = [
    name
    for name, each in (("popular", popular), ("unused", unused))
    if prompts.fetch_nearest_cache("model", [*each, 99])[0] is None
]
print(f"of an entry with 100 hits and a younger one with none, {evicted} is evicted")
sys.exit(evicted != ["unused"])
