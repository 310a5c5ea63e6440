"""`bench cliffs`: its limits, its scenes, and its command; and structures that must not degrade."""

from __future__ import annotations

import json
from pathlib import Path
from time import thread_time

import numpy as np
import pytest
from attrs import evolve

from kvcanon.conformance.cli import main
from kvcanon.lab.bench.gpu import cliffs
from kvcanon.lab.bench.gpu.cliff_ground import CliffGround, leaf
from kvcanon.lab.bench.gpu.stopwatch import Stopwatch, call_times
from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Namespace, WritePolicy

MILLISECOND = 10**6


@pytest.mark.parametrize(
    ("took_ms", "named", "holds"),
    [
        ([0.9], [0], True),
        ([1.1], [0], False),
        ([1.1], [100], True),
        ([2.9], [1000], True),
        ([3.1], [1000], False),
        ([0.1] * 9_999 + [4.9], [0] * 10_000, True),
        ([0.1] * 9_999 + [5.1], [0] * 10_000, False),
        ([0.1] * 9_998 + [4.9] * 2, [0] * 10_000, False),
    ],
)
def test_limit_of_a_call(took_ms: list[float], named: list[int], *, holds: bool) -> None:
    """A call may take a millisecond and 2 us for what it names; one in 10,000 may take five."""
    times = call_times("scene", "call", [int(each * MILLISECOND) for each in took_ms], named)
    assert times.holds is holds
    assert times.max_us == pytest.approx(max(took_ms) * 1e3)


def test_worst_call_is_the_one_nearest_to_its_limit() -> None:
    """A long call that names much is better than a short one that names nothing."""
    times = call_times("scene", "call", [5 * MILLISECOND, 2 * MILLISECOND], [10_000, 0])
    assert (times.worst_us, times.worst_named, times.over) == (2000.0, 0, 1)


@pytest.mark.parametrize("name", tuple(cliffs.SCENES))
def test_scene_keeps_its_limits_in_a_small_tree(name: str) -> None:
    """Every scene runs to its end; no call of it comes near a millisecond in a small tree."""
    times = list(cliffs.run_scene(name, 200))
    assert len(times) > 2
    assert all(each.scene == name and each.calls for each in times)
    assert [each for each in times if each.far_over] == []


def test_scenes_make_every_call_of_a_cache() -> None:
    """Together the scenes time every operation of the cache."""
    operations = {
        each.operation.split(",")[0].split(" ")[0]
        for name in cliffs.SCENES
        for each in cliffs.run_scene(name, 100)
    }
    assert operations >= {
        *("match", "lock", "unlock", "unlock_window", "allocate", "free", "insert", "evict"),
        *("evict_host", "load_back", "insert_host", "poll", "reset", "take_events", "namespace"),
    }


def test_eviction_names_victims_on_both_media_and_its_copies() -> None:
    """Three leaves leave a device for a full host: three victims on each, and one copy."""
    watch = Stopwatch()
    config = CacheConfig(
        device_slots=Counts(full=4),
        host_slots=Counts(full=4),
        write_policy=WritePolicy.WRITE_BACK,
        events=False,
    )
    ground = CliffGround(config, watch)
    for number in range(4):
        ground.insert(leaf(number))
    ground.evict(4, named="room on the host")
    for number in range(4, 8):
        ground.insert(leaf(number))
    ground.evict(3, named="full host")
    assert watch.named["room on the host"] == [4 + 0 + 1]
    assert watch.named["full host"] == [3 + 3 + 1]


def test_reset_names_nodes_and_namespaces() -> None:
    """Nodes that are there, and namespaces of which nothing is left."""
    watch = Stopwatch()
    ground = CliffGround(CacheConfig(device_slots=Counts(full=5), events=False), watch)
    for number in range(5):
        salted = ground.cache.namespace(Namespace(cache_salt=f"{number}"))
        ground.insert(leaf(0), namespace=salted)
    ground.evict(2)
    ground.reset()
    assert watch.named["reset"] == [3 + 5 + 1]


