"""`bench tiers`: what each tier keeps, what is counted, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import usage_error
from in_peer import peer
from kvcanon.conformance.cli import main
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.lab.bench.case import BenchCell, WorkloadSource
from kvcanon.lab.bench.child import BenchJob
from kvcanon.lab.bench.contest import in_a_process
from kvcanon.lab.bench.contestants import VLLM, Contestant, Field
from kvcanon.lab.bench.tier_hits import NO_HOST, ONE_LRU, TierSizes, tier_hits
from kvcanon.lab.bench.tier_jobs import HITS
from kvcanon.lab.bench.tier_speed import tier_times
from kvcanon.lab.bench.tiers import SIMULATED

SIZES = TierSizes(block_tokens=8, device_blocks=256, host_blocks=(256, 1024))
EAGER, LAZY, EXCLUSIVE = (
    f"{each}, simulated" for each in ("SimpleCPU eager", "SimpleCPU lazy", "exclusive")
)


def rates(conversations: int = 120) -> dict[tuple[str, int], float]:
    """The hit rate of each simulated tier at each size, on generated chat."""
    requests = Chat(conversations=conversations, seed=0).requests()
    found = tier_hits(requests, SIZES, SIMULATED)
    return {(each.tier, each.host_blocks): each.hit_rate for each in found}


def test_what_is_kept_once_is_found_more_often() -> None:
    """A tier that drops what it loads finds more than one that keeps it, and less than one LRU."""
    found = rates()
    for size in SIZES.host_blocks:
        assert found[NO_HOST, 0] < found[EAGER, size] < found[ONE_LRU, size]
        assert found[EXCLUSIVE, size] <= found[ONE_LRU, size]
    assert found[EXCLUSIVE, 256] > found[LAZY, 256] > found[EAGER, 256] + 0.02


def test_one_lru_is_a_device_of_both_sizes() -> None:
    """What one LRU over both finds is what a device finds that is as large as both."""
    requests = Chat(conversations=60, seed=1).requests()
    (alone, *_) = tier_hits(requests, TierSizes(8, 512, (1,)), {})
    both = {each.tier: each for each in tier_hits(requests, TierSizes(8, 256, (256,)), {})}
    assert both[ONE_LRU].hit_rate == alone.hit_rate
    assert alone.tier == NO_HOST


def test_times_are_of_requests_that_load() -> None:
    """The host is full when requests are timed, so that a part of them is loaded."""
    for each in tier_times(SIMULATED, host_blocks=2048, requests=20, seed=0):
        assert each.request_us > 0
        assert each.loaded_rate > 0
        assert each.calls_us["match"] > 0


def test_the_command_prints_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without an environment of vLLM its tiers are left out, and a line says so."""
    file = tmp_path / "figures.json"
    arguments = ["--limit", "40", "--block-tokens", "8", "--device-tokens", "2048", "--host", "1"]
    code = main(
        [
            *("lab", "bench", "tiers", "--peers", str(tmp_path)),
            *(*arguments, "--no-times", "--json", str(file)),
        ]
    )
    printed = capsys.readouterr().out
    assert code == 0
    assert ONE_LRU in printed
    assert "vLLM's own tiers are left out" in printed
    assert {each["tier"] for each in json.loads(file.read_text())["hits"]} > set(SIMULATED)


def test_a_size_of_no_block_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A device that holds no block is refused."""
    problem = usage_error(capsys, "lab", "bench", "tiers", "--device-tokens", "100")
    assert "--device-tokens 100 holds no block of 512" in problem


@pytest.mark.nightly
def test_rules_that_were_read_are_those_that_run() -> None:
    """VLLM's own eager tier finds what its rules find, within half a point."""
    there = peer(VLLM.name)
    where = Contestant("bench tiers", "", release=VLLM)
    job = BenchJob(
        HITS,
        "",
        {"hosts": "1,4"},
        BenchCell(8, 2048),
        WorkloadSource(conversations=120, seed=0),
        0.0,
    )
    found = in_a_process(Field((where,), {VLLM.name: there}))(where, job)["hits"]
    rate = {(each["tier"], each["host_blocks"]): each["hit_rate"] for each in found}
    for size in (256, 1024):
        assert rate["SimpleCPU eager, vLLM 0.33.0", size] == pytest.approx(
            rate[EAGER, size], abs=0.005
        )
