"""The disk below the host: what is written, found again by another process, and read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvcanon.optimized.vllm.disk_half import MOST_STEPS_UNKNOWN
from kvcanon.optimized.vllm.disk_news import DiskIndex, DiskNews, RankNews
from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Namespace
from tier_engine import BLOCK_TOKENS, FakeDisk, FakeRequest, TierEngine

BLOCKS = 3
ROWS = 64
TOKENS = BLOCKS * BLOCK_TOKENS


def kept(request: FakeRequest | None = None, **engine: object) -> FakeDisk:
    """Let a prompt be computed, stored and written. Returns: the disk."""
    disk = FakeDisk()
    serve(TierEngine(ROWS, disk=disk, policy=Policy.WRITE_THROUGH, **engine), request)  # type: ignore[arg-type]
    return disk


def serve(engine: TierEngine, request: FakeRequest | None = None) -> None:
    """Let a prompt be computed in blocks 1, 2, ..., and go wherever it goes."""
    request = request or FakeRequest("first", BLOCKS)
    engine.compute(request, list(range(1, request.blocks + 1)))
    settle(engine)


def settle(engine: TierEngine) -> None:
    """Run steps until nothing is in flight."""
    for _ in range(20):
        engine.step()
    assert not engine.half.has_pending_push_work()


def restarted(disk: FakeDisk, rows: int = ROWS, **engine: object) -> TierEngine:
    """A new engine over a disk, that has run a step."""
    made = TierEngine(rows, disk=disk.opened(), **engine)  # type: ignore[arg-type]
    made.step()
    return made


def again(name: str = "again", blocks: int = BLOCKS, **fields: object) -> FakeRequest:
    """The prompt in another process, where its hashes are others."""
    return FakeRequest(name, blocks, process="later ", **fields)  # type: ignore[arg-type]


def test_pages_are_found_after_a_restart() -> None:
    """Under other hashes of vLLM's; and nothing is found of another prompt."""
    engine = restarted(kept())
    assert engine.half.gauges()["disk_pages"] == BLOCKS
    assert engine.half.totals()["disk_written_pages"] == 0
    assert engine.ask(again()) == TOKENS
    assert engine.ask(again("longer", 5)) == TOKENS
    assert engine.ask(again("other", start="q")) == 0


@pytest.mark.parametrize("policy", Policy)
def test_a_load_reads_into_rows_and_comes_after_it(policy: Policy) -> None:
    """The load waits for its read; then its pages are on the device, and on the host too or not."""
    engine = restarted(kept(), policy=policy)
    request = again()
    assert engine.ask(request) == TOKENS
    engine.load(request, TOKENS, [5, 6, 7])
    copies = engine.decide()
    (read,) = copies.disk_jobs
    (load,) = copies.loads
    assert not read.to_disk
    assert list(read.rows) == list(load.rows)
    assert read.number in load.after
    assert engine.disk is not None
    engine.disk.is_slow = True
    engine.work(copies)
    assert not engine.copies.jobs
    assert engine.half.gauges()["loading_requests"] == 1
    engine.disk.is_slow = False
    engine.step()
    engine.step()
    assert engine.half.gauges()["loading_requests"] == 0
    assert engine.half.pages.on_host == (0 if policy is Policy.WRITE_BACK else BLOCKS)
    assert engine.half.totals()["disk_read_pages"] == BLOCKS
    # What came from the disk is not written there again.
    settle(engine)
    assert [job.to_disk for job in engine.disk.jobs] == [False]
    assert engine.half.pages.held == 0


def test_a_hit_is_first_on_the_host_then_on_the_disk() -> None:
    """One read has those pages alone that the host lacks."""
    engine = restarted(kept(), policy=Policy.WRITE_THROUGH)
    serve(engine, FakeRequest("short", 1, process="later "))
    request = again()
    assert engine.ask(request) == TOKENS
    engine.load(request, TOKENS, [5, 6, 7])
    copies = engine.decide()
    (read,) = copies.disk_jobs
    assert len(read.rows) == BLOCKS - 1
    assert engine.half.tokens_from_disk(request) == TOKENS - BLOCK_TOKENS
    assert len(copies.loads[0].rows) == BLOCKS


