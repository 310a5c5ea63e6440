"""The page of the founding reports: what it names is there, and what is there it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.variants.variant import VARIATIONS
from kvcanon.spec.config import Profile
from kvcanon.spec.law import LAWS
from paths import ROOT

PAGES = ("founding-reports.md", "events.md")
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#]+)(?:#[^)]*)?\)")
each_page = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    """A page of the docs."""
    return (ROOT / "docs" / page).read_text("utf-8")


def defined(path: Path) -> set[str]:
    """The functions and classes of a module."""
    named = (ast.FunctionDef, ast.ClassDef)
    return {
        each.name for each in ast.parse(path.read_text("utf-8")).body if isinstance(each, named)
    }


@each_page
def test_named_laws_are_in_the_book(page: str) -> None:
    """A law that a page names was never there, or is retired."""
    areas = "|".join(sorted({law.area for law in LAWS.values()}))
    named = set(re.findall(rf"\b(?:{areas})-[0-9]+\b", text_of(page)))
    assert len(named) >= 8
    assert named <= LAWS.keys()


@each_page
def test_links_lead_to_what_they_say(page: str) -> None:
    """A file that a page links to is not there, or lacks the function that is named."""
    links = [
        (match["text"], match["target"])
        for match in LINK.finditer(text_of(page))
        if not match["target"].startswith("https://")
    ]
    assert links
    for text, target in links:
        path = ROOT / "docs" / target
        assert path.is_file(), target
        name = text.strip("`")
        if text.startswith("`") and name != path.name and "/" not in name:
            assert name in defined(path), f"{name} in {target}"


def test_every_test_of_a_report_is_on_the_page() -> None:
    """A test in tests/founding/ is of no line of its report."""
    linked = {match["text"].strip("`") for match in LINK.finditer(text_of(PAGES[0]))}
    tests = {
        name
        for path in (ROOT / "tests/founding").glob("test_*.py")
        for name in defined(path)
        if name.startswith("test_")
    }
    assert len(tests) > 40
    assert tests <= linked


def test_named_fields_and_variations_are_there() -> None:
    """A field of the profile, or a variation, has another name by now."""
    text = text_of(PAGES[0])
    fields = set(re.findall(r"`Profile\.(\w+)`", text))
    variations = set(re.findall(r"variation `(\w+)`", text))
    assert fields <= {each.name for each in Profile.__attrs_attrs__}
    assert variations <= VARIATIONS.keys()
    assert len(fields) >= 4
    assert len(variations) >= 4
