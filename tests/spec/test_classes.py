"""The classes of laws, and which choices of a profile a law reads.

A declaration must not switch off what no cache may do. So the sound laws that read a field of
`Profile` are listed here with what they read: those fields say what an answer means, or which of
two ways of the canon's rules is in force.
"""

from __future__ import annotations

import dis
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from attrs import evolve, fields

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.spec import difference, snapshot, views
from kvcanon.spec import law as law_module
from kvcanon.spec.config import CANON, Choosing, Profile, choices
from kvcanon.spec.law import LAWS, Law, LawClass
from kvcanon.spec.laws.unasked import without_unasked

CHOICES = frozenset(each.name for each in fields(Profile))
OWN = [name for name in choices() if isinstance(getattr(CANON, name), Choosing)]
"""The choices that a cache can make in a way of its own."""

READ_BY_SOUND = {
    "TREE-5": {"hits_counted_at_match"},
    "LOCK-4": {"loads_keep_host_copies", "locks_hold_host_copies"},
    "LOCK-6": {"window_lock_exact"},
    "ALLOC-3": {"heals_in_place"},
    "ALLOC-11": {"heals_in_place"},
    "EVICT-6": {"locks_hold_host_copies", "whole_nodes_on_host"},
    "LOAD-3": {"locks_hold_host_copies", "whole_nodes_on_host", "window_lock_exact"},
    "LOAD-7": {"locks_hold_host_copies", "whole_nodes_on_host", "window_lock_exact"},
    "EVENT-4": {"load_back_announced"},
    "EVENT-5": {"load_back_announced"},
    "EVENT-8": {"load_back_announced"},
    "EVENT-10": {"load_back_announced"},
    "EVENT-11": {"load_back_announced"},
    "ASYNC-3": {"load_back_usable"},
    "ASYNC-4": {"load_back_announced"},
    "ASYNC-9": {"loads_keep_host_copies"},
    "ASYNC-16": {"locks_hold_host_copies", "whole_nodes_on_host"},
    "REFUSE-2": {"limits"},
}
"""The sound laws that read choices, and which."""


def _properties() -> dict[str, list[FunctionType]]:
    """The functions behind the methods and properties of what laws are given, by name."""
    found = defaultdict[str, list[FunctionType]](list)
    for module in (snapshot, difference, views, law_module):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name, member in vars(kind).items():
                    inner = (member, *getattr(member, "__dict__", {}).values())
                    inner = (*inner, getattr(member, "fget", None))
                    found[name] += [each for each in inner if isinstance(each, FunctionType)]
    return found


PROPERTIES = _properties()


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code with those of the functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_of(each)


def called_by(function: FunctionType) -> Iterator[FunctionType]:
    """The functions of spec/ that a function names."""
    names = {name for code in codes_of(function.__code__) for name in code.co_names}
    modules = [
        each for each in map(function.__globals__.get, names) if isinstance(each, ModuleType)
    ]
    scopes = [function.__globals__, *map(vars, modules)]
    for name in names:
        yield from PROPERTIES.get(name, ())
        for scope in scopes:
            named = scope.get(name)
            members = vars(named).values() if isinstance(named, type) else (named,)
            for each in members:
                if isinstance(each, FunctionType) and each.__module__.startswith("kvcanon.spec"):
                    yield each
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, FunctionType):
            yield cell.cell_contents


def read_directly(function: FunctionType) -> Iterator[str]:
    """The choices that a function reads, as `profile.NAME`."""
    for code in codes_of(function.__code__):
        before: object = None
        for step in dis.get_instructions(code):
            if before == "profile" and step.argval in CHOICES:
                yield str(step.argval)
            before = step.argval


def choices_read(check: Callable[..., object]) -> set[str]:
    """The choices that a law may read, itself or through what it calls."""
    first = inspect.unwrap(check)
    assert isinstance(first, FunctionType)
    seen, waiting = {first}, [first]
    while waiting:
        for each in map(inspect.unwrap, called_by(waiting.pop())):
            if isinstance(each, FunctionType) and each not in seen:
                seen.add(each)
                waiting.append(each)
    return {name for each in seen for name in read_directly(each)}


def test_sound_laws_read_no_other_choice() -> None:
    """No declaration but those listed reaches a sound law."""
    sound = [law for law in LAWS.values() if law.law_class is LawClass.SOUND]
    read = {law.law_id: choices_read(law.check) for law in sound}
    assert {law_id: names for law_id, names in read.items() if names} == READ_BY_SOUND


def test_every_choice_is_read_or_leaves_laws_to_the_cache() -> None:
    """Each field of a profile is of use: a law reads it, or is left to the cache by it.

    Others take out of a step what a cache did on its own, before any law sees it.
    """
    read = {name for law in LAWS.values() for name in choices_read(law.check)}
    left = {law.chosen_by for law in LAWS.values()}
    assert read | left | choices_read(without_unasked) >= CHOICES


def test_only_policy_is_left_to_a_cache() -> None:
    """A cache that chooses in ways of its own is judged by all sound and serving laws."""
    assert {law.chosen_by for law in LAWS.values()} <= {None, *OWN}
    changes: dict[str, Any] = dict.fromkeys(OWN, Choosing.OWN)
    own = evolve(CANON, **changes)
    left = [law for law in LAWS.values() if not law.is_judged_under(own)]
    assert {law.law_class for law in left} == {LawClass.POLICY}


@pytest.mark.parametrize(
    ("law_id", "law_class"),
    [
        ("RES-4", LawClass.SERVING),
        ("REC-1", LawClass.POLICY),
        ("LOAD-1", LawClass.POLICY),
        ("EVENT-10", LawClass.SOUND),
        ("DATA-1", LawClass.SOUND),
    ],
)
def test_founding_invariants_have_their_class(law_id: str, law_class: LawClass) -> None:
    """Backed parents, window-only refresh, full-only pre-evict, events and bytes."""
    law: Law = LAWS[law_id]
    assert law.law_class is law_class
