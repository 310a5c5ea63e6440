"""Caches in which something outlives a reset, as KV of the weights before an update would."""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.reference import ReferenceCache
from kvcanon.reference.departures import subtree
from kvcanon.reference.events import emit_cleared
from kvcanon.reference.slots import drop, free_tree
from kvcanon.reference.state import Node
from kvcanon.spec.errors import CacheBusy
from kvcanon.spec.types import DEFAULT_NAMESPACE, FULL


class _KeepsSome(ReferenceCache):
    """A reset keeps the subtrees of some nodes below the root."""

    stays: Callable[[Node], bool]

    def reset(self, keep_store: bool = False) -> None:
        """Clear the tree, but for what stays."""
        state = self._state
        if state.holds:
            raise CacheBusy(len(state.holds))
        kept = {edge: node for edge, node in state.root.children.items() if self._keeps(node)}
        spared = {each: None for node in kept.values() for each in subtree(node)}
        owners = {
            name: dict.fromkeys(each for each in nodes if each in spared)
            for name, nodes in state.owners.items()
        }
        for (component, medium), nodes in state.owners.items():
            for node in [each for each in nodes if each not in spared]:
                drop(state, node, component, medium)
        state.forget()
        state.owners = owners
        state.nodes |= {node.node_id: node for node in spared}
        state.root.children.update(kept)
        for node in kept.values():
            node.parent = state.root
        emit_cleared(state)

    def _keeps(self, node: Node) -> bool:
        return type(self).stays(node)


class KeepsOtherNamespaces(_KeepsSome):
    """A reset clears the default namespace alone."""

    stays = staticmethod(lambda node: node.namespace != DEFAULT_NAMESPACE)


class KeepsTheHost(_KeepsSome):
    """A reset clears the device: what is on the host alone stays."""

    stays = staticmethod(lambda node: node.data[FULL].device is None)


class ResetsUnderCopies(ReferenceCache):
    """A reset waits for requests alone: copies in flight end in the tree that is gone."""

    def reset(self, keep_store: bool = False) -> None:
        """Clear the tree."""
        state = self._state
        of_requests = [each for each in state.holds.values() if each.transfer is None]
        if of_requests:
            raise CacheBusy(len(state.holds))
        if not state.transfers:
            free_tree(state)
        state.forget()
        emit_cleared(state)
