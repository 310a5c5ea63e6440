"""Parts hide no fault: each one planted in a cache behind them is found."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from attrs import evolve

from command_line import read
from kvcanon.conformance.adapter_parts.arguments import check_evict, check_insert
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import SlotLedger, TokenAllocator
from kvcanon.conformance.adapter_parts.token_slots import (
    extra_key_of,
    page_slots,
    token_indices,
    tokens_of,
)
from kvcanon.conformance.adapter_parts.tree_view import LastMatch
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, Counts, Key, Slots
from their_caches import EXAMPLES, adapter_from, broken_laws, planted

Found: TypeAlias = tuple[list[int], Any]
"""What a match of their cache returns: the indices and the node."""
CASES = 60

RADIX = {
    "evicts another leaf's slots": (
        "free(leaf.indices)",
        "free(next(self._nodes()).indices)",
        "MATCH-1",
    ),
    "frees nothing": ("free(leaf.indices)", "free([])", "EVICT-1"),
    "frees twice": ("free(leaf.indices)", "free(leaf.indices * 2)", "ALLOC-3"),
    "evicts what is locked": (
        "not node.children and not node.lock_ref",
        "not node.children",
        "LOCK-4",
    ),
    "does not count locks": ("each.lock_ref += 1", "each.lock_ref += 0", "LOCK-4"),
    "never unlocks": ("each.lock_ref -= 1", "each.lock_ref -= 0", "EVICT-1"),
    "cuts without the lock": (
        "upper.lock_ref, upper.last_used = node.lock_ref, node.last_used",
        "upper.lock_ref, upper.last_used = 0, node.last_used",
        "EVICT-1",
    ),
    "makes nothing recent": ("child.last_used = now", "pass", "REC-3"),
    "leaks duplicates": ("return present\n", "return 0\n", "MATCH-6"),
    "keeps a duplicate's slot": (
        "indices[present:], node)",
        "indices[: len(tokens) - present], node)",
        "MATCH-3",
    ),
    "ignores the namespace": (
        "self.roots.setdefault(extra_key,",
        "self.roots.setdefault(None,",
        "MATCH-1",
    ),
    "forgets what it inserts": (
        "node.children[self._first_page(leaf.tokens)] = leaf",
        "pass",
        "MATCH-1",
    ),
    "finds half pages": ("len(other)), self.page_size)", "len(other)))", "NotWholePages"),
}
"""Faults of the radix cache: what it does, the text that is replaced and by which, the law."""

LEAK = """\
            self.free_blocks.pop(next(iter(self.free_blocks), None), None)
            return False
        for block in shared:"""
BLOCKS = {
    "shares without counting": (
        "self.ref_counts[block] += 1",
        "self.ref_counts[block] = 1",
        "ALLOC-1",
    ),
    "hashes without the prefix": ('text = f"{parent}{', 'text = f"{', "MATCH-1"),
    "finds what it overwrote": ("self._forget(block)", "pass", "EVENT-4"),
    "never frees": ("if not self.ref_counts[block]:", "if self.ref_counts[block] < 0:", "REFUSE-1"),
    "frees what others use": ("if not self.ref_counts[block]:", "if True:", "ALLOC-1"),
    "ignores the salt": ("repr(seq.salt)", "''", "MATCH-1"),
    "emits no remove": ("self.events.append(BlockEvent(False, block_hash))", "pass", "EVENT-4"),
    "emits no parent": (
        "BlockEvent(True, hashes[at], parent,",
        "BlockEvent(True, hashes[at], None,",
        "EVENT-6",
    ),
    "takes blocks that it refuses": (
        "            return False\n        for block in shared:",
        LEAK,
        "REFUSE-1",
    ),
    "shares nothing": ("found.append(self.blocks_of[block_hash][0])", "break", "MATCH-6"),
}
"""Faults of the block manager."""

ALL = [("their_radix", name) for name in RADIX] + [("their_blocks", name) for name in BLOCKS]


@pytest.mark.parametrize(("cache", "name"), ALL, ids=lambda each: each)
def test_fault_behind_parts_is_found(tmp_path: Path, cache: str, name: str) -> None:
    """A fault planted in the cache breaks the law that it concerns, through the parts."""
    good, bad, law_id = (RADIX | BLOCKS)[name]
    with planted(tmp_path, cache, good, bad) as adapter:
        spoken, _ = broken_laws(adapter, CASES)
    assert law_id in spoken, spoken


class OpaqueRadix:
    """Their radix cache as if its nodes could not be read, with an allocator over tokens.

    It locks what the last match found, and inserts behind what a lock covers.
    """

    PADDING = 1

    def __init__(self, config: CacheConfig) -> None:
        self.config, self.size = config, config.page_size
        self.tree = import_module("their_radix").RadixTree(config.page_size)
        tokens = token_indices(range(config.device_slots.full), self.size, self.PADDING)
        self.allocator = list(tokens)
        free = TokenAllocator(
            self.take, self.give_back, lambda: len(self.allocator), self.size, self.PADDING
        )
        self.ledger = SlotLedger({FULL: free})
        self.receipts, self.last = Receipts[Found](), LastMatch[Found]()
        self.allocate, self.free = self.ledger.allocate, self.ledger.free

    def take(self, count: int) -> list[int]:
        """Allocate tokens from the front."""
        taken, self.allocator = self.allocator[:count], self.allocator[count:]
        return taken

    def give_back(self, indices: list[int]) -> None:
        """Free tokens."""
        self.allocator += indices

    def match(self, key: Key) -> Matched:
        """Find a prefix, and keep its handle."""
        indices, node = self.tree.match_prefix(tokens_of(key), extra_key_of(key.namespace))
        slots = page_slots(indices, self.size, self.PADDING)
        self.last.remember(key, len(slots), (indices, node))
        return Matched(len(slots), len(slots), Slots(slots))

    def lock(self, key: Key) -> Receipt:
        """Lock what was matched; the root needs no match."""
        indices, node = self.last.handle_of(key)
        self.tree.inc_lock_ref(node)
        return self.receipts.issue(key, (indices, node))

    def unlock(self, receipt: Receipt) -> None:
        """Unlock the node."""
        self.tree.dec_lock_ref(self.receipts.spend(receipt)[1])

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,  # Only the policy `priority` needs it.
    ) -> Inserted:
        """Insert behind a locked prefix."""
        check_insert(key, start_pages, slots, counted_pages)
        self.ledger.check_held(slots)
        before: list[int] = []
        if start_pages:
            before = self.receipts.covering(key.prefix(start_pages))[0][: start_pages * self.size]
        self.last.forget()
        indices = [*before, *token_indices(slots.full, self.size, self.PADDING)]
        present = self.tree.insert(tokens_of(key), indices, extra_key_of(key.namespace))
        return self.ledger.insert_done(slots, start_pages, present // self.size)

    def evict(self, counts: Counts) -> Evicted:
        """Evict into the allocator; what came free is what it has more."""
        check_evict(counts)
        self.last.forget()
        before = self.ledger.counts()
        self.tree.evict(counts.full * self.size, self.give_back)
        return Evicted(self.ledger.counts() - before)


def test_cache_whose_nodes_cannot_be_read_is_judged() -> None:
    """With the handle of the last match a sound cache breaks no law."""
    with adapter_from(EXAMPLES, "their_radix_adapter") as adapter:
        spoken, total = broken_laws(evolve(adapter, make=OpaqueRadix), cases=100)
    assert not spoken
    for law_id in ("MATCH-1", "MATCH-6", "REC-3", "LOCK-4", "EVICT-1", "ALLOC-3", "REFUSE-1"):
        assert total.laws[law_id], law_id


@pytest.mark.parametrize("name", ["evicts what is locked", "makes nothing recent", "frees nothing"])
def test_fault_behind_the_last_match_is_found(tmp_path: Path, name: str) -> None:
    """A fault of a cache whose nodes cannot be read is found, too."""
    good, bad, law_id = RADIX[name]
    with planted(tmp_path, "their_radix", good, bad) as adapter:
        spoken, _ = broken_laws(evolve(adapter, make=OpaqueRadix), CASES)
    assert law_id in spoken, spoken


@pytest.mark.parametrize(
    ("cache", "name"), [("their_radix", "never unlocks"), ("their_blocks", "ignores the salt")]
)
def test_check_finds_a_fault_behind_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: str, name: str
) -> None:
    """`kvcanon check` ends with exit code 1 and names the law."""
    good, bad, law_id = (RADIX | BLOCKS)[name]
    with planted(tmp_path, cache, good, bad):
        told = read(
            capsys, "check", f"{cache}_adapter:ADAPTER", "--only", "walker", "--jobs", "1", code=1
        )
    assert law_id in told.splitlines()[-1]
