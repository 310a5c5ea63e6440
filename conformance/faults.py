"""What is wrong with a call: said in one line, without a traceback."""

from __future__ import annotations

import traceback
from pathlib import Path


class Fault(Exception):
    """The call is at fault, or the cache that it names."""


def what_was_raised(error: BaseException) -> str:
    """An exception in one line: its kind, its words, and the line that raised it."""
    words = f"{type(error).__name__}: {error}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename.startswith("<"):
        return words
    return f"{words} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
