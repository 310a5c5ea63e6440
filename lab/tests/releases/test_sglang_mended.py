"""The mends of SGLang's Python core: on parts that are small enough to see them, and under a cache.

The second needs SGLang's environment, and compares every answer with kvcanon's core.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from types import SimpleNamespace as Made
from typing import Any, NamedTuple

import pytest

from in_peer import run_in
from kvcanon.lab.releases.mended import mended_copies, mended_core, mended_windows
from paths import HELPERS
from sglang_parts import node

RELEASE = "sglang==0.5.23"
FULL, WINDOW = 0, 1


class Hit(NamedTuple):
    """The result of a match, as far as a mend changes it."""

    best_match_node: int
    device_prefix_len: int
    host_hit_length: int
    swa_branching_seqlen: int | None


def test_a_split_leaves_recency() -> None:
    """Both parts keep the time of the last access; an insert makes the upper part alone recent."""
    upper, lower = Made(last_access_time=0), Made(id=1, last_access_time=7)

    def split(_key: object, child: Any, _length: int) -> tuple[object, None]:  # noqa: ANN401
        upper.last_access_time = child.last_access_time = 99
        return upper, None

    def touch(touched: Any) -> None:  # noqa: ANN401
        touched.last_access_time = 50

    def step(state: object) -> None:
        core._touch_node(lower)
        core._split_node(state, lower, 1)

    core: Any = Made(_split_node=split, _touch_node=touch, _insert_walk_step=step)
    mended_core.split_in_place(core)
    for _ in range(2):
        assert core._split_node("key", lower, 1) == (upper, None)
        assert (upper.last_access_time, lower.last_access_time) == (7, 7)
        core._insert_walk_step("key")
        assert (upper.last_access_time, lower.last_access_time) == (50, 7)


class CuttingCore:
    """A core whose match looks at a child of four tokens, of which the key has the first three.

    Like SGLang's it cuts the child at once, and then asks whether a prefix may end there.
    """

    def __init__(self, *, usable: bool) -> None:
        self.usable = usable
        data = [
            Made(value=[5, 6, 7, 8], host_value=None),
            Made(value=None, host_value=[1, 2, 3, 4]),
        ]
        state = Made(value=[9], host_value=None)
        self.child = node(1, node(0, None, 0), 4, component_data=[*data, state])
        self.upper = node(2, self.child.parent, 3)
        self.cuts = 0
        self.seen: list[object] = []

    def match_prefix(self, key: str) -> object:
        """What the walk and its end come to."""
        return self._match_prefix_helper(key, "params")

    def _match_prefix_helper(self, key: str, params: str) -> object:
        part, action = self._split_node(key, self.child, 3)
        self.seen = [each.value or each.host_value for each in part.component_data]
        end = part if self.usable else self.child.parent
        value = [part.component_data[0].value]
        return self._match_post_processor(
            params, value, end, end, 1, 3, action, last_visited_node_id=part.id
        )

    def _split_node(self, key: str, child: object, length: int) -> tuple[Any, str]:
        assert (key, child, length) == ("key", self.child, 3)
        self.cuts += 1
        return self.upper, "action"

    def _match_post_processor(self, *given: object, **more: object) -> object:
        return given, more


def test_a_match_cuts_where_a_request_can_use_the_part() -> None:
    """Elsewhere the part is looked at, and the tree stays as it is."""
    for usable in (True, False):
        core: Any = CuttingCore(usable=usable)
        mended_core.cut_where_usable(core)
        given, more = core.match_prefix("key")
        # A state is at the end of a node, which the part does not have.
        assert core.seen == [[5, 6, 7], [1, 2, 3], None]
        end, action = (core.upper, "action") if usable else (core.child.parent, None)
        assert given == ("params", [[5, 6, 7]], end, end, 1, 3, action)
        assert more == {"last_visited_node_id": core.child.id}
        assert core.cuts == int(usable)
        assert len(core.child.key) == 4
        # An insert cuts as before.
        assert core._split_node("key", core.child, 3) == (core.upper, "action")


def test_every_part_of_a_split_node_counts_one_hit() -> None:
    """The insert counts the parts that its walk did not, and no part twice."""
    root = node(0, None, 0, hits=0)
    walked = node(1, root, 4, hits=0)
    upper = node(2, walked, 4, hits=0)
    lower = node(3, upper, 4, hits=0)

    def count(each: Any) -> bool:  # noqa: ANN401
        each.hits += 1
        return False

    core = Made(begin_insert=lambda params: params, _inc_hit_count_and_check=count)
    core._should_backup_after_insert = lambda state: core._inc_hit_count_and_check(
        state.target_node
    )
    mended_core.count_every_part(core)
    for inserted in (0, 4):
        core.begin_insert("params")
        core._inc_hit_count_and_check(walked)
        params = Made(inserted_len=inserted)
        core._should_backup_after_insert(Made(target_node=lower, params=params))
    assert [each.hits for each in (root, walked, upper, lower)] == [0, 2, 2, 2]


def test_hits_are_counted_under_write_back() -> None:
    """Also that of a new leaf, unless the request inserted it before."""
    root = node(0, None, 0)
    leaf = node(1, root, 4, hit_count=0, evicted=False)
    gone = node(2, root, 4, hit_count=0, evicted=True)
    core: Any = Made(
        is_write_back=True,
        _inc_hit_count_and_check=lambda _: False,
        _should_backup_after_insert=lambda _: False,
    )
    mended_core.count_under_write_back(core)
    for inserted in (0, 4):
        params = Made(inserted_len=inserted)
        assert not core._should_backup_after_insert(
            Made(target_node=leaf, is_new_leaf=True, params=params)
        )
    core._inc_hit_count_and_check(gone)
    assert (leaf.hit_count, gone.hit_count) == (1, 0)
    core.is_write_back = False
    core._inc_hit_count_and_check(leaf)
    assert leaf.hit_count == 1


def test_a_node_is_announced_once_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also its parts after a split; what left the host is announced when it comes back."""
    events = Made(StorageMedium=Made(CPU="CPU"))
    monkeypatch.setattr(mended_core, "import_module", lambda _: events)
    said: list[tuple[str, int]] = []
    sent = Made(
        record_store=lambda each, **_: said.append(("stored", each.id)),
        record_remove=lambda each, **_: said.append(("removed", each.id)),
    )
    first, upper = Made(id=1), Made(id=2)
    core: Any = Made(kv_events=sent, _split_node=lambda *_: (upper, None), reset=said.clear)
    mended_core.announce_once(core)
    sent.record_store(first)
    for _ in range(2):
        sent.record_store(first, medium="CPU")
    core._split_node("key", first, 1)
    sent.record_store(upper, medium="CPU")
    sent.record_remove(first, medium="CPU")
    sent.record_store(first, medium="CPU")
    assert said == [("stored", 1), ("stored", 1), ("removed", 1), ("stored", 1)]
    core.reset()
    sent.record_store(upper, medium="CPU")
    assert said == [("stored", 2)]


