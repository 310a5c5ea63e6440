"""The mends of what SGLang's Python core copies, on parts that are small enough to see them."""

from __future__ import annotations

from types import SimpleNamespace as Made
from typing import Any, NamedTuple

import pytest

from kvcanon.lab.releases.mended import mended_copies
from sglang_parts import node

WINDOW = 1


class PathCore:
    """A core with HiCache, whose windows of 4 tokens the nodes in `back` lack on the host."""

    is_write_back, enable_hicache, write_through_threshold, page_size = False, True, 2, 1

    def __init__(self, back: set[int]) -> None:
        windows = Made(sliding_window_size=4, _swa_kv_pool_host=None)
        self.components_by_type = {WINDOW: windows}
        self.back = back
        self.counted: list[int] = []

    def _inc_hit_count_and_check(self, each: Any) -> bool:  # noqa: ANN401
        self.counted.append(each.id)
        return True

    def _should_backup_after_insert(self, state: Any) -> bool:  # noqa: ANN401
        return self._inc_hit_count_and_check(state.target_node)

    def _build_backup_kv_action(self, each: Any, *, write_back: bool = False) -> list[int]:  # noqa: ANN401
        del write_back
        return [each.id]

    def _needs_incremental_component_backup(self, each: Any) -> bool:  # noqa: ANN401
        return each.id in self.back


def test_an_insert_copies_its_path_at_its_end() -> None:
    """New data first, down to what was hit often enough; then windows that came back."""

    def made(name: int, above: Any, hits: int, **more: Any) -> Any:  # noqa: ANN401
        flags = {"backuped": False, "write_through_pending_id": None, **more}
        return node(name, above, 2, hit_count=hits, **flags)

    far = made(1, node(0, None, 0), 9, backuped=True)
    near = made(2, far, 5, backuped=True)
    new = made(3, near, 2)
    cold = made(4, new, 1)
    core: Any = PathCore(back={1, 2})
    mended_copies.copy_path_at_its_end(core)
    # On the way down nothing is copied.
    assert core._inc_hit_count_and_check(near) is False
    assert core._should_backup_after_insert(Made(target_node=cold))
    assert core.counted == [2, 4]
    # The window of the new node ends with the one above, and does not reach the first.
    assert core._build_backup_kv_action(cold) == [3, 2]
    # Also while a copy of its full data is in flight.
    new.backuped, near.write_through_pending_id = True, 7
    assert core._build_backup_kv_action(cold) == [2]
    core.back = set()
    assert not core._should_backup_after_insert(Made(target_node=cold))
    core.is_write_back = True
    assert core._build_backup_kv_action(cold, write_back=True) == [4]


class Action(NamedTuple):
    """What the controller copies."""

    node_ids: list[int]


class CopyingCore:
    """A core that copies one node, and notes which acknowledgement it waits for."""

    def __init__(self) -> None:
        self.node = Made(id=5, write_through_pending_id=None)
        self.nodes = {5: self.node}
        self.resets = 0

    def node_by_id(self, name: int) -> Any:  # noqa: ANN401 # A stand-in.
        """The node of a name."""
        return self.nodes[name]

    def mark_write_through_pending(self, names: list[int], ack_id: int) -> list[int]:
        """Let nodes wait for an acknowledgement, which SGLang allows them one of."""
        for each in map(self.node_by_id, names):
            assert each.write_through_pending_id is None
            each.write_through_pending_id = ack_id
        return names

    def _build_backup_kv_action(self, each: Any, *, write_back: bool) -> Action:  # noqa: ANN401
        assert not write_back
        return Action([each.id])

    def reset(self) -> None:
        """Count the resets."""
        self.resets += 1


def test_a_node_is_copied_again_while_its_copy_is_in_flight() -> None:
    """The second copy has another name, by which the node is found until a reset."""
    core: Any = CopyingCore()
    mended_copies.copy_during_a_copy(core)
    names = []
    for _ in range(3):
        ((name,),) = core._build_backup_kv_action(core.node, write_back=False)
        assert core.node_by_id(name) is core.node
        assert core.mark_write_through_pending([name], name) == [name]
        assert core.node.write_through_pending_id == name
        names.append(name)
    assert names == [5, -2, -3]
    core.node.write_through_pending_id = None
    assert core._build_backup_kv_action(core.node, write_back=False) == Action([5])
    core.reset()
    assert core.resets == 1
    with pytest.raises(KeyError):
        core.node_by_id(-2)
