"""Ranks: several caches that get the same calls, seen as one cache.

A client calls it as any cache. Every call goes to all ranks, and the answer is that of the first.
Copies end on each rank at another time, and one that fails does so on one rank only. `show` is
what the law of ranks (ASYNC-11) compares.

Every second poll is the cache's own, in which the ranks agree. The others gather what has arrived,
and settle what has arrived on all, as an engine may do by itself.

In some cases the last rank has a process of its own, with another seed of Python's hashes
(`rank_process.py`).

In a call in which the ranks agree with each other each rank is in a thread, since it must wait for
the others. But only one runs at a time, in the order of the ranks, up to its next agreement or the
end of its call; so a case is played the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from attrs import evolve

from kvcanon.conformance.judge.by_states.capture import CallResult, call_cache
from kvcanon.conformance.judge.rank_engine import RankEngine
from kvcanon.conformance.judge.rank_process import EngineApart, RankApart, RankProcess, start_apart
from kvcanon.conformance.judge.rank_stores import RankStores
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    Subject,
    Unoffered,
    make_subject,
    making,
    takes_agree,
)
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.workers.hash_seeds import own_seed
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import Need
from kvcanon.spec.operations import Flush, Operation, Outcome, Poll, PollStore, Receipt, Settle
from kvcanon.spec.snapshot import RankView
from kvcanon.spec.transfer import Agree, Completion, TransferEngine, TransferOrder, arrived_on_all
from kvcanon.spec.types import Component, Medium, ReceiptId, Slot, TransferId, WritePolicy

Given = TypeVar("Given")


class _Turn(Generic[Given]):
    """One rank's call, in a thread that runs while the main thread waits for it."""

    def __init__(self, call: Callable[[], Given]) -> None:
        self.asked: list[int] | None = None
        """What the rank gave to `agree`; None if its call has ended."""
        self.answer: Given | None = None
        self.error: BaseException | None = None
        self._call = call
        self._agreed: Sequence[int] | SpecViolation = ()
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run up to the first agreement or the end."""
        self._thread.start()
        self._others.acquire()

    def go_on(self, agreed: Sequence[int] | SpecViolation) -> None:
        """Return from `agree`, or raise there, and run up to the next agreement or the end."""
        self._agreed = agreed
        self._mine.release()
        self._others.acquire()

    def abandon(self) -> None:
        """End the thread that still waits, since this one was interrupted."""
        if self.asked is not None:
            self._agreed = SpecViolation("the call was given up")
            self._mine.release()

    def agree(self, arrivals: Sequence[int]) -> Sequence[int]:
        """Wait for the other ranks; called in the thread of the rank."""
        self.asked = [int(each) for each in arrivals]
        self._others.release()
        self._mine.acquire()
        if isinstance(self._agreed, SpecViolation):
            raise self._agreed
        return self._agreed

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001  # It is raised in the main thread.
            self.error = error
        self.asked = None
        self._others.release()


class Lockstep:
    """The agreement of some ranks."""

    def __init__(self, ranks: int) -> None:
        self._turns: list[_Turn[Any] | None] = [None] * ranks
        self.agreed: list[list[int]] = [[] for _ in range(ranks)]
        """How many copies each rank named, each time that it agreed in the last operation."""

    def agree_of(self, rank: int) -> Callable[[Sequence[int]], Sequence[int]]:
        """The `agree` of a rank's cache."""
        return partial(self._agree, rank)

    def call(self, calls: Sequence[Callable[[], Given]]) -> list[Given]:
        """Make a call on each rank. Raises: what the first rank that raised did.

        A rank that others do not agree with on the same copies gets its own answer, which is what
        the laws of ranks find.
        """
        turns = [_Turn(call) for call in calls]
        self._turns = [*turns]
        try:
            for turn in turns:
                turn.start()
            while any(turn.asked is not None for turn in turns):
                asked = [turn.asked for turn in turns]
                for turn, ours in zip(turns, asked, strict=True):
                    if ours is not None:
                        turn.go_on(_least(ours, asked))
        finally:
            self._turns = [None] * len(turns)
            for turn in turns:
                turn.abandon()
        for turn in turns:
            if turn.error is not None:
                raise turn.error
        return [turn.answer for turn in turns]  # type: ignore[misc]  # Each has ended.

    def _agree(self, rank: int, arrivals: Sequence[int]) -> Sequence[int]:
        self.agreed[rank].append(len(arrivals))
        turn = self._turns[rank]
        return arrivals if turn is None else turn.agree(arrivals)


def _least(ours: list[int], asked: Sequence[list[int] | None]) -> Sequence[int]:
    """The least of the ranks that ask about as many copies as this one."""
    alike = [each for each in asked if each is not None and len(each) == len(ours)]
    return [min(each) for each in zip(*alike, strict=True)]


