"""Scopes by name, alone and in groups: what `kvcanon explore --scope` is given.

What readers get wrong: `all` is what minutes go through, each; what a night goes through is `deep`,
and what shows the bugs that this project began with is `founding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.conformance.verify.explore.scopes.deep import DEEP
from kvcanon.conformance.verify.explore.scopes.founding import FOUNDING
from kvcanon.conformance.verify.explore.scopes.small import SMALL
from kvcanon.conformance.verify.explore.scopes.wide import WIDE


def _by_name(scopes: Iterable[Scope]) -> dict[str, Scope]:
    return {scope.name: scope for scope in scopes}


GROUPS: Mapping[str, Mapping[str, Scope]] = {
    "founding": _by_name(FOUNDING.values()),
    "small": _by_name(SMALL),
    "wide": _by_name(WIDE),
    "all": _by_name((*SMALL, *WIDE)),
    "deep": _by_name(DEEP),
}
"""Scopes that are explored together, by the name that stands for them."""

SCOPES: dict[str, Scope] = {
    name: scope for group in GROUPS.values() for name, scope in group.items()
}
"""Every scope by name."""


def scopes_named(names: str) -> list[Scope]:
    """The scopes, or groups of scopes, whose names are given. Raises: UsageError."""
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
