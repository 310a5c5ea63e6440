"""Runs Python in the environment of a peer, where a developer has made it.

`KVCANON_PEERS` names the folder of environments, if it is not the usual one. Tests that need one
are marked `nightly`, and fail where it is not there.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvcanon.lab.releases.environment import Peer, peers_in, usual_folder

PLAY = """
from kvcanon.conformance import JudgeConfig, draw_case, play
broken = set()
for seed in range({cases}):
    case = draw_case(seed=seed, offer=ADAPTER.offer)
    for finding in play(case, [ADAPTER], JudgeConfig(black_box=True))[0]:
        broken |= set(finding.broken) or {{finding.name}}
print(sorted(broken))
"""


def peer(release: str) -> Peer:
    """Return the environment of a release, or fail the test."""
    found = peers_in(_folder()).get(release)
    if found is None:
        pytest.fail(
            f"{release} has no environment in {_folder()}; `kvcanon lab peers make` makes it"
        )
    return found


def has_peer(release: str) -> bool:
    """Whether there is an environment of a release."""
    return release in peers_in(_folder())


def _folder() -> Path:
    return Path(os.environ.get("KVCANON_PEERS") or usual_folder())


def run_in(release: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run its Python with arguments."""
    there = peer(release)
    command = [str(there.python), *arguments]
    return subprocess.run(
        command, env=there.variables, capture_output=True, text=True, check=False, timeout=240
    )


@contextmanager
def started_in(
    release: str, *arguments: str, log: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Run its Python with pipes to stdin and stdout, and kill it at the end."""
    there = peer(release)
    with ExitStack() as stack:
        errors = None if log is None else stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            [str(there.python), "-W", "ignore", *arguments],
            env=there.variables | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        stack.callback(process.communicate)
        stack.callback(process.kill)
        yield process


def line_of(process: subprocess.Popen[str], begins: str) -> str:
    """The next line of a process that begins so; it may not end before."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(begins):
            return line
    raise AssertionError(f"it ended without a line that begins with {begins!r}")


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a process go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def broken_in(release: str, code: str, cases: int = 40) -> set[str]:
    """Run code that plants a fault and defines ADAPTER; return the laws that cases break."""
    done = run_in(release, "-W", "ignore", "-c", code + PLAY.format(cases=cases))
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))
