"""The table of refusals, cell by cell: calls are refused where a ground stands, only there."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from attrs import evolve, fields, frozen

from kvcanon.conformance.protocol.adapter import CopyControl
from kvcanon.reference import ReferenceCache
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
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Counts,
    Key,
    Medium,
    Page,
    ReceiptId,
    Slots,
    make_key,
)
from kvcanon.spec.views import Step
from paths import DOCS
from scenes import BOTH_CACHES, judged, plain, refused
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
EMPTY, INSIDE = NEW.prefix(0), WARM.prefix(1)
"""No page, and a key that ends inside a node."""
BYTES = bytes(8)


@frozen
class World:
    """A cache in which every ground can stand."""

    cache: Cache
    copies: CopyControl
    held: Slots
    """Two pages of a request, with a state."""
    bare: Slots
    """Two pages of it without window data."""
    there: Slots
    """The slots of `WARM`."""
    copying: ReceiptId
    """The receipt of the load in flight."""
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
    s = plain(CONFIG) if name == "plain" else judged(name, CONFIG)
    s.play("put 123; flush; evict full=3; put 78; flush")
    spent = s.lock("78")
    s.cache.unlock(spent)
    opened = s.lock("78")
    s.load("123")
    (copying,) = [hold for hold in s.cache.snapshot().holds if hold.transfer_id is not None]
    held, bare = s.cache.allocate(Counts(2, 2, 1)), s.cache.allocate(Counts(2))
    there = s.cache.match(WARM).slots
    return World(s.cache, s.copies, held, bare, there, copying.receipt_id, opened, spent)


def call(cache: Cache, asked: op.Operation) -> object:
    """A cache's answer to an operation."""
    given = {each.name: getattr(asked, each.name) for each in fields(type(asked))}
    return getattr(cache, op.method_of(type(asked)))(**given)


Asked = Callable[[World], op.Operation]


def always(asked: op.Operation) -> Asked:
    """A call that needs nothing of the world."""
    return lambda _: asked


def insert(start: int = 0, counted: int = 0, **slots: tuple[int, ...]) -> Asked:
    """An insert of `NEW` with the slots that the request holds, or others."""
    return lambda w: op.Insert(NEW, start, evolve(w.held, **slots), counted)


def with_states(*pages: int) -> Asked:
    """An insert of `NEW` with two states, at the ends of these pages."""
    return lambda w: op.Insert(NEW, 0, evolve(w.held, mamba=(0, 1)), state_pages=pages)


def payload(*data: tuple[bytes, ...], start: int = 0, key: Key | None = None) -> Asked:
    """A host insert of `NEW`, or of another key, with these bytes."""
    return always(op.InsertHost(NEW if key is None else key, start, op.HostPayload(*data)))


def settle(*oks: int) -> Asked:
    """A settlement of the load in flight, named once or twice, with these outcomes."""

    def asked(w: World) -> op.Operation:
        (loading,) = w.copies.open_transfer_ids
        w.copies.acknowledge(loading)
        return op.Settle(tuple(Completion(loading, bool(ok)) for ok in oks))

    return asked


def with_key(key: Key) -> list[Asked]:
    """The calls that take a key."""
    return [
        always(op.Match(key)),
        always(op.Lock(key)),
        always(op.LoadBack(key)),
        lambda w: op.Insert(key, 0, w.held),
        payload((BYTES,) * len(key), key=key),
    ]


def release(of: Callable[[World], op.Receipt]) -> list[Asked]:
    """Both releases of a receipt."""
    return [lambda w: op.Unlock(of(w)), lambda w: op.UnlockWindow(of(w))]


MALFORMED: list[tuple[Page, ...]] = [
    ((7, 8),),
    ((7,), (8, 9)),
    ((7,), ()),
    ((7,), (-1,)),
    ((7,), (1 << 32,)),
    (((7, 8),), ((8, 9),)),
]
"""Pages that are not of one token each."""
FOREIGN = (11, 12, -1, 1 << 40)
"""Slots that are free, or that there are not."""
NEGATIVE = (Counts(-1), Counts(1, -1), Counts(1, 0, -1))
SHORT, LONG = BYTES[1:], bytes(9)

