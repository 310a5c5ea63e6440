"""Files for who visits the repository: forms for issues, and how to cite it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from paths import ROOT

FORMS = sorted(
    path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"
)
KINDS = {"input", "textarea", "checkboxes"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_is_one_that_github_takes(form: Path) -> None:
    """A form has a name, a description, and parts of known kinds with ids and labels."""
    read = yaml.safe_load(form.read_text("utf-8"))
    assert read["name"]
    assert read["description"]
    parts = read["body"]
    assert {part["type"] for part in parts} <= KINDS
    assert all(part["attributes"]["label"] for part in parts)
    ids = [part["id"] for part in parts]
    assert len(set(ids)) == len(ids)
    assert any(part.get("validations", {}).get("required") for part in parts)


def test_there_is_a_form_for_each_of_three_reports() -> None:
    """A false red, a missed fault, and an engine to judge."""
    assert [path.stem for path in FORMS] == ["false_red", "judge_engine", "missed_fault"]


def test_no_package_lies_beside_the_sources() -> None:
    """What was downloaded or built is no source, and is not committed by mistake."""
    assert [each.name for kind in ("*.whl", "*.tar.gz", "*.tgz") for each in ROOT.glob(kind)] == []


def test_the_citation_is_of_this_version() -> None:
    """CITATION.cff names the version and the license of pyproject.toml."""
    read = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert read["version"] == PROJECT["version"]
    assert read["license"] == PROJECT["license"]
    assert read["repository-code"] in PROJECT["urls"].values()
