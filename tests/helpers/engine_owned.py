"""The fast cache over tensors of an engine: a factory for the judge, for each layout.

`kvcanon check engine_owned:VLLM_KV_FIRST --against reference`, with tests/helpers on the path.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import torch
from attrs import define, evolve, field

from engine_layouts import BUILDERS, Shape
from kvcanon.optimized import OptimizedCache
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import GPU

LAYERS, HEADS = (3, 2, 1), (2, 1)


@cache
def shape_of(name: str, page_size: int, page_bytes: int) -> Shape | None:
    """A shape whose pages have so many bytes, with more than one layer and head if possible."""
    for layers in LAYERS:
        for heads in HEADS:
            for dim in range(1, page_bytes // layers + 1):
                shape = Shape(1, page_size, layers, heads, dim, wider=1, dtype=torch.uint8)
                size = len(BUILDERS[name](shape).page_bytes(layers, 0))
                if size == page_bytes:
                    return shape
                if size > page_bytes:
                    break
    return None


@define(eq=False)
class EngineOwned:
    """Makes caches over tensors of one layout; of own pools where no shape has the page's bytes."""

    name: str
    made: Counter[bool] = field(factory=Counter[bool])
    """How many caches were made: over tensors of the layout (True), and over own pools."""

    def __call__(self, config: CacheConfig, engine: TransferEngine | None = None) -> OptimizedCache:
        """An empty cache."""
        shape = shape_of(self.name, config.page_size, config.slot_bytes)
        self.made[shape is not None] += 1
        if shape is None:
            return OptimizedCache(config, engine)
        owned = {
            component: BUILDERS[self.name](evolve(shape, slots=config.capacity(component, GPU)))
            for component in config.components
        }
        pools = Pools(config, tensors={name: each.given for name, each in owned.items()})
        return OptimizedCache(config, engine, pools)


FACTORIES = {name: EngineOwned(name) for name in BUILDERS}
globals().update(
    {name.upper().replace(", ", "_").replace(" ", "_"): made for name, made in FACTORIES.items()}
)