NEEDS = {Need.SNAPSHOT, Need.TRANSFERS, Need.HOLDS, Need.RANKS}
"""What a cache must show so that ranks can be compared."""

MakeRank = Callable[[TransferEngine, Agree, int], Cache]
"""Takes the engine, the agreement and the number of a rank."""

FAILING_WAITS = 4
"""Of the copies that are still open when the cache waits for them, one in so many fails."""


class RankCopies:
    """The copies of all ranks; each ends some operations after the client has decided how."""

    def __init__(self, ranks: int, apart: RankProcess | None = None) -> None:
        """With `apart`, the last rank is in that process."""
        fails = [partial(self._fails, rank) for rank in range(ranks)]
        here = [RankEngine(each) for each in (fails if apart is None else fails[:-1])]
        self.engines: list[RankEngine | EngineApart] = [*here]
        self._first = here[0]
        if apart is not None:
            apart.asked["fails"] = fails[-1]
            self.engines.append(EngineApart(apart))
        self._failed: dict[TransferId, bool] = {}
        """Whether a copy fails on one rank, once the client has decided."""
        self._due: list[tuple[int, int, TransferId]] = []
        """Ends to come: the operation, the rank and the copy."""
        self._now = 0

    @property
    def open_transfer_ids(self) -> Sequence[TransferId]:
        """Return the copies that no client has decided, and that are open on every rank."""
        everywhere = [set(engine.open_transfer_ids) for engine in self.engines]
        return [
            each
            for each in self._first.open_transfer_ids
            if each not in self._failed and all(each in some for some in everywhere)
        ]

    @property
    def ended(self) -> Mapping[TransferId, bool]:
        """How the copies ended that have ended on every rank."""
        ends = [engine.ended for engine in self.engines]
        return {
            each: all(some[each] for some in ends)
            for each in ends[0]
            if all(each in some for some in ends)
        }

    @property
    def orders(self) -> list[TransferOrder]:
        """The orders of the first rank in the last operation."""
        return self._first.orders

    @property
    def waits(self) -> list[TransferId]:
        """What the first rank waited for in the last operation."""
        return self._first.waits

    @property
    def broke_off(self) -> TransferId | None:
        """The transfer whose wait the engines broke off in the last operation."""
        return self._first.broke_off

    @broke_off.setter
    def broke_off(self, none: None) -> None:
        self._first.broke_off = none

    @property
    def wait_end(self) -> str:
        """How the next wait for a copy ends that began in the same call."""
        return self._first.wait_end

    def next_wait(self, end: str) -> None:
        """Say how it ends, on every rank alike."""
        for engine in self.engines:
            engine.next_wait(end)

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now, on every rank."""
        for engine in self.engines:
            engine.perform(transfer_id)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the copy end on each rank, sooner or later."""
        self._decide(transfer_id, failed=False)

    def fail(self, transfer_id: TransferId) -> None:
        """Let the copy end on each rank, and fail on one of them."""
        self._decide(transfer_id, failed=True)

    def go_on(self) -> None:
        """Let the copies end that are due before the next operation."""
        self._now += 1
        for due, rank, transfer_id in self._due:
            if due <= self._now:
                self.engines[rank].end(transfer_id)
        self._due = [each for each in self._due if each[0] > self._now]

    def _decide(self, transfer_id: TransferId, *, failed: bool) -> None:
        self._failed[transfer_id] = failed
        place = self._first.order[transfer_id]
        for rank in range(len(self.engines)):
            # Each rank is the first for some copies and the last for others.
            delay = (place + rank) % len(self.engines) * (1 + place % 2)
            self._due.append((self._now + delay, rank, transfer_id))

    def _fails(self, rank: int, place: int, transfer_id: TransferId) -> bool:
        failed = self._failed.get(transfer_id, place % FAILING_WAITS == FAILING_WAITS - 1)
        return failed and rank == place % len(self.engines)


