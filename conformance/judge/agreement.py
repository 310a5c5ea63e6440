"""Agreement: whether two caches behave the same, up to their slot numbers.

Answers are compared operation by operation, then the events, and the states page by page (data,
locks, recency) if both caches have snapshots.

Node cuts, slot numbers and the ids of receipts, transfers and orders may differ. Everything else
that a client can see is compared, to the last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any, TypeAlias

from attrs import evolve, frozen

from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import (
    EndPrefetch,
    Free,
    Insert,
    Inserted,
    LoadedBack,
    Matched,
    Operation,
    Ordered,
    Receipt,
    Settle,
    Settled,
    StorePolled,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId, OrderProgress
from kvcanon.spec.types import MAMBA, Slots, TransferId
from kvcanon.spec.views import COLUMN, PageNumbers, page_rows

Fact: TypeAlias = object
"""A comparable value without slots, receipts, transfers and nodes."""


@frozen
class AnswerDifference:
    """The first point where two caches differ."""

    what: str
    """What differs: the name of an operation, "events" or "state"."""
    text: str
    words: str
    index: int | None = None
    """The operation, counted since the last comparison; None for events or state."""


class Recorder(WrappedCache):
    """A cache whose operations are kept with their answers.

    With `folding`, events are kept as what an answer's come to, and transfers are left out: how
    copies are divided into them, and so their numbers.
    """

    def __init__(self, cache: Cache, *, folding: bool = False) -> None:
        super().__init__(cache)
        self._folding = folding
        self.facts: list[tuple[str, Fact, Fact]] = []
        """Operations and answers since the last comparison."""
        self._ordinals: dict[TransferId, int] = {}
        self._orders: dict[OrderId, int] = {}

    def forget(self) -> None:
        """Drop the recorded operations, once they are compared."""
        self.facts.clear()

    def state(self) -> Snapshot | None:
        """The state of the cache; None if it has no snapshots."""
        try:
            return self._cache.snapshot()
        except AttributeError:
            return None

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        try:
            answer = call(*args, **kwargs)
        except CacheError as refusal:
            self._note(operation, self._refusal(refusal))
            raise
        self._note(operation, self._answer(answer))
        return answer

    def _note(self, operation: Operation, answer: Fact) -> None:
        self.facts.append((type(operation).__name__.lower(), self._question(operation), answer))

    def _question(self, operation: Operation) -> Fact:
        """Return an operation without slots and ids; transfers are numbered as they appear."""
        match operation:
            case Unlock() | UnlockWindow():
                return operation.receipt.key
            case Insert():
                return evolve(operation, slots=Slots()), operation.slots.counts()
            case Free():
                return operation.slots.counts()
            case EndPrefetch():
                return evolve(operation, order_id=self._order(operation.order_id))
            case Settle():
                ids = self._numbered(tuple(each.transfer_id for each in operation.completions))
                oks = tuple(each.ok for each in operation.completions)
                return () if self._folding else tuple(zip(ids, oks, strict=True))
            case _:
                return operation

    def _answer(self, answer: object) -> Fact:
        """Return an answer without slots and ids; transfers are numbered as they appear."""
        fact: Fact = answer
        match answer:
            case Matched():
                pending = self._numbered(answer.pending)
                # MATCH-1 checks where a key leaves the tree, and a cache need not say it.
                told = evolve(answer, pending=pending, slots=Slots(), branch_pages=None)
                fact = told, answer.slots.counts()
            case Receipt():
                fact = answer.key
            case Slots():
                fact = answer.counts()
            case Inserted():
                fact = evolve(answer, backups=self._numbered(answer.backups))
            case LoadedBack() if answer.transfer_id is not None:
                fact = evolve(answer, transfer_id=sum(self._numbered((answer.transfer_id,))))
            case Ordered() if answer.order_id is not None:
                fact = evolve(answer, order_id=self._order(answer.order_id))
            case StorePolled():
                fact = tuple(self._progress(each) for each in answer.orders)
            case tuple() if self._folding:
                fact = folded_events(answer)
            case Settled():
                statuses = [status for _, status in answer.transfers]
                ids = self._numbered(tuple(transfer_id for transfer_id, _ in answer.transfers))
                fact = () if self._folding else tuple(zip(ids, statuses, strict=True))
        return fact

    def _refusal(self, refusal: CacheError) -> Fact:
        """Return the kind of a refusal, without the argument, slot, receipt or transfer it names.

        Every copy has a receipt, so that a count of them says how copies are divided.
        """
        counts_copies = self._folding and isinstance(refusal, CacheBusy)
        names = isinstance(refusal, BadArgument | ReceiptSpent | SlotNotHeld | TransferPending)
        if counts_copies or names:
            return type(refusal).__name__
        return type(refusal).__name__, str(refusal)

    def store_facts(self, state: Snapshot) -> Mapping[str, Fact]:
        """What a state says of the store below the host, without ids and slots."""
        store = state.store
        if store is None:
            return {}
        orders = {
            f"order {self._order(each.order_id)}": evolve(
                each, order_id=self._order(each.order_id), slots=(len(each.slots),)
            )
            for each in store.orders
        }
        pages = {f"page {name.hex()}": event for name, event in store.stored.items()}
        return {
            "use": store.is_open,
            "medium": store.medium,
            "orders": [*orders],
            **orders,
            **pages,
        }

    def _order(self, order_id: OrderId) -> int:
        return self._orders.setdefault(order_id, len(self._orders))

    def _progress(self, progress: OrderProgress) -> OrderProgress:
        return evolve(progress, order_id=self._order(progress.order_id))

    def _numbered(self, transfer_ids: tuple[TransferId, ...]) -> tuple[int, ...]:
        if self._folding:
            return ()
        return tuple(self._ordinals.setdefault(each, len(self._ordinals)) for each in transfer_ids)


def folded_events(events: Iterable[Event]) -> Mapping[str, Fact]:
    """Events folded: the last event of each page on each medium, after the last clearing.

    A page that came and went again is left out.
    """
    folded: dict[str, Fact] = {}
    came: set[str] = set()
    for event in events:
        if isinstance(event, AllBlocksCleared):
            folded, came = {"cleared": event}, set()
            continue
        page = f"{event.block_hash.hex()} on {event.medium}"
        if isinstance(event, BlockStored) and page not in folded:
            came.add(page)
        folded[page] = event
    gone = {page for page in came if not isinstance(folded[page], BlockStored)}
    return {page: event for page, event in folded.items() if page not in gone}


def first_difference(
    model: Recorder, other: Recorder, numbers: PageNumbers
) -> AnswerDifference | None:
    """Return the first difference of two caches since the last comparison."""
    for index, (ours, theirs) in enumerate(zip_longest(model.facts, other.facts)):
        if ours != theirs:
            return evolve(_different_answer(ours, theirs), index=index)
    state, other_state = model.state(), other.state()
    if state is None or other_state is None:
        return None
    if state.events != other_state.events:
        return _differs("events", state.events, other_state.events)
    for what, ours, theirs in zip(
        ("pages", "recency", "room", "the store"),
        (*_facts_of(state, numbers), model.store_facts(state)),
        (*_facts_of(other_state, numbers), other.store_facts(other_state)),
        strict=True,
    ):
        if ours != theirs:
            keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
            return _differs(
                "state",
                f"{what} of {keys[0]}: {ours.get(keys[0])}",
                f"{what} of {keys[0]}: {theirs.get(keys[0])}",
            )
    return None


def _facts_of(state: Snapshot, numbers: PageNumbers) -> tuple[Mapping[Any, Fact], ...]:
    """Return a state's pages, recency and free slots, without slot numbers, ids and cuts."""
    rows = page_rows(state, numbers, state.below_root())
    pages_of: dict[int, list[int]] = {}
    for number, row in rows.items():
        pages_of.setdefault(row.node_id, []).append(number)

    def there(some: tuple[int | None, ...]) -> tuple[bool, ...]:
        return tuple(each is not None for each in some)

    pages = {
        number: (
            there(row.device),
            there(row.host),
            there(row.loading),
            there(row.backing),
            row.lock_refs,
            row.hit_count,
            row.priority,
        )
        for number, row in rows.items()
    }
    recency = {
        f"{component} on {medium}": tuple(
            number
            for node_id in order
            for number in pages_of.get(node_id, [])[-1 if component is MAMBA else 0 :]
        )
        for (component, medium), order in state.recency.items()
    }
    room = {
        f"{component} on {medium}": (len(pool.free), len(pool.held))
        for (component, medium), pool in state.pools.items()
        if component in COLUMN
    }
    return pages, recency, room


def _different_answer(
    ours: tuple[str, Fact, Fact] | None, theirs: tuple[str, Fact, Fact] | None
) -> AnswerDifference:
    if ours is None or theirs is None or ours[:2] != theirs[:2]:
        name = (ours or theirs or ("nothing",))[0]
        return _differs(name, ours[:2] if ours else None, theirs[:2] if theirs else None)
    return _differs(ours[0], ours[2], theirs[2], f"asked {ours[1]}")


def _differs(what: str, ours: object, theirs: object, asked: str = "") -> AnswerDifference:
    text = f"{what}: the model has {_short(ours)}, this cache has {_short(theirs)}"
    words = f"{what} {asked}\n  the model: {ours}\n  this cache: {theirs}"
    return AnswerDifference(what, text, words)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
