"""Chapter 15. Laws: named sentences that must hold, and how they are asked.

A law is a pure function that yields sentences, one for each way in which it is broken, and nothing
where it holds. Its docstring is its page in the book: one sentence that states it, with more where
one is not enough, then *Why* (what goes wrong for a user without it), then *Seen broken* (where it
happened, or "not seen").

There are three kinds. A *state* law looks at one snapshot. A *step* law looks at an operation with
the states around it, and says also what must not change. A *stream* law looks at events in order.

What readers get wrong: a law that was asked was not thereby kept. It has a premise, the situation
in which a faulty cache could break it. A run counts how often that was met, and reports a law whose
premise never was as not exercised, never as held.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import wraps
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen

from kvcanon.spec.difference import Difference
from kvcanon.spec.events import Event, Residency
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.views import Step


class Kind(StrEnum):
    """What a law looks at."""

    STATE = "state"
    STEP = "step"
    STREAM = "stream"


class Level(StrEnum):
    """How binding a law is, as in RFC 2119."""

    MUST = "must"
    SHOULD = "should"


class Need(StrEnum):
    """What a cache has to show for a law to be judged.

    What a cache cannot show, its snapshots leave empty: no orders, no receipts, no transfers, no
    events; every tick, age, priority and count of hits is 0. A law that does not declare a need
    finds nothing wrong with that.
    """

    SNAPSHOT = "snapshot"
    RECENCY = "recency"
    """The snapshot's orders of recency, its ticks, ages and priorities are the cache's own."""
    AGES = "ages"
    """Its ages and priorities are. A cache without offers no policy that goes by them."""
    HITS = "hits"
    """Its counts of hits are. A cache without offers no policy that goes by them."""
    HOLDS = "holds"
    """The snapshot lists open receipts."""
    TRANSFERS = "transfers"
    """The snapshot lists transfers in flight."""
    EVENTS = "events"
    ENDS = "ends"
    """What became of its copies is known apart from it: somebody else decides that."""
    BYTES = "bytes"
    """The bytes behind device slots can be read."""


@frozen(eq=False)
class Stream:
    """Events in order, after `start`, and the state that they led to."""

    start: Residency
    events: tuple[Event, ...]
    state: Snapshot
    begins: bool = False
    """Whether these are all events since the cache was made."""
    there: Residency | None = None
    """What is where in that state, with the base of `start`; None where nobody kept count."""


Judged = TypeVar("Judged")


@frozen
class Premise(Generic[Judged]):
    """The situation in which a law says something: where a faulty cache could break it."""

    words: str
    """As "a node below a node"."""
    is_met: Callable[[Judged], bool]
    """Whether a state, a step or a stream is such a situation."""


NodeKind: TypeAlias = Callable[[Snapshot, NodeState], bool]
"""A question about a node of a state that goes no further than its parent and its children."""


@frozen
class NodePremise(Premise[Snapshot]):
    """A premise that is met by a state with enough nodes of a kind, which can be counted."""

    kinds: tuple[NodeKind, ...]
    """The kinds of nodes, of any of which enough will do."""
    enough: int


def nodes_premise(words: str, *kinds: NodeKind, enough: int = 1) -> NodePremise:
    """The premise that a state has so many nodes of one of these kinds."""

    def is_met(state: Snapshot) -> bool:
        return any(_has(state, kind, enough) for kind in kinds)

    return NodePremise(words, is_met, kinds, enough)


def _has(state: Snapshot, kind: NodeKind, enough: int) -> bool:
    found = (node for node in state.nodes.values() if kind(state, node))
    return sum(1 for _ in islice(found, enough)) == enough


StateLaw: TypeAlias = Callable[[Snapshot], Iterator[str]]
NodeLaw: TypeAlias = Callable[[Snapshot, Collection[NodeState]], Iterator[str]]
"""A law of states that says what is wrong with some nodes below the root, one by one."""
StepLaw: TypeAlias = Callable[[Step], Iterator[str]]
StreamLaw: TypeAlias = Callable[[Stream], Iterator[str]]
AnyLaw = TypeVar("AnyLaw", StateLaw, StepLaw, StreamLaw)
Subject = Snapshot | Step | Stream


def never(difference: Difference) -> bool:  # noqa: ARG001  # It does not matter which.
    """Of no step is it certain that a law outlasts it."""
    return False


@frozen
class Law:
    """A law and its page in the book."""

    law_id: str
    kind: Kind
    premise: Premise[Any]
    level: Level
    needs: frozenset[Need]
    name: str
    statement: str
    why: str
    seen_broken: str
    check: Callable[..., Iterator[str]]
    outlasts: Callable[[Difference], bool] = never
    """Of a law of states that held before a step: whether it is certain to hold after, which is
    found out from what the step touched. If it is not, the whole state has to be asked."""

    @property
    def area(self) -> str:
        """The part of the id before the number."""
        return self.law_id.rpartition("-")[0]


@frozen
class Violation:
    """One way in which a law was broken, in words."""

    law: Law
    text: str

    def __str__(self) -> str:
        return f"{self.law.law_id} {self.law.name}: {self.text}"


LAWS: dict[str, Law] = {}
"""Every law by id, in the order of the book. Importing `kvcanon.spec.laws` fills it."""

RETIRED: Mapping[str, str] = {
    "RES-8": "It is part of RES-9, which asks that a host insert accounts for every page.",
    "MATCH-4": "It follows from MATCH-1 and MATCH-3: a match finds pages and returns slots of its "
    "key's namespace alone.",
    "LOCK-7": "It follows from LOCK-3: where no receipt is open, no lock ref is expected.",
    "EVENT-3": "It follows from EVENT-10: a page is stored once when it comes to a medium, and "
    "never otherwise.",
    "NS-1": "It follows from NS-3: names that follow the chain differ wherever pages do.",
    "NS-2": "It was a law of `spec.hashing` alone, which no cache can break; tests of the encoding "
    "hold it now.",
}
"""Laws that are no more, by id, and what became of each. No id is ever used again."""

_ID = re.compile(r"[A-Z]+-[1-9][0-9]*")
_PAGE = re.compile(
    r"(?P<statement>.+?)\n\n(?:(?P<more>.+)\n\n)?Why: (?P<why>.+?)\n\n?Seen broken: (?P<seen>.+)",
    re.DOTALL,
)


def law(
    law_id: str,
    kind: Kind,
    premise: Premise[Any],
    needs: Iterable[Need] = (Need.SNAPSHOT,),
    level: Level = Level.MUST,
    *,
    outlasts: Callable[[Difference], bool] = never,
) -> Callable[[AnyLaw], AnyLaw]:
    """Register a function as a law; its docstring must have the form that a page has.

    Raises:
        ValueError: the id is taken, retired or malformed, or the docstring lacks a part.
    """

    def register(check: AnyLaw) -> AnyLaw:
        page = _PAGE.fullmatch(inspect.getdoc(check) or "")
        if page is None or not _ID.fullmatch(law_id):
            raise ValueError(f"{law_id}: a law states itself, then says Why: and Seen broken:")
        if law_id in LAWS:
            raise ValueError(f"{law_id} is taken by {LAWS[law_id].name}; ids are never reused")
        if law_id in RETIRED:
            raise ValueError(f"{law_id} is retired; ids are never reused")
        more = f"\n\n{page['more']}" if page["more"] else ""
        LAWS[law_id] = Law(
            law_id=law_id,
            kind=kind,
            premise=premise,
            level=level,
            needs=frozenset(needs),
            name=check.__name__,
            statement=page["statement"] + more,
            why=page["why"],
            seen_broken=page["seen"],
            check=check,
            outlasts=outlasts,
        )
        return check

    return register


def order_by_id() -> None:
    """Put the laws of each area in the order of their numbers, whichever module they stand in."""
    areas = list(dict.fromkeys(law.area for law in LAWS.values()))
    ordered = sorted(LAWS, key=lambda i: (areas.index(LAWS[i].area), int(i.rpartition("-")[2])))
    laws = {law_id: LAWS[law_id] for law_id in ordered}
    LAWS.clear()
    LAWS.update(laws)


def node_law(
    law_id: str,
    premise: Premise[Any],
    over: Callable[[Difference], Collection[NodeState]],
    reads: Iterable[str] = (),
    needs: Iterable[Need] = (Need.SNAPSHOT,),
) -> Callable[[NodeLaw], NodeLaw]:
    """Register a law of states that goes over all nodes below the root.

    After a step from a state in which it held it need only go `over` those that are given for the
    step: of all others it says what it said before, which was nothing. Of the nodes alone it says
    the same while nothing about them but their uses and names changes, nor any other field of the
    state that it `reads`.
    """

    def register(check: NodeLaw) -> NodeLaw:
        @wraps(check)
        def everywhere(state: Snapshot) -> Iterator[str]:
            return check(state, tuple(state.below_root()))

        def outlasts(difference: Difference) -> bool:
            if difference.unchanged(*reads):
                return True
            return next(check(difference.after, over(difference)), None) is None

        law(law_id, Kind.STATE, premise, needs, outlasts=outlasts)(everywhere)
        return check

    return register


def judge(subject: Subject, laws: Collection[Law]) -> list[Violation]:
    """Ask of a state, a step or a stream all those of the laws that look at its kind.

    The shape of the tree (`SHAPE`) is asked first, of every state concerned: where it is broken the
    other laws have nothing to walk on, and only the breach of shape is returned.
    """
    for state in _states(subject):
        broken = [v for law_id in SHAPE if law_id in LAWS for v in _ask(LAWS[law_id], state)]
        if broken:
            return broken
    kind = _KINDS[type(subject)]
    return [v for each in laws if each.kind is kind for v in _ask(each, subject)]


def judge_next(difference: Difference, laws: Collection[Law]) -> list[Violation]:
    """Ask laws of the state after a step, all of which held of the state before, as the shape did.

    It finds what `judge` finds in that state, and looks only at what the step touched where that is
    enough to see that nothing is to be found.
    """
    before, after = difference.before, difference.after
    if before is after:
        return []
    if not difference.fields.isdisjoint(("config", "profile", "root_id")):
        return judge(after, laws)
    if not all(LAWS[law_id].outlasts(difference) for law_id in SHAPE):
        broken = judge(after, ())
        if broken:
            return broken
    return [v for each in laws if not each.outlasts(difference) for v in _ask(each, after)]


SHAPE = ("TREE-1", "TREE-2", "TREE-3", "RES-6")
"""The laws without which a state is not a tree with data on it."""

_KINDS: dict[type[Subject], Kind] = {
    Snapshot: Kind.STATE,
    Step: Kind.STEP,
    Stream: Kind.STREAM,
}


def _states(subject: Subject) -> tuple[Snapshot, ...]:
    if isinstance(subject, Step):
        return (subject.before, subject.after)
    return (subject.state,) if isinstance(subject, Stream) else (subject,)


def _ask(each: Law, subject: Subject) -> Iterator[Violation]:
    return (Violation(each, text) for text in each.check(subject))
