"""Wrapped rules: lets several variations change one rule of the plain cache.

A rule is looked up in the module that uses it. A module that imports a rule has its own name for
it, which must be replaced, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import (
    backup,
    cache,
    departures,
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
    departures,
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
"""The modules with rules of the plain cache; engines and events have none."""

Rule = Callable[..., object]


def wrap(
    overrides: Overrides, owner: ModuleType | type, rule: Rule, wrapper: Callable[..., Rule]
) -> None:
    """Replace a rule in `owner` by a wrapper around it; the rule may be wrapped already."""
    name = rule.__name__
    earlier = [o for o in overrides.collected if o.owner is owner and o.name == name]
    overrides.setattr(owner, name, wrapper(earlier[-1].replacement if earlier else rule))


def wrap_everywhere(overrides: Overrides, rule: Rule, wrapper: Callable[..., Rule]) -> None:
    """Replace a rule in each module that has a name for it."""
    for module in MODULES:
        if getattr(module, rule.__name__, None) is rule:
            wrap(overrides, module, rule, wrapper)
