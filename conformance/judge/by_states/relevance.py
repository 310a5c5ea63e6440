"""Relevance: which laws a step can break at all, found by running the laws once.

Most laws of steps are about one operation and return at once for others; laws about window data
return at once if there is none. Checking seventy laws for the ten that matter is most of the work.
So each law is first checked on a sealed step: operation and outcome have their types but no fields,
and the states have only the components and the write policy, and sometimes that no copy is in
flight, that no receipt is open, or that nothing changed. A law that returns without reading any
other field cannot be broken by any step like this, since it is a function of what it reads; it is
skipped from then on. A law that reads more is checked every time.

No law declares its relevance, so no declaration can be wrong; a changed law is tried anew.
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


class _SealedState(_Sealed):
    """A state with a profile and a sealed configuration; most other fields are sealed."""

    # Reading an unset one counts as looking.
    __slots__ = ("config", "holds", "profile", "transfers")

    def __init__(self, like: Snapshot, *, idle: bool = False, unheld: bool = False) -> None:
        self.config = _SealedConfig(like.config)
        self.profile = like.profile
        if idle:
            self.transfers = ()
        if unheld:
            self.holds = ()


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


@frozen(eq=False)
class _Known(Generic[Question]):
    """What was found out about some questions so far."""

    of_steps: dict[tuple[object, ...], tuple[Question, ...]] = Factory(dict)
    of_streams: dict[tuple[object, ...], tuple[Question, ...]] = Factory(dict)


class Relevant(Generic[Question]):
    """Selects the questions (laws or premises) that can have a result for a subject.

    `ask` evaluates a question. Results are shared by all users of the same questions, for each kind
    of cache: by its components, write policy and profile.
    """

    def __init__(
        self, questions: Sequence[Question], ask: Callable[[Question, Any], object]
    ) -> None:
        self._questions = tuple(questions)
        self._ask = ask
        self._kind: tuple[CacheConfig, Profile] | None = None
        """The kind of the last subject's cache."""
        self._known: _Known[Question] = _Known()
        """What is known for that kind."""

    def of_step(self, step: Step) -> tuple[Question, ...]:
        """Return the questions that look at a step with this operation and outcome."""
        before, after = step.before, step.after
        asked, answered = type(step.operation), type(step.outcome)
        idle = not before.transfers and not after.transfers
        unheld = not before.holds and not after.holds
        still = before is after
        same_tree = still or not any(step.difference.changed)
        shown = (
            bool(step.events),
            bool(step.stamps),
            bool(step.given),
            bool(step.ended),
            bool(step.ranks),
        )
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
                ranks=_some(step.ranks),
            )
            if same_tree:
                object.__setattr__(sealed, "changed", ({}, {}))
            found = self._known.of_steps[key] = self._looking(sealed)
        return found

    def of_stream(self, stream: Stream) -> tuple[Question, ...]:
        """Return the questions that look at a stream with events, or without."""
        key = bool(stream.events), stream.begins
        self._meet(stream.state)
        found = self._known.of_streams.get(key)
        if found is None:
            start: Any = _Sealed()
            sealed = Stream(start, _some(stream.events), _like(stream.state), stream.begins)
            found = self._known.of_streams[key] = self._looking(sealed)
        return found

    def of_state(self, state: Snapshot) -> tuple[Question, ...]:
        """Return the questions that look at states of this configuration."""
        return self._looking(_like(state))

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
    """Return what is known of some questions for one kind of cache."""
    return _Known()


def _like(state: Snapshot, *, idle: bool = False, unheld: bool = False) -> Any:  # noqa: ANN401  # It passes for a snapshot.
    return _SealedState(state, idle=idle, unheld=unheld)


def _some(values: Collection[Any]) -> Any:  # noqa: ANN401  # It passes for a collection.
    return _Sealed() if values else values
