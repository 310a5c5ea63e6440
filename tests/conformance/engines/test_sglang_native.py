"""A tree that is read through the ids of its nodes, and records of its copies, on fakes."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from kvcanon.conformance.engines.sglang.keys import Keys
from kvcanon.conformance.engines.sglang.rust_core import AHEAD, NativeTree
from kvcanon.conformance.engines.sglang.transfers import RECORDS, PendingCopies
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import HoldState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, DEFAULT_NAMESPACE, FULL, GPU, NodeId, make_key

LONG = make_key([1, 2, 3, 4], 1)
NAMES = [name.hex() for name in page_hashes(namespace_seed(DEFAULT_NAMESPACE), LONG.pages)]


class Core:
    """A fake Rust core with two nodes below a root; the lower one is on the host only.

    They are given as parent, page hashes, device slots of tokens, and whether they have a host
    copy.
    """

    def __init__(self) -> None:
        self.root_id = 1
        self.nodes: dict[NodeId, tuple[NodeId | None, list[str], list[int] | None, bool]] = {
            1: (None, [], None, False),
            3: (4, NAMES[2:], None, True),
            4: (1, NAMES[:2], [5, 6], False),
        }

    def root_node_handle(self, _extra_key: None) -> NodeId:
        """Return the root."""
        return self.root_id

    def backfill_missing_hash_values(self) -> int:
        """Return 0: no hash is missing."""
        return 0

    def is_backuped(self, node_id: NodeId) -> bool:
        """Whether a node has a host copy. Raises: KeyError."""
        return self.nodes[node_id][3]

    def component_has_host_value_only(self, node_id: NodeId, _kind: str) -> bool:
        """Whether a node is on the host only. Raises: KeyError."""
        return self.nodes[node_id][3] and self.nodes[node_id][2] is None

    def get_hash_values(self, node_id: NodeId) -> list[str]:
        """Return the hashes of a node's pages. Raises: KeyError."""
        return self.nodes[node_id][1]

    def get_component_device_value(self, node_id: NodeId, _kind: str) -> list[int] | None:
        """Return the slots of a node's tokens. Raises: KeyError."""
        return self.nodes[node_id][2]

    def collect_path_info(self, node_ids: list[NodeId]) -> list[list[SimpleNamespace]]:
        """Return the paths to some nodes; the adapter reads the last step."""
        return [
            [SimpleNamespace(parent_id=self.nodes[node_id][0])]
            if self.nodes[node_id][0] is not None
            else []
            for node_id in node_ids
        ]


@pytest.fixture
def core() -> Core:
    """Return a fake core."""
    return Core()


@pytest.fixture
def tree(core: Core) -> NativeTree:
    """Return the tree of a core, which has matched its prompt."""
    slots = SimpleNamespace(slots=lambda tokens: None if tokens is None else tuple(tokens))
    made = NativeTree(core, Keys(1, "q"), {FULL: "full"}, {(FULL, GPU): slots, (FULL, CPU): slots})  # type: ignore[dict-item]
    made.learn(LONG)
    return made


def test_path_is_found_by_ids(tree: NativeTree) -> None:
    """The nodes of a key are found by the core's answers about ids."""
    stops = tree.path(make_key([1, 2, 3, 9], 1))
    assert [(stop.node.id, stop.end_pages, stop.shared_pages) for stop in stops] == [
        (4, 2, 2),
        (3, 4, 1),
    ]
    assert tree.depth_pages(tree.node(3)) == len(LONG)


def test_slots_are_those_of_now(core: Core, tree: NativeTree) -> None:
    """A node shows its current slots, and none once it is evicted."""
    upper, lower = (stop.node for stop in tree.path(LONG))
    assert (tree.slots(upper, FULL, GPU), tree.slots(upper, FULL, CPU)) == ((5, 6), ())
    assert (tree.slots(lower, FULL, GPU), len(tree.slots(lower, FULL, CPU))) == ((), 2)
    core.nodes[3] = (4, NAMES[2:], [7, 8], True)
    assert tree.slots(lower, FULL, GPU) == (7, 8)
    del core.nodes[3]
    assert tree.slots(lower, FULL, GPU) == tree.slots(lower, FULL, CPU) == ()


def test_new_ids_are_found(core: Core, tree: NativeTree) -> None:
    """A node that a call has made is found."""
    assert len(list(tree.nodes())) == 3
    last = 4 + AHEAD
    core.nodes[last] = core.nodes.pop(3)
    assert [stop.node.id for stop in tree.path(LONG)] == [4, last]
    del core.nodes[last]
    assert len(list(tree.nodes())) == 2
    core.nodes[last + AHEAD] = (4, NAMES[2:], None, True)
    assert [stop.node.id for stop in tree.path(LONG)] == [4, last + AHEAD]


def test_other_root_is_found(core: Core, tree: NativeTree) -> None:
    """After a reset the new root and its nodes are found."""
    assert tree.root.id == 1
    core.nodes = {900: (None, [], None, False), 901: (900, NAMES, None, True)}
    core.root_id = 900
    assert [stop.node.id for stop in tree.path(LONG)] == [901]


BACKUP = Direction.BACKUP


class CountingTree:
    """A tree that counts how often a node is read: with the Rust core each is a whole walk."""

    def __init__(self) -> None:
        self.reads = 0

    def node(self, handle: object) -> object:
        """Read a node."""
        self.reads += 1
        return handle


def test_tree_is_read_for_new_records_alone() -> None:
    """Copies in flight that are known cost no look at the tree, however many there are."""
    tree, records = CountingTree(), dict[int, object]()
    cache = SimpleNamespace(**{RECORDS[BACKUP]: records})
    copies = PendingCopies(cache, tree, count(1))  # type: ignore[arg-type]
    for number in range(50):
        records[number] = (f"node {number}", object())
        (entry,) = copies.new_entries(BACKUP)
        assert str(entry.locked) == f"node {number}"
        hold = HoldState(number, number, None, state_held=False, transfer_id=None)
        copies.add(BACKUP, entry, ({}, {}), hold)
    assert tree.reads == 100
    assert not copies.settle().transfers
    del records[7]
    ((ended, _),) = copies.settle().transfers
    assert ended == 8
    assert tree.reads == 100
