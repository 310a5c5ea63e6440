"""Wire format: every value of the protocol as plain JSON, and back.

A value is an object with the fields of its class in `kvcanon.spec`. The judge sends all fields; an
answer may leave out fields that have their default. Bytes are written in hex, and where several
classes are possible (events, refusals) `kind` names the class. A mapping is an object if its keys
are strings, else a list of pairs.

The calls are read from the protocols and their annotations; there is no second list. A call that
both kinds of caches have means the same for both. `pipe.py` has the envelope around the values
(hello, `op`, `ok`, `refused`, `error`). Answers are not trusted: each must have exactly the fields
of its class, each of its type.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar, Union, cast, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, frozen, has

from kvcanon.conformance.protocol.adapter import CopyControl
from kvcanon.conformance.protocol.request import FullRequestCache, RequestCache
from kvcanon.spec.cache import Cache, StoredCache
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored

PROTOCOL = "kvcanon-pipe/1"

REFUSALS: dict[str, type[CacheError]] = {
    each.__name__: each
    for each in (
        BadArgument,
        CacheBusy,
        OutOfSlots,
        PrefixNotCached,
        ReceiptSpent,
        SlotNotHeld,
        TransferPending,
    )
}
"""The errors that may refuse a call."""

TAGGED = (BlockStored, BlockRemoved, AllBlocksCleared, CacheError)

Value = TypeVar("Value")
Decode = Callable[[object], object]


class NotOnTheWire(ValueError):
    """JSON that is not a value of the expected type."""


def to_json(value: object, *, brief: bool = False) -> object:
    """Encode a value; `brief` leaves out the fields that have their default."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: to_json(each, brief=brief) for key, each in value.items()}
        return [[to_json(key), to_json(each, brief=brief)] for key, each in value.items()]
    if isinstance(value, Collection):
        # Most lists are long and of numbers, or of pages of numbers: these are copied as they are.
        return value if _is_plain(value) else [to_json(each, brief=brief) for each in value]
    names = _sent_fields(type(value))
    if brief:
        names = _without_defaults(value, type(value), names)
    sent = {name: to_json(getattr(value, name), brief=brief) for name in names}
    return {"kind": type(value).__name__, **sent} if isinstance(value, TAGGED) else sent


def from_json(kind: type[Value], value: object) -> Value:
    """Decode a value of a class. Raises: NotOnTheWire."""
    return cast("Value", decoder(kind)(value))


def refusal_from_json(value: object) -> CacheError:
    """Decode a refusal. Raises: NotOnTheWire."""
    refusal = _tagged(REFUSALS, "refusal")(value)
    assert isinstance(refusal, CacheError)  # noqa: S101  # The table has no others.
    return refusal


def decoder(kind: object) -> Decode:
    """Return the decoder of an annotated type; the decoder raises NotOnTheWire."""
    if kind not in _DECODERS:
        _DECODERS[kind] = _new_decoder(kind)
    return _DECODERS[kind]


