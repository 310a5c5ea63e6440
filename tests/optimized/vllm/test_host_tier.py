"""The host tier for vLLM: what is stored, answered, loaded and let go, without vLLM."""

from __future__ import annotations

import pytest

from kvcanon.optimized.vllm.step_copies import EndedStores, StepCopies
from kvcanon.optimized.vllm.tier_config import EngineGroup, host_rows, read_config
from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy
from tier_engine import FakeRequest, TierEngine


def stored(engine: TierEngine, blocks: int = 3, name: str = "first") -> FakeRequest:
    """Let a prompt be computed in blocks 1, 2, ..., and stored before they are evicted."""
    request = FakeRequest(name, blocks)
    table = list(range(1, blocks + 1))
    engine.compute(request, table)
    engine.pool.order(list(reversed(table)))
    # Another request takes as many blocks, so that the free queue is looked at.
    engine.compute(FakeRequest(f"{name} after", blocks, start="q"), list(range(9, 9 + blocks)))
    while engine.half.has_pending_push_work():
        engine.step()
    return request


def test_write_back_stores_what_is_near_eviction() -> None:
    """The head of the free queue is on the host before it is evicted, and nothing else."""
    engine = TierEngine()
    stored(engine, 2)
    assert engine.ask(FakeRequest("again", 2)) == 4
    assert engine.ask(FakeRequest("other", 2, start="q")) == 0


def test_write_through_stores_what_was_computed() -> None:
    """Under write_through a page is stored once it is computed, with no eviction near."""
    engine = TierEngine(policy=Policy.WRITE_THROUGH)
    engine.compute(FakeRequest("first", 2), [1, 2])
    engine.step()
    engine.step()
    assert engine.ask(FakeRequest("again", 2)) == 4


@pytest.mark.parametrize("policy", Policy)
def test_load_moves_or_copies(policy: Policy) -> None:
    """After a load write_back has the pages on the device alone, write_through in both places."""
    engine = TierEngine(policy=policy)
    stored(engine, 2)
    request = FakeRequest("again", 2)
    assert engine.ask(request) == 4
    engine.load(request, 4, [5, 6])
    engine.step()
    assert engine.ask(FakeRequest("third", 2)) == (0 if policy is Policy.WRITE_BACK else 4)


def test_step_waits_for_stores_of_blocks_that_it_overwrites() -> None:
    """A block that is given away while it is stored is waited for; no other is."""
    engine = TierEngine()
    stored(engine, 2)
    engine.pool.order([9, 10])
    waited = len(engine.copies.waited)
    begun = engine.decide(new=[(FakeRequest("next", 2, start="r"), [[11, 12]])])
    assert [list(job.blocks) for job in begun.stores] == [[9, 10]]
    assert not begun.awaited
    later = engine.decide(new=[(FakeRequest("last", 1, start="s"), [[10]])])
    assert later.awaited == {begun.stores[0].number}
    engine.work(begun)
    engine.work(later)
    assert engine.copies.waited[waited:] == [begun.stores[0].number]


def test_block_given_away_unstored_is_stored_before_its_step() -> None:
    """What the walk did not reach is stored late, and its step waits."""
    engine = TierEngine()
    engine.compute(FakeRequest("first", 2), [1, 2])
    for block in (1, 2):
        engine.pool.blocks[block].block_hash = None
    step = engine.decide(new=[(FakeRequest("next", 2, start="q"), [[1, 2]])])
    assert step.awaited == {job.number for job in step.stores}
    assert [list(job.blocks) for job in step.stores] == [[1, 2]]


