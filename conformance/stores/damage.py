"""Damage to the files of a store, as disks, crashes and people bring it about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PLACES = 16


def damage_file(path: Path, kind: int, place: int) -> str:
    """Damage a file, and return what was done in words: "its file was cut to 12 of 64 bytes"."""
    return _KINDS[kind % len(_KINDS)](path, place)


def _cut(path: Path, place: int) -> str:
    data = path.read_bytes()
    length = max(1, len(data) * (place % PLACES) // PLACES)
    path.write_bytes(data[:length])
    return f"its file was cut to {length} of {len(data)} bytes"


def _empty(path: Path, place: int) -> str:  # noqa: ARG001  # As the others.
    path.write_bytes(b"")
    return "its file was emptied"


def _flip(path: Path, place: int) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return _lengthen(path, place)
    at = min(len(data) - 1, len(data) * (place % PLACES) // PLACES)
    data[at] ^= 1 << place % 8
    path.write_bytes(data)
    return f"a bit of its file was flipped, in byte {at} of {len(data)}"


def _zero(path: Path, place: int) -> str:  # noqa: ARG001
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[:half] + bytes(len(data) - half))
    return f"the second half of its file was zeroed, from byte {half}"


def _lengthen(path: Path, place: int) -> str:
    data = path.read_bytes()
    path.write_bytes(data + b"\x5a" * (1 + place))
    return f"{1 + place} bytes were added to its file"


_KINDS: tuple[Callable[[Path, int], str], ...] = (_cut, _empty, _flip, _zero, _lengthen)
