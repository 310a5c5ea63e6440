"""Framing: encodes optional texts one after the other, so that each can be decoded again.

A field is one byte that says whether it is present, then its length in four bytes, then its text. A
separator instead of the length would not be injective: a field could contain it.
"""

from __future__ import annotations

LENGTH_BYTES = 4

_ABSENT, _PRESENT = b"\0", b"\1"


def frame(field: bytes | None) -> bytes:
    """Encode one field; bytes that follow it cannot be read as part of it.

    pre: field is None or len(field) <= 2
    post: __return__ == (bytes([0]) if field is None else bytes([1, len(field), 0, 0, 0]) + field)
    """
    if field is None:
        return _ABSENT
    return _PRESENT + len(field).to_bytes(LENGTH_BYTES, "little") + field


def unframe(framed: bytes) -> tuple[bytes | None, bytes]:
    """Decode the first field, and return it with the bytes after it: the inverse of `frame`.

    pre: 1 <= len(framed) <= 7
    pre: framed[0] == 0 or len(framed) >= 5 and framed[0] == 1 and framed[1] <= len(framed) - 5
    pre: framed[0] == 0 or framed[2:5] == bytes(3)
    post: frame(__return__[0]) + __return__[1] == framed
    """
    if framed[:1] == _ABSENT:
        return None, framed[1:]
    begin = 1 + LENGTH_BYTES
    end = begin + int.from_bytes(framed[1:begin], "little")
    return framed[begin:end], framed[end:]
