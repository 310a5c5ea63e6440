"""The blocks of the docs: every command that a page shows, and every piece of Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from paths import DOCS, ROOT

BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(
    r"^(?:\$ )?(?P<command>(?:[A-Z_]+=\S+ )*(?:\.venv/bin/|DIR/\S+/)?"
    r"(?:kvcanon|pytest|make|pip|python3?|gh|\.)\s(?!.*→)[^\n]*)"
)
"""A line that begins as a command does."""


@frozen
class Shown:
    """A command that a page shows."""

    page: str
    command: str
    """On one line, without the comment at its end."""


def pages() -> list[Path]:
    """The README, CONTRIBUTING, the docs, and the READMEs of findings."""
    findings = sorted(DOCS.glob("findings/*/*.md"))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *findings]


def commands() -> list[Shown]:
    """All commands of all pages, in their order."""
    return [
        Shown(str(page.relative_to(ROOT)), command)
        for page in pages()
        for block in BLOCK.finditer(page.read_text("utf-8"))
        if not block["language"]
        for command in _commands_of(block["body"])
    ]


def python_blocks() -> list[tuple[str, str]]:
    """Each page with Python, and each of its blocks."""
    return [
        (str(page.relative_to(ROOT)), block["body"])
        for page in pages()
        for block in BLOCK.finditer(page.read_text("utf-8"))
        if block["language"] == "python"
    ]


def _commands_of(body: str) -> Iterator[str]:
    for line in body.replace("\\\n", " ").splitlines():
        found = PROGRAM.match(line)
        if found:
            yield shlex.join(shlex.split(found["command"], comments=True))