def slow(watch: Stopwatch, nodes: int) -> None:
    """A scene with one call that takes 6 ms and names nothing."""

    def busy() -> None:
        began = thread_time()
        while thread_time() - began < 0.006:
            pass

    watch.time("evict", lambda: None, nodes)
    watch.time("evict", busy, 0)


def test_command_reports_a_call_above_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command exits with 1, says which call it was, and writes the times."""
    monkeypatch.setattr(cliffs, "SCENES", {"slow": slow})
    out = tmp_path / "cliffs.json"
    assert main(["lab", "bench", "cliffs", "--nodes", "100", "--json", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "BROKEN" in printed
    assert "slow: 1 of 2 calls of evict are above their limit" in " ".join(printed.split())
    (times,) = json.loads(out.read_text(encoding="utf-8"))["nodes"]["100"]
    assert (times["operation"], times["calls"], times["over"]) == ("evict", 2, 1)
    assert times["holds"] is False


def test_command_plays_the_chosen_scenes(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the named scenes are played, once for each size."""
    options = ["--nodes", "100", "--nodes", "200", "--scene", "touched"]
    assert main(["lab", "bench", "cliffs", *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("touched: match") == 2
    assert "wide" not in printed


def test_command_refuses_an_unknown_scene(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown scene is a usage error that lists the scenes."""
    assert main(["lab", "bench", "cliffs", "--scene", "waterfall"]) == 2
    assert "waterfall is no scene; choose from wide," in " ".join(
        capsys.readouterr().err.replace("│", " ").split()
    )


def test_table_of_children_survives_its_growth() -> None:
    """Children are found while the table grows by segments and while they leave it."""
    count = 20_000
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=count), events=False))
    for number in range(count):
        full, _, _ = cache.allocate(1)
        cache.insert(np.array([number], np.uint32), 0, full)
        if number % 5_000 == 0:
            cache.tree.check()
    cache.tree.check()
    assert all(
        cache.match(np.array([number], np.uint32)).device_pages for number in range(0, count, 7)
    )
    cache.evict(count - 10)
    cache.tree.check()
    cache.reset()
    cache.tree.check()
    assert cache.stats().nodes == 0


def test_cuts_of_scattered_slots_keep_their_order() -> None:
    """A prompt whose slots are in many runs can be cut anywhere, and its slots stay in order."""
    pages = 300
    config = CacheConfig(device_slots=Counts(full=2 * pages), events=False)
    cache = PrefixCache(evolve(config))
    full, _, _ = cache.allocate(2 * pages)
    slots = np.concatenate([full[0:200:2], full[200:300], full[599:399:-2]])
    prompt = np.arange(pages, dtype=np.uint32)
    cache.insert(prompt, 0, slots)
    for end in np.random.default_rng(5).permutation(pages)[:100].tolist():
        assert cache.match(prompt[:end]).full.tolist() == slots[:end].tolist()
        cache.tree.check()
    assert cache.match(prompt).full.tolist() == slots.tolist()


def test_locks_of_a_chain_end_in_any_order() -> None:
    """Holds along one path lock it as long as one of them is open, in whatever order they end."""
    pages = 12
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=pages), events=False))
    prompt = np.arange(pages, dtype=np.uint32)
    full, _, _ = cache.allocate(pages)
    cache.insert(prompt, 0, full)
    random = np.random.default_rng(3)
    ends = random.integers(1, pages + 1, 40).tolist()
    receipts = [cache.lock(prompt[:end]) for end in ends]
    left = dict(zip(receipts, ends, strict=True))
    for receipt in random.permutation(receipts).tolist():
        cache.unlock(receipt)
        del left[receipt]
        cache.tree.check()
        longest = max(left.values(), default=0)
        assert cache.tree.usage(0) == (pages - longest, longest)
    assert cache.evict(pages) == [pages, 0, 0]