def test_two_requests_share_one_read() -> None:
    """The second load waits for the read of the first."""
    engine = restarted(kept(), policy=Policy.WRITE_THROUGH)
    for name, blocks in (("one", [5, 6, 7]), ("two", [8, 9, 10])):
        request = again(name)
        assert engine.ask(request) == TOKENS
        engine.load(request, TOKENS, blocks)
    copies = engine.decide()
    (read,) = copies.disk_jobs
    assert [read.number in load.after for load in copies.loads] == [True, True]
    engine.work(copies)
    settle(engine)
    assert engine.half.pages.on_host == BLOCKS
    assert engine.half.pages.held == 0


def test_write_back_writes_what_came_to_the_host() -> None:
    """And what left the host for others is still on the disk."""
    disk = FakeDisk()
    engine = TierEngine(disk=disk, rows=2)
    engine.compute(FakeRequest("first", 2), [1, 2])
    engine.pool.order([2, 1])
    engine.compute(FakeRequest("next", 2, start="q"), [9, 10])
    settle(engine)
    engine.pool.order([10, 9])
    for block in (1, 2):
        engine.pool.blocks[block].block_hash = None
    engine.compute(FakeRequest("third", 2, start="r"), [1, 2])
    settle(engine)
    assert engine.half.totals()["evicted_pages"]
    assert engine.ask(FakeRequest("again", 2)) == 4


def test_pages_are_named_without_events() -> None:
    """A disk needs no reader of events."""
    disk = FakeDisk()
    engine = TierEngine(ROWS, disk=disk, policy=Policy.WRITE_THROUGH, events=False)
    serve(engine)
    assert len(disk.pages) == BLOCKS
    assert list(engine.half.take_events()) == []
    assert restarted(disk, events=False).ask(again()) == TOKENS


def test_names_are_those_of_the_specification() -> None:
    """So that any process, and any implementation, finds the same pages."""
    request = FakeRequest("first", BLOCKS, cache_salt="s")
    disk = kept(request)
    tokens = request.all_token_ids
    pages = [tuple(tokens[at : at + BLOCK_TOKENS]) for at in range(0, TOKENS, BLOCK_TOKENS)]
    seed = namespace_seed(Namespace(cache_salt="s"))
    assert disk.pages == {(name, 0) for name in page_hashes(seed, pages)}
    written = [
        pair
        for job in disk.jobs
        for pair in zip((name for name, _ in job.pages), job.parents, strict=True)
    ]
    names = page_hashes(seed, pages)
    assert dict(written) == dict(zip(names, [None, *names[:-1]], strict=True))


@pytest.mark.parametrize("salts", [(None, "a"), ("a", None), ("a", "b")])
def test_salts_are_apart(salts: tuple[str | None, str | None]) -> None:
    """A prompt under another salt, or none, finds nothing."""
    engine = restarted(kept(FakeRequest("first", BLOCKS, cache_salt=salts[0])))
    assert engine.ask(again("same", cache_salt=salts[0])) == TOKENS
    assert engine.ask(again("other", cache_salt=salts[1])) == 0


def test_pages_of_adapters_stay_off_the_disk() -> None:
    """Another adapter may be loaded under the same name; nor does one find the model's own."""
    adapter = SimpleNamespace(lora_name="adapter", lora_int_id=1)
    request = FakeRequest("first", BLOCKS, lora_request=adapter)
    assert not kept(request).pages
    engine = restarted(kept())
    assert engine.ask(again(lora_request=adapter)) == 0


def test_a_page_counts_when_all_ranks_have_it() -> None:
    """One of two ranks is not enough, and one that lost it takes it away."""
    index, page = DiskIndex(2), (b"n" * 32, 1)
    index.take(DiskNews({0: RankNews({page: True})}))
    assert (index.is_known, index.has(page), index.count) == (False, False, 0)
    index.take(DiskNews({1: RankNews({page: True})}))
    assert (index.is_known, index.has(page), index.count) == (True, True, 1)
    assert not index.has((page[0], 0))
    # Said twice is there once.
    assert index.take(DiskNews({1: RankNews({page: True})})) == 0
    index.take(DiskNews({0: RankNews({page: False})}))
    assert (index.has(page), index.count) == (False, 0)


def test_news_of_ranks_are_joined() -> None:
    """And what one rank says later replaces what it said."""
    a, b = (b"a", 0), (b"b", 0)
    joined = DiskNews({0: RankNews({a: True})}).aggregate(DiskNews({1: RankNews({a: False})}))
    assert joined.ranks[0].pages == {a: True}
    assert joined.ranks[1].pages == {a: False}
    joined.ranks[0].update(RankNews({a: False, b: True}, is_usable=False))
    assert joined.ranks[0].pages == {a: False, b: True}
    assert not joined.ranks[0].is_usable


