"""The contest of caches: what is measured, in which order, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from attrs import asdict, evolve

from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.latency import Latency
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench import child, plot
from kvcanon.lab.bench.case import BenchCell, WorkloadSource
from kvcanon.lab.bench.child import BenchJob
from kvcanon.lab.bench.contest import ContestPlan, Result, in_a_process, orders, run_contest
from kvcanon.lab.bench.contestants import CONTESTANTS, Field, contestant_named, field
from kvcanon.lab.bench.driver import Driver, EventCounts, StepTimes
from kvcanon.lab.bench.drivers.tree import make_driver
from kvcanon.lab.bench.floor import FullHit, full_hit
from kvcanon.lab.bench.growth import PROMPT_PAGES, Point, with_prompt, with_tree
from kvcanon.lab.bench.throughput import Throughput, measure
from kvcanon.lab.cli import bench_tree
from kvcanon.lab.releases.environment import MANIFEST

CELL = BenchCell(page_size=16, pool_tokens=4096)
REFERENCE = {"cache": "reference"}
CHAT = WorkloadSource(conversations=3)
QUICK = ("--conversations", "3", "--rounds", "1", "--page-size", "16", "--no-events")


class Spy:
    """Passes requests on to the reference, and records the results."""

    made: list[Spy]

    def __init__(self, cell: BenchCell, options: Mapping[str, str]) -> None:
        self.cell = cell
        self.driver = make_driver(cell, options)
        self.core = self.driver.core
        self.loaded_tokens = self.spare_pages = 0
        self.served: list[tuple[int, int]] = []
        self.found: list[tuple[int, int]] = []
        self.made.append(self)

    def prepare(self, request: Request) -> Request:
        """Return the request itself."""
        return self.driver.prepare(request)

    def serve(self, prompt: Request, taken: StepTimes) -> int:
        """Serve the request."""
        hit = self.driver.serve(prompt, taken)
        self.served.append((prompt.length_tokens, hit))
        return hit

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events."""
        return self.driver.take_events(taken)

    def find(self, prompt: Request, taken: StepTimes) -> int:
        """Look up the prompt."""
        hit = self.driver.find(prompt, taken)
        self.found.append((prompt.length_tokens, hit))
        return hit


def spy(cell: BenchCell, options: Mapping[str, str]) -> Driver[Request]:
    """Make a spy on the reference."""
    return Spy(cell, options)


@pytest.fixture(autouse=True)
def _no_spies() -> None:
    Spy.made = []


def some(requests_per_second: float = 100.0, requests: int = 100, stored: int = 0) -> Throughput:
    """Return a measurement of one step of a hundred requests, or of fewer."""
    steps = {"insert": Latency(100, 100 / requests_per_second, 3.0, 9.0, 10.0, 11.0)}
    return Throughput("core", requests, 100, 1000, 500, 2**20, 3 * 2**20, 0.5, stored, steps=steps)


def test_measure_counts_all_that_was_served() -> None:
    """Every request is served once, and its tokens and hits are counted."""
    requests = CHAT.requests()
    measured = measure(spy, CELL, REFERENCE, requests, seconds=60)
    *_, last = Spy.made
    assert measured.complete
    assert [length for length, _ in last.served] == [each.length_tokens for each in requests]
    assert measured.hit_tokens == sum(hit for _, hit in last.served) > 0
    assert measured.prompt_tokens == sum(each.length_tokens for each in requests)
    assert measured.steps["match"].calls == len(requests)
    assert measured.core == "ReferenceCache"
    assert measured.peak_bytes >= measured.base_bytes > 0
    assert measured.requests_per_second == len(requests) / measured.cache_seconds


def test_measure_warms_up_another_cache_than_it_measures() -> None:
    """The warm-up runs on a separate, smaller cache."""
    measure(spy, CELL, REFERENCE, CHAT.requests(), seconds=60)
    warm, measured = Spy.made
    assert warm.served
    assert warm.cell.pool_tokens < measured.cell.pool_tokens == CELL.pool_tokens


def test_measure_stops_when_the_time_is_up() -> None:
    """No request begins after the time is up, and the result says so."""
    measured = measure(spy, CELL, REFERENCE, CHAT.requests(), seconds=-1)
    assert measured.requests == measured.prompt_tokens == 0
    assert not measured.complete
    assert measured.requests_per_second == measured.hit_rate == 0


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (BenchCell(16, 64), r"a prompt has \d+ tokens, and the pool 64$"),
        (
            BenchCell(16, 4096, 128, 256),
            r"the window pool 256: beside a locked window it takes \d+$",
        ),
    ],
)
def test_measure_refuses_pools_that_cannot_serve(cell: BenchCell, words: str) -> None:
    """A pool that is too small for a prompt is refused before anything is served."""
    with pytest.raises(UsageError, match=words):
        measure(spy, cell, REFERENCE, CHAT.requests(), seconds=60)


