"""Relevance: which laws a step can break at all, found out from the laws themselves.

Most laws of steps are about one operation, and return at once for others; laws about window data
return where there is none. Checking seventy of them for the ten that matter is most of the work. So
each law is checked once with a sealed step: operation and outcome are of their types, with nothing
in them, and of the states little is known: the components and the write policy, that there is no
copy in flight, or no open receipt, or that nothing changed. A law that returns without reading
anything else cannot be broken by any such step, since it is a function of what it reads. It is left
out from then on. A law that reads more is checked every time.

Nothing is declared here, so nothing can be declared wrongly: a changed law is found out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar

from attrs import Factory, frozen

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.law import Stream
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import SWA
from kvcanon.spec.views import Step

Question = TypeVar("Question")


class LookedError(BaseException):
    """Somebody looked into what is not there; whoever catches exceptions must not catch it."""


def _looked(*_: object) -> NoReturn:
    raise LookedError


class _Sealed:
    """Something of which nothing can be known."""

    __slots__ = ()
    __getattr__ = __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = _looked
    __eq__ = __ne__ = __add__ = __radd__ = _looked
    __hash__ = None  # type: ignore[assignment]


class _SealedConfig(_Sealed):
    """A configuration of which only is known what data there is, and when it is copied."""

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


class _SealedState(_Sealed):
    """A state with a profile, of whose configuration little is known, and of the rest less."""

    # Who asks for one of them that is not set looks, as at anything else.
    __slots__ = ("config", "holds", "profile", "transfers")

    def __init__(self, like: Snapshot, *, idle: bool = False, unheld: bool = False) -> None:
        self.config = _SealedConfig(like.config)
        self.profile = like.profile
        if idle:
            self.transfers = ()
        if unheld:
            self.holds = ()


class _StandsIn(type):
    """A class that is found in tables where the one that it stands in for is found."""

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__base__

    def __hash__(cls) -> int:
        return hash(cls.__base__)


def _sealed(kind: type) -> Any:  # noqa: ANN401  # It passes for whatever it stands in for.
    """An instance of a class with none of its fields; to read one is to look."""
    looks = ("__getattr__", "__eq__", "__ne__", "__repr__", "__str__", "__bool__", "__len__")
    members: dict[str, object] = {**dict.fromkeys(looks, _looked), "__hash__": None}
    stand_in: Any = _StandsIn(kind.__name__, (kind,), {**members, "__slots__": ()})
    return object.__new__(stand_in)


@frozen(eq=False)
class _Known(Generic[Question]):
    """What was found out about some questions so far."""

    of_steps: dict[tuple[object, ...], tuple[Question, ...]] = Factory(dict)
    of_streams: dict[tuple[object, ...], tuple[Question, ...]] = Factory(dict)


class Relevant(Generic[Question]):
    """Those of some questions that can come to anything, by what they are asked of.

    `ask` says how a question is asked. What is found out about questions is kept for all who ask
    them, for each kind of caches: by their components, their write policy and their profile.
    """

    def __init__(
        self, questions: Sequence[Question], ask: Callable[[Question, Any], object]
    ) -> None:
        self._questions = tuple(questions)
        self._ask = ask
        self._kind: tuple[CacheConfig, Profile] | None = None
        """What the caches are that were asked about last."""
        self._known: _Known[Question] = _Known()
        """What is known of them."""

    def of_step(self, step: Step) -> tuple[Question, ...]:
        """Those that look, where this is what was asked and answered."""
        before, after = step.before, step.after
        asked, answered = type(step.operation), type(step.outcome)
        idle = not before.transfers and not after.transfers
        unheld = not before.holds and not after.holds
        still = before is after
        same_tree = still or not any(step.difference.changed)
        shown = bool(step.events), bool(step.stamps), bool(step.given), bool(step.ended)
        key = asked, answered, *shown, idle, unheld, still, same_tree
        self._meet(before)
        found = self._known.of_steps.get(key)
        if found is None:
            was = _like(before, idle=idle, unheld=unheld)
            sealed = Step(
                was,
                _sealed(asked),
                _sealed(answered),
                was if still else _like(after, idle=idle, unheld=unheld),
                _some(step.events),
                _some(step.stamps),
                given=_some(step.given),
                ended=_some(step.ended),
            )
            if same_tree:
                object.__setattr__(sealed, "changed", ({}, {}))
            found = self._known.of_steps[key] = self._looking(sealed)
        return found

    def of_stream(self, stream: Stream) -> tuple[Question, ...]:
        """Those that look, where there are events, or none."""
        key = bool(stream.events), stream.begins
        self._meet(stream.state)
        found = self._known.of_streams.get(key)
        if found is None:
            start: Any = _Sealed()
            sealed = Stream(start, _some(stream.events), _like(stream.state), stream.begins)
            found = self._known.of_streams[key] = self._looking(sealed)
        return found

    def of_state(self, state: Snapshot) -> tuple[Question, ...]:
        """Those that look at states of this configuration."""
        return self._looking(_like(state))

    def _meet(self, state: Snapshot) -> None:
        """Turn to what is known of caches like the one whose state this is."""
        kind = state.config, state.profile
        if kind != self._kind:
            self._kind = kind
            config = CacheConfig(
                window_tokens=1 if SWA in state.config.components else None,
                mamba=state.config.mamba,
                write_policy=state.config.write_policy,
                events=state.config.events,
            )
            self._known = _known(self._questions, self._ask, config, state.profile)

    def _looking(self, sealed: object) -> tuple[Question, ...]:
        return tuple(each for each in self._questions if self._looks(each, sealed))

    def _looks(self, question: Question, sealed: object) -> bool:
        try:
            return bool(self._ask(question, sealed))
        except (Exception, LookedError):  # noqa: BLE001  # It came as far as to trip over it.
            return True


@lru_cache(maxsize=256)
def _known(*_: object) -> _Known[Any]:
    """What is known of some questions, as they are asked, about some kind of caches."""
    return _Known()


def _like(state: Snapshot, *, idle: bool = False, unheld: bool = False) -> Any:  # noqa: ANN401  # It passes for a snapshot.
    return _SealedState(state, idle=idle, unheld=unheld)


def _some(values: Collection[Any]) -> Any:  # noqa: ANN401  # It passes for a collection.
    return _Sealed() if values else values
