"""How much memory this process uses, and the most that it used.

The peak of a process is of its whole life, and importing a peer may need more than its cache ever
does. On Linux the peak is reset before a cache is made.
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
    """Forget the peak so far, where the system can; and return what is in use now, in bytes."""
    gc.collect()
    # As engines do after start: what is there stays, and collections need not look at it again.
    gc.freeze()
    if not _STATUS.exists():
        return peak_bytes()
    _CLEAR.write_text(_SET_BACK_PEAK, encoding="ascii")
    return _field_bytes("VmRSS")


def peak_bytes() -> int:
    """The most memory that was in use since `set_back_peak`."""
    if _STATUS.exists():
        return _field_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, others in KiB.
    return peak if sys.platform == "darwin" else peak * 1024


def _field_bytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (line,) = (each for each in lines if each.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
