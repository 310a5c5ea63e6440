"""Claims with every kind of outcome, for tests of the code that settles claims."""

from __future__ import annotations

import hashlib


def doubled(number: int) -> int:
    """Twice a number.

    pre: 0 <= number <= 100
    post: __return__ >= number
    post: __return__ != 62
    """
    return 2 * number


def halved(number: int) -> int:
    """Half a number, of which there is none within the bounds.

    pre: number > 3 and number < 3
    post: __return__ == 17
    """
    return number // 2


def hashed(number: int) -> bytes:
    """A hash, through which no solver sees.

    pre: 0 <= number < 1 << 64
    post: len(set(__return__)) > 1
    """
    return hashlib.sha256(str(number).encode()).digest()


def raised(number: int) -> int:
    """A function that fails for one input.

    pre: 0 <= number <= 1 << 20
    post: True
    """
    if number == 4711:
        raise ZeroDivisionError
    return number


def all_alike(flags: tuple[bool, ...], same: bool) -> bool:
    """Whether all flags are set, and one more, which is.

    pre: 1 <= len(flags) <= 3
    pre: same
    post: same | (__return__ ^ True)
    post: __return__
    terms: 8
    """
    answer = same
    for flag in flags:
        answer = answer & flag
    return answer


def none_at_all(flags: tuple[bool, ...], same: bool) -> bool:
    """A claim of terms, of which there are none within the bounds.

    pre: 1 <= len(flags) <= 3
    pre: same & (same ^ True)
    post: __return__
    terms: 8
    """
    return flags[0] & same


def cut_alike(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Two empty tuples are the same: CrossHair takes them for different.

    pre: len(ours) <= 1 and len(theirs) <= 1
    post: __return__
    """
    return ours[:0] == theirs[:0]
