"""The names of the tests: workers that share them out must each see the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from paths import ROOT


def collecting(hash_seed: str) -> subprocess.Popen[str]:
    """A process that prints the names of all tests."""
    given = ["tests", "lab/tests", "--nightly", "--collect-only", "-q", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.nightly
def test_names_do_not_depend_on_time_or_hashes() -> None:
    """A parameter that holds the time, as a gzip header does, ends a run of several workers."""
    first = collecting("0")
    time.sleep(1.5)
    second = collecting("7")
    named = [
        [line for line in each.communicate(timeout=120)[0].splitlines() if "::" in line]
        for each in (first, second)
    ]
    assert len(named[0]) > 1000
    assert named[0] == named[1]
