"""Wrapped rules: several variations that change one rule of the plain cache.

A rule is looked up in the module that uses it. A module that imports it has a name of its own for
it, which must be replaced, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from kvcanon.conformance.variants.override import Overrides
from kvcanon.reference import (
    backup,
    cache,
    evict,
    host,
    host_insert,
    insert,
    load,
    lock,
    match,
    slots,
    snapshot,
    state,
    transfer,
    tree,
    victims,
)

MODULES: tuple[ModuleType, ...] = (
    backup,
    cache,
    evict,
    host,
    host_insert,
    insert,
    load,
    lock,
    match,
    slots,
    snapshot,
    state,
    transfer,
    tree,
    victims,
)
"""The rules of the plain cache; engines and events are not among them."""

Rule = Callable[..., object]


def wrap(
    overrides: Overrides, owner: ModuleType | type, rule: Rule, wrapper: Callable[..., Rule]
) -> None:
    """Replace a rule, as `owner` knows it, by what the wrapper makes of it as it is by then."""
    name = rule.__name__
    earlier = [o for o in overrides.collected if o.owner is owner and o.name == name]
    overrides.setattr(owner, name, wrapper(earlier[-1].replacement if earlier else rule))


def wrap_everywhere(overrides: Overrides, rule: Rule, wrapper: Callable[..., Rule]) -> None:
    """Replace a rule in each module that knows it."""
    for module in MODULES:
        if getattr(module, rule.__name__, None) is rule:
            wrap(overrides, module, rule, wrapper)