REFUSED: list[tuple[type[CacheError], str, Asked]] = [
    *[(BadArgument, "key", asked) for pages in MALFORMED for asked in with_key(Key(pages))],
    (PrefixNotCached, "2 pages .* 0 are", always(op.Lock(NEW))),
    (PrefixNotCached, "3 pages .* 2 are", always(op.Lock(make_key([7, 8, 9], 1)))),
    (PrefixNotCached, "2 pages .* 1 are", always(op.Lock(make_key([7, 9], 1)))),
    *[(ReceiptSpent, "", asked) for asked in release(lambda w: w.spent)],
    *[(ReceiptSpent, "", asked) for asked in release(lambda w: evolve(w.open_receipt, key=COMING))],
    *[(ReceiptSpent, "", asked) for asked in release(lambda w: evolve(w.open_receipt, key=INSIDE))],
    *[(ReceiptSpent, "", asked) for asked in release(lambda w: op.Receipt(w.copying, WARM))],
    *[(ReceiptSpent, "", asked) for asked in release(lambda w: op.Receipt(9999, WARM))],
    *[(BadArgument, "slots asked", always(op.Allocate(each))) for each in NEGATIVE],
    (BadArgument, "slots asked", always(op.Allocate(Counts(1, 2)))),
    (OutOfSlots, "4 slots asked, 3 free", always(op.Allocate(Counts(4)))),
    (OutOfSlots, "", always(op.Allocate(Counts(mamba=5)))),
    (BadArgument, "twice", lambda w: op.Free(Slots(w.held.full[:1] * 2))),
    (SlotNotHeld, "", lambda w: op.Free(Slots((*w.held.full, w.there.full[0])))),
    (SlotNotHeld, "", lambda w: op.Free(evolve(w.held, mamba=w.there.mamba))),
    *[
        (SlotNotHeld, "", lambda w, each=each: op.Free(Slots((*w.held.full, each))))
        for each in FOREIGN
    ],
    (BadArgument, "start_pages", insert(start=-1)),
    (BadArgument, "start_pages", insert(start=3)),
    (BadArgument, "counted_pages", insert(counted=3)),
    (BadArgument, "counted_pages", insert(counted=-1)),
    (BadArgument, "", insert(full=())),
    (BadArgument, "", insert(start=1)),
    (BadArgument, "", insert(mamba=(0, 1))),
    *[
        (BadArgument, "state_pages", with_states(*pages))
        for pages in ((2, 1), (1, 1), (0, 2), (-1, 2), (1, 3), (1,), (1, 2, 3))
    ],
    (BadArgument, "more slots than pages", lambda w: op.Insert(NEW, 2, Slots(swa=w.held.swa))),
    (BadArgument, "not empty", lambda w: op.Insert(EMPTY, 0, Slots(mamba=w.held.mamba))),
    (BadArgument, "paired", insert(swa=())),
    (BadArgument, "paired", lambda w: op.Insert(NEW, 0, evolve(w.held, swa=w.held.swa[1:]))),
    (BadArgument, "paired", lambda w: op.Insert(NEW, 0, evolve(w.held, swa=w.held.swa[::-1]))),
    (BadArgument, "paired", lambda w: op.Insert(NEW, 0, evolve(w.held, full=w.held.full[::-1]))),
    (BadArgument, "paired", lambda w: op.Insert(NEW, 0, evolve(w.held, full=w.bare.full))),
    (BadArgument, "twice", lambda w: op.Insert(NEW, 0, evolve(w.held, full=w.held.full[:1] * 2))),
    *[
        (SlotNotHeld, "", lambda w, n=n: op.Insert(NEW, 0, Slots((w.bare.full[0], n))))
        for n in FOREIGN
    ],
    (SlotNotHeld, "", lambda w: op.Insert(NEW, 0, Slots((w.bare.full[0], w.there.full[0])))),
    (SlotNotHeld, "", insert(mamba=(4,))),
    (PrefixNotCached, "2 pages .* 0 are", always(op.Insert(NEW, 2, Slots()))),
    (PrefixNotCached, "2 pages .* 1 are", always(op.Insert(make_key([7, 9], 1), 2, Slots()))),
    (TransferPending, "", lambda w: op.Insert(COMING.prefix(2), 0, w.held)),
    *[(BadArgument, "", always(op.Evict(each))) for each in NEGATIVE],
    *[(BadArgument, "", always(op.EvictHost(each))) for each in NEGATIVE],
    (BadArgument, "quota_pages", always(op.LoadBack(WARM, -1))),
    (PrefixNotCached, "2 pages .* 0 are", always(op.LoadBack(NEW))),
    (PrefixNotCached, "3 pages .* 2 are", always(op.LoadBack(make_key([7, 8, 9], 1)))),
    (BadArgument, "start_pages", payload((BYTES,) * 3, start=-1)),
    (BadArgument, "start_pages", payload((BYTES,) * 2, start=3)),
    (BadArgument, "", payload((BYTES,))),
    (BadArgument, "", payload((BYTES,) * 2, start=1)),
    (BadArgument, "", payload((BYTES,) * 2, (BYTES,) * 3)),
    (BadArgument, "", payload((BYTES,) * 2, (), (BYTES,) * 2)),
    *[(BadArgument, "", payload((BYTES, wrong))) for wrong in (SHORT, LONG)],
    (BadArgument, "", payload((BYTES,) * 2, (SHORT,))),
    (BadArgument, "", payload((BYTES,) * 2, (), (LONG,))),
    (BadArgument, "lacks", payload((), (), (BYTES,), key=EMPTY)),
    (PrefixNotCached, "1 pages .* 0 are", payload((BYTES,), start=1)),
    (BadArgument, "", always(op.Settle((Completion(999, ok=True),)))),
    (BadArgument, "", settle(1, 1)),
    (CacheBusy, "", always(op.Reset())),
    *[
        (BadArgument, "data", lambda w, data=data: op.Write(FULL, w.held.full[0], data))
        for data in (SHORT, LONG, b"")
    ],
    *[(SlotNotHeld, "", always(op.Write(FULL, slot, BYTES))) for slot in FOREIGN],
    (SlotNotHeld, "", lambda w: op.Write(FULL, w.there.full[0], BYTES)),
    (SlotNotHeld, "", lambda w: op.Write(SWA, w.there.swa[0], BYTES)),
    (SlotNotHeld, "", always(op.Write(MAMBA, 4, BYTES))),
    *[(BadArgument, "slot", always(op.Read(FULL, medium, 12))) for medium in (GPU, CPU)],
    (BadArgument, "slot", always(op.Read(SWA, GPU, -1))),
    (BadArgument, "slot", always(op.Read(FULL, Medium.DISK, 0))),
]
"""Calls for whose refusal a ground stands in the world, each with its error, and what it says."""


