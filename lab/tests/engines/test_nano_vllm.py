"""nano-vllm's block manager behind its adapter: what it breaks, and planted faults are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.conformance.protocol.request import FullRequestCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import Counts, make_key

NANO = adapter_here("nano-vllm")
CASES = 60
KEY = make_key([1, 2, 3, 4], 2)


def made(blocks: int) -> FullRequestCache:
    """Make a cache with blocks of two tokens."""
    return cast(
        "FullRequestCache", NANO.make(CacheConfig(page_size=2, device_slots=Counts(full=blocks)))
    )


def manager() -> Any:  # noqa: ANN401 # nano-vllm's class.
    """Return nano-vllm's class."""
    return import_module("nanovllm.engine.block_manager").BlockManager


def test_request_grows_and_its_pages_are_reused() -> None:
    """A decoded token gets a block where one is needed, and the block is found later."""
    cache = made(8)
    table = cache.admit(1, KEY).slots.full
    longer = make_key([1, 2, 3, 4, 5, 6, 7, 8], 2)
    assert cache.extend(1, longer).full[:2] == table
    cache.finish(1)
    again = cache.admit(2, longer)
    assert again.reused_pages == 3
    assert again.slots.full[:2] == table


def test_refusals_leave_the_requests() -> None:
    """A request that cannot start or grow changes nothing."""
    cache = made(2)
    with pytest.raises(BadArgument, match="is empty"):
        cache.admit(1, make_key([], 2))
    with pytest.raises(OutOfSlots):
        cache.admit(1, make_key([1, 2, 3, 4, 5, 6], 2))
    table = cache.admit(1, make_key([1, 2], 2)).slots
    with pytest.raises(OutOfSlots):
        cache.extend(1, make_key([1, 2, 3, 4, 5, 6], 2))
    assert cache.extend(1, KEY).full[:1] == table.full


def test_only_the_duplicate_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first block of a page keeps its entry, nothing is found."""
    blocks = manager()
    original = blocks.hash_blocks

    def keeping(self: Any, sequence: Any) -> None:  # noqa: ANN401 # nano-vllm's.
        """Hash blocks without taking the place of others."""
        before = dict(self.hash_to_block_id)
        original(self, sequence)
        self.hash_to_block_id.update(before)

    # Then a duplicate has no entry: it is lost when the first block is reused, which needs slots.
    monkeypatch.setattr(blocks, "hash_blocks", keeping)
    assert broken_laws(NANO, CASES) == set()


def test_hash_without_the_prefix_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is found by its own tokens alone is reused behind another prefix."""
    blocks = manager()
    original = blocks.compute_hash
    monkeypatch.setattr(
        blocks, "compute_hash", classmethod(lambda _, tokens, *__: original(tokens))
    )
    assert "MATCH-2" in broken_laws(NANO, CASES)


def test_reused_block_that_keeps_its_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is still found by what it held before holds another page."""
    blocks = manager()
    original = blocks._allocate_block

    def allocate(self: Any) -> Any:  # noqa: ANN401 # nano-vllm's.
        """Reuse a block without forgetting it."""
        block = self.blocks[self.free_block_ids[0]]
        held, tokens = block.hash, block.token_ids
        taken = original(self)
        if held != -1:
            self.hash_to_block_id[held] = taken
            block.hash, block.token_ids = held, tokens
        return taken

    monkeypatch.setattr(blocks, "_allocate_block", allocate)
    assert {"MATCH-3", "MATCH-2"} & broken_laws(NANO, CASES)


def test_blocks_that_are_not_freed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that is not given back leaks its block."""
    blocks = manager()

    def leak(self: Any, sequence: Any) -> None:  # noqa: ANN401 # nano-vllm's.
        """Free all blocks but the first."""
        for number in reversed(sequence.block_table[1:]):
            self.blocks[number].ref_count -= 1
            if not self.blocks[number].ref_count:
                self._deallocate_block(number)
        sequence.block_table.clear()

    monkeypatch.setattr(blocks, "deallocate", leak)
    assert "REFUSE-1" in broken_laws(NANO, CASES)
