"""The registry of the laws of stores, as `spec.law` has it for those of caches.

A law of stores checks a step: a call, its answer, and what was known before. Its docstring is its
page, as that of a law of caches.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from attrs import frozen

from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.calls import Ability, StoreStep

StoreCheck: TypeAlias = Callable[[StoreStep], Iterator[str]]
IsMet: TypeAlias = Callable[[StoreStep], bool]


@frozen
class StoreLaw:
    """A law of stores and its page."""

    law_id: str
    law_class: LawClass
    name: str
    needs: frozenset[Ability]
    """A store without these cannot break it, and is not judged by it."""
    premise: str
    """The situation that exercises it, in words."""
    is_met: IsMet
    statement: str
    why: str
    seen_broken: str
    check: StoreCheck


STORE_LAWS: dict[str, StoreLaw] = {}
"""Every law of stores by id. Importing `kvcanon.spec.stores` fills it."""

_ID = re.compile(r"STORE-[1-9][0-9]*")
_PAGE = re.compile(
    r"(?P<statement>.+?)\n\n(?:(?P<more>.+)\n\n)?Why: (?P<why>.+?)\n\n?Seen broken: (?P<seen>.+)",
    re.DOTALL,
)


def store_law(
    law_id: str,
    law_class: LawClass,
    premise: str,
    is_met: IsMet,
    *,
    needs: Iterable[Ability] = (),
) -> Callable[[StoreCheck], StoreCheck]:
    """Register a function as a law of stores; its docstring must be a page.

    Raises: ValueError: the id is taken or malformed, or the docstring lacks a part.
    """

    def register(check: StoreCheck) -> StoreCheck:
        page = _PAGE.fullmatch(inspect.getdoc(check) or "")
        if page is None or not _ID.fullmatch(law_id):
            raise ValueError(f"{law_id}: a law states itself, then says Why: and Seen broken:")
        if law_id in STORE_LAWS:
            raise ValueError(f"{law_id} is taken by {STORE_LAWS[law_id].name}")
        more = f"\n\n{page['more']}" if page["more"] else ""
        STORE_LAWS[law_id] = StoreLaw(
            law_id,
            law_class,
            check.__name__,
            frozenset(needs),
            premise,
            is_met,
            page["statement"] + more,
            page["why"],
            page["seen"],
            check,
        )
        return check

    return register


def order_store_laws() -> None:
    """Sort the laws by number, whichever module they are in."""
    ordered = sorted(STORE_LAWS.items(), key=lambda each: int(each[0].rpartition("-")[2]))
    STORE_LAWS.clear()
    STORE_LAWS.update(ordered)


def broken_by(step: StoreStep) -> list[tuple[StoreLaw, str]]:
    """Every law that a step breaks, with a message for each way in which it does."""
    return [
        (law, words)
        for law in STORE_LAWS.values()
        if law.needs <= step.terms.abilities
        for words in law.check(step)
    ]


def exercised_by(step: StoreStep) -> list[StoreLaw]:
    """Every law whose premise a step meets."""
    return [
        law for law in STORE_LAWS.values() if law.needs <= step.terms.abilities and law.is_met(step)
    ]
