"""What an adapter declares and what its factory makes: each problem is a `UsageError` in one line.

The line names the field, the value and the mend: "Offer.page_sizes has 0; give whole numbers of at
least 1". Values are checked by their exact types: `True` is no page size, and the string "none" is
no `WritePolicy`, though it is equal to one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, TypeAlias, cast

from attrs import Attribute, asdict, fields

from kvcanon.conformance.errors import UsageError, describe_exception, shown
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import Profile
from kvcanon.spec.snapshot import Snapshot

Validator: TypeAlias = Callable[[object, "Attribute[Any]", object], None]
"""As attrs calls it: with the object, the field and the value. Raises: UsageError."""

SHOWN = 80
"""The most characters of a wrong value that are shown."""


def whole_number(least: int, most: int) -> Validator:
    """A whole number in `least` .. `most`."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not _is_whole(value, least, most):
            raise _wrong(
                owner, attribute, value, f"give a whole number of {_range_of(least, most)}"
            )

    return check


def whole_numbers(least: int, most: int, *, or_none: bool = False) -> Validator:
    """A tuple of whole numbers in `least` .. `most`; `or_none` allows None among them."""
    mend = f"give whole numbers of {_range_of(least, most)}"
    if or_none:
        mend += ", or None for none"

    def is_right(value: object) -> bool:
        return _is_whole(value, least, most) or (or_none and value is None)

    return _tuple_of(is_right, "(None,)" if or_none else f"({max(least, 1)},)", lambda _: mend)


def flags() -> Validator:
    """A tuple of True and False."""
    return _tuple_of(
        lambda value: isinstance(value, bool), "(False,)", lambda _: "give True or False"
    )


def flag() -> Validator:
    """True or False."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, bool):
            raise _wrong(owner, attribute, value, "give True or False")

    return check


def members(kind: type[StrEnum]) -> Validator:
    """A tuple of members of an enumeration."""
    first = next(iter(kind))
    return _tuple_of(
        lambda value: isinstance(value, kind),
        f"({_name(first)},)",
        lambda value: _member_mend(kind, value),
    )


def member(kind: type[StrEnum]) -> Validator:
    """One member of an enumeration."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise _wrong(owner, attribute, value, _member_mend(kind, value))

    return check


def set_of(kind: type[StrEnum]) -> Validator:
    """A set of members of an enumeration."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, AbstractSet):
            example = f"give a frozenset, such as frozenset({{{_name(next(iter(kind)))}}})"
            raise _wrong(owner, attribute, value, example)
        for each in value:
            if not isinstance(each, kind):
                raise _wrong(owner, attribute, each, _member_mend(kind, each), verb="has")

    return check


def instance_of(kind: type, mend: str) -> Validator:
    """A value of a class."""

    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise _wrong(owner, attribute, value, mend)

    return check


def check_name(owner: object, attribute: Attribute[Any], value: object) -> None:
    """A name that can be printed in a line. Raises: UsageError."""
    if not isinstance(value, str):
        raise _wrong(owner, attribute, value, "give a string")
    if not value.strip():
        raise UsageError(f"{_field(owner, attribute)} is empty; name the cache")
    if not value.isprintable():
        raise _wrong(owner, attribute, value, "give a name that can be printed in one line")


def check_callable(owner: object, attribute: Attribute[Any], value: object) -> None:
    """A function or a class. Raises: UsageError."""
    if not callable(value):
        mend = "give a function or a class that takes a CacheConfig and returns a cache"
        raise _wrong(owner, attribute, value, mend)


def check_profile(owner: object, attribute: Attribute[Any], value: object) -> None:
    """A `Profile` each of whose fields has the type of its default. Raises: UsageError."""
    if not isinstance(value, Profile):
        raise _wrong(owner, attribute, value, "give a Profile, as in kvcanon.spec.config")
    for each in fields(Profile):
        given, kind = getattr(value, each.name), type(each.default)
        if type(given) is not kind:
            where = f"{_field(owner, attribute)}.{each.name}"
            raise UsageError(f"{where} is {shown(given, SHOWN)}; give a {kind.__name__}")


def _tuple_of(
    is_right: Callable[[object], bool], example: str, mend: Callable[[object], str]
) -> Validator:
    def check(owner: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, tuple):
            raise _wrong(owner, attribute, value, f"give a tuple, such as {example}")
        if not value:
            where = _field(owner, attribute)
            raise UsageError(f"{where} is empty; give at least one, such as {example}")
        for each in value:
            if not is_right(each):
                raise _wrong(owner, attribute, each, mend(each), verb="has")

    return check


def _wrong(
    owner: object, attribute: Attribute[Any], value: object, mend: str, verb: str = "is"
) -> UsageError:
    text = _name(value) if isinstance(value, StrEnum) else shown(value, SHOWN)
    kind = type(value).__name__
    if verb == "is" and isinstance(value, list | dict | set | bytes):
        text += f", a {kind}"
    return UsageError(f"{_field(owner, attribute)} {verb} {text}; {mend}")


def _field(owner: object, attribute: Attribute[Any]) -> str:
    return f"{type(owner).__name__}.{attribute.name}"


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _range_of(least: int, most: int) -> str:
    return f"at least {least} and at most {most:,}"


def _member_mend(kind: type[StrEnum], value: object) -> str:
    """Name the member that a string stands for, or else all of them."""
    named = [each for each in kind if value in (each.value, each.name)]
    if named:
        return f"give {_name(named[0])}, not a string"
    return f"give one of {', '.join(_name(each) for each in kind)}"


def _name(value: StrEnum) -> str:
    return f"{type(value).__name__}.{value.name}"


# What a factory made.


def require_object(name: str, made: object) -> None:
    """Refuse what a factory returns by mistake. Raises: UsageError."""
    returned = f"the factory of {name} returned"
    if made is None:
        raise UsageError(f"{returned} None; return the cache")
    if isinstance(made, type):
        raise UsageError(f"{returned} the class {made.__name__}; return an object of it")
    if isinstance(made, Coroutine):
        made.close()  # A coroutine that nobody awaits warns on stderr.
        raise UsageError(f"{returned} a coroutine; it must not be async")
    if isinstance(made, Awaitable | Iterator):
        raise UsageError(f"{returned} a {type(made).__name__}; return the cache itself")


def require_profile(name: str, profile: Profile, made: object) -> None:
    """Refuse snapshots whose profile is not the adapter's. Raises: UsageError."""
    asked = f"{name}: snapshot of a new cache"
    try:
        state: object = cast("Cache", made).snapshot()
    except Exception as error:
        raise UsageError(f"{asked} raised {describe_exception(error)}") from error
    if not isinstance(state, Snapshot):
        kind = "" if state is None else f", a {type(state).__name__}"
        raise UsageError(
            f"{asked} answered {shown(state)}{kind}; it must be a Snapshot (kvcanon.spec.snapshot)"
        )
    differing = [
        f"{field} is {getattr(state.profile, field, None)}, not {value}"
        for field, value in asdict(profile, recurse=False).items()
        if getattr(state.profile, field, None) != value
    ]
    if differing:
        raise UsageError(
            f"{name} declares one profile and its snapshots another: in them "
            f"{', '.join(differing)}; give `Adapter(profile=...)` and `Snapshot` the same"
        )
