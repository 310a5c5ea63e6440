"""Runs a command in a copy of this process, which a cache may end as it likes.

`check` plays caches in workers of its own. The other commands that call a cache do so in one
process. If that process ends without an exit code of the command, whatever its own is, the command
failed: `os._exit(0)` in a cache does not look like success.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.ending import end_with, exit_name

FAILED = 1
"""The exit code of Python after an exception."""


def supervised(command: Callable[[], int]) -> int:
    """Run a command and return its exit code. Raises: UsageError: its process ended before."""
    hears, tells = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(hears)
        end_with(parent)
        try:
            code = command()
        except BaseException:  # noqa: BLE001  # This copy must not go back into its caller.
            traceback.print_exc()
            code = FAILED
        os.write(tells, bytes([code]))
        # Buffers are flushed as the command returned; threads of a cache need not end.
        os._exit(code)
    os.close(tells)
    status = _wait_for(child)
    said = os.read(hears, 1)
    os.close(hears)
    if said:
        return said[0]
    ended = exit_name(os.waitstatus_to_exitcode(status))
    raise UsageError(f"the command did not end: something ended its process with {ended}")


def _wait_for(child: int) -> int:
    """Wait for a child, which gets an interrupt as this process does and ends by itself."""
    while True:
        with suppress(KeyboardInterrupt):
            return os.waitpid(child, 0)[1]
