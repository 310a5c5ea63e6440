"""Checks of what a factory made: an object, whose snapshots declare the profile of its adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterator
from typing import cast

from attrs import asdict

from kvcanon.conformance.errors import UsageError, describe_exception, shown
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import Profile
from kvcanon.spec.snapshot import Snapshot


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
