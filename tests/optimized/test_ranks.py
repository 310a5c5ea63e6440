"""Ranks in processes of their own: they agree by torch.distributed, and decide alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy
from paths import HELPERS
from ranks.runs import RANKS, RankRun, run_ranks

SECONDS = 100.0
"""A run takes a few seconds on an idle core; a rank that hangs is ended."""
CONFIG = CacheConfig(
    page_size=4,
    device_slots=Counts(full=600),
    host_slots=Counts(full=500),
    write_policy=WritePolicy.WRITE_THROUGH,
)
RUN = RankRun(CONFIG, limit=160, fail_share=0.05, timeout_s=30.0)


@pytest.mark.parametrize(
    "policy",
    [WritePolicy.WRITE_THROUGH, pytest.param(WritePolicy.WRITE_BACK, marks=pytest.mark.nightly)],
)
def test_ranks_that_agree_decide_alike(policy: WritePolicy) -> None:
    """Four ranks give the same answers, slots, ids and events, though copies end at other times."""
    reports = run_ranks(evolve(RUN, config=evolve(CONFIG, write_policy=policy)), SECONDS)
    assert [each.error for each in reports] == [""] * RANKS
    assert [each.differs_at for each in reports] == [None] * RANKS
    assert all(each.counted == reports[0].counted for each in reports)
    assert reports[0].counted["failed"] > 0
    assert reports[0].counted["load_backs"] > 0
    # Copies failed on single ranks, and all settled them as failed.
    assert len({each.engine_failures for each in reports}) > 1


def test_ranks_that_do_not_agree_differ() -> None:
    """Without agreement the comparison finds a difference: each rank settles what has ended."""
    reports = run_ranks(evolve(RUN, agreeing=False), SECONDS)
    assert [each.error for each in reports] == [""] * RANKS
    assert len({each.differs_at for each in reports}) == 1
    assert reports[0].differs_at is not None


@pytest.mark.nightly
def test_a_trace_that_is_not_there_is_no_difference(tmp_path: Path) -> None:
    """A missing or empty trace ends with exit code 2, and never says that no decision differs."""
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for trace in (tmp_path / "missing.jsonl", empty):
        command = [sys.executable, "-m", "ranks.runs", "--trace", str(trace)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=120, cwd=HELPERS
        )
        assert done.returncode == 2
        assert "ranks.runs: error: " in done.stderr
        assert "decision differs" not in done.stdout
