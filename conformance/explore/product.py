"""What is explored: a cache, its copy engine and its users, together.

Actions on an empty cache lead to a state of the three, and only these actions are kept. To go on
from a state, the actions are replayed; the state of a plain cache is copied instead.

The state of the cache alone is not enough: held receipts and copies in flight decide what may
happen next, just as the tree does.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, evolve, frozen

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.exact_store_actions import BY_THE_STORE
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.offered_scopes import explorable
from kvcanon.conformance.explore.plain_cache import completions_of, copied, traces_of
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.protocol.adapter import Adapter, Subject, Unoffered, engine_calls
from kvcanon.reference import ManualEngine
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.types import Namespace, TransferId


@define(eq=False)
class Product:
    """A cache, its engine and its users."""

    subject: Subject
    client: Client
    engine: ManualEngine
    """Unused if the cache makes no copies."""
    decided: dict[TransferId, bool]
    """Outcomes of copies given to the engine; the cache may not have settled them yet."""
    queue: ManualQueue | None = None
    """The queue of the store below the cache, and the store; None without one."""

    def do(self, action: Action) -> None:
        """Do an action. Raises: any exception of the cache that is not a refusal."""
        act(self.client, *action)
        self.decided.update(completions_of(self.engine))
        # In a replay nobody looks at what the call asked of the engine. The next one did not ask.
        engine_calls(self.engine)
        if self.queue is not None and action.name not in BY_THE_STORE:
            self.queue.take_calls()

    def traces(self) -> tuple[object, ...] | None:
        """Hidden state that no snapshot shows; None if it cannot be read.

        Two products with equal snapshots and equal traces are the same.
        """
        subject, client = self.subject, self.client
        inside = traces_of(subject.cache, self.engine, self.queue)
        if inside is None:
            return None
        requests = [(r.key, r.receipt, r.start_pages, r.slots) for r in client.requests]
        return (
            inside,
            dict(self.decided),
            requests,
            tuple(client.receipts),
            tuple(client.spent),
            tuple(client.keys),
            tuple(client.prefetches),
        )


@frozen
class Origin:
    """The start of all paths: an empty cache of one scope."""

    adapter: Adapter
    scope: Scope
    namespaces: tuple[Namespace, ...]
    stamps: Stamps

    def empty(self) -> Product:
        """A new, unused cache. Raises: UsageError."""
        try:
            subject, engine, queue = explorable(self.adapter, self.scope)
        except Unoffered as missing:
            raise UsageError(
                f"{self.adapter.name} cannot be explored there: {missing}"
            ) from missing
        client = Client(subject.cache, subject.can, subject.copies, self.stamps, self.namespaces)
        client.store = queue
        return Product(subject, client, engine, {}, queue)

    def at(self, path: Iterable[Action]) -> Product:
        """The state that actions lead to, played from an empty cache."""
        product = self.empty()
        for action in path:
            product.do(action)
        return product

    def again(self, product: Product, path: Iterable[Action]) -> Product:
        """The same state again: a copy, or a replay of the actions that lead there."""
        twins = copied(product.subject.cache, product.engine)
        if twins is None:
            return self.at(path)
        cache, engine, queue = twins
        had = product.client
        subject = evolve(product.subject, cache=cache, copies=engine, store=queue)
        client = Client(cache, had.can, engine, had.stamps, had.namespaces)
        client.requests = [evolve(request) for request in had.requests]
        client.receipts, client.spent = list(had.receipts), list(had.spent)
        client.keys = list(had.keys)
        client.store, client.prefetches = queue, list(had.prefetches)
        return Product(subject, client, engine, dict(product.decided), queue)


class Trail:
    """The states on the last path, kept because the next path mostly begins like it.

    Actions are done on copies of these states, never on the states themselves.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._path: tuple[Action, ...] = ()
        self._states = [origin.empty()]
        self._can_be_copied = self._states[0].traces() is not None

    def to(self, path: tuple[Action, ...]) -> Product:
        """The state that actions lead to. The caller must not change it."""
        if not self._can_be_copied:
            return self._origin.at(path)
        same = 0
        for one, other in zip(self._path, path, strict=False):
            if one != other:
                break
            same += 1
        del self._states[same + 1 :]
        for action in path[same:]:
            state = self._origin.again(self._states[-1], ())
            state.do(action)
            self._states.append(state)
            self._path = path[: len(self._states) - 1]
        self._path = path
        return self._states[-1]