def test_a_hit_is_promised_to_its_end() -> None:
    """What the device lacks only a window for is counted, and is no longer prefix to look for."""
    root = node(0, None, 0)
    nodes = {0: root, 1: node(1, node(2, root, 8), 4)}
    core = Made(enable_hicache=True, node_by_id=nodes.__getitem__)
    core.match_prefix = lambda branch: Hit(1, 4, 2, branch)
    mended_core.promise_whole_hits(core)
    assert core.match_prefix(12) == Hit(1, 4, 8, None)
    assert core.match_prefix(16) == Hit(1, 4, 8, 16)


def test_the_host_gives_up_windows_as_far_as_a_copy_lacks_room() -> None:
    """Full data is asked for as it is: there the controller asks for what lacks."""
    pool = Made(available_size=lambda: 12)
    windows = Made(component_type=WINDOW, _swa_kv_pool_host=pool)
    core = Made(components_by_type={0: Made(component_type=0), WINDOW: windows})
    core.drive_host_eviction = lambda kind, tokens: (kind, tokens)
    mended_windows.evict_what_lacks(core)
    assert core.drive_host_eviction(WINDOW, 16) == (WINDOW, 4)
    assert core.drive_host_eviction(0, 16) == (0, 16)


class Freed(Made):
    """The result of an eviction on the host."""

    def __init__(self, **tracker: int) -> None:
        super().__init__(
            tracker=Counter({FULL: tracker["full"], WINDOW: tracker["window"]}),
            device_frees=defaultdict(list),
            host_frees=defaultdict(list, {FULL: [tracker["full"]], WINDOW: [tracker["window"]]}),
            cache_actions=[tracker],
        )


def test_a_host_makes_room_for_full_data_first() -> None:
    """Where a window leaves the device; what leaves with full data counts for the window, too."""
    asked: list[tuple[int, int]] = []
    pool = Made(available_size=lambda: 5)
    windows = Made(component_type=WINDOW, _swa_kv_pool_host=None)
    full = Made(component_type=FULL, cache=Made(cache_controller=Made(mem_pool_host=pool)))
    victim = node(1, node(0, None, 0), 8, backuped=False)

    def evict(kind: int, tokens: int) -> Freed:
        asked.append((kind, tokens))
        return Freed(full=3 * (kind == FULL), window=2)

    core = Made(
        components=[full, windows],
        components_by_type={FULL: full, WINDOW: windows},
        node_by_id=lambda _: victim,
        evict_device_next_node=lambda *_: Made(swa_backup_node_id=1),
        drive_host_eviction=evict,
    )
    mended_windows.make_room_for_a_node(core)
    core.evict_device_next_node(WINDOW, {})
    freed = core.drive_host_eviction(WINDOW, 8)
    assert asked == [(FULL, 3), (WINDOW, 6)]
    assert (freed.tracker[FULL], freed.tracker[WINDOW]) == (3, 4)
    assert (freed.host_frees[WINDOW], len(freed.cache_actions)) == ([2, 2], 2)
    # Not again for the same victim, and not where the host has its full data.
    core.drive_host_eviction(WINDOW, 8)
    victim.backuped = True
    core.evict_device_next_node(WINDOW, {})
    core.drive_host_eviction(WINDOW, 8)
    assert asked[2:] == [(WINDOW, 8)] * 2


