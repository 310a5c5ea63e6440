"""The page of the founding reports names laws, tests and fields that exist, and every test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.lab.variants.variant import VARIATIONS
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
    """Each law that a page names is a law today."""
    areas = "|".join(sorted({law.area for law in LAWS.values()}))
    named = set(re.findall(rf"\b(?:{areas})-[0-9]+\b", text_of(page)))
    assert len(named) >= 8
    assert named <= LAWS.keys()


@each_page
def test_links_lead_to_what_they_say(page: str) -> None:
    """Each link leads to a file, and to the function that it names."""
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
    """The page links every test of a report."""
    linked = {match["text"].strip("`") for match in LINK.finditer(text_of(PAGES[0]))}
    tests = {
        name
        for path in (ROOT / "tests/founding").glob("test_sgl_*.py")
        for name in defined(path)
        if name.startswith("test_")
    }
    assert len(tests) > 40
    assert tests <= linked


def test_named_fields_and_variations_are_there() -> None:
    """Each named field of the profile, and each variation, exists."""
    text = text_of(PAGES[0])
    fields = set(re.findall(r"`Profile\.(\w+)`", text))
    variations = set(re.findall(r"variation `(\w+)`", text))
    assert fields <= {each.name for each in Profile.__attrs_attrs__}
    assert variations <= VARIATIONS.keys()
    assert len(fields) >= 4
    assert len(variations) >= 4
