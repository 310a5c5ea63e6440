"""`HashedPages` beside a plain twin, under drawn calls, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvcanon.optimized._core import HashedPages
from kvcanon.spec.errors import BadArgument
from plain_hashed_pages import PlainHashedPages, key_of

BLOCKS = 12
GROUPS = 2
SHARED = [b"a%d" % at for at in range(4)]
PROMPTS = [
    [*SHARED, b"b0", b"b1"],
    [*SHARED[:2], b"c0", b"c1", b"c2"],
    [b"d" * 32, b"e" * 32],
]
"""The hashes of prompts, of which two begin alike."""
NULL = 0

blocks_drawn = st.lists(st.integers(0, BLOCKS - 1), max_size=8, unique=True)
prompts_drawn = st.sampled_from(PROMPTS)
groups_drawn = st.integers(0, GROUPS - 1)


def pool_of(count: int) -> list[Any]:
    """Blocks that hold nothing."""
    return [
        SimpleNamespace(block_id=number, block_hash=None, next_free_block=None)
        for number in range(count)
    ]


def span_of(data: st.DataObject, hashes: list[bytes]) -> tuple[int, int]:
    """A range of a prompt's pages, which may have none."""
    length = data.draw(st.integers(0, len(hashes)))
    first = data.draw(st.integers(0, len(hashes) - length))
    return first, first + length


class TwinTiers(RuleBasedStateMachine):
    """Both are called alike, and answer alike."""

    @initialize(rows=st.integers(1, 6))
    def make(self, rows: int) -> None:
        self.pool = pool_of(BLOCKS)
        self.native, self.plain = HashedPages(rows, events=True), PlainHashedPages(rows)
        for tier in (self.native, self.plain):
            tier.watch(self.pool, NULL)
        self.held: list[list[int]] = []
        self.job = 1
        self.begun: list[int] = []

    def both(self, name: str, *given: object, **named: object) -> Any:  # noqa: ANN401
        """Call both. Returns: the answer, which is the same."""
        answers = [getattr(each, name)(*given, **named) for each in (self.native, self.plain)]
        assert answers[0] == answers[1], f"{name}{given}"
        return answers[0]

    @rule(
        prompts=st.lists(st.tuples(prompts_drawn, groups_drawn, st.booleans()), min_size=1),
        data=st.data(),
    )
    def compute(self, prompts: list[tuple[list[bytes], int, bool]], data: st.DataObject) -> None:
        """The engine computes pages into blocks, or finds them there, or loads brought them."""
        for hashes, group, loaded in prompts:
            table = data.draw(st.permutations(range(BLOCKS)))[: len(hashes)]
            first, end = span_of(data, hashes)
            for at in range(first, end):
                if not loaded and data.draw(st.integers(0, 3)):
                    self.pool[table[at]].block_hash = key_of(hashes[at], group)
            prompt = f"{hashes[-1]!r}"
            self.both("learn", table, hashes, group, first, end, prompt, loaded=loaded)

    @rule(blocks=blocks_drawn, data=st.data(), late=st.booleans())
    def give(self, blocks: list[int], data: st.DataObject, *, late: bool) -> None:
        """The engine gives blocks away, of which some are local hits."""
        for block in blocks:
            if data.draw(st.booleans()):
                self.pool[block].block_hash = None
        self.both("give", blocks, self.job if late else None)

    @rule(blocks=blocks_drawn)
    def store(self, blocks: list[int]) -> None:
        self.both("store", blocks, self.job)

    @rule(blocks=blocks_drawn, count=st.integers(0, 9))
    def store_ahead(self, blocks: list[int], count: int) -> None:
        chain = [*pool_of(1), *(self.pool[each] for each in blocks), *pool_of(1)]
        for before, after in pairwise(chain):
            before.next_free_block = after
        self.both("store_ahead", chain[0], count, self.job)

    @rule()
    def begin_jobs(self) -> None:
        if self.both("copies", self.job) is not None:
            self.begun.append(self.job)
        self.job += 1

    @rule(data=st.data(), moved=st.booleans(), check_blocks=st.booleans())
    def end_stores(self, data: st.DataObject, *, moved: bool, check_blocks: bool) -> None:
        """In any order, and also one that ended before."""
        job = data.draw(st.sampled_from([*self.begun, 0]))
        self.both("end_stores", job, moved=moved, check_blocks=check_blocks)

    @rule(hashes=prompts_drawn, group=groups_drawn, data=st.data(), or_device=st.booleans())
    def look(
        self, hashes: list[bytes], group: int, data: st.DataObject, *, or_device: bool
    ) -> None:
        span = span_of(data, hashes)
        self.both("leading", hashes, group, *span, or_device=or_device)
        self.both("there", hashes, group, *span, or_device=or_device)

    @rule(hashes=prompts_drawn, group=groups_drawn, data=st.data())
    def hold(self, hashes: list[bytes], group: int, data: st.DataObject) -> None:
        rows = self.both("hold", hashes, group, *span_of(data, hashes))
        if rows:
            self.held.append(rows)

    @rule(data=st.data(), blocks=blocks_drawn, late=st.booleans())
    def load(self, data: st.DataObject, blocks: list[int], *, late: bool) -> None:
        """What was found is held, after the engine gave blocks away for it."""
        found = [
            (hashes, group, first)
            for hashes in PROMPTS
            for group in range(GROUPS)
            for first in range(len(hashes))
            if self.plain.there(hashes, group, first, first + 1, or_device=True) == [True]
        ]
        if not found:
            return
        hashes, group, first = data.draw(st.sampled_from(found))
        end = self.both("leading", hashes, group, first, len(hashes), or_device=True)
        self.give(blocks, data, late=late)
        rows = self.both("hold_all", hashes, group, first, end, self.job)
        if rows:
            self.held.append(rows)

    @rule(hashes=prompts_drawn, group=groups_drawn, data=st.data())
    def fetch(self, hashes: list[bytes], group: int, data: st.DataObject) -> None:
        """Pages come from elsewhere; those that have a row stay as they are."""
        places = data.draw(st.lists(st.integers(0, len(hashes) - 1), max_size=4))
        self.both("fetch", hashes, group, places, self.job, f"{hashes[0]!r} fetched")

    @rule(data=st.data(), moved=st.booleans(), failed=st.booleans())
    def let_go(self, data: st.DataObject, *, moved: bool, failed: bool) -> None:
        if not self.held:
            return
        rows = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if failed:
            self.both("drop", rows)
        self.both("let_go", rows, moved=moved)

    @rule(blocks=blocks_drawn, data=st.data())
    def jobs_before(self, blocks: list[int], data: st.DataObject) -> None:
        rows = data.draw(st.lists(st.integers(0, self.plain.rows - 1)))
        self.both("jobs_before", blocks, rows)

    @rule(seldom=st.integers(0, 9), engine_too=st.booleans())
    def clear(self, seldom: int, *, engine_too: bool) -> None:
        if seldom:
            return
        if engine_too:
            for block in self.pool:
                block.block_hash = None
        self.both("clear")

    @invariant()
    def agree(self) -> None:
        """What both have and count is the same."""
        if not hasattr(self, "native"):
            return
        self.both("keys")
        self.both("counts")
        self.both("take_events")
        for name in ("on_host", "held", "storing", "takeable"):
            assert getattr(self.native, name) == getattr(self.plain, name), name

    def teardown(self) -> None:
        """At rest nothing is held, and every row comes free again."""
        if not hasattr(self, "native"):
            return
        self.begin_jobs()
        for job in self.begun:
            self.both("end_stores", job, moved=True)
        for rows in self.held:
            self.both("let_go", rows)
        self.both("clear")
        assert (self.native.on_host, self.native.held, self.native.storing) == (0, 0, 0)
        assert sorted(self.plain.free) == list(range(self.plain.rows))


