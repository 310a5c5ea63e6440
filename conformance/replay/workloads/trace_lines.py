"""The lines of a recorded trace: unpacked, parsed, and refused in words where they are no request.

A file may be packed by gzip or zstd, which its first bytes tell.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from math import isfinite
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from attrs import frozen

from kvcanon.conformance.errors import UsageError

Fields: TypeAlias = Mapping[str, object]
"""What a line holds."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""How packed files begin."""


@frozen
class TraceError(UsageError):
    """A trace cannot be used: a line is not a request, or there is none."""

    path: Path
    line: int | None
    """Number of the bad line, from 1; None if the whole file is bad."""
    problem: str

    def __str__(self) -> str:
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.problem}"


class NotARequest(Exception):
    """What is wrong with a line, as the end of a sentence that begins with the line."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a trace, unpacked. Raises: TraceError, OSError."""
    with path.open("rb") as file:
        begin = file.read(len(ZSTD))
        file.seek(0)
        if begin.startswith(GZIP):
            with gzip.open(file) as unpacked:
                yield cast("BinaryIO", unpacked)
        elif begin == ZSTD:
            yield _from_zstd(path, file)
        else:
            yield file


def _from_zstd(path: Path, file: BinaryIO) -> BinaryIO:
    try:
        import zstandard  # noqa: PLC0415  # Few traces need it.
    except ModuleNotFoundError:
        problem = "is packed by zstd; run `pip install zstandard`, or unpack it"
        raise TraceError(path, None, problem) from None
    unpacked = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return BufferedReader(cast("RawIOBase", unpacked))


def numbered_lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers, from 1. Raises: TraceError, where the packing is damaged."""
    number = 0
    while True:
        try:
            line = file.readline()
        except Exception as error:  # noqa: BLE001  # Each way of packing has errors of its own.
            raise TraceError(path, number + 1, f"cannot be unpacked: {error}") from None
        if not line:
            return
        number += 1
        yield number, line.rstrip(b"\r\n")


def fields_of(line: bytes) -> Fields:
    """The fields of a line. Raises: NotARequest."""
    fields = parsed(line)
    if not isinstance(fields, dict):
        raise NotARequest(f"is not a JSON object but {kind_of(fields)}")
    return fields


def parsed(text: bytes) -> object:
    """A JSON value. Raises: NotARequest."""
    try:
        return json.loads(text.decode("utf-8-sig"))  # Editors put a mark before the text.
    except UnicodeDecodeError:
        raise NotARequest("is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise NotARequest(f"is not JSON ({error})") from None


def whole_number(fields: Fields, name: str, least: int) -> int:
    """A field that is a whole number. Raises: NotARequest."""
    value = present(fields, name)
    if type(value) is not int:
        raise NotARequest(f"{name} must be a whole number, and is {kind_of(value)}")
    if value < least:
        raise NotARequest(f"{name} must be at least {least}, and is {value}")
    return value


def number_of(fields: Fields, name: str) -> float:
    """A field that is a number of at least 0. Raises: NotARequest."""
    value = present(fields, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotARequest(f"{name} must be a number, and is {kind_of(value)}")
    if not isfinite(value) or value < 0:
        raise NotARequest(f"{name} must be at least 0, and is {value}")
    return value


def present(fields: Fields, name: str) -> object:
    """A field. Raises: NotARequest, if it is missing."""
    if name not in fields:
        raise NotARequest(f"{name} is missing")
    return fields[name]


def name_of(fields: Fields, *names: str) -> str:
    """The first of some names of a field that the line has; the first of all if it has none."""
    return next((name for name in names if name in fields), names[0])


def kind_of(value: object) -> str:
    """What kind of JSON value this is, in words."""
    return {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        float: "a number with a fraction",
        int: "a number",
    }.get(type(value), "null")