def test_pages_in_flight_are_loaded_for_another_request_too() -> None:
    """Two requests load the same pages at once; they leave the host when both loads have ended."""
    engine = TierEngine()
    stored(engine, 2)
    first, second = FakeRequest("again", 2), FakeRequest("third", 2)
    assert engine.ask(first) == 4
    engine.load(first, 4, [5, 6])
    engine.work(engine.decide())
    assert engine.ask(second) == 0
    engine = TierEngine()
    stored(engine, 2)
    for request, blocks in ((first, [5, 6]), (second, [7, 8])):
        assert engine.ask(request) == 4
        engine.load(request, 4, blocks)
    copies = engine.decide()
    assert [set(job.rows) for job in copies.loads] == [{0, 1}, {0, 1}]
    engine.half.request_finished_all_groups(first, ([5, 6],))
    engine.work(copies)
    assert engine.half.pages.held == 0
    assert engine.ask(FakeRequest("fourth", 2)) == 0


def test_failed_load_is_not_asked_again() -> None:
    """A load that failed is forgotten: its request computes, and others find nothing."""
    engine = TierEngine()
    stored(engine, 2)
    request = FakeRequest("again", 2)
    engine.ask(request)
    engine.load(request, 4, [5, 6])
    copies = engine.decide()
    engine.copies.failing = {copies.loads[0].number}
    engine.work(copies)
    assert engine.ask(request) == 0
    assert engine.ask(FakeRequest("third", 2)) == 0
    assert engine.half.pages.held == 0


def test_request_whose_load_failed_computes_itself() -> None:
    """It is answered nothing also where others find the same pages again."""
    engine = TierEngine()
    stored(engine, 2)
    request = FakeRequest("again", 2)
    engine.ask(request)
    engine.load(request, 4, [5, 6])
    copies = engine.decide()
    engine.copies.failing = {copies.loads[0].number}
    engine.work(copies)
    stored(engine, 2, "computed anew")
    assert engine.ask(FakeRequest("third", 2)) == 4
    assert engine.ask(request) == 0


def test_page_whose_store_failed_is_not_found() -> None:
    """Its row has anything in it, and is used for another page."""
    engine = TierEngine()
    engine.compute(FakeRequest("first", 2), [1, 2])
    engine.pool.order([2, 1])
    copies = engine.decide(new=[(FakeRequest("next", 2, start="q"), [[9, 10]])])
    engine.copies.failing = {job.number for job in copies.stores}
    engine.work(copies)
    assert engine.ask(FakeRequest("again", 2)) == 0
    assert engine.half.pages.on_host == 0
    stored(engine, 2, "computed anew")
    assert engine.ask(FakeRequest("third", 2)) == 4


def test_load_comes_after_the_stores_that_read_its_blocks() -> None:
    """Else it would write over what they are copying."""
    engine = TierEngine()
    stored(engine, 2)
    engine.compute(FakeRequest("other", 2, start="r"), [11, 12])
    engine.pool.order([12, 11])
    begun = engine.decide(new=[(FakeRequest("next", 2, start="s"), [[13, 14]])])
    readers = {job.number for job in begun.stores if {11, 12} & set(job.blocks)}
    assert readers
    request = FakeRequest("again", 2)
    assert engine.ask(request) == 4
    engine.load(request, 4, [11, 12])
    (load,) = engine.decide().loads
    assert load.after >= readers


def test_failures_are_reported_from_the_last_load_on() -> None:
    """One a step, and after the loads that began later: the queue's head frees blocks last."""
    engine = TierEngine(policy=Policy.WRITE_THROUGH)
    stored(engine, 2)
    names = ["first load", "second load", "third load"]
    for at, name in enumerate(names):
        request = FakeRequest(name, 2)
        engine.ask(request)
        engine.load(request, 4, [3 + 2 * at, 4 + 2 * at])
    copies = engine.decide()
    engine.copies.failing = {copies.loads[0].number, copies.loads[2].number}
    engine.worker.handle_preemptions(copies)
    engine.worker.start_load_kv(None)
    reported = [engine.worker.get_transfer_results(set()) for _ in range(3)]
    assert [each.finished_recving for each in reported] == [
        {"second load", "third load"},
        {"first load"},
        set(),
    ]
    assert [each.failed_recving for each in reported] == [{"third load"}, {"first load"}, set()]