def test_tree_grows_to_its_sizes() -> None:
    """Each size is measured on a tree that has just reached it."""
    points = with_tree(spy, CELL, REFERENCE, sizes=(100, 400))
    _, grown = Spy.made
    assert [point.size for point in points] == [100, 400]
    # 64 pages a prompt, 32 of which the next seven share with it: eleven prompts are 416 pages.
    length = PROMPT_PAGES * 16 + 1
    assert all(each == length for each, _ in grown.served)
    assert [hit for _, hit in grown.served] == [0] + [512] * 7 + [0, 512, 512]
    assert grown.found == [(length, length - 1)] * 600
    assert [point.match.calls for point in points] == [300, 300]
    assert [point.insert.calls for point in points] == [3, 6]
    assert points[1].cache_bytes >= points[0].cache_bytes


def test_prompt_that_is_not_found_whole_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full hit that misses pages is a usage error."""
    monkeypatch.setattr(Spy, "find", lambda *_: 16)
    words = "^ReferenceCache found 16 of a prompt's 1024 tokens in a pool that holds them all$"
    with pytest.raises(UsageError, match=words):
        with_tree(spy, CELL, REFERENCE, sizes=(100,))


def test_prompts_grow_to_their_sizes_and_are_found_whole() -> None:
    """Prompts of each size are inserted anew and then hit whole."""
    points = with_prompt(spy, CELL, REFERENCE, sizes=(10, 100_000))
    _, grown = Spy.made
    assert [point.size for point in points] == [10, 100_000]
    for size, repeats in ((17, 101), (100_001, 10)):
        assert grown.served.count((size, 0)) == repeats
        assert grown.found.count((size, size - 1)) == 3 * repeats


def test_full_hit_is_of_whole_prompts_beside_their_bytes() -> None:
    """Full hits are timed beside a comparison of the same bytes."""
    hit = full_hit(spy, CELL, REFERENCE, prompt_tokens=160, prompts=4)
    _, found = Spy.made
    assert found.served == [(161, 0)] * 4
    assert set(found.found) == {(161, 160)}
    assert (hit.cold.calls, hit.floor_cold.calls) == (4, 4)
    assert hit.hot.calls == hit.floor_hot.calls > 4
    assert FullHit(**json.loads(json.dumps(asdict(hit)))) == hit


def test_caches_take_turns() -> None:
    """In every round each cache has one turn."""
    plan = ContestPlan(CHAT, (CELL, evolve(CELL, page_size=1)), rounds=2)
    both = [CONTESTANTS["optimized"], CONTESTANTS["reference"]]
    asked = [(who.name, order.cell.page_size) for who, order in orders(plan, both)]
    turn = ["optimized", "reference"]
    assert asked == [(name, size) for size in (16, 1) for _ in range(2) for name in turn]
    grown = orders(evolve(plan, cells=(), growth=True), both)
    assert [(who.name, order.what) for who, order in grown] == [
        (name, what) for what in ("full_hit", "tree", "prompt") for name in turn
    ]


def test_results_are_medians_of_the_rounds() -> None:
    """Each figure of a cache is the median of its own rounds."""
    rates = {"optimized": iter([900.0, 300.0, 500.0]), "reference": iter([1.0, 3.0, 2.0])}

    def fill(who: object, order: BenchJob) -> child.Json:
        assert order.what == "requests"
        name = getattr(who, "name", "")
        return asdict(some(next(rates[name])))

    both = [CONTESTANTS["optimized"], CONTESTANTS["reference"]]
    outcome = run_contest(orders(ContestPlan(CHAT, (CELL,)), both), fill)
    (results,) = outcome.cells.values()
    assert [each.contestant for each in results] == ["optimized", "reference"]
    assert [each.requests_per_second for each in results] == [500.0, 2.0]
    assert results[0].p99_us("insert") == 9.0
    assert results[0].p50_us("hash") is None
    assert results[0].cache_bytes == 2 * 2**20
    assert not Result("one", (some(), some(requests=3))).complete


def test_measurements_pass_through_json() -> None:
    """Measurements and jobs are equal after a round trip through JSON."""
    measured = some(stored=7)
    assert Throughput(**json.loads(json.dumps(asdict(measured)))) == measured
    point = Point(5, Latency(1, 1.0, 2.0, 3.0, 4.0, 5.0), Latency(4, 5.0, 6.0, 7.0, 8.0, 9.0), 8)
    assert Point(**json.loads(json.dumps(asdict(point)))) == point
    order = BenchJob("requests", "tree", REFERENCE, evolve(CELL, events=True), CHAT, 3.0)
    assert BenchJob.from_json(json.loads(json.dumps(asdict(order)))) == order


def test_order_is_filled_in_a_process_of_its_own() -> None:
    """A job in a child process has the hits of one in this process."""
    reference = CONTESTANTS["reference"]
    order = BenchJob("requests", "tree", REFERENCE, CELL, CHAT, 60.0)
    measured = Throughput(**in_a_process(Field((reference,), {}))(reference, order))
    requests = CHAT.requests()
    again = measure(make_driver, CELL, REFERENCE, requests, seconds=60)
    assert (measured.requests, measured.hit_tokens) == (again.requests, again.hit_tokens)


def test_process_that_fails_is_told_in_one_line() -> None:
    """A child's last line on standard error is in the error's one line."""
    order = BenchJob("requests", "tree", REFERENCE, BenchCell(16, 64), CHAT, 60.0)
    reference = CONTESTANTS["reference"]
    words = r"^reference, full, page 16: a prompt has \d+ tokens, and the pool 64$"
    with pytest.raises(UsageError, match=words):
        in_a_process(Field((reference,), {}))(reference, order)


def test_trace_without_a_request_is_told_by_its_name(tmp_path: Path) -> None:
    """The error names the empty file."""
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    order = BenchJob("requests", "tree", REFERENCE, CELL, evolve(CHAT, trace=str(empty)), 60.0)
    reference = CONTESTANTS["reference"]
    with pytest.raises(
        UsageError, match=r"^reference, full, page \d+: \S+empty.jsonl: holds no request$"
    ):
        in_a_process(Field((reference,), {}))(reference, order)


@pytest.mark.parametrize("what", ["tree", "prompt", "full_hit"])
def test_child_measures_what_it_is_told(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child runs the measurement that its job names."""
    point = Point(5, Latency(1, 1.0, 2.0, 3.0, 4.0, 5.0), Latency(4, 5.0, 6.0, 7.0, 8.0, 9.0), 8)
    hit = FullHit(1, point.match, point.match, point.match, point.match)
    monkeypatch.setattr(child, "with_tree", lambda *_: [evolve(point, size=1)])
    monkeypatch.setattr(child, "with_prompt", lambda *_: [evolve(point, size=2)])
    monkeypatch.setattr(child, "full_hit", lambda *_: hit)
    filled = child.fill(BenchJob(what, "tree", REFERENCE, CELL, CHAT, 1.0))
    expected = {
        "tree": {"points": [asdict(evolve(point, size=1))]},
        "prompt": {"points": [asdict(evolve(point, size=2))]},
        "full_hit": asdict(hit),
    }
    assert filled == expected[what]


