"""Chapter 16. Laws: what a cache must do, each as a function that checks it.

A law is a pure function that yields one message for each way in which it is broken, and nothing
where it holds. Its docstring is its page in the book: one sentence that states it, more where
needed, then *Why* (what goes wrong for a user without it), then *Seen broken* (links, or "not
seen"). Beside it stand its premise, what it needs to see, in which runs it can come up
(`enabled_if`), and which methods show it without snapshots (`from_outside`).

There are three kinds. A *state* law checks one snapshot. A *step* law checks an operation with the
states before and after it, and says also what must not change. A *stream* law checks events in
order.

What readers get wrong: a law that was checked and not broken is not thereby held. Each law has a
premise, the situation in which a faulty cache could break it. A run counts how often the premise
was met; if never, the law is reported as not exercised.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from functools import wraps
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen

from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.difference import Difference, NodesOf
from kvcanon.spec.events import Ahead, Event, Residency
from kvcanon.spec.snapshot import NodeState, Snapshot, kept
from kvcanon.spec.views import Step


class Kind(StrEnum):
    """What a law checks."""

    STATE = "state"
    STEP = "step"
    STREAM = "stream"


class LawClass(StrEnum):
    """What it means for a cache that it breaks a law."""

    SOUND = "sound"
    """No cache may break it, whatever its design: wrong data is served, or what the cache holds and
    what it says are no longer the same."""
    SERVING = "serving"
    """What a cache is for: calls are served, what was inserted is found, copies end, and nothing
    leaks."""
    POLICY = "policy"
    """A choice of the canon, in which a sound cache may differ: which data leaves, what becomes
    recent, and when copies begin."""


class Level(StrEnum):
    """How binding a law is, as in RFC 2119."""

    MUST = "must"
    SHOULD = "should"


class Need(StrEnum):
    """What a cache must show for a law to be checked.

    What a cache cannot show is empty in its snapshots: no recency orders, receipts, transfers or
    events; every tick, age, priority and hit count is 0. A law that does not declare a need finds
    no fault in that.
    """

    SNAPSHOT = "snapshot"
    """The cache shows its whole state: nodes, slots, locks and pools."""
    RECENCY = "recency"
    """The snapshot's recency orders, ticks, ages and priorities are the cache's own."""
    AGES = "ages"
    """Ages and priorities are the cache's own. A cache without them offers no policy that uses
    them."""
    HITS = "hits"
    """Hit counts are the cache's own. A cache without them offers no policy that uses them."""
    HOLDS = "holds"
    """The snapshot lists open receipts."""
    TRANSFERS = "transfers"
    """The snapshot lists transfers in flight."""
    EVENTS = "events"
    """The events that the cache emits can be taken."""
    ENDS = "ends"
    """How each copy ended is known without asking the cache: from what performed the copy."""
    BYTES = "bytes"
    """The bytes behind device slots can be read."""
    RANKS = "ranks"
    """Several caches can be made that agree on what they settle, as ranks of one model."""
    STORE = "store"
    """The cache can be made with a store below its host tier, which the judge holds."""


@frozen(eq=False, slots=False)
class Stream:
    """Events in order after `start`, and the state after the last of them."""

    start: Residency
    events: tuple[Event, ...]
    state: Snapshot
    begins: bool = False
    """Whether these are all events since the cache was made."""
    there: Ahead | None = None
    """The residency in that state, as changes since `start`; None where it was not kept up to
    date."""

    @kept
    def folded(self) -> Ahead:
        """The residency after all events."""
        return self.start.ahead(self.events)

    def beside(self, there: Ahead) -> Stream:
        """The same events, which are not folded again, beside the residency in the state."""
        both = Stream(self.start, self.events, self.state, self.begins, there)
        object.__setattr__(both, "folded", self.folded)
        return both


Judged = TypeVar("Judged")


@frozen
class Premise(Generic[Judged]):
    """The situation that exercises a law: one in which a faulty cache could break it."""

    words: str
    """As "a node below a node"."""
    is_met: Callable[[Judged], bool]
    """Whether a state, a step or a stream is in that situation."""


NodeKind: TypeAlias = Callable[[Snapshot, NodeState], bool]
"""A predicate on a node that looks no further than its parent and its children."""


@frozen
class NodePremise(Premise[Snapshot]):
    """A premise that is met where a state has enough nodes of one kind; they can be counted."""

    kinds: tuple[NodeKind, ...]
    """Kinds of nodes; enough nodes of any one of them meet the premise."""
    enough: int


def nodes_premise(words: str, *kinds: NodeKind, enough: int = 1) -> NodePremise:
    """The premise that a state has at least `enough` nodes of one of these kinds."""

    def is_met(state: Snapshot) -> bool:
        return any(_has(state, kind, enough) for kind in kinds)

    return NodePremise(words, is_met, kinds, enough)