def test_a_page_counts_once_its_write_has_ended() -> None:
    """Not while it is on its way; its row is held so long."""
    disk = FakeDisk(is_slow=True)
    engine = TierEngine(disk=disk, policy=Policy.WRITE_THROUGH)
    engine.compute(FakeRequest("first", 1), [1])
    for _ in range(4):
        engine.step()
    assert [job.to_disk for job in disk.jobs] == [True]
    assert engine.half.gauges()["disk_pages"] == 0
    assert engine.half.pages.held == 1
    assert engine.half.has_pending_push_work()
    disk.is_slow = False
    settle(engine)
    assert engine.half.gauges()["disk_pages"] == 1
    assert engine.half.totals()["disk_written_pages"] == 1
    assert engine.half.pages.held == 0


def test_a_failed_write_is_not_found() -> None:
    """Its row is let go, and nothing is known of it."""
    disk = FakeDisk(failing=True)
    engine = TierEngine(disk=disk, policy=Policy.WRITE_THROUGH)
    serve(engine)
    assert engine.half.gauges()["disk_pages"] == 0
    assert engine.half.totals()["disk_passed_pages"] == BLOCKS
    assert engine.half.pages.held == 0
    assert engine.half.pages.on_host == BLOCKS


def test_a_page_that_is_gone_costs_its_request_one_computation() -> None:
    """The load fails, the page is forgotten, and others find what is before it."""
    engine = restarted(kept())
    assert engine.disk is not None
    request = again()
    names = engine.half.disk.names_of(request).up_to(BLOCKS)  # type: ignore[union-attr]
    engine.disk.losing = {(names[1], 0)}
    assert engine.ask(request) == TOKENS
    engine.load(request, TOKENS, [5, 6, 7])
    for _ in range(3):
        engine.step()
    assert engine.half.totals()["failed_loads"] == 1
    assert engine.half.totals()["disk_failed_reads"] == BLOCKS
    assert engine.ask(request) == 0
    assert engine.ask(again("third")) == BLOCK_TOKENS
    engine.half.request_finished_all_groups(again("third"), ([],))
    assert engine.half.pages.held == 0


def test_a_disk_that_rests_is_not_asked() -> None:
    """Prompts find what host and device have, nothing is written, and later it is used again."""
    engine = restarted(kept(), policy=Policy.WRITE_THROUGH)
    assert engine.disk is not None
    engine.disk.is_usable = False
    engine.step()
    assert engine.ask(again()) == 0
    serve(engine, FakeRequest("second", 2, start="q"))
    assert not engine.disk.jobs
    assert engine.half.totals()["disk_passed_pages"] == 2
    engine.disk.is_usable = True
    engine.step()
    assert engine.ask(again()) == TOKENS


def test_a_slow_disk_is_passed_over() -> None:
    """Writes hold an eighth of the rows; a quarter waits, and the oldest gives way."""
    disk = FakeDisk(is_slow=True)
    engine = TierEngine(disk=disk, policy=Policy.WRITE_THROUGH, rows=16, device_blocks=40)
    for number in range(24):
        engine.compute(FakeRequest(f"{number}", 4, start=chr(97 + number)), [1, 2, 3, 4])
        engine.step()
    assert engine.half.gauges()["disk_writing_pages"] == 2
    assert engine.half.totals()["disk_passed_pages"] >= 20
    assert engine.half.pages.held == 2


def test_a_reset_makes_pages_unreachable_here_and_later() -> None:
    """What is computed after it may be of other weights: no later process finds that."""
    disk = kept()
    engine = restarted(disk, policy=Policy.WRITE_THROUGH)
    assert engine.ask(again()) == TOKENS
    assert engine.half.reset_cache()
    assert engine.ask(again("after")) == 0
    for block in engine.pool.blocks:
        block.block_hash = None
    serve(engine, FakeRequest("new", 4, process="later "))
    assert engine.ask(again("same process", 4)) == 4 * BLOCK_TOKENS
    assert engine.disk is not None
    third = restarted(engine.disk)
    assert third.ask(again("third", 4)) == TOKENS
    # Two resets are not one.
    assert engine.half.reset_cache()
    assert engine.ask(again("at last", 4)) == 0


