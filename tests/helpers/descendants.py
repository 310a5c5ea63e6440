"""The processes that a process started, and those that they did, by /proc."""

from __future__ import annotations

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return _state(pid) not in {"", "Z", "X"}


def is_paused(pid: int, seconds: float = 2.0) -> bool:
    """Whether a process is stopped by a signal, which may take a moment to reach it."""
    end = time.monotonic() + seconds
    while _state(pid) != "T" and time.monotonic() < end:
        time.sleep(0.005)
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """The state of a process, as Linux calls it; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def descendants(pid: int) -> set[int]:
    """The ids of all running descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append(int(path.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return {each for each in found if is_running(each)}


def wait_until_ended(pids: set[int], seconds: float) -> set[int]:
    """Wait for processes to end; returns those that still run after so many seconds."""
    end = time.monotonic() + seconds
    while (left := {each for each in pids if is_running(each)}) and time.monotonic() < end:
        time.sleep(0.05)
    return left
