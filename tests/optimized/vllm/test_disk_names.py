"""The names of a prompt's pages: chains over tokens, which follow a prompt that changes."""

from __future__ import annotations

import pytest

from kvcanon.optimized.vllm.disk_names import PromptNames, seed_of
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Namespace

SIZE = 4


def expected(tokens: list[int], seed: bytes) -> list[bytes]:
    """What the specification names whole blocks."""
    whole = len(tokens) // SIZE * SIZE
    return list(page_hashes(seed, [tuple(tokens[at : at + SIZE]) for at in range(0, whole, SIZE)]))


@pytest.mark.parametrize("salt", [None, "", "salt"])
@pytest.mark.parametrize("epoch", [None, "epoch"])
def test_names_grow_with_their_prompt(salt: str | None, epoch: str | None) -> None:
    """As they are asked for, and as they would be if all were asked for at once."""
    tokens, hashes = list(range(2 * SIZE)), [b"a", b"b"]
    seed = seed_of(salt, epoch)
    assert seed == namespace_seed(Namespace(epoch, salt))
    names = PromptNames(SIZE, hashes, tokens, seed)
    assert list(names.up_to(1))[:1] == expected(tokens, seed)[:1]
    tokens += range(100, 100 + SIZE)
    hashes.append(b"c")
    assert list(names.up_to(3)) == expected(tokens, seed)
    assert list(names.up_to(2)) == expected(tokens, seed)


def test_seeds_differ() -> None:
    """No salt, salts and epochs, none of which can be taken for another."""
    spaces = [
        (None, None),
        ("", None),
        ("a", None),
        (None, "a"),
        ("a", "a"),
        ("aa", ""),
        ("", "aa"),
    ]
    assert len({seed_of(*each) for each in spaces}) == len(spaces)


def test_blocks_that_were_replaced_have_other_names() -> None:
    """An open session drops its last tokens, and goes on with others."""
    tokens, hashes = list(range(3 * SIZE)), [b"a", b"b", b"c"]
    names = PromptNames(SIZE, hashes, tokens, b"")
    names.up_to(3)
    tokens[SIZE:] = range(50, 50 + 2 * SIZE)
    hashes[1:] = [b"d", b"e"]
    assert list(names.up_to(3)) == expected(tokens, b"")
    del tokens[SIZE:], hashes[1:]
    assert list(names.up_to(1)) == expected(tokens, b"")


def test_a_prompt_that_ended_keeps_its_names_alone() -> None:
    """Its pages may come to the host much later, when its tokens would be in the way."""
    tokens, hashes = list(range(3 * SIZE + 1)), [b"a", b"b", b"c"]
    names = PromptNames(SIZE, hashes, tokens, b"")
    names.up_to(1)
    names.end()
    hashes.clear()
    assert list(names.token_ids) == []
    assert list(names.hashes) == [b"a", b"b", b"c"]
    assert list(names.up_to(3)) == expected(tokens, b"")