def test_load_that_could_block_an_earlier_one_is_not_begun() -> None:
    """While a loaded request waits, another is answered only what leaves the blocks it needs."""
    engine = TierEngine(policy=Policy.WRITE_THROUGH)
    stored(engine, 2)
    first, second = FakeRequest("again", 2), FakeRequest("third", 2)
    engine.ask(first)
    engine.load(first, 4, [5, 6])
    engine.step()
    # Of three blocks each, the first has two.
    for free, answer in ((3, 0), (4, 4)):
        engine.pool.free = free
        assert engine.ask(second) == answer
    engine.pool.free = 3
    engine.step(new=[(first, [[5, 6, 7]])])
    assert engine.ask(second) == 4


def test_answers_are_idempotent_and_let_go() -> None:
    """Asking twice holds pages once; a request that ends or is given nothing lets go of them."""
    engine = TierEngine()
    stored(engine, 2)
    request = FakeRequest("again", 2)
    assert engine.ask(request) == engine.ask(request) == 4
    assert engine.half.pages.held == 2
    engine.half.request_finished_all_groups(request, ([],))
    assert engine.half.pages.held == 0
    other = FakeRequest("other", 2)
    engine.ask(other)
    engine.load(other, 0, [5, 6])
    assert engine.half.pages.held == 0


def test_reset_outdates_stores_in_flight() -> None:
    """What is being stored at a reset is not found after it, and its rows come free."""
    engine = TierEngine(rows=2)
    engine.compute(FakeRequest("first", 2), [1, 2])
    engine.pool.order([2, 1])
    copies = engine.decide(new=[(FakeRequest("next", 4, start="q"), [[5, 6, 7, 8]])])
    assert copies.stores
    assert engine.half.reset_cache()
    engine.work(copies)
    assert engine.ask(FakeRequest("again", 2)) == 0
    assert not engine.half.has_pending_push_work()
    stored(engine, 2, "second")
    assert engine.ask(FakeRequest("at last", 2)) == 4


def test_reset_with_a_load_in_flight_says_so() -> None:
    """A request that still loads would compute with old bytes: the reset is answered False."""
    engine = TierEngine()
    stored(engine, 2)
    request = FakeRequest("again", 2)
    engine.ask(request)
    engine.load(request, 4, [5, 6])
    assert engine.half.reset_cache() is False


@pytest.mark.parametrize("field", ["mm_features", "prompt_embeds", "skip_reading_prefix_cache"])
def test_requests_that_are_not_served_are_answered_nothing(field: str) -> None:
    """Media, embeddings, and requests that read no cache."""
    engine = TierEngine()
    stored(engine, 2)
    request = FakeRequest("again", 2)
    setattr(request, field, [object()] if field == "mm_features" else True)
    assert engine.ask(request) == 0


def test_branch_under_a_window_is_served_from_host_and_device() -> None:
    """A prompt that branches finds full pages on the device and the window's on the host."""
    engine = TierEngine(groups=(PageGroup(), PageGroup(window_tokens=3)))
    request = FakeRequest("first", 3)
    engine.compute(request, [1, 2, 3], [4, 5, 6])
    # Window blocks leave first, since they are free first.
    engine.pool.order([4, 5, 6])
    engine.compute(FakeRequest("next", 2, start="q"), [7, 8], [9, 10])
    engine.step()
    engine.pool.blocks[5].block_hash = None
    branch = FakeRequest("branch", 2)
    assert engine.ask(branch) == 4
    engine.load(branch, 4, [11, 12], [0, 13])
    copies = engine.decide()
    (load,) = copies.loads
    assert list(load.blocks) == [11, 12, 13]
    assert {block for job in copies.stores for block in job.blocks} >= {1, 2}
    assert load.after >= {job.number for job in copies.stores if 1 in job.blocks}


