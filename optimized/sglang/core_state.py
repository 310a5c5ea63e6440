"""What the parts of the tree core work on: the native tree, SGLang's slots, and copies."""

from __future__ import annotations

from array import array

from attrs import Factory, define, field
from sglang.srt.mem_cache.base_prefix_cache import InsertResult, MatchResult
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.cache_action import FreeComponentDeviceSlot
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    EvictDeviceNextNodeResult,
    InsertStepResult,
)

from kvcanon.optimized import _core
from kvcanon.optimized.native_types import NodeCuts, ResultTypes
from kvcanon.optimized.sglang.copies import Copies, follow_cuts
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, remake
from kvcanon.optimized.sglang.pool_slots import KINDS, PoolSlots

RESULTS = ResultTypes(
    MatchResult,
    EvictDeviceNextNodeResult,
    InsertResult,
    InsertStepResult,
    FreeComponentDeviceSlot,
)


@define(eq=False)
class CoreState:
    """One cache. Nothing else of it is shared between the functions of this package."""

    native: TreeOfNodes
    slots: PoolSlots
    state_grid: int = 1
    """Where SGLang can keep states besides at the end of a prompt, in tokens."""
    copies: Copies = Factory(Copies)
    nodes: _core.Nodes = field(init=False)
    """Those of the native cache, for the calls of every request."""
    engine_nodes: _core.EngineNodes = field(init=False)
    """The same with SGLang's objects."""
    root: int = field(init=False)
    _bigram: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Take the nodes of the native cache."""
        self.nodes = self.native.nodes
        self.engine_nodes = _core.EngineNodes(
            self.nodes,
            RESULTS,
            KINDS,
            *self.slots.by_component(),
            self.state_grid,
        )
        self.root = self.nodes.root()
        self._bigram = self.native.settings.bigram

    def prompt(self, key: RadixKey) -> tuple[array[int], int]:
        """The tokens of a key, of which bigrams share all but two, and its namespace number."""
        extra_key, salt = key.extra_key, key.cache_salt
        namespace = 0
        if extra_key is not None or salt is not None:
            namespace = self.native.namespace((extra_key, salt))
        key, _ = key.maybe_to_bigram_view(self._bigram)
        return key.raw_token_ids(), namespace

    def follow_cuts(self, cuts: NodeCuts) -> list[object]:
        """Let copies in flight follow where the tree cut nodes; returns the actions for it."""
        return follow_cuts(self.copies, cuts)

    def apply(self, settings: TreeSettings) -> None:
        """Make a new native cache if a setting that it depends on has changed."""
        self.native = remake(self.native, settings)
        self.__attrs_post_init__()

    def forget(self) -> None:
        """Forget the tree, its locks, and copies."""
        self.native.forget()
        self.root = self.nodes.root()
        copies = self.copies
        for each in (copies.pending, copies.unannounced, copies.nodes_by_name, copies.new_names):
            each.clear()
        copies.joined = ()
        copies.order.forget()
