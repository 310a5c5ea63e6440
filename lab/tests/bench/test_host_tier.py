"""The contest with a host tier: loads and polls, tails of calls, and the floor of hashing."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from itertools import takewhile

import pytest
from attrs import evolve

import fake_peers
import kvcanon.optimized  # noqa: F401 # Before torch is another.
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.engine import TreeEngine
from kvcanon.lab.bench import hash_floor, tails
from kvcanon.lab.bench.case import BenchCell, HostSetup, RequestStep, WorkloadSource
from kvcanon.lab.bench.child import BenchJob, fill
from kvcanon.lab.bench.contest import ContestPlan, orders, run_contest
from kvcanon.lab.bench.contestants import CONTESTANTS, field
from kvcanon.lab.bench.driver import Driver, EventCounts, MakeDriver, StepTimes
from kvcanon.lab.bench.drivers import sglang_hosted
from kvcanon.lab.bench.throughput import Throughput, measure
from kvcanon.reference import ReferenceCache
from kvcanon.spec.types import WritePolicy

SOURCE = WorkloadSource(conversations=25, seed=3, at_once=20)
REQUESTS = SOURCE.requests()
POLICIES = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)
ALL_FITS, TIGHT_HOST = 1 << 16, 3072
NAMES = {
    "optimized": ("optimized", {}),
    "reference": ("tree", {"cache": "reference"}),
    "sglang": ("sglang", {"core": "rust"}),
}


def cell(policy: WritePolicy, host_tokens: int, *, window: bool = False) -> BenchCell:
    """Return a small device pool with a host tier."""
    full = BenchCell(16, 2048, host=HostSetup(policy, host_tokens, host_tokens // 2))
    return evolve(full, window_tokens=64, swa_tokens=1536) if window else full


@pytest.fixture(autouse=True)
def _peers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_peers.install(monkeypatch)
    monkeypatch.setattr(sglang_hosted, "make_world", fake_peers.hosted_world)


def make_driver(name: str, of: BenchCell) -> Driver[object]:
    """Make the driver of a cache by name."""
    module, options = NAMES[name]
    make: MakeDriver[object] = import_module(f"kvcanon.lab.bench.drivers.{module}").make_driver
    return make(of, options)


def serve(name: str, of: BenchCell) -> tuple[list[int], StepTimes, int]:
    """Serve generated chat; returns the hits, the times, and the tokens that were loaded."""
    driver, taken = make_driver(name, of), StepTimes()
    hits = [driver.serve(driver.prepare(request), taken) for request in REQUESTS]
    return hits, taken, driver.loaded_tokens


@cache
def ideal_hits() -> list[int]:
    """Return the hits of each request in a cache that drops nothing."""
    seen: set[fake_peers.Page] = set()
    hits = []
    for request in REQUESTS:
        pages = fake_peers.pages_of(request.make_tokens(), request.namespace, 16)
        found = list(takewhile(seen.__contains__, pages[: (request.length_tokens - 1) // 16]))
        hits.append(len(found) * 16)
        seen.update(pages)
    return hits


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
@pytest.mark.parametrize("name", NAMES)
def test_driver_loads_what_the_device_had_to_evict(name: str, policy: WritePolicy) -> None:
    """With a host for everything each request hits all that was ever inserted."""
    served, taken, loaded = serve(name, cell(policy, ALL_FITS))
    assert served == ideal_hits()
    assert 0 < loaded < sum(served)
    assert 0 < len(taken.load) < len(REQUESTS)
    assert len(taken.poll) == len(REQUESTS)


@pytest.mark.parametrize("window", [False, True], ids=["full", "full + swa"])
@pytest.mark.parametrize("policy", POLICIES)
def test_our_caches_and_our_engine_find_the_same(policy: WritePolicy, window: bool) -> None:
    """Under pressure on both tiers both caches hit and load what a replay does."""
    pressed = cell(policy, TIGHT_HOST, window=window)
    engine = TreeEngine(ReferenceCache(pressed.config()), stamped=False)
    for request in REQUESTS:
        engine.serve(request)
    tally = engine.tally
    for name in ("reference", "optimized"):
        served, _, loaded = serve(name, pressed)
        assert sum(served) == tally.device_hit_tokens + tally.host_hit_tokens
        assert loaded == tally.host_hit_tokens > 0
    assert sum(served) < sum(ideal_hits())


@pytest.mark.parametrize("name", NAMES)
def test_each_call_is_timed_once(name: str) -> None:
    """Loads and polls are steps of their own, where there is a host tier."""
    pressed = cell(WritePolicy.WRITE_BACK, TIGHT_HOST)
    _, taken, _ = serve(name, pressed)
    calls = {step: len(times) for step, times in taken.by_step().items()}
    assert calls[RequestStep.POLL] == calls[RequestStep.MATCH] == len(REQUESTS)
    assert 0 < calls[RequestStep.LOAD] < len(REQUESTS)
    assert calls[RequestStep.LOCK] == calls[RequestStep.UNLOCK]
    if name == "sglang":
        return
    _, taken, loaded = serve(name, evolve(pressed, host=None))
    assert loaded == 0
    assert not {RequestStep.LOAD, RequestStep.POLL} & set(taken.by_step())


@pytest.mark.parametrize("name", NAMES)
def test_find_counts_both_tiers(name: str) -> None:
    """A prompt whose end is on the host only is found whole, and nothing is loaded."""
    driver, taken = make_driver(name, cell(WritePolicy.WRITE_BACK, ALL_FITS)), StepTimes()
    for request in REQUESTS:
        driver.serve(driver.prepare(request), StepTimes())
    loaded = driver.loaded_tokens
    for request in REQUESTS:
        whole_pages = (request.length_tokens - 1) // 16 * 16
        assert driver.find(driver.prepare(request), taken) == whole_pages
    assert driver.loaded_tokens == loaded
    assert set(taken.by_step()) == {RequestStep.MATCH}


def test_our_caches_tell_the_same_events() -> None:
    """Events of both tiers are counted by the page, alike."""
    told: dict[str, list[EventCounts]] = {}
    for name in ("reference", "optimized"):
        driver = make_driver(name, evolve(cell(WritePolicy.WRITE_BACK, TIGHT_HOST), events=True))
        told[name] = []
        for request in REQUESTS:
            driver.serve(driver.prepare(request), StepTimes())
            told[name].append(driver.take_events(StepTimes()))
    assert told["reference"] == told["optimized"]


def test_sglang_copies_nothing_and_keeps_its_protocol() -> None:
    """Its loads are started and each layer is told; a load without room leaves the device's hit."""
    driver = make_driver("sglang", cell(WritePolicy.WRITE_BACK, ALL_FITS))
    for request in REQUESTS:
        driver.serve(driver.prepare(request), StepTimes())
    (fake,) = fake_peers.UnifiedRadixCache.made
    assert isinstance(fake, fake_peers.HostedCache)
    assert fake.cache_controller.io_backend == sglang_hosted.BACKEND
    assert fake.layers == [0, 1] * fake.loads
    assert fake.polls == len(REQUESTS)
    assert not fake.pages.locked


