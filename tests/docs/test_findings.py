"""Findings: each page of a fault can be pasted into an issue tracker, with the script beside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kvcanon.lab.site.issue import with_script
from paths import DOCS

INDEX = DOCS / "findings.md"
FINDINGS = DOCS / "findings"
FOLDERS = sorted(path for path in FINDINGS.iterdir() if path.is_dir())
PAGES = sorted(page for page in FINDINGS.glob("*/*.md") if page.name != "README.md")
SCRIPTS = sorted(FINDINGS.glob("*/*.py"))
SECTIONS = [
    "Versions",
    "What happens",
    "What should happen",
    "Script",
    "Why it matters",
    "Proposed change",
]
SECTION = re.compile(r"^\*\*([A-Z][a-z ]+)\*\*(?:: .+)?$", re.MULTILINE)
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$\n", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    """The folder and name of a file, as the id of a test."""
    return f"{path.parent.name}/{path.name}"


each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
each_page = pytest.mark.parametrize("page", PAGES, ids=named)
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=named)


def test_pages_and_scripts_were_found() -> None:
    """The tests below have something to check."""
    assert len(FOLDERS) > 1
    assert PAGES
    assert SCRIPTS


@each_page
def test_page_has_its_sections_in_order(page: Path) -> None:
    """A title, and the six sections of an issue, each once, in order, and with text."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    title, _, rest = text.partition("\n")
    assert re.fullmatch(r"# \S.*", title)
    assert "\n# " not in rest
    assert SECTION.findall(rest) == SECTIONS
    bodies = [body.strip() for body in SECTION.split(rest)[2::2]]
    assert re.search(r"^\*\*Versions\*\*: .*\d", rest, re.MULTILINE)
    assert all(bodies[1:])


@each_page
def test_page_has_its_script(page: Path) -> None:
    """An issue has one piece of Python: the file beside the page that the page links."""
    (code,) = CODE.findall(with_script(page))
    assert code == page.with_suffix(".py").read_text(encoding="utf-8")
    assert not CODE.findall(page.read_text(encoding="utf-8"))


@each_page
def test_script_of_a_page_needs_the_engine_alone(page: Path) -> None:
    """It imports no file beside it, and nothing of this project."""
    tree = ast.parse(page.with_suffix(".py").read_text(encoding="utf-8"))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    beside = {script.stem for script in page.parent.glob("*.py")}
    assert imported.isdisjoint(beside | {"kvcanon"})


@each_folder
def test_readme_links_every_file(folder: Path) -> None:
    """The README of a folder links each file in it, and the index links the README."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    links = set(re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", readme))
    files = {path.name for path in folder.iterdir() if path.suffix in {".md", ".py"}}
    assert files - {"README.md"} <= links
    assert f"]({FINDINGS.name}/{folder.name}/README.md)" in INDEX.read_text(encoding="utf-8")


def test_scripts_lie_in_folders() -> None:
    """No file lies beside the folders but the list of faults."""
    assert [path.name for path in FINDINGS.iterdir() if path.is_file()] == ["faults.toml"]


@each_script
def test_script_says_how_to_run_it(script: Path) -> None:
    """Its docstring says what goes wrong, and each command there names the script itself."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    assert text
    for name in re.findall(r"python (?:\S*/)?(\w+\.py)", text):
        assert (script.parent / name).exists()
