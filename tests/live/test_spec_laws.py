"""The native ledger and the book agree on streams: each law of `kvcanon.spec` that they show."""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.live.dialects import DIALECTS, Dialect
from kvcanon.live.encode import encode_batch
from kvcanon.live.follower import Follower
from kvcanon.live.frames import Frame
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, Residency
from kvcanon.spec.law import LAWS, Stream
from kvcanon.spec.types import CPU, GPU, Namespace
from sent_events import removes, stores
from states import state_of
from states.events import BACK

JUDGED = ("EVENT-1", "EVENT-2", "EVENT-6", "EVENT-9", "EVENT-13")
"""The laws of the book that a stream shows by itself, page by page."""

STATE = state_of(evolve(BACK, page_size=4))

PROMPTS = [
    stores(*prompt, namespace=namespace)
    for prompt in ([0, 2, 4], [0, 2, 6], [0, 8])
    for namespace in (Namespace(), Namespace(cache_salt="s"))
]


def other(event: Event, number: int) -> Event:
    """An event with one thing wrong, chosen by a number; or another medium."""
    if isinstance(event, AllBlocksCleared):
        return event
    medium = CPU if event.medium is GPU else GPU
    if isinstance(event, BlockRemoved):
        return BlockRemoved(event.block_hash, medium)
    page, parent, block_hash = event.page, event.parent_hash, event.block_hash
    if number == 1:
        # Each dialect sends another end of it.
        block_hash = bytes([block_hash[0] ^ 1, *block_hash[1:-1], block_hash[-1] ^ 1])
    elif number == 2:
        parent = bytes(32) if parent is None else None
    elif number == 3:
        page = tuple(reversed(page))
    else:
        return BlockStored(block_hash, parent, page, medium, event.namespace)
    return BlockStored(block_hash, parent, page, event.medium, event.namespace)


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Stores and removes of a few prompts, mostly in order, some with a fault."""
    events: list[Event] = []
    if draw(st.integers(0, 9)):
        events.append(AllBlocksCleared())
    for _ in range(draw(st.integers(1, 5))):
        prompt = draw(st.sampled_from(PROMPTS))
        part = prompt[draw(st.sampled_from([0, 0, 0, 1, 2])) :]
        leaves = draw(st.sampled_from([False, True]))
        events += removes(part) if leaves else part
    if events and draw(st.sampled_from([False, True])):
        at = draw(st.integers(0, len(events) - 1))
        events[at] = other(events[at], draw(st.integers(0, 4)))
    return events


def broken_by_the_book(events: list[Event]) -> set[str]:
    """The laws that the stream breaks, as the functions of the book judge it."""
    # Under write_back a parent may lack a host copy, as the ledger supposes where nobody tells it.
    stream = Stream(Residency(), tuple(events), STATE, begins=True)
    return {law_id for law_id in JUDGED if any(True for _ in LAWS[law_id].check(stream))}


@given(streams(), st.sampled_from([each for each in DIALECTS if each is not Dialect.LEGACY]))
def test_the_ledger_judges_as_the_book(events: list[Event], dialect: Dialect) -> None:
    """Up to its first fault a stream is sound to both, and then broken to both."""
    follower = Follower()
    for number, _ in enumerate(events):
        payload = encode_batch(events[number : number + 1], dialect, 1.0)
        found = {finding.law_id for finding in follower.take(Frame(0, b"", number, payload, 1.0))}
        book = broken_by_the_book(events[: number + 1])
        if not found and not book:
            continue
        if not book:
            # The book checks these step by step, with snapshots.
            assert found <= {"EVENT-7", "EVENT-12"}
        elif not found:
            # Whether hashes follow from tokens is not judged before one did.
            assert book == {"EVENT-6"}
            assert not follower.books()[0].counts["verified"]
        else:
            assert found & book
        return
