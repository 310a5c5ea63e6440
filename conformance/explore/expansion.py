"""Expands a state: makes every move on a copy of it, and checks every law.

Nothing here knows which states were visited before. An expansion depends on the path alone, so any
process may compute it, even twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from time import process_time

from attrs import Factory, define, frozen

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.client import NAMESPACES, Stamps
from kvcanon.conformance.check.result import Finding, Grounds, shorter
from kvcanon.conformance.errors import ViolationError, describe_exception
from kvcanon.conformance.explore.canonicalizer import Canonicalizer, digest
from kvcanon.conformance.explore.frontier import Path
from kvcanon.conformance.explore.moves import moves
from kvcanon.conformance.explore.product import Origin, Product, Trail
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.stored import right_records
from kvcanon.conformance.explore.watched_cache import LawSet, WatchedCache, Witness
from kvcanon.conformance.judge import StoreWatch
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.law import LAWS, Law, Need
from kvcanon.spec.laws.expected_events import residency_of


@frozen
class Edge:
    """A move from a state, and the state that it leads to."""

    action: Action
    digest: bytes


@define
class Expansion:
    """The result of expanding some states."""

    edges: list[tuple[int, Edge]] = Factory(list)
    """Each with the index of its state among the given ones. Of edges with the same digest only the
    first is kept."""
    moves: int = 0
    """How many moves were made."""
    states: int = 0
    """How many states were judged."""
    steps: int = 0
    """How many cache operations were called."""
    cpu_seconds: float = 0.0
    laws_exercised: Counter[str] = Factory(Counter)
    """How often each law was exercised."""
    finding: Finding | None = None
    """What is wrong at the end of the shortest failing path; of several, the first."""


class Expander:
    """Expands states of one cache in one scope."""

    def __init__(self, adapter: Adapter, scope: Scope, laws: Iterable[Law] = ()) -> None:
        stamps = Stamps(scope.config.slot_bytes)
        self.scope = scope
        self.origin = Origin(adapter, scope, NAMESPACES, stamps)
        self.right = right_records(scope, NAMESPACES, stamps)
        self.canon = Canonicalizer(scope.config, stamps, self.right)
        shows = self.origin.empty().subject.shows - {Need.RANKS}
        judged = [each for each in LAWS.values() if each.is_judged_under(adapter.profile)]
        self.book = LawSet(tuple(laws) or judged, shows)
        self._witness = Witness(self.book)
        self._trail = Trail(self.origin)
        self._stamps = stamps if Need.BYTES in shows else None

    def digest(self, product: Product) -> bytes:
        """The digest of a state's canonical form."""
        return digest(self.canon.form(product, product.subject.cache.snapshot()))

    def expand(self, paths: Sequence[Path]) -> Expansion:
        """Expand states: check the laws of each, make every move, check the laws of each step."""
        found, seen, witness, began = Expansion(), set[bytes](), self._witness, process_time()
        witness.states = witness.steps = 0
        witness.laws_exercised = found.laws_exercised
        for index, path in enumerate(paths):
            for edge in self.edges(path, found):
                found.moves += 1
                if edge.digest not in seen:
                    seen.add(edge.digest)
                    found.edges.append((index, edge))
        found.states, found.steps = witness.states, witness.steps
        found.cpu_seconds = process_time() - began
        return found

    def judge(self, path: Path, found: Expansion) -> Product | None:
        """Check the laws of the state that a path leads to; return it for reading only.

        Returns None if a law is broken.
        """
        product = self._trail.to(path)
        state = product.subject.cache.snapshot()
        try:
            if not path:
                self._witness.see_start(state)
            self._witness.see_state(state)
        except Exception as problem:  # noqa: BLE001  # Reading a state must not raise.
            found.finding = shorter(found.finding, self._finding(path, problem))
            return None
        return product

    def edges(self, path: Path, found: Expansion) -> Iterator[Edge]:
        """Every move from a lawful state, with its target; moves that break a law yield no edge."""
        product = self.judge(path, found)
        if product is None:
            return
        start = product.subject.cache.snapshot()
        residency, own = residency_of(start), digest(self.canon.form(product, start))
        at_start = product.traces()
        twin: Product | None = None
        for action in moves(self.scope, product, start):
            if twin is None:
                twin = self.origin.again(product, path)
                # A replayed twin may give other numbers to its nodes and receipts.
                state = start if at_start is not None else twin.subject.cache.snapshot()
            subject = twin.subject
            watched = WatchedCache(
                subject.cache,
                state,
                residency,
                self._witness,
                self._stamps,
                copies=subject.copies,
                store=self._watch(twin),
            )
            twin.client.cache = watched
            try:
                twin.do(action)
            except Exception as problem:  # noqa: BLE001  # No call may raise, except a refusal.
                broken = self._finding((*path, action), problem)
                found.finding = shorter(found.finding, broken)
                twin = None
                continue
            if watched.state is start and twin.traces() == at_start:
                # Nothing changed, so the next move can start from the same object.
                yield Edge(action, own)
            else:
                yield Edge(action, digest(self.canon.form(twin, watched.state)))
                twin = None

    def _watch(self, product: Product) -> StoreWatch | None:
        """Watches the store of a state, in which the bytes of each page are known."""
        if product.queue is None:
            return None
        right = {name: (data,) for name, data in self.right.pages.items()}
        return StoreWatch(product.queue, None, product.subject.cache.read, right)

    def _finding(self, path: Path, problem: Exception) -> Finding:
        """The finding of an exception that was raised at the end of a path."""
        texts: dict[str, str] = {}
        name, text = type(problem).__name__, f"raised {describe_exception(problem)}"
        if isinstance(problem, ViolationError):
            for each in problem.violations:
                texts.setdefault(each.law.law_id, each.text)
            name, text = next(iter(texts.items()))
        return Finding(
            cache=self.origin.adapter.name,
            grounds=Grounds.LAW if texts else Grounds.CRASH,
            name=name,
            broken=tuple(texts),
            text=text,
            words=f"{name}: {text}",
            case=Case(self.scope.config, path, drain=(), store=self.scope.store),
            action=max(0, len(path) - 1),
            operation=0,
            texts=tuple(texts.values()),
            origin=f"exploration of {self.scope.name}",
        )