def _has(state: Snapshot, kind: NodeKind, enough: int) -> bool:
    found = (node for node in state.nodes.values() if kind(state, node))
    return sum(1 for _ in islice(found, enough)) == enough


@frozen
class Bounds:
    """How far a run can go: the configuration of its cache, and how much there is at once."""

    config: CacheConfig
    pages: int
    """Pages of the longest prompt."""
    receipts: int
    """How many locks requests hold at once."""
    requests: int
    """How many requests hold slots between calls."""
    fetches: bool
    """Whether pages come from storage, by host inserts."""
    states_within: bool = False
    """Whether inserts hand over mamba states before their end."""
    stores: bool = False
    """Whether the cache has a store below its host tier."""


def always(run: Bounds) -> bool:  # noqa: ARG001  # It does not matter which.
    """The law can come up in any run."""
    return True


AnyOf: TypeAlias = tuple[Callable[..., object], ...]
"""Methods of `spec.cache.Cache`, one of which is enough."""

StateLaw: TypeAlias = Callable[[Snapshot], Iterator[str]]
NodeLaw: TypeAlias = Callable[[Snapshot, Collection[NodeState]], Iterator[str]]
"""A state law that checks nodes below the root one by one."""
StepLaw: TypeAlias = Callable[[Step], Iterator[str]]
StreamLaw: TypeAlias = Callable[[Stream], Iterator[str]]
AnyLaw = TypeVar("AnyLaw", StateLaw, StepLaw, StreamLaw)
Subject = Snapshot | Step | Stream


def never(difference: Difference) -> bool:  # noqa: ARG001  # It does not matter which.
    """No step is certain to keep the law."""
    return False


SITE = "https://kvcanon.github.io/kvcanon/"
"""Where the book is published, one page for each law. Reports print addresses below it."""


@frozen
class NodeCheck:
    """How a law checks nodes of a state one by one, so that after a step few are enough."""

    check: NodeLaw
    over: NodesOf
    """The nodes to check after a step: all others are unchanged for the law."""
    reads: frozenset[str]
    """The fields of the state that it reads, besides nodes."""


@frozen
class Law:
    """A law and its page in the book."""

    law_id: str
    kind: Kind
    law_class: LawClass
    premise: Premise[Any]
    level: Level
    needs: frozenset[Need]
    name: str
    statement: str
    why: str
    seen_broken: str
    check: Callable[..., Iterator[str]]
    enabled_if: Callable[[Bounds], bool] = always
    """Whether the law can come up in a run; if not, it is out of the run's reach."""
    from_outside: tuple[AnyOf, ...] | None = None
    """The methods that show the law to an observer who sees answers, events and bytes, no
    snapshots: at least one method of each group. Empty: the methods that every cache has are
    enough. None: it takes a snapshot."""
    follows: Callable[[Difference], bool] = never
    """Whether a state law that held before a step is certain to hold after it, judged by what
    the step changed. If not, the whole state has to be checked."""
    by_node: NodeCheck | None = None
    """How it checks nodes, in place of `follows`; None for laws of whole states."""
    chosen_by: str | None = None
    """The field of `Profile` by which a cache says that it chooses in a way of its own, so that the
    law is not judged; None for a law that is judged whatever a cache declares."""

    def is_judged_under(self, profile: Profile) -> bool:
        """Whether a cache with this profile is judged by the law."""
        return self.chosen_by is None or getattr(profile, self.chosen_by) is not Choosing.OWN

    @property
    def area(self) -> str:
        """The part of the id before the number."""
        return self.law_id.rpartition("-")[0]

    @property
    def address(self) -> str:
        """Where its page is published; the address of an id never changes."""
        return f"{SITE}laws/{self.law_id}/"


@frozen
class Violation:
    """One way in which a law was broken, as a message."""

    law: Law
    text: str

    def __str__(self) -> str:
        return f"{self.law.law_id} {self.law.name}: {self.text}"


LAWS: dict[str, Law] = {}
"""Every law by id, in the order of the book. Importing `kvcanon.spec.laws` fills it.

A number that is missing was that of a law before the first release.
"""

_ID = re.compile(r"[A-Z]+-[1-9][0-9]*")
_PAGE = re.compile(
    r"(?P<statement>.+?)\n\n(?:(?P<more>.+)\n\n)?Why: (?P<why>.+?)\n\n?Seen broken: (?P<seen>.+)",
    re.DOTALL,
)


