"""`kvcanon lab bench engine --server`: what it runs and prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import read, usage_error
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench import engine_jobs
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.child import BenchJob, Json
from kvcanon.lab.bench.contestants import Contestant
from kvcanon.lab.bench.engine_jobs import engine_job
from kvcanon.lab.bench.server_contest import CoreUnderLoad, ServerLoad
from kvcanon.lab.bench.server_load import LoadFigures
from kvcanon.lab.cli import bench_engine

CELL = BenchCell(page_size=1, pool_tokens=1024)


def figures(requests_per_second: float, hit_rate: float = 0.9) -> LoadFigures:
    """What a server did in a round."""
    waits = tuple(float(wait) for wait in range(10, 110))
    return LoadFigures(requests_per_second, waits, hit_rate, cache_us=200, cache_share=0.0312)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[BenchJob]:
    """The jobs that were run, each of which gives figures of two rounds."""
    found: list[BenchJob] = []

    def fill(contestant: Contestant, job: BenchJob) -> Json:
        assert contestant.driver == "sglang_engine"
        found.append(job)
        cores = [
            CoreUnderLoad(core, [figures(100 - 10 * at), figures(100 - 20 * at)])
            for at, core in enumerate(job.options["cores"].split(","))
        ]
        return {"cores": [each.to_json(cores[0]) for each in cores]}

    here = Contestant("bench engine", "sglang_engine")
    monkeypatch.setattr(bench_engine, "_runner", lambda _, server: (fill, here) if server else None)
    return found


def test_it_prints_rates_waits_hits_and_shares(
    capsys: pytest.CaptureFixture[str], jobs: list[BenchJob], tmp_path: Path
) -> None:
    """One configuration unless more are named; ratios are of one round, with their spread."""
    file = tmp_path / "found.json"
    options = ("--server", "--clients", "3", "--rounds", "2", "--json", str(file))
    lines = read(capsys, "lab", "bench", "engine", *options).splitlines()
    (job,) = jobs
    assert (job.what, str(job.cell)) == ("engine_server", "full, page 1")
    assert job.options["cores"] == "kvcanon,rust,python"
    assert "full, page 1, 3 requests at a time" in lines
    rust = next(line.split() for line in lines if line.startswith("rust"))
    assert rust == [
        "rust",
        "85.0",
        "1.181",
        "1.111",
        "1.250",
        "59.5",
        "109.0",
        "0.9000",
        "200",
        "3.12%",
    ]
    assert not any("allocator" in line for line in lines)
    measured = json.loads(file.read_text("utf-8"))["measured"]
    assert len(measured[0]["found"]["cores"][1]["rounds"]) == 2


def test_every_named_configuration_is_measured(
    capsys: pytest.CaptureFixture[str], jobs: list[BenchJob]
) -> None:
    """Pages, a window, events and tiers are those of the options; without a cache all is one."""
    read(
        capsys,
        *("lab", "bench", "engine", "kvcanon", "none", "--server", "--window", "--events"),
        *("--page-size", "16", "--page-size", "64", "--write-policy", "write_back"),
    )
    assert [str(job.cell) for job in jobs] == [
        f"full + swa, page {size}, write_back, events" for size in (16, 64)
    ]
    assert {job.options["cores"] for job in jobs} == {"kvcanon,none"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--memory",), "leave the others out"),
        (("--stalls",), "leave the others out"),
        (("--no-speed",), "leave the others out"),
        (("floor",), "no core 'floor'; name kvcanon, rust, python, none"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], jobs: list[BenchJob], options: tuple[str, ...], words: str
) -> None:
    """One line, and nothing is run."""
    assert words in usage_error(capsys, "lab", "bench", "engine", "--server", *options)
    assert not jobs


def test_without_sglang_it_says_how_to_get_servers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the command that makes an environment in the same folder."""
    monkeypatch.setattr(bench_engine, "find_spec", lambda _: None)
    problem = usage_error(capsys, "lab", "bench", "engine", "--server", "--peers", str(tmp_path))
    command = f"`python -m kvcanon.lab.servers --environment --peers {tmp_path}`"
    assert problem.endswith(command)


def test_an_environment_for_caches_alone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kvcanon lab peers make` installs what a cache needs; a server needs more."""
    monkeypatch.setattr(engine_jobs, "find_spec", lambda name: None if name == "xgrammar" else name)
    with pytest.raises(UsageError, match=r"needs xgrammar, .*--environment --peers"):
        engine_job("engine_server", CELL, {}, 0)


def test_logs_are_kept_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the servers is removed once all have served, and not before."""
    seen: list[Path] = []

    def measure(load: ServerLoad, folder: Path) -> list[CoreUnderLoad]:
        seen.append(folder)
        if load.seed:
            raise UsageError("it failed")
        return [CoreUnderLoad("kvcanon", [figures(1)])]

    monkeypatch.setattr(engine_jobs, "measure_servers", measure)
    monkeypatch.setattr(engine_jobs, "require_server", lambda: None)
    options = {"cores": "kvcanon", "requests": "1", "clients": "1", "rounds": "1"}
    engine_job("engine_server", CELL, options, 0)
    with pytest.raises(UsageError, match="it failed"):
        engine_job("engine_server", CELL, options, 1)
    assert [folder.exists() for folder in seen] == [False, True]
    seen[1].rmdir()
