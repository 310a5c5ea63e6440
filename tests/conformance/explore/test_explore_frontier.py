"""The frontier of an exploration: which states were visited, and the paths to them."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from exploring import HOST, paths_in
from kvcanon.conformance.explore import frontier
from kvcanon.conformance.explore.frontier import Codes, Visited


def test_what_was_visited_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every digest that was added is found, and no other."""
    monkeypatch.setattr(frontier, "RECENT", 50)
    visited, known = Visited(), set[bytes]()
    for turn in range(60):
        digests = [blake2b(bytes([turn * at % 251]), digest_size=16).digest() for at in range(9)]
        digests.append(bytes(15) + bytes([turn]))
        for digest, is_new in zip(digests, visited.enter(digests), strict=True):
            assert is_new == (digest not in known)
            known.add(digest)
        assert len(visited) == len(known)
    assert not any(Visited(visited.all()).enter(list(known)))


def test_paths_are_kept_whole() -> None:
    """A coded path is decoded to itself."""
    codes = Codes()
    for path in paths_in(HOST):
        coded = b"".join(map(codes.code, path))
        assert len(coded) == 2 * len(path)
        assert codes.path(coded) == Codes(codes.actions).path(coded) == path
