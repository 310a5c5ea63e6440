"""Chapter 12. Laws: named sentences that must hold, and how they are asked.

A law is a pure function that yields sentences, one for each way in which it is broken, and nothing
where it holds. Its docstring is its page in the book: one sentence that states it, with more where
one is not enough, then *Why* (what goes wrong for a user without it), then *Seen broken* (where it
happened, or "not seen").

There are three kinds. A *state* law looks at one snapshot. A *step* law looks at an operation with
the states around it, and says also what must not change. A *stream* law looks at events in order.

What readers get wrong: a law that was not asked was not kept. A run says how many laws were judged,
and a law whose needs a cache cannot meet is reported as not judged, never as passed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import TypeAlias, TypeVar

from attrs import frozen

from kvcanon.spec.events import Event, Residency
from kvcanon.spec.snapshot import Snapshot
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
    BYTES = "bytes"
    """The bytes behind device slots can be read."""


@frozen(eq=False)
class Stream:
    """Events in order, after `start`, and the state that they led to."""

    start: Residency
    events: tuple[Event, ...]
    state: Snapshot


StateLaw: TypeAlias = Callable[[Snapshot], Iterator[str]]
StepLaw: TypeAlias = Callable[[Step], Iterator[str]]
StreamLaw: TypeAlias = Callable[[Stream], Iterator[str]]
AnyLaw = TypeVar("AnyLaw", StateLaw, StepLaw, StreamLaw)
Subject = Snapshot | Step | Stream


@frozen
class Law:
    """A law and its page in the book."""

    law_id: str
    kind: Kind
    level: Level
    needs: frozenset[Need]
    name: str
    statement: str
    why: str
    seen_broken: str
    check: Callable[..., Iterator[str]]

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

_ID = re.compile(r"[A-Z]+-[1-9][0-9]*")
_PAGE = re.compile(
    r"(?P<statement>.+?)\n\n(?:(?P<more>.+)\n\n)?Why: (?P<why>.+?)\n\n?Seen broken: (?P<seen>.+)",
    re.DOTALL,
)


def law(
    law_id: str, kind: Kind, needs: Iterable[Need] = (Need.SNAPSHOT,), level: Level = Level.MUST
) -> Callable[[AnyLaw], AnyLaw]:
    """Register a function as a law; its docstring must have the form that a page has.

    Raises:
        ValueError: the id is taken or malformed, or the docstring lacks a part.
    """

    def register(check: AnyLaw) -> AnyLaw:
        page = _PAGE.fullmatch(inspect.getdoc(check) or "")
        if page is None or not _ID.fullmatch(law_id):
            raise ValueError(f"{law_id}: a law states itself, then says Why: and Seen broken:")
        if law_id in LAWS:
            raise ValueError(f"{law_id} is taken by {LAWS[law_id].name}; ids are never reused")
        more = f"\n\n{page['more']}" if page["more"] else ""
        LAWS[law_id] = Law(
            law_id=law_id,
            kind=kind,
            level=level,
            needs=frozenset(needs),
            name=check.__name__,
            statement=page["statement"] + more,
            why=page["why"],
            seen_broken=page["seen"],
            check=check,
        )
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
