"""Expands a state: every move is made on a copy of it, and every law is checked.

What readers get wrong: nothing here knows which states were seen before. What a state leads to is a
function of its path alone, so that it may be worked out anywhere, and twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from time import process_time

from attrs import Factory, define, frozen

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import NAMESPACES, Stamps
from kvcanon.conformance.errors import ViolationError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.verify.explore.canonicalizer import Canonicalizer, digest
from kvcanon.conformance.verify.explore.frontier import Path
from kvcanon.conformance.verify.explore.moves import moves
from kvcanon.conformance.verify.explore.product import Origin, Product, Trail
from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.conformance.verify.explore.watched_cache import LawSet, WatchedCache, Witness
from kvcanon.spec.law import LAWS, Law, Need
from kvcanon.spec.laws.expected_events import residency_of


@frozen
class Edge:
    """A move from a state, and the state that it leads to."""

    action: Action
    digest: bytes


@frozen
class Broken:
    """Something wrong at the end of a path."""

    path: Path
    name: str
    """The id of the law that is broken first, or what was raised."""
    text: str
    """What is wrong, in a sentence."""
    law_ids: tuple[str, ...] = ()
    """The ids of all laws that are broken."""


@define
class Expansion:
    """What came of going on from some states."""

    edges: list[tuple[int, Edge]] = Factory(list)
    """Each with the place of its state among those that were given; of edges with one digest only
    the first."""
    moves: int = 0
    """How many edges there are."""
    states: int = 0
    """How many states were judged."""
    steps: int = 0
    """How many operations of the cache were."""
    cpu_seconds: float = 0.0
    laws_exercised: Counter[str] = Factory(Counter)
    """How often each law was exercised."""
    broken: Broken | None = None
    """What is wrong at the end of the first of the shortest paths that end so."""

    def note(self, path: Path, problem: Exception) -> None:
        """Note what was raised at the end of a path."""
        if self.broken is not None and len(self.broken.path) <= len(path):
            return
        if isinstance(problem, ViolationError):
            law_ids = tuple(dict.fromkeys(each.law.law_id for each in problem.violations))
            self.broken = Broken(path, law_ids[0], problem.violations[0].text, law_ids)
        else:
            text = f"raised {describe_exception(problem)}"
            self.broken = Broken(path, type(problem).__name__, text)


class Expander:
    """Goes on from states of one cache in one scope."""

    def __init__(self, adapter: Adapter, scope: Scope, laws: Iterable[Law] = ()) -> None:
        stamps = Stamps(scope.config.slot_bytes)
        self.scope = scope
        self.origin = Origin(adapter, scope.config, NAMESPACES, stamps)
        self.canon = Canonicalizer(scope.config, stamps)
        shows = self.origin.empty().subject.shows
        self.book = LawSet(tuple(laws) or tuple(LAWS.values()), shows)
        self._witness = Witness(self.book)
        self._trail = Trail(self.origin)
        self._stamps = stamps if Need.BYTES in shows else None

    def digest(self, product: Product) -> bytes:
        """What is kept of a state."""
        return digest(self.canon.form(product, product.subject.cache.snapshot()))

    def expand(self, paths: Sequence[Path]) -> Expansion:
        """Go on from states: ask the laws of each, make each move, ask the laws of each step."""
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
        """Ask the laws of a state that a path leads to, to which nothing may be done.

        None where they are broken.
        """
        product = self._trail.to(path)
        state = product.subject.cache.snapshot()
        try:
            if not path:
                self._witness.see_start(state)
            self._witness.see_state(state)
        except Exception as problem:  # noqa: BLE001  # No state of a cache must raise anything.
            found.note(path, problem)
            return None
        return product

    def edges(self, path: Path, found: Expansion) -> Iterator[Edge]:
        """Every move from a state that holds, and where it leads; not those that break a law."""
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
                # What was played again may number what it has otherwise.
                state = start if at_start is not None else twin.subject.cache.snapshot()
            subject = twin.subject
            watched = WatchedCache(
                subject.cache, state, residency, self._witness, self._stamps, copies=subject.copies
            )
            twin.client.cache = watched
            try:
                twin.do(action)
            except Exception as problem:  # noqa: BLE001  # Nor must any call on it.
                found.note((*path, action), problem)
                twin = None
                continue
            if watched.state is start and twin.traces() == at_start:
                # Nothing has changed, and the next move can be made from there as well.
                yield Edge(action, own)
            else:
                yield Edge(action, digest(self.canon.form(twin, watched.state)))
                twin = None