def coming_later(w: World) -> op.Operation:
    """The insert that had to wait for a load-back, once that has ended."""
    w.settle()
    return op.Insert(COMING, 3, Slots())


def reset_at_rest(w: World) -> op.Operation:
    """A reset of an idle cache."""
    w.rest()
    return op.Reset()


OF_STORES = (op.Store, op.Prefetch, op.EndPrefetch)

SERVED: list[Asked] = [
    lambda _: op.Match(NEW),
    lambda _: op.Match(COMING),
    lambda _: op.Lock(COMING),
    lambda w: op.Unlock(w.open_receipt),
    lambda w: op.UnlockWindow(w.open_receipt),
    lambda _: op.Allocate(Counts()),
    lambda _: op.Allocate(Counts(3, 3, 1)),
    lambda w: op.Free(w.held),
    insert(),
    coming_later,
    lambda _: op.Evict(Counts(99)),
    lambda _: op.EvictHost(Counts(99)),
    lambda _: op.LoadBack(COMING, 0),
    lambda _: op.LoadBack(WARM),
    payload((BYTES,) * 2),
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
    tried = {(type(asked(w)), error) for error, _, asked in REFUSED}
    # `test_tier` tries the calls on a store, which not every cache has.
    rows = {each: row for each, row in REFUSALS.items() if each not in OF_STORES}
    assert tried | {(op.LoadBack, TransferPending)} == {
        (operation, error) for operation, row in rows.items() for error in row
    }
    refusable = {operation for operation, row in rows.items() if row}
    assert {type(asked(world("reference"))) for asked in SERVED} == refusable


each_refused = pytest.mark.parametrize(("error", "words", "asked"), REFUSED)


@pytest.mark.parametrize("name", BOTH_CACHES)
@each_refused
def test_a_call_is_refused_where_a_ground_stands(
    name: str, error: type[CacheError], words: str, asked: Asked
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


@each_refused
def test_a_refused_call_leaves_all_as_it_was(
    error: type[CacheError], words: str, asked: Asked
) -> None:
    """On the plain cache it draws no tick either, and it says what was wrong."""
    w = world("plain")
    operation = asked(w)
    assert isinstance(w.cache, ReferenceCache)
    with refused(w.cache, error, match=words or None) as info:
        call(w.cache, operation)
    assert type(info.value) is error
    assert len(str(info.value)) > 20
    w.cache.free(w.held)


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
        op.Free(Slots(swa=(0,))),
        op.Insert(NEW.prefix(1), 0, Slots((slot,), mamba=(0,))),
        op.Insert(NEW.prefix(1), 0, Slots((slot,), swa=(0,))),
        op.Read(MAMBA, GPU, 0),
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
