"""The mends of SGLang's Python core: on parts that are small enough to see them, and under a cache.

The second needs SGLang's environment, and compares every answer with kvcanon's core.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, NamedTuple

from in_peer import run_in
from kvcanon.conformance.serving import mended_core, mended_windows

HELPER = Path(__file__).parents[2] / "helpers" / "sglang_cores.py"
RELEASE = "sglang==0.5.23"
WINDOW = 1


class Hit(NamedTuple):
    """The result of a match, as far as a mend changes it."""

    best_match_node: int
    device_prefix_len: int
    host_hit_length: int
    swa_branching_seqlen: int | None


def node(name: int, above: Any, tokens: int, **more: object) -> Any:  # noqa: ANN401 # A stand-in.
    """A node with this many tokens below another; None above makes the root."""
    return Made(id=name, parent=above, key=range(tokens), **more)


def test_a_split_leaves_recency() -> None:
    """Both parts keep the time of the last access."""
    upper, lower = Made(last_access_time=0), Made(last_access_time=7)

    def split(_key: object, child: Any, _length: int) -> tuple[object, None]:  # noqa: ANN401
        upper.last_access_time = child.last_access_time = 99
        return upper, None

    core = Made(_split_node=split)
    mended_core.split_in_place(core)
    assert core._split_node("key", lower, 1) == (upper, None)
    assert (upper.last_access_time, lower.last_access_time) == (7, 7)


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


def test_requests_go_as_with_the_mended_core() -> None:
    """With windows and a host tier, kvcanon and the mended core answer alike, under each policy."""
    done = run_in(RELEASE, "-W", "ignore", str(HELPER), "kvcanon", "mended")
    assert done.returncode == 0, done.stderr
    report: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [shape["differences"] for shape in report] == [[]] * len(report)
    for shape in report:
        assert shape["sums"]["host_hit_length"] > 100
        assert shape["sums"]["swa_host_hit_length"] > 100