def test_peers_without_an_environment_are_left_out_and_named(tmp_path: Path) -> None:
    """A missing peer is left out with the command that makes its environment."""
    (tmp_path / "sglang-0.5.23").mkdir()
    (tmp_path / "sglang-0.5.23" / MANIFEST).touch()
    entrants = field([], tmp_path)
    there = [each.name for each in entrants.contestants]
    assert there == ["optimized", "reference", "sglang-rust", "sglang-python"]
    assert entrants.missing == {
        "vllm": "no environment; make it with `kvcanon lab peers make vllm==0.33.0`"
    }
    assert set(entrants.stubbed()) == {"sglang==0.5.23"}
    with pytest.raises(UsageError, match=r"^vllm: no environment; make it with"):
        field(["optimized", "vllm"], tmp_path)


def test_any_cache_may_be_measured_by_its_factory() -> None:
    """A factory by module and name is a contestant."""
    anyone = contestant_named("their_module:make")
    assert (anyone.driver, anyone.options) == ("tree", {"cache": "their_module:make"})
    with pytest.raises(UsageError, match="no cache 'nope'; name optimized, reference, sglang-rust"):
        contestant_named("nope")


def test_command_measures_prints_and_writes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The table, the JSON and the plot have every cache in every cell."""
    files = (tmp_path / "bench.json", tmp_path / "bench.svg")
    options = ("--json", str(files[0]), "--plot", str(files[1]), "--peers", str(tmp_path))
    asked = ["lab", "bench", "tree", "optimized", "reference", *QUICK, *options]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert "full, page 16" in printed
    assert "full + swa, page 16" in printed
    rows = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert rows.count("optimized") == rows.count("reference") == 2
    value = json.loads(files[0].read_text(encoding="utf-8"))
    assert [cell["window_tokens"] for cell in value["cells"]] == [0, 512]
    for cell in value["cells"]:
        ours, plain = cell["results"]
        assert (ours["cache"], plain["cache"]) == ("optimized", "reference")
        assert ours["hit_rate"] == plain["hit_rate"] > 0
        assert ours["complete"]
        assert len(ours["runs"]) == 1
    drawn = ET.fromstring(files[1].read_text(encoding="utf-8"))  # noqa: S314 # Ours.
    groups = {each.get("id") for each in drawn.iter("{http://www.w3.org/2000/svg}g")}
    assert {f"panel-{n}-series-{m}" for n in (1, 2) for m in (1, 2)} <= groups


def test_plot_without_matplotlib_exits_2_before_it_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line says what to install, and no round is run for a figure that cannot be drawn."""
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    monkeypatch.setattr(bench_tree, "run_contest", lambda *_: pytest.fail("a round was run"))
    assert (
        main(["lab", "bench", "tree", "reference", *QUICK, "--plot", str(tmp_path / "a.svg")]) == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "kvcanon: --plot needs matplotlib, which is not installed; install kvcanon[plot]"
    )
