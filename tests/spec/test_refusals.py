"""The table of refusals, cell by cell: calls are refused where a ground stands, only there."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from attrs import evolve, fields, frozen

from kvcanon.conformance.protocol.adapter import CopyControl
from kvcanon.spec import operations as op
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.refusals import REFUSALS, cells
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Slots, make_key
from kvcanon.spec.views import Step
from paths import DOCS
from scenes import BOTH_CACHES, judged
from states.judging import ask, step

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(12, 12, 5),
    host_slots=Counts(8, 8, 4),
    write_policy="write_through",
)
PLAIN = CacheConfig(device_slots=Counts(4))
LAWS_OF_REFUSALS = ("REFUSE-1", "REFUSE-2", "REFUSE-3")

WARM, COMING, NEW = (make_key(tokens, 1) for tokens in ([7, 8], [1, 2, 3], [4, 5]))
"""What is on the device, what is being loaded, and what is nowhere."""
WIDE = make_key([7, 8], 2)
PAIRS = make_key([7, 8, 9], 1, bigram=True)
BYTES = bytes(8)


@frozen
class World:
    """A cache in which every ground can stand."""

    cache: Cache
    copies: CopyControl
    held: Slots
    """Two pages of a request, with a state."""
    open_receipt: op.Receipt
    spent: op.Receipt

    def settle(self) -> None:
        """End all copies."""
        self.cache.flush()

    def rest(self) -> None:
        """Close all receipts."""
        self.settle()
        self.cache.unlock(self.open_receipt)


def world(name: str) -> World:
    """`WARM` is on the device, `COMING` is being loaded, and a request holds slots."""
    s = judged(name, CONFIG, "put 123; flush; evict full=3; put 78; flush")
    spent = s.lock("78")
    s.cache.unlock(spent)
    opened = s.lock("78")
    s.load("123")
    return World(s.cache, s.copies, s.cache.allocate(Counts(2, 2, 1)), opened, spent)


def call(cache: Cache, asked: op.Operation) -> object:
    """A cache's answer to an operation."""
    given = {each.name: getattr(asked, each.name) for each in fields(type(asked))}
    return getattr(cache, op.method_of(type(asked)))(**given)


Asked = Callable[[World], op.Operation]


def insert(start: int = 0, counted: int = 0, **slots: tuple[int, ...]) -> Asked:
    """An insert of `NEW` with the slots that the request holds, or others."""
    return lambda w: op.Insert(NEW, start, evolve(w.held, **slots), counted)


def fetch(start: int = 0, *, full: int = 2, swa: int = 0, size: int = 8) -> Asked:
    """A host insert of `NEW` with so many pages, and slots of so many bytes."""
    payload = op.HostPayload((bytes(size),) * full, (bytes(size),) * swa)
    return lambda _: op.InsertHost(NEW, start, payload)


def settle(*oks: int) -> Asked:
    """A settlement of the load in flight, named once or twice, with these outcomes."""

    def asked(w: World) -> op.Operation:
        (loading,) = w.copies.open_transfer_ids
        w.copies.acknowledge(loading)
        return op.Settle(tuple(Completion(loading, bool(ok)) for ok in oks))

    return asked


