"""Relevance: which laws a step can break at all, found by running the laws once.

Most laws of steps are about one operation and return at once for others; laws about window data
return at once if there is none. Checking seventy laws for the ten that matter is most of the work.
So each law is first checked on a sealed step: operation and outcome have their types but no fields,
and the states have only the components and the write policy, and sometimes that no copy is in
flight, that no receipt is open, or which of their fields are equal. A law that returns without
reading any other field cannot be broken by any step like this, since it is a function of what it
reads; it is skipped from then on. A law that reads more is checked every time. The same holds for
premises.

No law declares its relevance, so no declaration can be wrong; a changed law is tried anew.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from kvcanon.conformance.judge.by_states.evidence import Shared, by_premise
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.law import Kind, Law, Need, Stream
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import SWA, NodeId
from kvcanon.spec.views import Step, Unasked

MAY_CHANGE = frozenset(
    ("events", "holds", "pools", "recency", "store", "swa_of_full", "transfers", "usage")
)
"""The fields of states, besides nodes, that steps change."""


class Agenda(NamedTuple):
    """The laws and premises to check on a step or a stream."""

    laws: tuple[Law, ...]
    premises: tuple[Shared, ...]
    met: tuple[Shared, ...] = ()
    """Premises that every step or stream of the kind meets."""

    def about(self, *, stores: bool) -> Agenda:
        """The laws and premises about the store below the host, or all others."""
        return Agenda(
            tuple(law for law in self.laws if (Need.STORE in law.needs) is stores),
            tuple(each for each in self.premises if each.is_of_stores is stores),
            tuple(each for each in self.met if each.is_of_stores is stores),
        )


class LookedError(BaseException):
    """A sealed field was read; a BaseException, so that `except Exception` does not catch it."""


def _looked(*_: object) -> NoReturn:
    raise LookedError


class _Sealed:
    """An object whose every field is sealed."""

    __slots__ = ()
    __getattr__ = __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = _looked
    __eq__ = __ne__ = __add__ = __radd__ = _looked
    __hash__ = None  # type: ignore[assignment]


class _SealedConfig(_Sealed):
    """A configuration with only its components and its write policy."""

    __slots__ = (
        "backed_parents",
        "backup_hits",
        "components",
        "events",
        "host_tier",
        "mamba",
        "window_tokens",
        "write_policy",
    )

    def __init__(self, config: CacheConfig) -> None:
        for name in self.__slots__:
            if name != "window_tokens" or config.window_tokens is None:
                setattr(self, name, getattr(config, name))


class _Unchanged(_Sealed):
    """A field of a state that equals the same field of the other state, whatever is in it."""

    # It can be compared, but with the other state's only.
    __slots__ = ("name",)
    __hash__ = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:  # type: ignore[override]  # A sealed one never ends.
        if isinstance(other, _Unchanged) and other.name == self.name:
            return True
        raise LookedError

    def __ne__(self, other: object) -> bool:  # type: ignore[override]  # As above.
        return not self == other


class _SealedState(_Sealed):
    """A state with a profile and a sealed configuration; most other fields are sealed."""

    # Reading an unset one counts as looking.
    __slots__ = ("config", "profile", *sorted(MAY_CHANGE))

    def __init__(
        self,
        like: Snapshot,
        *,
        idle: bool = False,
        unheld: bool = False,
        unchanged: Collection[str] = (),
    ) -> None:
        self.config = _SealedConfig(like.config)
        self.profile = like.profile
        for name in unchanged:
            setattr(self, name, _Unchanged(name))
        if idle:
            self.transfers = ()
        if unheld:
            self.holds = ()


class _SealedDifference(_Sealed):
    """A difference of two states in these fields, besides nodes."""

    __slots__ = ("fields",)

    def __init__(self, fields: AbstractSet[str]) -> None:
        self.fields = fields


class _SameTree(_SealedDifference):
    """A difference of two states whose nodes are the same."""

    __slots__ = ()
    touched: AbstractSet[NodeId] = frozenset()
    rebuilt: AbstractSet[NodeId] = frozenset()
    changed: tuple[tuple[NodeState, ...], tuple[NodeState, ...]] = ((), ())


class _StandsIn(type):
    """A class that is found in tables in place of the class that it stands for."""

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__base__

    def __hash__(cls) -> int:
        return hash(cls.__base__)


def _sealed(kind: type) -> Any:  # noqa: ANN401  # It passes for whatever it stands in for.
    """Return an instance of a class without its fields; reading one raises LookedError."""
    looks = ("__getattr__", "__eq__", "__ne__", "__repr__", "__str__", "__bool__", "__len__")
    members: dict[str, object] = {**dict.fromkeys(looks, _looked), "__hash__": None}
    stand_in: Any = _StandsIn(kind.__name__, (kind,), {**members, "__slots__": ()})
    return object.__new__(stand_in)


class Relevance:
    """Selects the laws and the premises that can have a result for a step or a stream.

    The selection is cached for each kind of cache: by its components, write policy and profile.
    """

    def __init__(self, laws: Collection[Law], exercisable: Collection[Law] = ()) -> None:
        """`exercisable` are the laws whose premises are asked for."""
        self.steps = _agenda_of(Kind.STEP, laws, exercisable)
        """All laws of steps, and their premises."""
        self.streams = _agenda_of(Kind.STREAM, laws, exercisable)
        """All laws of streams, and their premises."""
        self._kind: tuple[CacheConfig, Profile] | None = None
        """The kind of the last subject's cache."""
        self._known: dict[object, Agenda] = {}
        """What is known for that kind."""

    def of_step(self, step: Step) -> Agenda:
        """The laws and premises to check on a step with this operation and outcome."""
        before, after = step.before, step.after
        still = before is after
        difference = step.difference
        key = (
            type(step.operation),
            type(step.outcome),
            not before.transfers and not after.transfers,
            not before.holds and not after.holds,
            still,
            not difference.touched,
            difference.fields,
            not step.events,
            not step.stamps,
            not step.given,
            not step.ended,
            not step.ranks,
            step.unasked is None,
            step.store is None,
        )
        self._meet(before)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _looking(self.steps, _sealed_step(step, *key[2:6]))
        return found

    def of_stream(self, stream: Stream) -> Agenda:
        """The laws and premises to check on a stream with events, or without."""
        key = bool(stream.events), stream.begins
        self._meet(stream.state)
        found = self._known.get(key)
        if found is None:
            start: Any = _Sealed()
            sealed = Stream(start, _some(stream.events), _like(stream.state), stream.begins)
            found = self._known[key] = _looking(self.streams, sealed)
        return found

    def _meet(self, state: Snapshot) -> None:
        """Switch to what is known for the kind of cache that this state is of."""
        kind = state.config, state.profile
        if kind != self._kind:
            self._kind = kind
            config = CacheConfig(
                window_tokens=1 if SWA in state.config.components else None,
                mamba=state.config.mamba,
                write_policy=state.config.write_policy,
                events=state.config.events,
            )
            self._known = _known(self.steps, self.streams, config, state.profile)


