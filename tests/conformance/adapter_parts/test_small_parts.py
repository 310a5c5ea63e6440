"""The small parts of adapters: tokens, arguments, receipts, requests, bytes and events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvcanon.conformance.adapter_parts.arguments import (
    check_allocate,
    check_evict,
    check_insert,
    check_prompt,
    check_room,
)
from kvcanon.conformance.adapter_parts.event_log import EventLog
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.small_tokens import SmallTokens
from kvcanon.conformance.adapter_parts.token_slots import (
    NotWholePages,
    extra_key_of,
    namespace_of_extra_key,
    page_count,
    page_slots,
    token_indices,
    tokens_of,
)
from kvcanon.conformance.cases.client import NAMESPACES
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots, ReceiptSpent
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Counts, Key, Namespace, Slots

KEY = Key(((1, 2), (3, 4), (5, 6)))


# Tokens and pages.


def test_tokens_of_a_key_are_one_list() -> None:
    """Pages are joined in order."""
    assert tokens_of(KEY) == [1, 2, 3, 4, 5, 6]
    assert tokens_of(Key(())) == []


@pytest.mark.parametrize("padding", [0, 1])
def test_page_slots_and_token_indices_are_inverse(padding: int) -> None:
    """A slot is `page_size` consecutive indices, after the padding."""
    assert token_indices((2, 0), 3) == [6, 7, 8, 0, 1, 2]
    indices = token_indices((4, 0, 7), 4, padding)
    assert page_slots(indices, 4, padding) == (4, 0, 7)


@pytest.mark.parametrize("torn", [[0, 1, 2], [1, 2], [0, 1, 3, 2], [0, 2]])
def test_torn_pages_are_an_error(torn: list[int]) -> None:
    """Indices that are no whole pages are reported, not rounded."""
    with pytest.raises(NotWholePages, match="whole pages of 2 tokens"):
        page_slots(torn, 2)
    assert page_slots(torn, 1) == tuple(torn)


def test_numbers_of_tensors_are_taken_and_others_are_not() -> None:
    """Indices and lengths may be integers of any kind; nothing is rounded."""
    slots = page_slots(torch.tensor([2, 3, 0, 1]), 2)
    assert slots == (1, 0)
    assert all(type(slot) is int for slot in slots)
    assert page_count(torch.tensor(6), 3) == 2
    with pytest.raises(NotWholePages, match="7 tokens are no whole pages of 3"):
        page_count(7, 3)
    with pytest.raises(TypeError):
        page_slots([2.5], 1)  # type: ignore[list-item]  # What a faulty cache may answer.


def test_long_lists_of_torn_pages_are_cut_in_the_message() -> None:
    """A message about thousands of indices stays one line."""
    with pytest.raises(NotWholePages) as caught:
        page_slots(range(1, 5001), 2)
    assert len(str(caught.value)) < 250


def test_namespaces_have_different_extra_keys() -> None:
    """Each namespace has its own text, and can be read back; the default one has none."""
    texts = [extra_key_of(namespace) for namespace in NAMESPACES]
    assert texts[0] is None
    assert len(set(texts)) == len(NAMESPACES)
    assert tuple(namespace_of_extra_key(text) for text in texts) == NAMESPACES


# Arguments.


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (lambda: check_allocate(Counts(full=-1)), "counts: have -1 full slots"),
        (lambda: check_allocate(Counts(mamba=1)), "counts: have 1 mamba slots"),
        (lambda: check_allocate(Counts(1, 2), (FULL, SWA)), "2 window slots for 1 pages"),
        (lambda: check_evict(Counts(swa=-2)), "counts: have -2 swa slots"),
        (lambda: check_insert(KEY, -1, Slots((1, 2, 3, 4))), "start_pages: is -1"),
        (lambda: check_insert(KEY, 4, Slots()), "start_pages: is 4"),
        (lambda: check_insert(KEY, 2, Slots((1,)), 4), "counted_pages: is 4"),
        (lambda: check_insert(KEY, 2, Slots((1,)), -1), "counted_pages: is -1"),
        (lambda: check_insert(KEY, 2, Slots((1, 2))), "slots.full: has 2 slots"),
        (lambda: check_insert(KEY, 2, Slots((1,), (1, 2))), "slots.swa: has 2 slots"),
        (lambda: check_insert(KEY, 2, Slots((1,), (), (1, 2))), "slots.mamba: has 2 states"),
        (lambda: check_prompt(Key(())), "key: is empty"),
        (lambda: check_insert(Key(()), 0, Slots((), (), (1,))), "slots.mamba: has 1 states"),
    ],
)
def test_wrong_arguments_are_refused(check: Callable[[], None], problem: str) -> None:
    """Each wrong argument is refused in words that name it."""
    with pytest.raises(BadArgument, match=problem):
        check()


def test_right_arguments_are_served() -> None:
    """What the judge may ask for is not refused."""
    check_allocate(Counts())
    check_allocate(Counts(2, 2, 3), tuple(CacheConfig(window_tokens=2, mamba=True).components))
    check_evict(Counts(1, 1, 1))
    check_insert(KEY, 0, Slots((7, 8, 9)), 3)
    check_insert(KEY, 3, Slots(), 0)
    check_insert(KEY, 1, Slots((7, 8), (4,), (1,)))
    check_prompt(KEY.prefix(1))
    check_room("full on GPU", 3, 3)
    with pytest.raises(OutOfSlots):
        check_room("full on GPU", 4, 3)


# Receipts.


def test_receipt_is_spent_once() -> None:
    """The handle comes back once, whatever it is."""
    receipts = Receipts[object]()
    one, two = receipts.issue(KEY, None), receipts.issue(KEY, "node")
    assert one.receipt_id != two.receipt_id
    assert receipts.spend(one) is None
    with pytest.raises(ReceiptSpent):
        receipts.spend(one)
    with pytest.raises(ReceiptSpent):
        receipts.spend(Receipt(two.receipt_id, KEY.prefix(1)))
    assert receipts.handle_of(two) == "node"
    with pytest.raises(CacheBusy):
        receipts.check_none_open()
    assert receipts.spend(two) == "node"
    receipts.check_none_open()


def test_lock_covers_the_prefixes_of_its_key() -> None:
    """What an open lock covers is known to be cached; nothing else is."""
    receipts = Receipts[str]()
    receipt = receipts.issue(KEY.prefix(2), "node")
    assert receipts.covering(KEY.prefix(2)) == "node"
    assert receipts.covering(KEY.prefix(1)) == "node"
    for other in (KEY, Key(((1, 2),), Namespace("a")), Key(((9, 9),))):
        with pytest.raises(BadArgument, match="no lock covers"):
            receipts.covering(other)
    receipts.spend(receipt)
    with pytest.raises(BadArgument, match="no lock covers"):
        receipts.covering(KEY.prefix(1))


# Requests.


def test_request_runs_until_it_ends() -> None:
    """A request is known from its start to its end, and no other is."""
    running = RunningRequests[str]()
    running.start(1, "sequence")
    assert running.get(1) == "sequence"
    with pytest.raises(BadArgument, match="runs already"):
        running.start(1, "other")
    with pytest.raises(CacheBusy):
        running.check_none()
    assert running.end(1) == "sequence"
    running.check_none()
    for call in (running.get, running.end):
        with pytest.raises(BadArgument, match="does not run"):
            call(1)


def admit(running: RunningRequests[str], undone: list[str], *, room: int) -> None:
    """Admit request 1, which needs two slots; zero slots crash the engine."""
    with running.admission(1, "sequence", undo=undone.append) as sequence:
        assert sequence == "sequence"
        check_room("full on GPU", 2 // room, 1)


def test_admission_is_undone_when_slots_run_out() -> None:
    """A refused request is ended by the engine's own call, and does not run."""
    running, undone = RunningRequests[str](), list[str]()
    with pytest.raises(OutOfSlots):
        admit(running, undone, room=1)
    assert undone == ["sequence"]
    admit(running, undone, room=2)
    assert running.get(1) == "sequence"
    assert undone == ["sequence"]


