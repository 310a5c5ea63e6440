"""A stdout that outlives its reader, as in `kvcanon check ... | head -1`, and takes any text.

The command goes on to its end, and its exit code is that of its verdict. What it prints after the
reader is gone goes nowhere. Letters that the encoding of stdout lacks are escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class _LastingStdout:
    """Writes to another stream until its reader is gone; then to nowhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        """Write text; all of it, if there is no reader."""
        try:
            self._out.write(self._encodable(text))
        except BrokenPipeError:
            self._to_nowhere()
        return len(text)

    def flush(self) -> None:
        """Write what is kept back."""
        try:
            self._out.flush()
        except BrokenPipeError:
            self._to_nowhere()

    def _encodable(self, text: str) -> str:
        """Text with what the encoding lacks in other letters."""
        encoding = self._out.encoding or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _to_nowhere(self) -> None:
        """Send all that follows to nowhere, also what Python flushes at its exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)


@contextmanager
def lasting_stdout() -> Iterator[None]:
    """Let stdout outlive its reader inside."""
    out = sys.stdout
    lasting = _LastingStdout(out)
    sys.stdout = lasting
    try:
        yield
        lasting.flush()
    finally:
        sys.stdout = out