def test_reset_takes_back_what_waits_to_be_written() -> None:
    """What the same prompt has after the reset is written under no name of before it."""
    disk = FakeDisk(is_slow=True)
    engine = TierEngine(disk=disk, policy=Policy.WRITE_THROUGH, rows=8)
    request = FakeRequest("first", BLOCKS)
    engine.compute(request, [1, 2, 3])
    engine.step()
    engine.step()
    before = set(disk.jobs[0].pages)
    assert len(before) == 1
    assert engine.half.reset_cache()
    engine.compute(FakeRequest("second", BLOCKS), [4, 5, 6])
    engine.step()
    disk.is_slow = False
    settle(engine)
    size, tokens = BLOCK_TOKENS, request.all_token_ids
    pages = [tuple(tokens[at : at + size]) for at in range(0, TOKENS, size)]
    names = {(name, 0) for name in page_hashes(b"", pages)}
    assert disk.pages & names == before
    assert len(disk.pages) == 1 + BLOCKS
    assert engine.half.pages.held == 0


def test_a_prompt_waits_for_what_the_ranks_have_and_not_for_ever() -> None:
    """Before their first word it asks later, for some steps."""
    disk = kept()
    engine = TierEngine(disk=disk.opened())
    assert engine.ask(again()) is None
    engine.step()
    assert engine.ask(again()) == TOKENS
    silent = TierEngine(disk=disk.opened())
    for _ in range(MOST_STEPS_UNKNOWN):
        assert silent.ask(again()) is None
        silent.decide()
    assert silent.ask(again()) == 0


def test_a_hit_that_has_no_rows_is_shorter() -> None:
    """As many pages are answered as come by the rows that are free."""
    disk = kept(FakeRequest("first", 6))
    engine = restarted(disk, rows=4)
    request = again(blocks=6)
    assert engine.ask(request) == 4 * BLOCK_TOKENS
    engine.load(request, 4 * BLOCK_TOKENS, [5, 6, 7, 8])
    other = again("other", 6)
    assert engine.ask(other) == 0
    engine.step()
    engine.step()
    assert engine.half.totals()["failed_loads"] == 0
    assert engine.ask(other) == 4 * BLOCK_TOKENS


def test_windows_come_from_the_disk() -> None:
    """A hit ends where the window's pages are, of which no others are read."""
    groups = (PageGroup(), PageGroup(window_tokens=3))
    disk = FakeDisk()
    engine = TierEngine(disk=disk, policy=Policy.WRITE_THROUGH, groups=groups, rows=16)
    engine.compute(FakeRequest("first", BLOCKS), [1, 2, 3], [4, 5, 6])
    settle(engine)
    later = restarted(disk, groups=groups)
    branch = again("branch", 2)
    assert later.ask(branch) == 2 * BLOCK_TOKENS
    later.load(branch, 2 * BLOCK_TOKENS, [1, 2], [0, 7])
    copies = later.decide()
    assert sorted(group for job in copies.disk_jobs for _, group in job.pages) == [0, 0, 1]
    assert list(copies.loads[0].blocks) == [1, 2, 7]
    assert later.half.tokens_from_disk(branch) == 2 * BLOCK_TOKENS


def test_an_aborted_request_lets_go() -> None:
    """Its read goes on, its rows come free, and the pages that came are found."""
    engine = restarted(kept(), policy=Policy.WRITE_THROUGH)
    assert engine.disk is not None
    request = again()
    engine.ask(request)
    engine.load(request, TOKENS, [5, 6, 7])
    engine.disk.is_slow = True
    engine.step()
    engine.half.request_finished_all_groups(request, ([5, 6, 7],))
    engine.disk.is_slow = False
    settle(engine)
    assert engine.half.pages.held == 0
    assert engine.half.pages.on_host == BLOCKS


def test_events_say_what_came_to_the_host_from_the_disk() -> None:
    """With the hashes, parents and tokens of this process; the disk itself has no events."""
    engine = restarted(kept(), policy=Policy.WRITE_THROUGH)
    request = again()
    engine.ask(request)
    engine.load(request, TOKENS, [5, 6, 7])
    engine.step()
    engine.step()
    events = list(engine.half.take_events())
    hashes = request.block_hashes
    assert [list(each.block_hashes) for each in events] == [[each] for each in hashes]
    assert [each.parent_block_hash for each in events] == [None, *hashes[:-1]]  # type: ignore[union-attr]
    assert {each.medium for each in events} == {"CPU"}
