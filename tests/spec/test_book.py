"""The specification: its chapters are in order, and the page of every law is complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvcanon.spec
import kvcanon.spec.laws
from kvcanon.spec.law import LAWS, SHAPE, Kind, Law, LawClass, Need, law
from kvcanon.spec.laws.premises import ANY_NODE
from kvcanon.spec.snapshot import Snapshot

SPEC = Path(kvcanon.spec.__file__).parent
CHAPTERS = re.findall(r"^ ?\d+\. `(\w+)`", kvcanon.spec.__doc__ or "", re.MULTILINE)
AREAS = ["TREE", "RES", "MATCH", "REC", "LOCK", "ALLOC"]
AREAS += ["ASK", "EVICT", "LOAD", "EVENT", "DATA", "ASYNC", "TIER", "NS", "REFUSE"]


def imported_chapters(path: Path) -> set[str]:
    """The chapters that a module imports from."""
    found = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            parts = statement.module.split(".")
            if parts[:2] == ["kvcanon", "spec"] and len(parts) > 2:
                found.add(parts[2])
    return found


def test_book_lists_every_chapter() -> None:
    """The list of chapters names every module of spec/, and nothing else."""
    modules = {path.stem for path in SPEC.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in SPEC.glob("*/__init__.py")}
    assert set(CHAPTERS) == modules | packages


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_uses_only_earlier_chapters(chapter: str) -> None:
    """A chapter imports only itself and the chapters before it."""
    place = CHAPTERS.index(chapter)
    single = SPEC / f"{chapter}.py"
    for path in [single] if single.exists() else sorted((SPEC / chapter).glob("*.py")):
        later = imported_chapters(path) - set(CHAPTERS[:place]) - {chapter}
        assert not later, f"{path.name} imports {later}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_opens_with_its_number(chapter: str) -> None:
    """The docstring of each chapter begins with the number that the list of chapters gives it."""
    single = SPEC / f"{chapter}.py"
    path = single if single.exists() else SPEC / chapter / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert text.startswith(f"Chapter {CHAPTERS.index(chapter) + 1}. ")


def test_every_area_has_laws_in_the_order_of_the_book() -> None:
    """Every area has laws, and the areas come in the order of the design."""
    assert list(dict.fromkeys(each.area for each in LAWS.values())) == AREAS


def test_ids_count_up_inside_their_area() -> None:
    """The laws of an area come in the order of their numbers."""
    for area in AREAS:
        numbers = [
            int(each.law_id.rpartition("-")[2]) for each in LAWS.values() if each.area == area
        ]
        assert numbers == sorted(numbers), area


def test_laws_name_only_laws_that_exist() -> None:
    """An id in the text of a law is that of a law."""
    for each in LAWS.values():
        text = f"{each.statement} {each.why} {each.seen_broken}"
        named = set(re.findall(rf"\b(?:{'|'.join(AREAS)})-[1-9][0-9]*", text))
        assert named <= LAWS.keys(), each.law_id


@pytest.mark.parametrize("each", LAWS.values(), ids=list(LAWS))
def test_law_page_is_complete(each: Law) -> None:
    """Every law states itself in one sentence, says why, and where it was broken."""
    assert each.statement.split("\n\n")[0].endswith(".")
    assert len(each.why) > len("Because.")
    assert each.seen_broken == "not seen" or "https://" in each.seen_broken
    assert each.needs


def test_shape_laws_are_laws_of_a_state() -> None:
    """The laws that are checked first are laws of a state."""
    assert all(LAWS[law_id].kind is Kind.STATE for law_id in SHAPE)


def test_law_without_reasons_is_refused() -> None:
    """A law that does not say why cannot be registered."""
    with pytest.raises(ValueError, match="Why"):

        @law("TREE-99", Kind.STATE, LawClass.SOUND, premise=ANY_NODE, needs=(Need.SNAPSHOT,))
        def bare(state: Snapshot) -> Iterator[str]:
            """Hold."""
            yield from ()


def test_law_id_is_never_reused() -> None:
    """A law cannot take the id of another law."""
    with pytest.raises(ValueError, match="TREE-1 is taken by one_root"):

        @law("TREE-1", Kind.STATE, LawClass.SOUND, premise=ANY_NODE)
        def another(state: Snapshot) -> Iterator[str]:
            """Hold.

            Why: to take an id.

            Seen broken: not seen
            """
            yield from ()