TestTwinTiers = TwinTiers.TestCase
TestTwinTiers.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=50, deadline=None
)


def test_table_grows_and_forgets() -> None:
    """Pages beyond the rows are known on the device, found again, and forgotten one by one."""
    count = 3_000
    pool, tier = pool_of(count + 1), HashedPages(4)
    tier.watch(pool, NULL)
    hashes = [b"%032d" % at for at in range(count)]
    for at, each in enumerate(hashes):
        pool[at + 1].block_hash = key_of(each, 1)
    table = list(range(1, count + 1))
    assert tier.learn(table, hashes, 1, 0, count) == table
    assert tier.leading(hashes, 1, 0, count, or_device=True) == count
    for block in table[::2]:
        pool[block].block_hash = None
    tier.give(table, None)
    there = tier.there(hashes, 1, 0, count, or_device=True)
    assert there == [at % 2 == 1 for at in range(count)]


@pytest.mark.parametrize("rows", [0, 1])
def test_page_whose_last_block_was_given_away_cannot_be_held(rows: int) -> None:
    """Two requests computed it, and the block that was learnt of last is another's now."""
    pool, tier = pool_of(4), HashedPages(2)
    tier.watch(pool, NULL)
    hashes = [b"held", b"twice"]
    for block, at in ((3, 0), (1, 1), (2, 1)):
        pool[block].block_hash = key_of(hashes[at], 0)
        tier.learn([NULL] * at + [block], hashes, 0, at, at + 1)
    pool[2].block_hash = None
    tier.give([2], None)
    first = 1 - rows
    assert tier.hold_all(hashes, 0, first, 2, 1) is None
    # What was held for the page before it is let go when its row is filled.
    assert tier.storing == rows
    tier.end_stores(1, moved=True)
    assert (tier.held, tier.on_host, tier.takeable) == (0, rows, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda tier: tier.hold([b"a"], 0, 0, 2), "the prompt has 1 hashes"),
        (lambda tier: tier.hold([b"a" * 33], 0, 0, 1), "a hash of 33 bytes"),
        (lambda tier: tier.hold([b"a"], 1 << 32, 0, 1), "group"),
        (lambda tier: tier.fetch([b"a"], 0, [0, 1], 1), "the prompt has 1 hashes"),
        (lambda tier: tier.fetch([b"a"], 0, [-1], 1), "the prompt has 1 hashes"),
        (lambda tier: tier.let_go([0]), "row 0, not held"),
        (lambda tier: tier.let_go([4]), "the host has 4"),
        (lambda tier: tier.drop([-1]), "the host has 4"),
        (lambda tier: tier.jobs_before([], [9]), "the host has 4"),
        (lambda tier: tier.learn([99], [b"a"], 0, 0, 1, loaded=True), "the engine has 3"),
        (lambda tier: tier.learn([-1], [b"a"], 0, 0, 1), "the engine has 3"),
        (lambda _: HashedPages(0), "rows: is 0"),
        (lambda _: HashedPages(1 << 31), "31 bits"),
    ],
)
def test_wrong_numbers_are_refused(call: Callable[[HashedPages], object], words: str) -> None:
    """In a sentence that names the argument; nothing has changed."""
    tier = HashedPages(4)
    tier.watch(pool_of(3), NULL)
    with pytest.raises(BadArgument, match=words):
        call(tier)
    assert not tier.keys()
    assert tier.storing == 0


def test_hash_that_is_no_bytes_is_refused() -> None:
    """As Python refuses it."""
    with pytest.raises(TypeError):
        HashedPages(4).hold(["a"], 0, 0, 1)  # type: ignore[list-item]
