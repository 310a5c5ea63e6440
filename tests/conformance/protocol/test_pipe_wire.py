"""The wire: a value that is sent is decoded to an equal one, and malformed JSON is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.protocol.adapter import Adapter, Offer, make_subject
from kvcanon.conformance.protocol.wire import (
    CALLS,
    OF_COPIES,
    REFUSALS,
    NotOnTheWire,
    decoder,
    from_json,
    refusal_from_json,
    to_json,
)
from kvcanon.reference import ReferenceCache
from kvcanon.spec import errors
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import BadArgument, CacheError, OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import LoadDecision, LoadedBack, Matched, Settled
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import GPU, Counts, Key, Namespace, Slots, WritePolicy


def sent(value: object) -> object:
    """Encode and decode a value."""
    return json.loads(json.dumps(to_json(value)))


text = st.one_of(st.none(), st.text(st.characters(), max_size=5))
token = st.integers(0, 2**32 - 1)
pages = st.one_of(
    st.lists(st.tuples(token, token), max_size=4),
    st.lists(st.tuples(st.tuples(token, token)), max_size=4),
)
keys = st.builds(
    lambda some, namespace: Key(tuple(some), namespace),
    pages,
    st.builds(Namespace, text, text, text),
)


@given(keys)
def test_keys_come_back(key: Key) -> None:
    """Keys of bigrams, empty salts and half characters stay different on the wire."""
    assert from_json(Key, sent(key)) == key


@pytest.mark.parametrize(
    "value",
    [
        CacheConfig(window_tokens=3, mamba=True),
        CacheConfig(host_slots=Counts(1, 2, 3), write_policy=WritePolicy.WRITE_BACK),
        Offer(),
        Profile(window_lock_exact=False),
        Matched(3, 2, Slots((1, 2), (2,), (0,)), (7,)),
        LoadedBack(LoadDecision.ENQUEUED, 4, Counts(1), Counts()),
        LoadedBack(LoadDecision.NO_ROOM),
        Settled(((3, TransferStatus.DONE), (4, TransferStatus.FAILED))),
        Slots(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back(value: object) -> None:
    """Outcomes are decoded to equal ones."""
    assert from_json(type(value), sent(value)) == value


def test_events_come_back() -> None:
    """Events are decoded with their kind and their bytes."""
    events: tuple[Event, ...] = (
        AllBlocksCleared(),
        BlockStored(b"\0\xff", None, (1, 2), GPU, Namespace(lora="a")),
    )
    assert decoder(CALLS["take_events"].answers)(sent(events)) == events


def test_states_come_back() -> None:
    """Snapshots are decoded to equal ones."""
    for seed in range(30):
        case = draw_case(seed, Offer())
        subject = make_subject(Adapter("reference", ReferenceCache), case.config)
        client = Client(subject.cache, subject.can, subject.copies, Stamps(8))
        for action in case.actions:
            act(client, *action)
        state = subject.cache.snapshot()
        assert from_json(Snapshot, sent(state)) == state


def test_refusals_come_back() -> None:
    """Each refusal is decoded to an equal one."""
    in_the_book = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, CacheError) and each is not CacheError
    }
    # Only the judge's engine raises it, and a child has engines of its own.
    assert set(REFUSALS) == in_the_book - {"EngineRaised"}
    refusal = refusal_from_json(sent(OutOfSlots("full on GPU", 3, 1)))
    assert isinstance(refusal, OutOfSlots)
    assert str(refusal) == str(OutOfSlots("full on GPU", 3, 1))


def test_fields_as_usual_may_be_left_out() -> None:
    """Fields with a default may be left out."""
    assert from_json(Slots, {"full": [1]}) == Slots((1,))
    assert from_json(Key, {"pages": [[1]]}) == Key(((1,),))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Key, {"pages": [["x"]]}, "'x' is nothing that may stand here"),
        (Key, {"pages": [[True]]}, "True is nothing that may stand here"),
        (Key, {"pages": 7}, "7 is no list"),
        (Key, {"page": []}, "it lacks pages"),
        (Slots, {"full": [], "swo": []}, "it has swo"),
        (Slots, [], "is no object"),
        (Slots, {"full": [1.5]}, "1.5 is no int"),
        (Counts, {"full": True}, "True is no int"),
        (CacheConfig, {"write_policy": "later"}, "'later' is none of none, write_through"),
        (BlockStored, {"block_hash": "xyz"}, "it lacks parent_hash, page, medium"),
        (Settled, {"transfers": [[1]]}, "[1] has not 2 parts"),
    ],
    ids=str,
)
def test_what_is_no_value_is_refused(kind: type, value: object, said: str) -> None:
    """Malformed values are refused by the decoder."""
    with pytest.raises(NotOnTheWire) as refusal:
        from_json(kind, value)
    assert said in str(refusal.value)


@pytest.mark.parametrize("value", ["xyz", 7, None, "0"])
def test_bytes_are_hex(value: object) -> None:
    """Bytes must be valid hex."""
    with pytest.raises(NotOnTheWire, match="is no bytes in hex"):
        decoder(bytes)(value)


def test_values_are_still_checked_by_their_class() -> None:
    """An invalid configuration is refused."""
    with pytest.raises(BadArgument):
        from_json(CacheConfig, {"page_size": 0})


def test_every_operation_can_be_called() -> None:
    """Every operation's arguments and answer can be encoded."""
    for name, call in CALLS.items():
        for kind in (*call.takes.values(), call.answers):
            assert callable(decoder(kind)), name
    assert {"match", "admit", "evict", "snapshot", "free_slots", *OF_COPIES} <= set(CALLS)
    assert CALLS["match"].takes == {"key": Key}
