"""Calls over a pipe: the operations, the arguments of each, and its answer.

The operations are read from the protocols and their annotations; there is no second list. An
operation that both kinds of caches have means the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_type_hints

from attrs import frozen

from kvcanon.conformance.protocol.adapter import CopyControl
from kvcanon.conformance.protocol.request import FullRequestCache, RequestCache
from kvcanon.spec.cache import Cache


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

OF_COPIES = tuple(_calls_of(CopyControl))
