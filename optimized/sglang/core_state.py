"""What the parts of the tree core work on: the native tree, SGLang's slots, and copies."""

from __future__ import annotations

from attrs import Factory, define, field

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.copies import Copies
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, remake
from kvcanon.optimized.sglang.pool_slots import PoolSlots


@define(eq=False)
class CoreState:
    """One cache. Nothing else of it is shared between the functions of this package."""

    native: TreeOfNodes
    slots: PoolSlots
    copies: Copies = Factory(Copies)
    nodes: _core.Nodes = field(init=False)
    """Those of the native cache, for the calls of every request."""
    root: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Take the nodes of the native cache."""
        self.nodes = self.native.nodes
        self.root = self.nodes.root()

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
