"""Files that a user gives: what of them can be read, and how their text is encoded."""

from __future__ import annotations

import codecs
from pathlib import Path

MOST_FILE_BYTES = 1 << 30
"""What is read whole has a bound."""
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
"""By how files begin."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class BadRecording(ValueError):
    """A file that is no recording, or a damaged one."""


def require_file(path: Path) -> None:
    """Refuse a device or a pipe, which may never end, and cannot be read twice.

    Raises: BadRecording.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadRecording(
            f"{path} is a device or a pipe; write what it gives into a file, and name that"
        )


def read_whole(path: Path) -> bytes:
    """The contents of a file. Raises: BadRecording."""
    require_file(path)
    try:
        with path.open("rb") as file:
            contents = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}") from error
    if len(contents) > MOST_FILE_BYTES:
        raise BadRecording(f"{path} is larger than {MOST_FILE_BYTES >> 30} GiB")
    for beginning, packer in _PACKED.items():
        if contents.startswith(beginning):
            raise BadRecording(f"{path} is packed by {packer}; unpack it first")
    return contents


def in_utf_8(contents: bytes) -> bytes:
    """Text as most programs write it; some of Windows write a mark first, or UTF-16.

    Raises: ValueError.
    """
    if contents.startswith(_UTF_16):
        return contents.decode("utf-16").encode()
    return contents.removeprefix(codecs.BOM_UTF8)
