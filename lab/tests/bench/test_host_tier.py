"""The contest with a host tier: tails of calls, the floor of hashing, and the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module

import pytest
from attrs import asdict, evolve

import kvcanon.optimized  # noqa: F401 # Before torch is another.
from kvcanon.conformance.cli import main
from kvcanon.lab.bench import hash_floor, tails
from kvcanon.lab.bench.case import BenchCell, HostSetup, WorkloadSource
from kvcanon.lab.bench.child import BenchJob, fill
from kvcanon.lab.bench.contest import ContestPlan, orders, run_contest
from kvcanon.lab.bench.contestants import CONTESTANTS
from kvcanon.lab.bench.driver import Driver, StepTimes
from kvcanon.lab.bench.drivers.optimized import Int32Prompt, make_driver
from kvcanon.lab.bench.throughput import Throughput, measure
from kvcanon.spec.types import WritePolicy

SOURCE = WorkloadSource(conversations=25, seed=3, at_once=20)
REQUESTS = SOURCE.requests()
POLICIES = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)
ALL_FITS = 1 << 16


def cell(policy: WritePolicy) -> BenchCell:
    """Return a small device pool with a host tier."""
    return BenchCell(16, 2048, host=HostSetup(policy, 64, 32))


def test_cells_pass_through_json() -> None:
    """A job with a host tier is equal after a round trip."""
    job = BenchJob("tails", "optimized", {}, cell(POLICIES[2]), SOURCE, 1.0, nodes=100)
    assert BenchJob.from_json(json.loads(json.dumps(asdict(job)))) == job
    assert str(job.cell) == "full, page 16, write_back"


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_tails_are_of_a_full_tree_of_that_size(policy: WritePolicy | None) -> None:
    """The tree has its nodes when the timed requests begin, and half of these come again."""
    host = HostSetup(policy, 1) if policy else None
    of = tails.tail_cell(host, 600)
    seen: list[int] = []

    def make(asked: BenchCell, options: Mapping[str, str]) -> Driver[Int32Prompt]:
        driver = make_driver(asked, options)
        inner, tree = driver.serve, driver._cache  # type: ignore[attr-defined]

        def counted(prompt: Int32Prompt, taken: StepTimes) -> int:
            seen.append(tree.stats().nodes)
            return inner(prompt, taken)

        driver.serve = counted  # type: ignore[method-assign]
        return driver

    measured = tails.tails(make, of, {}, 600, 60.0, requests=400)
    assert measured.requests == 400 == measured.steps["match"].calls
    timed = seen[-400:]
    # Under write_through_selective only what came twice is on the host.
    least = 250 if policy is WritePolicy.WRITE_THROUGH_SELECTIVE else 540
    assert min(timed) >= least
    assert max(timed) <= 640
    assert 0.4 < measured.hit_rate < 0.8
    assert measured.complete
    assert (measured.loaded_tokens > 0) == (policy is not None)
    assert measured.steps["evict"].calls > 150


def test_tails_end_when_the_time_is_up() -> None:
    """No timed request begins after it, and the result says so; the filling is not cut short."""
    of = tails.tail_cell(HostSetup(POLICIES[0], 1), 200)
    measured = tails.tails(make_driver, of, {}, 200, -1.0)
    assert not measured.complete
    assert (measured.requests, measured.requests_asked) == (0, tails.REQUESTS)
    assert measured.peak_bytes > 0


def test_tails_take_turns_and_are_kept_by_size() -> None:
    """Each size and host tier is one line of jobs, and one row of results."""
    hosts = (HostSetup(WritePolicy.WRITE_BACK, 5), None)
    plan = ContestPlan(SOURCE, (), tail_nodes=(600, 900), tail_hosts=hosts)
    both = [CONTESTANTS["optimized"], CONTESTANTS["sglang-rust"]]
    jobs = orders(plan, both)
    assert [(who.name, job.nodes, job.cell.host is None) for who, job in jobs] == [
        (who.name, nodes, host is None) for nodes in (600, 900) for host in hosts for who in both
    ]
    empty = asdict(Throughput("core", 1, 1, 1, 1, 1, 1, 1.0))
    outcome = run_contest(jobs, lambda *_: empty)
    assert [(nodes, one.host is None) for nodes, one in outcome.tails] == [
        (600, False),
        (600, True),
        (900, False),
        (900, True),
    ]
    assert not outcome.cells


def test_child_measures_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child passes on the nodes of its job."""
    asked: list[object] = []
    empty = Throughput("core", 1, 1, 1, 1, 1, 1, 1.0)
    child = import_module("kvcanon.lab.bench.child")

    def measured(*given: object) -> Throughput:
        asked.append(given[3])
        return empty

    monkeypatch.setattr(child, "tails", measured)
    fill(BenchJob("tails", "optimized", {}, cell(POLICIES[0]), SOURCE, 1.0, nodes=700))
    assert asked == [700]