def test_long_free_queue_is_not_walked_each_step() -> None:
    """Steps that use no block look at none of the free queue."""
    engine = TierEngine()
    stored(engine, 2)
    engine.pool.order([9, 10])
    engine.pool.free_block_queue = None
    for _ in range(5):
        engine.step()


def given_to_another_connectors_load(engine: TierEngine) -> StepCopies:
    """Let blocks 1 and 2 be given to a request that another connector loads for."""
    request = FakeRequest("loaded by another", 2, start="q")
    engine.half.on_new_request(request)
    assert engine.ask(request) == 0
    engine.load(request, 0, [1, 2])
    return engine.decide()


def test_blocks_that_another_connector_loads_into_are_not_saved_late() -> None:
    """VLLM names them without a load, and schedules nothing: their bytes are about to be others."""
    engine = TierEngine()
    engine.compute(FakeRequest("first", 2), [1, 2])
    assert not given_to_another_connectors_load(engine).stores
    # What the blocks held is forgotten, and not saved when the loaded request computes, either.
    engine.step(new=[(FakeRequest("loaded by another", 2, start="q"), [[1, 2]])])
    assert not engine.half.has_pending_push_work()
    assert engine.ask(FakeRequest("again", 2)) == 0


def test_store_of_a_block_that_another_connector_loads_into_is_not_trusted() -> None:
    """Its copy may have read the bytes of the other's load."""
    engine = TierEngine(policy=Policy.WRITE_THROUGH)
    engine.compute(FakeRequest("first", 2), [1, 2])
    copies = engine.decide()
    assert copies.stores
    later = given_to_another_connectors_load(engine)
    assert later.awaited == {job.number for job in copies.stores}
    engine.work(copies)
    assert engine.half.pages.on_host == 0


def test_store_counts_when_all_ranks_ended_it() -> None:
    """One rank of two is not enough, and one that failed is one too few."""
    ended = EndedStores()
    ended.ended[1] += 1
    other = EndedStores()
    other.ended[1] += 1
    other.moved[1] += 1
    both = ended.aggregate(other)
    assert both.ended[1] == 2
    assert both.moved[1] == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host_gb": 1}, "host_gb"),
        ({"host_gib": 0}, "host_gib"),
        ({"host_gib": True}, "host_gib"),
        ({"policy": "lazy"}, "write_back, write_through"),
        ({"disk_folder": "/d"}, "disk_folder and no disk_gib"),
        ({"disk_gib": 1}, "disk_gib and no disk_folder"),
        ({"disk_weights": "v1"}, "disk_weights and no disk_folder"),
        ({"disk_folder": "", "disk_gib": 1}, "disk_folder in .* is ''"),
        ({"disk_folder": 3, "disk_gib": 1}, "disk_folder in .* is 3"),
        ({"disk_folder": "/d", "disk_gib": -1}, "disk_gib"),
        ({"disk_folder": "/d", "disk_gib": float("inf")}, "disk_gib"),
        ({"disk_folder": "/d", "disk_gib": 1, "disk_weights": 7}, "disk_weights in .* is 7"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(given: dict[str, object], words: str) -> None:
    """The sentence names the option and what it takes."""
    with pytest.raises(ValueError, match=words):
        read_config(given)


def test_room_on_the_disk_is_shared_by_ranks() -> None:
    """As that of the host is."""
    config = read_config({"disk_folder": "/d", "disk_gib": 3})
    assert config.disk_bytes(2) == 3 << 29
    assert (config.disk_folder, config.disk_weights) == ("/d", "")
    assert not read_config({}).disk_folder


def test_host_without_room_for_a_block_is_refused() -> None:
    """One sentence says so at the start."""
    with pytest.raises(ValueError, match="no room for a block"):
        host_rows(read_config({"host_gib": 1e-9}), [EngineGroup(("a",), 64, PageGroup())], 1)
