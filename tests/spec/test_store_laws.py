"""The laws of stores: their pages are complete, names are injective, and causes are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve, fields

from kvcanon.spec.law import LawClass
from kvcanon.spec.stores import STORE_LAWS, PageKey, StoreIdentity, identity_digest, page_digest
from kvcanon.spec.stores.calls import Ability, Answered, GetCall, Handle, PageRead, StoreStep
from kvcanon.spec.stores.calls import StoreTerms as Terms
from kvcanon.spec.stores.known import Doubt, KnownPages, PageKnown
from kvcanon.spec.stores.store_law import StoreLaw, broken_by, store_law
from kvcanon.spec.types import Namespace

PLAIN = StoreIdentity()
KEY = PageKey((1, 2, 3, 4))
CONTENT = bytes(range(64))
SURE = PageKnown((CONTENT,), sure=True, doubt=Doubt.NONE, lives=frozenset({1}))
OTHER = evolve(PLAIN, weights="weights-2")


def get_of(
    data: bytes | None, known: PageKnown, size: int = 64, theirs: PageKnown | None = None
) -> StoreStep:
    """A get of the page, with what is known of it, and of the same page with other weights."""
    read = PageRead(None, b"") if data is None else PageRead(len(data), data)
    before = {(PLAIN, KEY): known} | ({} if theirs is None else {(OTHER, KEY): theirs})
    return StoreStep(
        Handle(0, PLAIN, 1),
        GetCall((KEY,), (size,)),
        Answered((read,)),
        KnownPages(before),
        Terms(frozenset(Ability)),
    )


def laws_of(step: StoreStep) -> list[str]:
    """The ids of the laws that a step breaks."""
    return [law.law_id for law, _ in broken_by(step)]


@pytest.mark.parametrize("law", STORE_LAWS.values(), ids=list(STORE_LAWS))
def test_page_of_a_law_is_complete(law: StoreLaw) -> None:
    """Every law states itself in a sentence, says why, and where it was broken."""
    assert law.statement.split("\n\n")[0].endswith(".")
    assert len(law.why) > len("Because.")
    assert law.seen_broken
    assert law.premise


def test_ids_count_up_without_a_gap() -> None:
    """The laws are in the order of their numbers."""
    assert list(STORE_LAWS) == [f"STORE-{number + 1}" for number in range(len(STORE_LAWS))]


def test_laws_without_reasons_and_taken_ids_are_refused() -> None:
    """A law says why, and its id is its own."""

    def bare(step: StoreStep) -> Iterator[str]:
        """Hold."""
        yield from ()

    def whole(step: StoreStep) -> Iterator[str]:
        """Hold.

        Why: to take an id.

        Seen broken: not seen
        """
        yield from ()

    with pytest.raises(ValueError, match="Why"):
        store_law("STORE-99", LawClass.SOUND, "a call", lambda _: True)(bare)
    with pytest.raises(ValueError, match="STORE-1 is taken by page_is_whole"):
        store_law("STORE-1", LawClass.SOUND, "a call", lambda _: True)(whole)


def test_every_field_of_an_identity_is_in_its_digest() -> None:
    """Two identities that differ in one field have other digests."""
    changes: dict[str, Any] = {"page_size": 8, "rank": 1, "ranks": 2, "pools": ("kv", "index")}
    names = [each.name for each in fields(StoreIdentity)]
    others = [evolve(PLAIN, **{name: changes.get(name, "another")}) for name in names]
    assert len({identity_digest(each) for each in [PLAIN, *others]}) == len(others) + 1


def test_digests_of_pages_are_injective() -> None:
    """Tokens, page size, namespace and pool each make another name."""
    space = Namespace("a", "bc")
    keys = [
        KEY,
        PageKey((1, 2, 3, 5)),
        PageKey((1, 2, 3, 4), space),
        PageKey((1, 2, 3, 4), Namespace("ab", "c")),
        PageKey((1, 2, 3, 4), pool="index"),
    ]
    names = [page_digest(each, 4) for each in keys] + [page_digest(KEY, 2)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("data", "known", "law_ids"),
    [
        (CONTENT, SURE, []),
        (CONTENT[:-1] + b"x", SURE, ["STORE-1"]),
        (CONTENT[:32], SURE, ["STORE-1"]),
        (bytes(64), evolve(SURE, sure=False, doubt=Doubt.DAMAGED), ["STORE-2"]),
        (None, evolve(SURE, sure=False, doubt=Doubt.DAMAGED), []),
        (bytes(64), evolve(SURE, sure=False, doubt=Doubt.REFUSED), ["STORE-3"]),
        (bytes(64), evolve(SURE, mended=True), ["STORE-4"]),
        (None, evolve(SURE, mended=True), ["STORE-4"]),
        (None, evolve(SURE, lives=frozenset({9})), ["STORE-7"]),
        (None, SURE, ["STORE-10"]),
        (None, evolve(SURE, said=True), ["STORE-8", "STORE-10"]),
        (None, evolve(SURE, crashed=True), ["STORE-23"]),
        (bytes(64), evolve(SURE, sure=False, doubt=Doubt.KILLED), ["STORE-24"]),
        (bytes(64), evolve(SURE, overtaken=True, doubt=Doubt.OVERTAKEN), ["STORE-25"]),
        (CONTENT, PageKnown(doubt=Doubt.REMOVED), ["STORE-26"]),
    ],
)
def test_a_wrong_get_is_the_matter_of_its_cause(
    data: bytes | None, known: PageKnown, law_ids: list[str]
) -> None:
    """What happened to a page decides which law a wrong answer breaks."""
    assert laws_of(get_of(data, known)) == law_ids


def test_bytes_of_another_identity_are_told_apart() -> None:
    """The message names the field, also where only a part of the page was read."""
    theirs = PageKnown((bytes(range(100, 164)),), sure=True, doubt=Doubt.NONE)
    step = get_of(theirs.contents[0][:32], PageKnown(), 32, theirs=theirs)
    ((law, words),) = broken_by(step)
    assert law.law_id == "STORE-5"
    assert "weights='weights-2'" in words


def test_a_page_that_does_not_fit_may_be_a_miss() -> None:
    """A buffer that is too small is no fault of the store."""
    assert laws_of(get_of(None, SURE, 32)) == []