def _agenda_of(kind: Kind, laws: Collection[Law], exercisable: Collection[Law]) -> Agenda:
    premises = _shared(tuple(law for law in exercisable if law.kind is kind), kind)
    return Agenda(tuple(law for law in laws if law.kind is kind), premises)


@lru_cache(maxsize=256)
def _shared(laws: tuple[Law, ...], kind: Kind) -> tuple[Shared, ...]:
    """The premises of some laws; the same objects each time, so that results are known by them."""
    return by_premise(laws, kind)


@lru_cache(maxsize=256)
def _known(*_: object) -> dict[object, Agenda]:
    """What is known of some laws and premises for one kind of cache."""
    return {}


def _looking(agenda: Agenda, sealed: Step | Stream) -> Agenda:
    """The laws and premises that look at a sealed subject."""
    laws, premises, met = list[Law](), list[Shared](), list[Shared]()
    for law in agenda.laws:
        try:
            looks = any(law.check(sealed))
        except (Exception, LookedError):  # noqa: BLE001  # It came as far as to trip over it.
            looks = True
        if looks:
            laws.append(law)
    for shared in agenda.premises:
        try:
            if shared.premise.is_met(sealed):
                met.append(shared)
        except (Exception, LookedError):  # noqa: BLE001  # As above.
            premises.append(shared)
    return Agenda(tuple(laws), tuple(premises), tuple(met))


def _sealed_step(step: Step, idle: bool, unheld: bool, still: bool, same_tree: bool) -> Step:
    """A step of this kind without what would tell it from others."""
    fields = step.difference.fields
    equal = MAY_CHANGE - fields
    was = _like(step.before, idle=idle, unheld=unheld, unchanged=equal)
    sealed = Step(
        was,
        _sealed(type(step.operation)),
        _sealed(type(step.outcome)),
        was if still else _like(step.after, idle=idle, unheld=unheld, unchanged=equal),
        _some(step.events),
        _some(step.stamps),
        given=_some(step.given),
        ended=_some(step.ended),
        ranks=_some(step.ranks),
        asked=None if step.asked is None else _anything(),
        arrived=None if step.arrived is None else _anything(),
        store=None if step.store is None else _anything(),
        unasked=None if step.unasked is None else _sealed(Unasked),
        difference=_difference(fields, same_tree=same_tree),
    )
    if same_tree:
        object.__setattr__(sealed, "changed", ({}, {}))
    return sealed


def _like(state: Snapshot, **known: Any) -> Any:  # noqa: ANN401  # It passes for a snapshot.
    return _SealedState(state, **known)


def _difference(fields: AbstractSet[str], *, same_tree: bool) -> Any:  # noqa: ANN401  # As above.
    return _SameTree(fields) if same_tree else _SealedDifference(fields)


def _anything() -> Any:  # noqa: ANN401  # It passes for whatever is there.
    return _Sealed()


def _some(values: Collection[Any]) -> Any:  # noqa: ANN401  # It passes for a collection.
    return _Sealed() if values else values