class Listed:
    """Nodes in the order of their use, the most recent first."""

    def __init__(self) -> None:
        self.order: list[Any] = []

    @property
    def cache(self) -> dict[int, object]:
        """The nodes by name."""
        return {each.id: each for each in self.order}

    def insert_mru(self, each: object) -> None:
        """Make a node the most recent one."""
        self.order.insert(0, each)

    def insert_after(self, newer: object, each: object) -> None:
        """Make a node the next after one that is more recent."""
        self.order.insert(self.order.index(newer) + 1, each)

    def remove_node(self, each: object) -> None:
        """Take a node out."""
        self.order.remove(each)


def windowed(listed: object) -> tuple[Any, Any, Callable[[object], object]]:
    """A core with windows of 4 tokens, its component, and the first to leave the host."""
    windows = Made(
        component_type=WINDOW,
        _swa_kv_pool_host=None,
        sliding_window_size=4,
        refresh_lru=lambda *_given: None,
    )
    core = Made(
        components_by_type={WINDOW: windows},
        page_size=1,
        host_lru_lists={WINDOW: listed},
        lru_lists={WINDOW: Listed()},
        reset=lambda: None,
        set_component_device_value=lambda *_given: None,
        _split_node=lambda *_given: None,
    )
    mended_windows.evict_windows_by_use(core)
    return core, windows, lambda each: getattr(each, "id", None)


def test_windows_leave_the_host_by_last_use() -> None:
    """Not in the order in which they came there; an upper node before those below it."""
    root = node(0, None, 0)

    def data() -> list[Any]:
        return [None, Made(host_lock_ref=0, lock_ref=0)]

    old, new = node(1, root, 4, component_data=data()), node(2, root, 4, component_data=data())
    below = node(3, new, 1, component_data=data())
    listed = Made(cache={each.id: each for each in (below, new, old)})
    core, windows, name = windowed(listed)
    end = Made(name="MATCH_END")
    windows.refresh_lru(end, old, root)
    windows.refresh_lru(end, below, root)
    assert name(listed.get_lru_no_host_lock()) == 1
    assert name(listed.get_prev_no_host_lock(old)) == 2
    old.component_data[WINDOW].lock_ref = 1
    assert name(listed.get_lru_no_host_lock()) == 2
    core.reset()
    assert name(core.host_lru_lists[WINDOW].get_lru_no_host_lock()) == 2


def test_windows_that_come_back_are_as_recent_as_on_the_host() -> None:
    """New data is the most recent; data that the host has takes the place of its last use."""
    root, end = node(0, None, 0), Made(name="MATCH_END")
    on_host = [
        node(name, root, 4, component_data=[None, Made(host_value=[name])]) for name in (1, 2, 3)
    ]
    new = node(4, root, 4, component_data=[None, Made(host_value=None)])
    core, windows, _ = windowed(Made(cache={}))
    for each in on_host:
        windows.refresh_lru(end, each, root)
    nodes = {each.id: each for each in (*on_host, new)}
    core.node_by_id = nodes.__getitem__
    listed = core.lru_lists[WINDOW]
    for name in (3, 4, 2, 1):
        # SGLang puts each first.
        listed.insert_mru(nodes[name])
        core.set_component_device_value(name, WINDOW, "slots")
        core.set_component_device_value(name, FULL, "slots")
    assert [each.id for each in listed.order] == [4, 3, 2, 1]


@pytest.mark.nightly
def test_cases_agree_with_the_mended_core() -> None:
    """Every answer and event is that of the mended core, and each mend is needed for that."""
    done = run_in(RELEASE, "-W", "ignore", str(HELPERS / "sglang_agreement.py"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["differences"] == []
    assert report["played"] > 20
    assert report["needless"] == []
    assert report["others"] == []


@pytest.mark.nightly
def test_requests_go_as_with_the_mended_core() -> None:
    """With windows and a host tier, kvcanon and the mended core answer alike, under each policy."""
    done = run_in(RELEASE, "-W", "ignore", str(HELPERS / "sglang_cores.py"), "kvcanon", "mended")
    assert done.returncode == 0, done.stderr
    report: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [shape["differences"] for shape in report] == [[]] * len(report)
    for shape in report:
        assert shape["sums"]["host_hit_length"] > 100
        assert shape["sums"]["swa_host_hit_length"] > 100


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
