"""`kvcanon lab bench engine`: what it prints, and what it says where it cannot measure."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import read, usage_error
from in_peer import peer
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.child import BenchJob, Json
from kvcanon.lab.bench.contestants import Contestant
from kvcanon.lab.cli import bench_engine
from kvcanon.lab.torch_device import require_device

RELEASE = "sglang==0.5.23"


def test_without_sglang_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SGLang is missing one line names it, and the command that makes an environment."""
    monkeypatch.setattr(bench_engine, "find_spec", lambda _: None)
    problem = usage_error(capsys, "lab", "bench", "engine", "--peers", str(tmp_path))
    assert "needs SGLang 0.5.23" in problem
    assert "kvcanon lab peers make sglang==0.5.23" in problem


def test_an_unknown_core_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A core of no name that it knows is refused."""
    assert "no core 'rusty'" in usage_error(capsys, "lab", "bench", "engine", "rusty")


def test_a_missing_device_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A device that torch does not have is named, and so is what a device does not go with."""
    usage = ("lab", "bench", "engine", "kvcanon", "--device", "cuda:99")
    problem = usage_error(capsys, *usage, "--write-policy", "write_back")
    assert "--device cuda:99 times requests without HiCache" in problem
    with pytest.raises(UsageError, match="--device cuda:99: torch cannot allocate there: "):
        require_device("cuda:99")


def answered(job: BenchJob, cores: list[str]) -> Json:
    """What a process that measures might answer."""
    if job.what in {"engine_memory", "engine_memory_short"}:
        each = 8.0 if cores == ["kvcanon"] else 16.0
        sizes = {"tree_bytes": 1 << 20, "cached_tokens": 9, "bytes_per_token": each}
        return {"core": cores[0], **sizes}
    if job.what == "engine_stalls":
        longest = {"evict": 1.25, "collect": 170.5}
        return {"core": cores[0], "cached_prompts": 7, "longest_ms": longest}
    return {
        "cores": [
            {
                "core": core,
                "request_us": 30.0 + 10 * at,
                "sent_us": 50.0 + 40 * at,
                "hit_rate": 0.5,
                "steps_us": {"match": 3} | ({"send": 20} if job.cell.events else {}),
            }
            for at, core in enumerate(cores)
        ]
    }


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[BenchJob]:
    """The jobs that were run."""
    found: list[BenchJob] = []

    def fill(contestant: Contestant, job: BenchJob) -> Json:
        assert contestant.driver == "sglang_engine"
        found.append(job)
        return answered(job, job.options["cores"].split(","))

    here = Contestant("bench engine", "sglang_engine")
    monkeypatch.setattr(bench_engine, "_runner", lambda _, **__: (fill, here))
    return found


def test_pools_may_be_on_a_device(capsys: pytest.CaptureFixture[str], jobs: list[BenchJob]) -> None:
    """Every measured cache has its pools there, and its name says so."""
    options = ("--page-size", "16", "--device", "cuda", "--no-events")
    printed = read(capsys, "lab", "bench", "engine", "kvcanon", "rust", *options)
    assert [job.cell.device for job in jobs] == ["cuda", "cuda"]
    assert "full + swa, page 16, cuda" in printed


def test_it_measures_every_case_and_prints_shares(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, jobs: list[BenchJob]
) -> None:
    """Each case is a job for all cores; memory and stalls are jobs for each core but the floor."""
    found = tmp_path / "found.json"
    asked = (
        "kvcanon rust floor --page-size 16 --memory --stalls"
        " --write-policy none --write-policy write_through"
    )
    printed = read(capsys, "lab", "bench", "engine", *asked.split(), "--json", str(found))
    cells = [str(job.cell) for job in jobs if job.what == "engine_speed"]
    assert cells == [
        f"{components}, page 16{policy}{events}"
        for events in ("", ", events")
        for policy in ("", ", write_through")
        for components in ("full", "full + swa")
    ]
    others = [job for job in jobs if job.what != "engine_speed"]
    alone = [(job.what, str(job.cell), job.options["cores"]) for job in others]
    memory = [
        (what, f"{components}, page 16", core)
        for what in ("engine_memory", "engine_memory_short")
        for components in ("full", "full + swa")
        for core in ("kvcanon", "rust")
    ]
    stalls = [("engine_stalls", "full, page 1", core) for core in ("kvcanon", "rust")]
    assert alone == memory + stalls
    assert "prompts of 1,200 to 3,000 tokens" in printed
    assert "prompts of 40 to 80 tokens" in printed
    for figure in ("0.75", "0.50", "1.25", "170.50", "90.0", "0.56"):
        assert figure in printed
    assert printed.count("us, sent") == sum(job.cell.events for job in jobs) == 4
    assert len(json.loads(found.read_text("utf-8"))["measured"]) == len(jobs)


@pytest.mark.nightly
def test_it_runs_in_sglangs_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The cores and the floor are measured, and the floor takes the least."""
    folder, found = peer(RELEASE).folder.parent, tmp_path / "found.json"
    asked = "kvcanon rust floor --page-size 16 --no-window --requests 64 --rounds 1"
    files = ("--peers", str(folder), "--json", str(found))
    read(capsys, "lab", "bench", "engine", *asked.split(), *files)
    for each in json.loads(found.read_text("utf-8"))["measured"]:
        rows = {row["core"]: SimpleNamespace(**row) for row in each["found"]["cores"]}
        assert set(rows) == {"kvcanon", "rust", "floor"}
        assert 0 < rows["floor"].request_us < rows["kvcanon"].request_us
        for row in rows.values():
            assert (row.sent_us > row.request_us) == ("events" in each["cell"])
        assert rows["floor"].hit_rate == rows["kvcanon"].hit_rate > 0