def test_admission_does_not_cover_up_a_crash() -> None:
    """Any other exception of the engine is passed on, and nothing is undone."""
    running, undone = RunningRequests[str](), list[str]()
    with pytest.raises(ZeroDivisionError):
        admit(running, undone, room=0)
    assert not undone


# Bytes.


def test_memory_keeps_what_was_written_last() -> None:
    """Each slot of each component has bytes of its own."""
    config = CacheConfig(window_tokens=2, device_slots=Counts(2, 2, 0), slot_bytes=2)
    memory = SlotMemory(config)
    assert memory.read(FULL, GPU, 1) == b"\0\0"
    memory.write(FULL, 1, b"ab")
    memory.write(SWA, 1, b"cd")
    memory.write(FULL, 1, b"ef")
    assert memory.read(FULL, GPU, 1) == b"ef"
    assert memory.read(SWA, GPU, 1) == b"cd"
    for component, medium, slot in ((FULL, GPU, 2), (FULL, GPU, -1), (FULL, CPU, 0)):
        with pytest.raises(BadArgument, match="slot"):
            memory.read(component, medium, slot)
    with pytest.raises(BadArgument, match="data: has 3 bytes"):
        memory.write(FULL, 1, b"abc")


# Events.


def test_events_are_those_of_the_cache() -> None:
    """The log has the cache's events in order, with page hashes for its block hashes."""
    namespace = Namespace(lora="a")
    key = Key(KEY.pages, namespace)
    first, second, _ = page_hashes(namespace_seed(namespace), key.pages)
    log = EventLog()
    log.learn(key, [7, 8, 9])
    log.stored(7, None, (1, 2), namespace=namespace)
    log.stored(8, 7, (3, 4), namespace=namespace, medium=CPU)
    log.removed(8, medium=CPU)
    log.cleared()
    assert log.take() == (
        AllBlocksCleared(),
        BlockStored(first, None, (1, 2), GPU, namespace),
        BlockStored(second, first, (3, 4), CPU, namespace),
        BlockRemoved(second, CPU),
        AllBlocksCleared(),
    )
    assert log.take() == ()


def test_unknown_block_gets_no_page_hash() -> None:
    """A block that no key had is passed on under its own name, which no page hash is."""
    log = EventLog()
    log.learn(KEY.prefix(1), [7])
    log.removed(8)
    assert log.take()[1:] == (BlockRemoved(b"8", GPU),)
    with pytest.raises(ValueError, match="longer"):
        log.learn(KEY, [7, 8])


@pytest.mark.parametrize("largest", [5, 2**31 - 1])
def test_small_tokens_are_one_to_one(largest: int) -> None:
    """Each token has one number that fits, and no two tokens have the same."""
    tokens = [0, largest + 1, largest, 2**32 - 1, largest + 1, largest - 1]
    small = SmallTokens(largest)
    numbers = small.tokens_of(Key((tuple(tokens),)))
    assert max(numbers) <= largest
    assert numbers[0] == 0
    assert numbers[1] == numbers[4]
    assert len(set(numbers)) == len(set(tokens))
    assert small.tokens_of(Key((tuple(tokens),))) == numbers
