"""What a measurement was run with, as it is written beside its figures.

It imports the standard library alone: `make gpu` runs where little else is.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kvcanon import __version__
from kvcanon.commit import commit

CPU_INFO = Path("/proc/cpuinfo")


def run_record(command: str = "") -> dict[str, object]:
    """The command, the commit, the date (UTC) and the machine of this run, as a value for JSON.

    The command is that of this process if none is given. The load is that of the last minute.
    """
    return {
        "command": command or shlex.join(["kvcanon", *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "cores_used": _cores_used(),
            "real_time": _is_real_time(),
            "processor": _processor(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1),
        },
    }


def with_run(value: Mapping[str, object], command: str = "") -> dict[str, object]:
    """Figures with what they were measured with, as a file of figures has them."""
    return {"kvcanon": __version__, "run": run_record(command), **value}


def _cores_used() -> int | None:
    """The cores that this process may use; fewer than there are under `taskset`."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _is_real_time() -> bool:
    """Whether Linux runs this process at real-time priority, as under `chrt`."""
    if not hasattr(os, "sched_getscheduler"):
        return False
    return os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR}


def _processor() -> str:
    """The processor's name; empty if the system does not say it."""
    lines = CPU_INFO.read_text("utf-8").splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else ""