class RankedCache(WrappedCache):
    """Several caches that get the same calls."""

    def __init__(
        self,
        make: MakeRank,
        copies: RankCopies,
        apart: RankProcess | None = None,
        stores: RankStores | None = None,
    ) -> None:
        """With `apart`, the last rank is in that process. `stores` are below the ranks."""
        self._stores = stores
        self._lockstep = Lockstep(len(copies.engines))
        self._ranks = [
            make(engine, self._lockstep.agree_of(rank), rank)
            for rank, engine in enumerate(copies.engines)
            if isinstance(engine, RankEngine)
        ]
        self._seeds = [None if apart is None else own_seed()] * len(copies.engines)
        """The hash seed of each rank, where one has another."""
        if apart is not None:
            apart.asked["agree"] = self._lockstep.agree_of(len(self._ranks))
            self._ranks.append(cast("Cache", RankApart(apart)))
            self._seeds[-1] = apart.hash_seed
        super().__init__(self._ranks[0])
        self._copies = copies
        self._outcomes: list[Outcome] = []
        """The answers of all ranks to the last operation."""
        self._receipts: dict[ReceiptId, list[Receipt]] = {}
        """The receipt of each rank, by the id of that of the first."""
        self._polls = 0
        self._settled: set[TransferId] = set()
        """Copies that were settled before the last operation that was shown."""

    def arrived(self) -> tuple[Completion, ...]:
        """Return the transfers that every rank can settle."""
        return arrived_on_all([rank.arrived() for rank in self._ranks])

    def show(self) -> tuple[RankView, ...]:
        """Show the last operation on each rank, with the ends of copies that had not settled."""
        settled, flying, views = self._settled, set[TransferId](), []
        for outcome, rank, engine, agreed, seed in zip(
            self._outcomes,
            self._ranks,
            self._copies.engines,
            self._lockstep.agreed,
            self._seeds,
            strict=True,
        ):
            state = rank.snapshot()
            flying |= {each.transfer_id for each in state.transfers}
            ended = {each: ok for each, ok in engine.ended.items() if each not in settled}
            views.append(RankView(outcome, state, ended, tuple(agreed), len(engine.waits), seed))
        self._settled = {each for view in views for each in view.ended} - flying | settled
        return tuple(views)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot on every rank."""
        for rank in self._ranks:
            rank.write(component, slot, data)

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        # What was asked just before, with `arrived`, is still all that has arrived.
        if not isinstance(operation, Settle):
            self._copies.go_on()
        if self._stores is not None:
            self._stores.begin()
        for engine, sizes in zip(self._copies.engines, self._lockstep.agreed, strict=True):
            engine.begin()
            sizes.clear()
        calls: list[Callable[[], Answer]]
        if isinstance(operation, Poll) and self._gathers():
            agreed = self.arrived()
            calls = [partial(rank.settle, agreed) for rank in self._ranks]  # type: ignore[misc]
        else:
            calls = [
                partial(getattr(rank, call.__name__), *self._of_rank(at, args), **kwargs)
                for at, rank in enumerate(self._ranks)
            ]
        attempts: list[Callable[[], CallResult[Answer]]] = [
            partial(call_cache, each) for each in calls
        ]
        if self._is_collective(operation):
            results = self._lockstep.call(attempts)
        else:
            results = [each() for each in attempts]
        self._outcomes = [result.outcome for result in results]
        receipts = [each for each in self._outcomes if isinstance(each, Receipt)]
        if len(receipts) == len(results):
            self._receipts[receipts[0].receipt_id] = receipts
        return results[0].unwrap()

    def _gathers(self) -> bool:
        self._polls += 1
        return self._polls % 2 == 1

    def _is_collective(self, operation: Operation) -> bool:
        """Whether the ranks may agree in an operation; some caches evict in any, and wait."""
        back = self.config.write_policy is WritePolicy.WRITE_BACK
        return back or isinstance(operation, Poll | Flush | PollStore)

    def _of_rank(self, rank: int, args: tuple[object, ...]) -> tuple[object, ...]:
        """The arguments, with the receipts of a rank in place of those of the first."""
        return tuple(self._receipt(rank, each) for each in args)

    def _receipt(self, rank: int, value: object) -> object:
        if not isinstance(value, Receipt) or value.receipt_id not in self._receipts:
            return value
        return evolve(value, receipt_id=self._receipts[value.receipt_id][rank].receipt_id)


def make_ranks(
    adapter: Adapter,
    config: CacheConfig,
    ranks: int,
    *,
    apart: bool = False,
    store: Medium | None = None,
) -> Subject:
    """Make empty caches that are ranks of one model. Raises: Unoffered, UsageError.

    A cache offers this if its factory takes `engine` and `agree`, and its snapshots show locks and
    transfers. `apart` puts the last rank into a process of its own, where that can be. `store` is
    the medium of the stores below the ranks, which are all in this process then.
    """
    if not config.host_tier:
        raise Unoffered("without a host tier ranks have no copies")
    if not takes_agree(adapter):
        raise Unoffered(f"{adapter.name} makes no ranks: its factory takes no `agree`")
    whole = make_subject(adapter, config, store=store)
    if not whole.shows >= NEEDS - ({Need.RANKS} if store is not None else set()):
        raise Unoffered(f"{adapter.name} does not show the states of ranks")
    with making(adapter):
        process = start_apart(adapter, config) if apart and store is None else None
        copies = RankCopies(ranks, process)
        stores = None if store is None else RankStores(ranks, store)

        def make(engine: TransferEngine, agree: Agree, rank: int) -> Cache:
            below = {} if stores is None else {"store": stores.queues[rank]}
            return cast("Cache", adapter.make(config, engine=engine, agree=agree, **below))

        cache = RankedCache(make, copies, process, stores)
    shows = whole.shows | {Need.RANKS}
    return evolve(whole, cache=cache, copies=copies, ranks=cache.show, shows=shows, store=stores)