def law(
    law_id: str,
    kind: Kind,
    law_class: LawClass,
    *,
    premise: Premise[Any],
    needs: Iterable[Need] = (Need.SNAPSHOT,),
    level: Level = Level.MUST,
    enabled_if: Callable[[Bounds], bool] = always,
    from_outside: tuple[AnyOf, ...] | None = None,
    follows: Callable[[Difference], bool] = never,
    by_node: NodeCheck | None = None,
    chosen_by: str | None = None,
) -> Callable[[AnyLaw], AnyLaw]:
    """Register a function as a law. Its docstring must be a page as described above.

    Raises: ValueError: the id is taken or malformed, or the docstring lacks a part.
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
            law_class=law_class,
            premise=premise,
            level=level,
            needs=frozenset(needs),
            name=check.__name__,
            statement=page["statement"] + more,
            why=page["why"],
            seen_broken=page["seen"],
            check=check,
            enabled_if=enabled_if,
            from_outside=from_outside,
            follows=follows,
            by_node=by_node,
            chosen_by=chosen_by,
        )
        return check

    return register


def order_by_id() -> None:
    """Sort the laws of each area by number, whichever module they are in."""
    areas = list(dict.fromkeys(law.area for law in LAWS.values()))
    ordered = sorted(LAWS, key=lambda i: (areas.index(LAWS[i].area), int(i.rpartition("-")[2])))
    laws = {law_id: LAWS[law_id] for law_id in ordered}
    LAWS.clear()
    LAWS.update(laws)


def node_law(
    law_id: str,
    law_class: LawClass,
    *,
    premise: Premise[Any],
    needs: Iterable[Need] = (Need.SNAPSHOT,),
    enabled_if: Callable[[Bounds], bool] = always,
    from_outside: tuple[AnyOf, ...] | None = None,
    over: NodesOf,
    reads: Iterable[str] = (),
) -> Callable[[NodeLaw], NodeLaw]:
    """Register a state law that checks all nodes below the root.

    After a step it checks only the nodes that `over` gives, if it held before (`NodeCheck`).
    """

    def register(check: NodeLaw) -> NodeLaw:
        @wraps(check)
        def everywhere(state: Snapshot) -> Iterator[str]:
            return check(state, state.below_root())

        law(
            law_id,
            Kind.STATE,
            law_class,
            premise=premise,
            needs=needs,
            enabled_if=enabled_if,
            from_outside=from_outside,
            by_node=NodeCheck(check, over, frozenset(reads)),
        )(everywhere)
        return check

    return register


def judge(subject: Subject, laws: Collection[Law]) -> list[Violation]:
    """Check a state, a step or a stream by those of the laws that are of its kind.

    The laws of the tree's shape (`SHAPE`) are checked first, on every state concerned. If one is
    broken, the other laws could not walk the tree, and only these violations are returned.
    """
    for state in _states(subject):
        broken = violations_of([LAWS[law_id] for law_id in SHAPE if law_id in LAWS], state)
        if broken:
            return broken
    kind = _KINDS[type(subject)]
    return violations_of([each for each in laws if each.kind is kind], subject)


def judge_next(difference: Difference, laws: Collection[Law]) -> list[Violation]:
    """Check the state after a step, if all these laws and the shape held before it.

    Finds what `judge` finds, but looks only at what the step changed where that is enough.
    """
    before, after = difference.before, difference.after
    if before is after:
        return []
    if not difference.fields.isdisjoint(("config", "profile", "root_id")):
        return judge(after, laws)
    doubtful = in_doubt(difference, [LAWS[law_id] for law_id in SHAPE])
    broken = judge(after, ()) if doubtful else []
    if broken:
        return broken
    return violations_of(in_doubt(difference, laws), after)


def in_doubt(difference: Difference, laws: Iterable[Law]) -> list[Law]:
    """The laws of states that may be broken after a step, if they held before it.

    A law that checks nodes skips all of them if none changed but in recency and hashes, nor any
    field of the state that it reads.
    """
    doubtful: list[Law] = []
    still = not difference.rebuilt
    for each in laws:
        nodes = each.by_node
        if nodes is None:
            holds = each.follows(difference)
        elif still and difference.fields.isdisjoint(nodes.reads):
            holds = True
        else:
            holds = next(nodes.check(difference.after, nodes.over(difference)), None) is None
        if not holds:
            doubtful.append(each)
    return doubtful


SHAPE = ("TREE-1", "TREE-2", "TREE-3", "RES-6")
"""The laws without which a state is no tree with data on it."""

_KINDS: dict[type[Subject], Kind] = {
    Snapshot: Kind.STATE,
    Step: Kind.STEP,
    Stream: Kind.STREAM,
}


def _states(subject: Subject) -> tuple[Snapshot, ...]:
    if isinstance(subject, Step):
        return (subject.before, subject.after)
    return (subject.state,) if isinstance(subject, Stream) else (subject,)


def violations_of(laws: Iterable[Law], subject: Subject) -> list[Violation]:
    """Check laws of a state, a step or a stream; all laws are of that kind."""
    return [Violation(each, text) for each in laws for text in each.check(subject)]
