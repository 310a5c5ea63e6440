"""Wrapped rules: lets faults and variations replace a rule of the plain cache, also several one.

A rule is looked up in the module that uses it. A module that imports a rule has its own name for
it, which must be replaced, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TypeAlias, TypeVar

from kvcanon.lab.variants.override import Overrides, Plant

MODULES = tuple(
    import_module(f"kvcanon.reference.{name}")
    for name in (
        *("backup", "cache", "departures", "evict", "host", "host_insert", "insert", "load"),
        *("lock", "match", "slots", "snapshot", "state", "tier", "transfer", "tree", "victims"),
    )
)
"""The modules with rules of the plain cache; engines and events have none."""

Rule: TypeAlias = Callable[..., object]
Answer = TypeVar("Answer")
Original: TypeAlias = Callable[..., Answer]
"""A rule that is replaced, by the type of its answers."""
Replacement: TypeAlias = Callable[..., object]
"""What is called in place of a rule, with the rule as its first argument."""


def around(rule: Rule, *owners: ModuleType | type) -> Callable[[Replacement], Plant]:
    """Decorator: a function replaces a rule, and gets it as its first argument.

    The rule is replaced in its own module, if no other owners of the name are given.
    """

    def plant_of(function: Replacement) -> Plant:
        @wraps(function)
        def plant(overrides: Overrides) -> None:
            for owner in owners or (sys.modules[rule.__module__],):
                wrap(overrides, owner, rule, function)

        return plant

    return plant_of


def instead(rule: Rule, *owners: ModuleType | type) -> Callable[[Rule], Plant]:
    """Decorator: as `around`, for a function that does not need the rule."""

    def plant_of(function: Rule) -> Plant:
        @wraps(function)
        def without(_: Rule, *args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return around(rule, *owners)(without)

    return plant_of


def everywhere(rule: Rule) -> tuple[ModuleType, ...]:
    """The modules that have a name for a rule."""
    return tuple(each for each in MODULES if getattr(each, rule.__name__, None) is rule)


def wrap(
    overrides: Overrides, owner: ModuleType | type, rule: Rule, replacement: Replacement
) -> None:
    """Replace a rule in `owner`; the replacement gets what an earlier one left there."""
    name = rule.__name__
    earlier = [o for o in overrides.collected if o.owner is owner and o.name == name]
    usual = earlier[-1].replacement if earlier else rule

    def replaced(*args: object, **kwargs: object) -> object:
        return replacement(usual, *args, **kwargs)

    overrides.setattr(owner, name, replaced)


def wrap_everywhere(overrides: Overrides, rule: Rule, replacement: Replacement) -> None:
    """Replace a rule in each module that has a name for it."""
    for module in everywhere(rule):
        wrap(overrides, module, rule, replacement)
