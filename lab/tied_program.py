"""A program that ends with this process, however it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any

from kvcanon.conformance.workers.ending import tied


def run_tied(command: Sequence[str], **options: Any) -> CompletedProcess[str]:  # noqa: ANN401
    """Run a program that ends with this process; returns its status, and all that it said.

    The options are those of `subprocess.run`.
    """
    return subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=tied(),  # It makes two calls of the system.
        **options,
    )