@pytest.mark.parametrize(("page_size", "blocks"), [(1, 1), (5, 1), (6, 2), (16, 2), (64, 5)])
def test_blocks_of_a_page(page_size: int, blocks: int) -> None:
    """A message is the parent's hash, the tokens, and at least nine bytes of padding."""
    assert hash_floor.page_blocks(page_size) == blocks
    assert (32 + 4 * page_size + 9 + 63) // 64 == blocks


def test_floor_is_the_time_of_as_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take as long as their share of a sample that is hashed in one call."""
    times = iter([3.0, 2.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(hash_floor, "_seconds", lambda _: next(times))
    pages = hash_floor.SAMPLE_BYTES // 64
    assert hash_floor.sha256_seconds(pages, 16) == 2 * 2.0
    assert hash_floor.sha256_seconds(0, 16) == 0


def test_share_counts_the_pages_that_were_inserted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that hit are not hashed again; without events nothing is."""
    throughput = import_module("kvcanon.lab.bench.throughput")
    asked: list[tuple[int, int]] = []

    def seconds(pages: int, page_size: int) -> float:
        asked.append((pages, page_size))
        return 3.0 * bool(pages)

    monkeypatch.setattr(throughput, "sha256_seconds", seconds)
    roomy = BenchCell(16, ALL_FITS, events=True)
    measured = measure(make_driver, roomy, {}, REQUESTS, 60)
    assert asked == [(measured.stored_pages, 16)]
    assert measured.hash_share == 3.0 / measured.cache_seconds
    assert measure(make_driver, evolve(roomy, events=False), {}, REQUESTS, 60).hash_share == 0


def test_command_measures_each_policy(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    """Each policy is a cell; the report has the calls, the loads, and the trees of --tails."""
    file = f"{tmp_path}/bench.json"
    asked = ["lab", "bench", "tree", "optimized", "reference", "--rounds", "1", "--page-size", "16"]
    asked += ["--conversations", "12", "--at-once", "12", "--pool-tokens", "1024", "--window", "0"]
    asked += ["--write-policy", "write_through", "--write-policy", "write_back", "--events"]
    asked += ["--tails", "--nodes", "100", "--json", file, "--peers", str(tmp_path)]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    for words in (
        "full, page 16, write_through, events",
        "full, page 16, write_back, events",
        "Tree of 100 nodes, full, page 16, write_back",
        "Of SHA-256 alone: optimized",
    ):
        assert words in printed
    with open(file, encoding="utf-8") as written:  # noqa: PTH123 # A path of pytest's.
        value = json.load(written)
    assert [each["host"]["write_policy"] for each in value["cells"]] == [
        "write_through",
        "write_back",
    ]
    assert {each["host"]["tokens"] for each in value["cells"]} == {2048}
    assert [each["nodes"] for each in value["tails"]] == [100, 100]
    for each in value["cells"]:
        ours, plain = each["results"]
        assert (
            ours["hit_rate"] == plain["hit_rate"] > ours["loaded_rate"] == plain["loaded_rate"] > 0
        )
        assert set(ours["runs"][0]["steps"]) >= {"load", "poll", "evict"}
        assert ours["hash_share"] > 0
