"""Scopes and groups of scopes by name, for `kvcanon explore --scope`.

The scopes of `all` take minutes each, those of `deep` a night; `founding` shows the bugs that this
project began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.deep import DEEP
from kvcanon.conformance.explore.scopes.founding import FOUNDING
from kvcanon.conformance.explore.scopes.small import SMALL
from kvcanon.conformance.explore.scopes.stored import STORED
from kvcanon.conformance.explore.scopes.wide import WIDE


def _by_name(scopes: Iterable[Scope]) -> dict[str, Scope]:
    return {scope.name: scope for scope in scopes}


GROUPS: Mapping[str, Mapping[str, Scope]] = {
    "founding": _by_name(FOUNDING.values()),
    "small": _by_name(SMALL),
    "wide": _by_name(WIDE),
    "all": _by_name((*SMALL, *WIDE)),
    "stored": _by_name(STORED),
    "deep": _by_name(DEEP),
}
"""Groups of scopes, by the name of the group."""

SCOPES: dict[str, Scope] = {
    name: scope for group in GROUPS.values() for name, scope in group.items()
}
"""Every scope by name."""


def scopes_named(names: str) -> list[Scope]:
    """Find scopes, or groups of scopes, by their names. Raises: UsageError."""
    chosen = [_of_name(name.strip()) for name in names.split(",") if name.strip()]
    if not chosen:
        raise UsageError(f"--scope names no scope; {_CHOICES}")
    return list({scope.name: scope for scopes in chosen for scope in scopes}.values())


def _of_name(name: str) -> list[Scope]:
    if name in GROUPS:
        return list(GROUPS[name].values())
    if name not in SCOPES:
        raise UsageError(f"there is no scope {name!r}; {_CHOICES}")
    return [SCOPES[name]]


_CHOICES = f"name {', '.join(GROUPS)}, or some of {', '.join(SCOPES)}"
