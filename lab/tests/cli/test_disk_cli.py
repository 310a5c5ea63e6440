"""`kvcanon lab faults` and `kvcanon lab bench store`: small runs of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import read, read_json
from kvcanon.lab.bench.store_contestants import CONTESTANTS, RAW


def test_faults_counts_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Damages and kills are counted, and nothing is wrong."""
    arguments = ("--trials", "20", "--kills", "2", "--seed", "5")
    found = read_json(capsys, "lab", "faults", *arguments)
    assert found["wrong"] == []
    assert sum(found["trials"].values()) == 22
    assert found["trials"]["kill -9"] == 2
    assert found["found"] > 100


def test_faults_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line says how many things were wrong."""
    printed = read(capsys, "lab", "faults", "--trials", "6", "--kills", "0")
    assert printed.startswith("what was done")
    assert "0 things were wrong" in " ".join(printed.split())


def test_bench_store_measures_every_way(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each way writes and reads back, beside the raw file; a restart is timed."""
    figures = tmp_path / "figures.json"
    arguments = ("--rounds", "2", "--megabytes", "1", "--page-kib", "64", "--restart", "2000")
    printed = read(
        capsys,
        "lab",
        "bench",
        "store",
        "--folder",
        str(tmp_path),
        "--json",
        str(figures),
        *arguments,
    )
    assert "A store with 2,000 pages opens in" in " ".join(printed.split())
    found = json.loads(figures.read_text("utf-8"))
    assert [each["way"] for each in found["ratios"]] == list(CONTESTANTS)
    assert len(found["times"]) == 2 * len(CONTESTANTS)
    (raw,) = [each for each in found["ratios"] if each["way"] == RAW]
    assert raw["write_cpu_ratio"] == raw["read_speed_ratio"] == 1
    assert all(each["write_gb_s"] > 0 for each in found["ratios"])
    assert found["restart"]["pages"] == 2000
    assert not [each for each in tmp_path.iterdir() if each != figures]


@pytest.mark.nightly
def test_bench_store_measures_servers_beside_their_clients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The external tier moves the same bytes as the raw client, over servers that are started."""
    figures = tmp_path / "figures.json"
    stores = ("--store", "redis", "--store", "mooncake", "--folder", str(tmp_path))
    sizes = ("--rounds", "2", "--megabytes", "4", "--page-kib", "64", "--json", str(figures))
    read(capsys, "lab", "bench", "store", *stores, *sizes)
    found = json.loads(figures.read_text("utf-8"))
    assert [each["way"] for each in found["ratios"]] == [
        "redis-py",
        "kvcanon over Redis",
        "Mooncake's client",
        "Mooncake's client with checksums",
        "kvcanon over Mooncake",
    ]
    assert {each["moved_bytes"] for each in found["times"]} == {4 << 20}
    assert found["restart"] is None
