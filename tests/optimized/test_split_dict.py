"""A dictionary in parts: the same as a `dict`, and no part has all entries."""

from __future__ import annotations

import pytest

from kvcanon.optimized.split_dict import PARTS, SplitDict
from kvcanon.spec.types import Namespace


def test_split_dict_does_what_a_dict_does() -> None:
    """Entries are added, replaced, found and deleted; missing ones raise KeyError."""
    split: SplitDict[str, int] = SplitDict()
    plain: dict[str, int] = {}
    for number in range(5_000):
        split[str(number % 3_000)] = plain[str(number % 3_000)] = number
    for number in range(0, 3_000, 7):
        del split[str(number)]
        del plain[str(number)]
    assert dict(split) == dict(split.pairs()) == plain
    assert len(split) == len(plain)
    assert split.get("7") is None
    assert split.pop("8") == plain.pop("8")
    assert len(split) == len(plain)
    with pytest.raises(KeyError):
        split["8"]
    with pytest.raises(KeyError):
        del split["8"]
    assert len(split) == len(plain)


def test_parts_share_their_entries() -> None:
    """No part has many times its share of namespaces, or of numbers that count up."""
    salts: SplitDict[Namespace, int] = SplitDict()
    numbers: SplitDict[int, int] = SplitDict()
    for number in range(20 * PARTS):
        salts[Namespace(cache_salt=f"{number:x}")] = number
        numbers[number] = number
    assert max(map(len, salts._parts)) < 60
    assert max(map(len, numbers._parts)) < 60