REFUSED: list[tuple[type[CacheError], Asked]] = [
    (BadArgument, lambda _: op.Match(WIDE)),
    (BadArgument, lambda _: op.Match(PAIRS)),
    (BadArgument, lambda _: op.Lock(WIDE)),
    (PrefixNotCached, lambda _: op.Lock(NEW)),
    (ReceiptSpent, lambda w: op.Unlock(w.spent)),
    (ReceiptSpent, lambda w: op.Unlock(evolve(w.open_receipt, key=COMING))),
    (ReceiptSpent, lambda w: op.UnlockWindow(w.spent)),
    (BadArgument, lambda _: op.Allocate(Counts(-1))),
    (BadArgument, lambda _: op.Allocate(Counts(1, 2))),
    (OutOfSlots, lambda _: op.Allocate(Counts(12))),
    (OutOfSlots, lambda _: op.Allocate(Counts(mamba=5))),
    (BadArgument, lambda w: op.Free(Slots(w.held.full[:1] * 2))),
    (SlotNotHeld, lambda w: op.Free(Slots((*w.held.full, 11)))),
    (BadArgument, insert(start=-1)),
    (BadArgument, insert(start=3)),
    (BadArgument, insert(counted=3)),
    (BadArgument, insert(full=())),
    (BadArgument, insert(mamba=(0, 1))),
    (BadArgument, insert(swa=())),
    (BadArgument, lambda w: op.Insert(NEW, 0, evolve(w.held, full=w.held.full[::-1]))),
    (BadArgument, lambda w: op.Insert(NEW, 0, evolve(w.held, full=w.held.full[:1] * 2))),
    (BadArgument, lambda w: op.Insert(WIDE, 0, Slots(w.held.full[:1], w.held.swa[:1]))),
    (SlotNotHeld, insert(mamba=(4,))),
    (PrefixNotCached, lambda _: op.Insert(NEW, 2, Slots())),
    (TransferPending, lambda w: op.Insert(COMING.prefix(2), 0, w.held)),
    (BadArgument, lambda _: op.Evict(Counts(-1))),
    (BadArgument, lambda _: op.EvictHost(Counts(swa=-1))),
    (BadArgument, lambda _: op.LoadBack(WARM, -1)),
    (BadArgument, lambda _: op.LoadBack(WIDE)),
    (PrefixNotCached, lambda _: op.LoadBack(NEW)),
    (BadArgument, fetch(start=3)),
    (BadArgument, fetch(full=1)),
    (BadArgument, fetch(swa=3)),
    (BadArgument, fetch(size=7)),
    (BadArgument, lambda _: op.InsertHost(WIDE, 0, op.HostPayload((BYTES,)))),
    (PrefixNotCached, fetch(start=1, full=1)),
    (BadArgument, lambda _: op.Settle((Completion(999, ok=True),))),
    (BadArgument, settle(1, 1)),
    (CacheBusy, lambda _: op.Reset()),
    (BadArgument, lambda w: op.Write(FULL, w.held.full[0], BYTES[1:])),
    (SlotNotHeld, lambda w: op.Write(FULL, 11, BYTES)),
    (SlotNotHeld, lambda w: op.Write(MAMBA, 4, BYTES)),
    (BadArgument, lambda _: op.Read(FULL, CPU, 8)),
    (BadArgument, lambda _: op.Read(SWA, GPU, -1)),
]
"""Calls for whose refusal a ground stands in the world, each with its error."""


def coming_later(w: World) -> op.Operation:
    """The insert that had to wait for a load-back, once that has ended."""
    w.settle()
    return op.Insert(COMING, 3, Slots())


def reset_at_rest(w: World) -> op.Operation:
    """A reset of an idle cache."""
    w.rest()
    return op.Reset()


SERVED: list[Asked] = [
    lambda _: op.Match(NEW),
    lambda _: op.Match(COMING),
    lambda _: op.Lock(COMING),
    lambda w: op.Unlock(w.open_receipt),
    lambda w: op.UnlockWindow(w.open_receipt),
    lambda _: op.Allocate(Counts()),
    lambda _: op.Allocate(Counts(5, 5, 1)),
    lambda w: op.Free(w.held),
    insert(),
    coming_later,
    lambda _: op.Evict(Counts(99)),
    lambda _: op.EvictHost(Counts(99)),
    lambda _: op.LoadBack(COMING, 0),
    lambda _: op.LoadBack(WARM),
    fetch(),
    lambda _: op.InsertHost(COMING, 3, op.HostPayload()),
    lambda _: op.Settle(()),
    reset_at_rest,
    lambda w: op.Write(SWA, w.held.swa[1], BYTES),
    lambda _: op.Read(MAMBA, CPU, 3),
]
"""Calls against which no ground stands."""


def of_refusals(told: Step) -> list[str]:
    """What the laws of refusals report of a step."""
    return [text for law_id in LAWS_OF_REFUSALS for text in ask(law_id, told)]


def test_every_cell_of_the_table_is_tried() -> None:
    """Every ground of the table is tried."""
    w = world("reference")
    tried = {(type(asked(w)), error) for error, asked in REFUSED}
    assert tried | {(op.LoadBack, TransferPending)} == {
        (operation, error) for operation, row in REFUSALS.items() for error in row
    }
    refusable = {operation for operation, row in REFUSALS.items() if row}
    assert {type(asked(world("reference"))) for asked in SERVED} == refusable


@pytest.mark.parametrize("name", BOTH_CACHES)
@pytest.mark.parametrize(("error", "asked"), REFUSED)
def test_a_call_is_refused_where_a_ground_stands(
    name: str, error: type[CacheError], asked: Asked
) -> None:
    """A call is refused where a ground stands; the laws hold, and report it if it is served."""
    w = world(name)
    operation = asked(w)
    before = w.cache.snapshot()
    with pytest.raises(error) as raised:
        call(w.cache, operation)
    assert of_refusals(step(before, operation, before, op.Refused(raised.value))) == []
    said = of_refusals(step(before, operation, before))
    assert any(f"must be refused with {error.__name__}: " in text for text in said)


