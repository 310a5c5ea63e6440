"""Framing: optional texts, one after the other, so that they can be told apart again.

A field is a byte that says whether it is there, then its length in four bytes, then its text.

What readers get wrong: that two strings of fields are equal only where the fields are has to be
shown of the code. A separator that no field is meant to hold shows nothing.
"""

from __future__ import annotations

LENGTH_BYTES = 4

_ABSENT, _PRESENT = b"\0", b"\1"


def frame(field: bytes | None) -> bytes:
    """One field, such that whatever follows it cannot be taken for a part of it.

    pre: field is None or len(field) <= 2
    post: __return__ == (bytes([0]) if field is None else bytes([1, len(field), 0, 0, 0]) + field)
    """
    if field is None:
        return _ABSENT
    return _PRESENT + len(field).to_bytes(LENGTH_BYTES, "little") + field


def unframe(framed: bytes) -> tuple[bytes | None, bytes]:
    """The first field, and what follows it: the inverse of `frame`, whatever was put behind.

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