def test_load_without_room_is_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be loaded is computed: it counts as no hit, and as not loaded."""
    monkeypatch.setattr(
        fake_peers.HostedCache, "init_load_back", lambda _, params: (0, params.req.last_node)
    )
    served, taken, loaded = serve("sglang", cell(WritePolicy.WRITE_BACK, ALL_FITS))
    assert taken.load
    assert loaded == 0
    assert sum(served) < sum(ideal_hits())


def test_vllm_has_no_host_tier(tmp_path: object) -> None:
    """The contest leaves it out, and its driver refuses."""
    found = import_module("kvcanon.lab.bench.drivers.vllm")
    with pytest.raises(UsageError, match=r"^vLLM is measured without a host tier$"):
        found.make_driver(cell(WritePolicy.WRITE_BACK, ALL_FITS), {})
    with pytest.raises(UsageError, match=r"^vllm: has no host tier$"):
        field(["vllm"], tmp_path, host_tier=True)  # type: ignore[arg-type]


def test_cells_pass_through_json() -> None:
    """A job with a host tier is equal after a round trip."""
    job = BenchJob("tails", "optimized", {}, cell(POLICIES[2], 64), SOURCE, 1.0, nodes=100)
    assert BenchJob.from_json(json.loads(json.dumps(job.to_json()))) == job
    assert str(job.cell) == "full, page 16, write_back"


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_tails_are_of_a_full_tree_of_that_size(policy: WritePolicy | None) -> None:
    """The tree has its nodes when the timed requests begin, and half of these come again."""
    host = HostSetup(policy, 1) if policy else None
    of = tails.tail_cell(host, 600)
    seen: list[int] = []

    def make(asked: BenchCell, options: dict[str, str]) -> Driver[object]:
        driver = make_driver("optimized", asked)
        inner, tree = driver.serve, driver._cache  # type: ignore[attr-defined]

        def counted(prompt: object, taken: StepTimes) -> int:
            seen.append(tree.stats().nodes)
            return inner(prompt, taken)

        driver.serve = counted  # type: ignore[method-assign]
        return driver

    measured = tails.tails(make, of, {}, 600, 60.0, requests=400)  # type: ignore[arg-type]
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
    make = import_module("kvcanon.lab.bench.drivers.optimized").make_driver
    measured = tails.tails(make, of, {}, 200, -1.0)
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
    empty = Throughput("core", 1, 1, 1, 1, 1, 1, 1.0).to_json()
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
    fill(BenchJob("tails", "optimized", {}, cell(POLICIES[0], 64), SOURCE, 1.0, nodes=700))
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
    make = import_module("kvcanon.lab.bench.drivers.optimized").make_driver
    measured = measure(make, roomy, {}, REQUESTS, 60)
    assert asked == [(measured.stored_pages, 16)]
    assert measured.hash_share == 3.0 / measured.cache_seconds
    assert measure(make, evolve(roomy, events=False), {}, REQUESTS, 60).hash_share == 0


def test_command_measures_each_policy(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    """Each policy is a cell; the report has the calls, the loads, and the trees of --tails."""
    file = f"{tmp_path}/bench.json"
    asked = ["bench", "tree", "optimized", "reference", "--rounds", "1", "--page-size", "16"]
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


def test_policy_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong policy exits with 2 and one line."""
    assert main(["lab", "bench", "tree", "--write-policy", "sometimes"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sometimes" in line
    assert "write_back" in line