@pytest.mark.parametrize("name", BOTH_CACHES)
@pytest.mark.parametrize("asked", SERVED)
def test_a_call_is_served_where_no_ground_stands(name: str, asked: Asked) -> None:
    """A call is served where no ground stands; the laws hold, and report it if it is refused."""
    w = world(name)
    operation = asked(w)
    before = w.cache.snapshot()
    call(w.cache, operation)
    assert of_refusals(step(before, operation, before)) == []
    for error in REFUSALS[type(operation)]:
        (text,) = of_refusals(step(before, operation, before, op.Refused(made(error))))
        assert "but this is not so: " in text


def made(error: type[CacheError]) -> CacheError:
    """A refusal of a kind, with any arguments."""
    count = len(fields(error))  # type: ignore[arg-type]  # All kinds are attrs classes.
    return error(*[1] * count)


def test_what_the_cache_has_not_is_refused() -> None:
    """A cache without a window, states and host tier refuses slots and data for them."""
    cache = judged("reference", PLAIN).cache
    (slot,) = cache.allocate(Counts(1)).full
    for asked in (
        op.Allocate(Counts(1, 1)),
        op.Allocate(Counts(mamba=1)),
        op.Free(Slots((slot,), mamba=(0,))),
        op.Insert(NEW.prefix(1), 0, Slots((slot,), mamba=(0,))),
        op.InsertHost(NEW, 0, op.HostPayload((BYTES,) * 2)),
    ):
        with pytest.raises(BadArgument) as raised:
            call(cache, asked)
        state = cache.snapshot()
        assert of_refusals(step(state, asked, state, op.Refused(raised.value))) == []
        assert "must be refused with BadArgument" in of_refusals(step(state, asked, state))[0]


# Limits.


def limited(limit: Limit) -> tuple[Snapshot, World]:
    """A world whose cache declares a limit."""
    w = world("reference")
    return evolve(w.cache.snapshot(), profile=Profile(limits=frozenset({limit}))), w


INSIDE = WARM.prefix(1)
"""A key that ends inside a node."""
AT_LIMITS: list[tuple[Limit, type[CacheError], Asked]] = [
    (Limit.NODE_HANDLES, BadArgument, lambda _: op.Lock(INSIDE)),
    (Limit.NODE_HANDLES, BadArgument, lambda _: op.LoadBack(INSIDE)),
    (Limit.NODE_HANDLES, BadArgument, lambda w: op.Insert(make_key([7, 9, 9], 1), 1, w.held)),
    (Limit.NO_QUOTA, BadArgument, lambda _: op.LoadBack(WARM, 3)),
    (Limit.ONE_LOAD, TransferPending, lambda _: op.LoadBack(WARM)),
    (Limit.PAIRS_TOGETHER, BadArgument, lambda w: op.Free(Slots(w.held.full))),
    (Limit.STATE_WITH_INSERT, BadArgument, lambda w: op.Insert(NEW, 0, evolve(w.held, mamba=()))),
]


@pytest.mark.parametrize(("limit", "error", "asked"), AT_LIMITS)
def test_a_limit_permits_a_refusal(limit: Limit, error: type[CacheError], asked: Asked) -> None:
    """A declared limit permits a refusal and does not demand it; without it, it is reported."""
    state, w = limited(limit)
    operation, refused = asked(w), op.Refused(made(error))
    assert of_refusals(step(state, operation, state, refused)) == []
    assert of_refusals(step(state, operation, state)) == []
    bare = evolve(state, profile=Profile())
    (text,) = of_refusals(step(bare, operation, bare, refused))
    assert "but this is not so: " in text


@pytest.mark.parametrize("limit", Limit)
def test_a_limit_excuses_no_other_refusal(limit: Limit) -> None:
    """A declared limit excuses no other refusal."""
    state, w = limited(limit)
    for asked in (
        op.Match(WARM),
        op.Lock(WARM),
        op.LoadBack(WARM),
        op.Insert(NEW, 0, w.held),
        op.Free(w.held),
    ):
        expected = limit is Limit.ONE_LOAD and isinstance(asked, op.LoadBack)
        for error in REFUSALS[type(asked)]:
            said = of_refusals(step(state, asked, state, op.Refused(made(error))))
            assert (said == []) is (expected and error is TransferPending)


# Where it is printed.

PAGE = (DOCS / "refusals.md").read_text("utf-8")


def test_table_stands_in_the_docs() -> None:
    """docs/refusals.md has the table that `kvcanon laws --refusals` prints."""
    assert re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE) == cells()
    never = [op.method_of(operation) for operation, row in REFUSALS.items() if not row]
    assert "`" + "`, `".join(never[:-1]) + f"` and `{never[-1]}` are never refused." in PAGE


def test_limits_stand_in_the_docs() -> None:
    """docs/refusals.md has exactly the limits that a cache can declare."""
    assert re.findall(r"^\| `(\w+)` \| (?!`\w+` \|)", PAGE, re.MULTILINE) == list(Limit)
