"""Kills a command, and says which of its processes are left."""

from __future__ import annotations

import os
import subprocess
import time
from tempfile import TemporaryFile

from command_line import KVCANON
from descendants import descendants, wait_until_ended
from paths import HELPERS, ROOT


def left_after_a_kill(arguments: tuple[str, ...], least: int) -> set[int]:
    """Kill a command that has so many processes at work; returns those that outlive it by 10 s."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}:{HELPERS}"}
    with (
        TemporaryFile() as said,
        subprocess.Popen(
            [*KVCANON, *arguments], cwd=ROOT, env=environment, stdout=said, stderr=said
        ) as process,
    ):
        end = time.monotonic() + 60
        while len(found := descendants(process.pid)) < least and time.monotonic() < end:
            if process.poll() is not None:
                said.seek(0)
                raise AssertionError(f"ended with {process.returncode}: {said.read().decode()}")
            time.sleep(0.05)
        assert len(found) >= least
        time.sleep(3)  # The workers are at their jobs by now.
        found |= descendants(process.pid)
        process.kill()
    return wait_until_ended(found, 10)