def _new_decoder(kind: object) -> Decode:
    if (origin := get_origin(kind)) in _COMPOUNDS:
        return _COMPOUNDS[origin](get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _word(kind)
    if isinstance(kind, type) and has(kind):
        return _object(kind)
    raise TypeError(f"{kind} has no form on the wire")


def _is_plain(values: Collection[object]) -> bool:
    """Whether a list is of numbers, or of lists of numbers."""
    return isinstance(values, tuple) and all(
        type(each) is int or (type(each) is tuple and all(type(one) is int for one in each))
        for each in values
    )


def _without_defaults(value: object, kind: type, names: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of a value that differ from their default."""
    defaults = {each.name: each.default for each in fields(kind)}
    return tuple(name for name in names if getattr(value, name) != defaults[name])


def _sent_fields(kind: type) -> tuple[str, ...]:
    """Return the fields that are sent: those that are arguments of the class."""
    if kind not in _SENT:
        _SENT[kind] = tuple(each.name for each in fields(kind) if each.eq)
    return _SENT[kind]


def _exactly(kind: type) -> Decode:
    def decode(value: object) -> object:
        if type(value) is not kind:
            raise NotOnTheWire(f"{_shown(value)} is no {kind.__name__}")
        return value

    return decode


def _nothing(value: object) -> None:
    if value is not None:
        raise NotOnTheWire(f"{_shown(value)} is not null")


def _bytes(value: object) -> bytes:
    try:
        return bytes.fromhex(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise NotOnTheWire(f"{_shown(value)} is no bytes in hex") from None


def _word(kind: type[StrEnum]) -> Decode:
    def decode(value: object) -> object:
        try:
            return kind(str(value))
        except ValueError:
            raise NotOnTheWire(f"{_shown(value)} is none of {', '.join(kind)}") from None

    return decode


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise NotOnTheWire(f"{_shown(value)} is no list")
    return value


def _tuple(arguments: tuple[object, ...]) -> Decode:
    if arguments[-1:] == (Ellipsis,):
        return _several(arguments)
    decode_each = [decoder(each) for each in arguments]

    def decode(value: object) -> object:
        if len(_list(value)) != len(decode_each):
            raise NotOnTheWire(f"{_shown(value)} has not {len(decode_each)} parts")
        return tuple(one(each) for one, each in zip(decode_each, _list(value), strict=True))

    return decode


def _several(arguments: tuple[object, ...]) -> Decode:
    decode_one = decoder(arguments[0])
    return lambda value: tuple([decode_one(each) for each in _list(value)])


def _set(arguments: tuple[object, ...]) -> Decode:
    decode_all = _several(arguments)
    return lambda value: frozenset(cast("tuple[object, ...]", decode_all(value)))


def _mapping(arguments: tuple[object, ...]) -> Decode:
    decode_pair = _tuple(arguments)

    def decode(value: object) -> object:
        pairs = [list(each) for each in value.items()] if isinstance(value, dict) else _list(value)
        return dict(cast("tuple[object, object]", decode_pair(each)) for each in pairs)

    return decode


def _union(members: tuple[object, ...]) -> Decode:
    """Decode one of several types, chosen by the JSON type; of several classes, by `kind`."""
    classes = {each.__name__: each for each in members if isinstance(each, type) and has(each)}
    forms: dict[type, Decode] = {}
    for member in members:
        if member is types.NoneType:
            forms[types.NoneType] = _nothing
        elif get_origin(member) is tuple:
            forms[list] = decoder(member)
        elif isinstance(member, type) and has(member):
            forms[dict] = _tagged(classes, "kind") if len(classes) > 1 else decoder(member)
        else:
            forms[int if member is int else str] = decoder(member)

    def decode(value: object) -> object:
        form = forms.get(type(value))
        if form is None:
            raise NotOnTheWire(f"{_shown(value)} is nothing that may stand here")
        return form(value)

    return decode


def _tagged(classes: Mapping[str, type], what: str) -> Decode:
    def decode(value: object) -> object:
        given = dict(_fields_of(value))
        kind = classes.get(str(given.pop("kind", None)))
        if kind is None:
            raise NotOnTheWire(f"{_shown(value)} has no {what} of {', '.join(classes)}")
        return decoder(kind)(given)

    return decode


def _object(kind: type) -> Decode:
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind) if each.eq}
    decoders = {name: decoder(hints[name]) for name in known}
    required = [name for name, each in known.items() if each.default is NOTHING]

    def decode(value: object) -> object:
        given = _fields_of(value)
        missing = [name for name in required if name not in given]
        foreign = [name for name in given if name not in known]
        if missing or foreign:
            lack = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(foreign)}"
            raise NotOnTheWire(f"{_shown(value)} is no {kind.__name__}: it {lack}")
        return kind(**{name: decoders[name](each) for name, each in given.items()})

    return decode


def _fields_of(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise NotOnTheWire(f"{_shown(value)} is no object")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


_DECODERS: dict[object, Decode] = {
    int: _exactly(int),
    str: _exactly(str),
    bool: _exactly(bool),
    bytes: _bytes,
    types.NoneType: _nothing,
    None: _nothing,
}
"""The decoders of the types that were used so far."""

_COMPOUNDS: Mapping[object, Callable[[tuple[object, ...]], Decode]] = {
    Union: _union,
    types.UnionType: _union,
    tuple: _tuple,
    Sequence: _several,
    Collection: _several,
    frozenset: _set,
    Mapping: _mapping,
}

_SENT: dict[type, tuple[str, ...]] = {}


@frozen
class Call:
    """The types of an operation's arguments, by name, and of its answer, as annotated."""

    takes: Mapping[str, object]
    answers: object


def _calls_of(protocol: type) -> dict[str, Call]:
    """Return the methods of a protocol, and its readable properties as calls without arguments."""
    calls: dict[str, Call] = {}
    for name, member in vars(protocol).items():
        if name.startswith("_") or name == "config":
            continue
        hints = get_type_hints(member.fget if isinstance(member, property) else member)
        answers = hints.pop("return")
        calls[name] = Call(hints, answers)
    return calls


CALLS: Mapping[str, Call] = {
    **_calls_of(FullRequestCache),
    **_calls_of(RequestCache),
    **_calls_of(Cache),
    **_calls_of(CopyControl),
}
"""All operations by name."""

OF_STORES: Mapping[str, Call] = {
    name: call for name, call in _calls_of(StoredCache).items() if name not in CALLS
}
"""The operations on a store below the host, which the judge holds: they are not on the wire."""

OF_COPIES = tuple(_calls_of(CopyControl))
