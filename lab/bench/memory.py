"""How much memory this process uses, and its peak.

A process's peak covers its whole life, and importing a peer may need more memory than its cache
ever does. On Linux the peak is reset before a cache is made.
"""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_SET_BACK_PEAK = "5"


def set_back_peak() -> int:
    """Reset the peak if the system can; returns the memory in use now, in bytes."""
    gc.collect()
    # As engines do after start: later garbage collections skip the existing objects.
    gc.freeze()
    if not _STATUS.exists():
        return peak_bytes()
    _CLEAR.write_text(_SET_BACK_PEAK, encoding="ascii")
    return _field_bytes("VmRSS")


def resident_bytes(process: int | None = None) -> int:
    """Return the memory in use now, in bytes; the peak where the system tells no more.

    Of another process only where the system tells it.
    """
    if process is not None:
        return _field_bytes("VmRSS", Path(f"/proc/{process}/status"))
    return _field_bytes("VmRSS") if _STATUS.exists() else peak_bytes()


def peak_bytes() -> int:
    """Return the peak memory since `set_back_peak`, in bytes."""
    if _STATUS.exists():
        return _field_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, others in KiB.
    return peak if sys.platform == "darwin" else peak * 1024


def _field_bytes(name: str, status: Path = _STATUS) -> int:
    lines = status.read_text(encoding="ascii").splitlines()
    (line,) = (each for each in lines if each.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
