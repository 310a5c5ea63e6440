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
    page_count,
    page_slots,
    token_indices,
    tokens_of,
)
from kvcanon.conformance.adapter_parts.tree_view import LastMatch
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, Counts, Key, Slots
from their_caches import EXAMPLES, adapter_from, broken_laws, planted

Found: TypeAlias = tuple[list[int], Any]
"""What a match of their cache returns: the indices and the node."""
CASES = 250
"""The most cases until a fault is found."""


def faults(rows: str) -> dict[str, tuple[str, str, str]]:
    """A table of faults: what a cache does, the law, the text that is replaced, and by which."""
    found = {}
    for row in rows.strip().splitlines():
        name, law_id, good, bad = (each.strip() for each in row.split("|"))
        found[name] = good.replace("\\n", "\n"), bad.replace("\\n", "\n"), law_id
    return found


RADIX = faults(r"""
evicts another leaf's slots | MATCH-1 | free(leaf.indices) | free(next(self._nodes()).indices)
frees nothing | EVICT-1 | free(leaf.indices) | free([])
frees twice | ALLOC-3 | free(leaf.indices) | free(leaf.indices * 2)
evicts what is locked | LOCK-4 | not node.children and not node.lock_ref | not node.children
does not count locks | LOCK-4 | each.lock_ref += 1 | each.lock_ref += 0
never unlocks | EVICT-1 | each.lock_ref -= 1 | each.lock_ref -= 0
cuts without the lock | EVICT-1 | = node.lock_ref, node.last_used | = 0, node.last_used
makes nothing recent | REC-3 | child.last_used = now | pass
leaks duplicates | MATCH-6 | return present\n | return 0\n
keeps a duplicate's slot | MATCH-3 | [present:], node) | [: len(tokens) - present], node)
counts a token too many | NotWholePages | return present\n | return present + 1\n
ignores the namespace | MATCH-1 | self.roots.setdefault(extra_key, | self.roots.setdefault(None,
forgets what it inserts | MATCH-1 | node.children[self._first_page(leaf.tokens)] = leaf | pass
finds half pages | NotWholePages | len(other)), self.page_size) | len(other)))
""")
BLOCKS = faults(r"""
shares without counting | ALLOC-1 | self.ref_counts[block] += 1 | self.ref_counts[block] = 1
hashes without the prefix | MATCH-1 | text = f"{parent}{ | text = f"{
finds what it overwrote | EVENT-4 | self._forget(block) | pass
never frees | REFUSE-1 | if not self.ref_counts[block]: | if self.ref_counts[block] < 0:
frees what others use | ALLOC-1 | if not self.ref_counts[block]: | if True:
ignores the salt | MATCH-1 | repr(seq.salt) | ''
emits no remove | EVENT-4 | self.events.append(BlockEvent(False, block_hash)) | pass
emits no parent | EVENT-6 | hashes[at], parent, | hashes[at], None,
shares nothing | MATCH-6 | found.append(self.blocks_of[block_hash][0]) | break
""")
LEAK = """\
            self.free_blocks.pop(next(iter(self.free_blocks), None), None)
            return False
        for block in shared:"""
REFUSED = "            return False\n        for block in shared:"
BLOCKS["takes blocks that it refuses"] = (REFUSED, LEAK, "REFUSE-1")

WINDOW = faults(r"""
finds a torn window | MATCH-1 | gapless + 1 if self._has_window(node) else 0 | gapless + 1
asks too much window | MATCH-1 | gapless >= min(blocks, self.window_blocks) | gapless >= blocks
never heals | MATCH-6 | windows[node.block] = windows.pop(block) | pass
heals with another's | MATCH-6 | windows[node.block] = windows.pop(block) | windows[node.block] = 0
leaks its duplicates | ALLOC-1 | release([block])\n        present | window_of\n        present
evicts a locked window | LOCK-4 | and not n.window_locks] | ]
keeps window locks | EVICT-1 | node.window_locks -= 1 | pass
forgets its windows | EVICT-1 | free_windows.append( | free_windows.count(
makes no window recent | REC-3 | node.window_used = node.last_used | pass
drops a leaf's lock | LOCK-4 | if victim.children or victim.locks: | if victim.children:
""")
TABLES = {"their_radix": RADIX, "their_window": WINDOW, "their_blocks": BLOCKS}
ALL = [(cache, name) for cache, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("cache", "name"), ALL, ids=lambda each: each)
def test_fault_behind_parts_is_found(tmp_path: Path, cache: str, name: str) -> None:
    """A fault planted in the cache breaks the law that it concerns, through the parts."""
    good, bad, law_id = TABLES[cache][name]
    with planted(tmp_path, cache, good, bad) as adapter:
        spoken, _ = broken_laws(adapter, CASES, until=law_id)
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
        return self.ledger.insert_done(slots, start_pages, page_count(present, self.size))

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


class RematchingRadix(OpaqueRadix):
    """As if the lock were a match that counts references, which makes the prefix recent."""

    def lock(self, key: Key) -> Receipt:
        self.last.handle_of(key)
        return self.lock_any(key)

    def lock_any(self, key: Key) -> Receipt:
        """Lock a key wherever it was matched."""
        found = self.tree.match_prefix(tokens_of(key), extra_key_of(key.namespace))
        if len(found[0]) < len(key) * self.size:
            raise PrefixNotCached(len(key), len(found[0]) // self.size)
        self.tree.inc_lock_ref(found[1])
        return self.receipts.issue(key, found)


class RashRadix(RematchingRadix):
    """An adapter that matches whenever it locks: what the docs warn of."""

    lock = RematchingRadix.lock_any


@pytest.mark.parametrize(
    ("make", "laws"),
    [(RematchingRadix, set[str]()), (RashRadix, {"REC-3"})],
    ids=["after a match", "anywhere"],
)
def test_lock_by_a_match_is_right_directly_after_a_match_alone(
    make: type[OpaqueRadix], laws: set[str]
) -> None:
    """A lock that matches breaks nothing after the match of its key, and elsewhere REC-3."""
    with adapter_from(EXAMPLES, "their_radix_adapter") as adapter:
        spoken, _ = broken_laws(evolve(adapter, make=make), cases=100)
    assert spoken == laws


@pytest.mark.parametrize("name", ["evicts what is locked", "makes nothing recent", "frees nothing"])
def test_fault_behind_the_last_match_is_found(tmp_path: Path, name: str) -> None:
    """A fault of a cache whose nodes cannot be read is found, too."""
    good, bad, law_id = RADIX[name]
    with planted(tmp_path, "their_radix", good, bad) as adapter:
        spoken, _ = broken_laws(evolve(adapter, make=OpaqueRadix), CASES)
    assert law_id in spoken, spoken


def test_check_finds_a_fault_behind_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kvcanon check` ends with exit code 1 and names the law."""
    good, bad, law_id = RADIX["frees nothing"]
    command = ("check", "their_radix_adapter:ADAPTER", "--only", "walker", "--jobs", "1")
    with planted(tmp_path, "their_radix", good, bad):
        printed = read(capsys, *command, code=1)
    last = printed.splitlines()[-1]
    assert last.startswith(f"BROKEN ({LAWS[law_id].law_class}): {law_id}. Played ")
