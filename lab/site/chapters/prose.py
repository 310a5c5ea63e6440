"""Docstrings as Markdown: names of spec/ and ids of laws become links, and nothing is HTML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from kvcanon.lab.site.chapters.definitions import ROOT
from kvcanon.lab.site.chapters.places import SpecNames
from kvcanon.spec.law import LAWS

UP = ".."
"""From a chapter to the top of the site."""

_LAW_ID = re.compile(r"\b[A-Z]+-[1-9][0-9]*\b")
_NAME = re.compile(r"(?<!\[)`([A-Za-z_][\w.]*)`(?!\])")
_ISSUE = re.compile(r"\bsgl#(\d+)")
_BARE = re.compile(r"(?<![\w(<])https://\S+[^\s.,;)]")
_CONTRACT = re.compile(r"^(?:pre|post): ")


def prose(text: str, names: SpecNames, module: str) -> str:
    """The paragraphs of a docstring, without those of its contract."""
    return "\n\n".join(_paragraph(part, names, module) for part in paragraphs(text))


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring without the lines of its contract, and without `Source:`."""
    lines = [line for line in text.splitlines() if not _CONTRACT.match(line)]
    for part in "\n".join(lines).strip().split("\n\n"):
        if part.strip() and not part.startswith("Source: "):
            yield part


def contract(text: str) -> list[tuple[str, str]]:
    """The lines of a docstring that a solver checks: ("pre" or "post", its expression)."""
    found = re.findall(r"^(pre|post): (.+)$", text, re.MULTILINE)
    return [(kind, expression) for kind, expression in found]


def sources(text: str) -> str:
    """Where a definition comes from, as Markdown; empty if its docstring does not say."""
    found = re.search(r"^Source: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return _escaped(" ".join(found[1].split())) if found else ""


def sentence(text: str, names: SpecNames, module: str) -> str:
    """The first paragraph on one line, for a cell of a table."""
    first = next(paragraphs(text), "")
    return in_line(" ".join(first.split()), names, module).replace("|", "\\|")


def in_line(text: str, names: SpecNames, module: str) -> str:
    """Some words, with links."""

    def name_link(match: re.Match[str]) -> str:
        address = address_of(match[1], names, module)
        return match[0] if address is None else f"[{match[0]}]({address})"

    linked = _NAME.sub(name_link, _escaped(text))
    linked = _LAW_ID.sub(lambda match: _law_link(match[0]), linked)
    issue = "https://github.com/sgl-project/sglang/issues"
    return _ISSUE.sub(lambda match: f"[{match[0]}]({issue}/{match[1]})", linked)


def address_of(name: str, names: SpecNames, module: str) -> str | None:
    """Where a name in the text of a module is explained, as the Markdown of a chapter links it."""
    known = names.modules[module]
    of_package = module.removeprefix(f"{ROOT}.").partition(".")[0]
    tries = [f"{module}.{name}", f"{ROOT}.{name}", f"{ROOT}.{of_package}.{name}"]
    first, dot, rest = name.partition(".")
    if first in known.imports:
        tries.insert(1, f"{known.imports[first]}{dot}{rest}")
    tries += [each for each in names.chapter_of if each.endswith(f".{name}")]
    for each in tries:
        if each in names.definitions:
            return as_markdown(names.address(each, UP))
    return None


def as_markdown(address: str | None) -> str | None:
    """An address of the built site as mkdocs wants it in Markdown."""
    return None if address is None else re.sub(r"\.html(?=#|$)", ".md", address)


def law_links(law_ids: Iterator[str] | list[str]) -> str:
    """Links to laws, one after the other."""
    return ", ".join(map(_law_link, law_ids))


def _law_link(law_id: str) -> str:
    return f"[{law_id}]({UP}/laws/{law_id}/index.md)" if law_id in LAWS else law_id


def _paragraph(part: str, names: SpecNames, module: str) -> str:
    if part.startswith("    "):
        return f"```python\n{textwrap.dedent(part)}\n```"
    if part.startswith("|") or re.match(r"^ ?[-*\d]", part):
        return in_line(part, names, module)
    return in_line(" ".join(part.split()), names, module)


def _escaped(text: str) -> str:
    linked = _BARE.sub(lambda match: f"<{match[0]}>", text)
    return re.sub(r"<(?!https:)", "&lt;", linked)
