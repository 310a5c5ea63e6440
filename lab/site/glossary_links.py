"""Links the words of the glossary where a page uses them first.

In the specification and on the pages of the laws these are all words. In the guides, where "page"
or "key" may mean what they mean everywhere, they are those that nothing else is called.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

GLOSSARY = "glossary.md"
HEADS = ("kvcanon", "word")
"""The first heads of the tables that explain words."""
SINGLE = {"tombstone", "namespace", "receipt", "cushion", "refill", "demote"}
"""Single words that mean the same in the guides, too."""
EVERYDAY = {
    "machine",
    "action",
    "case",
    "scope",
    "held",
    "broken",
    "guard",
    "agreement",
    "threshold",
}
"""Words of the glossary that mean what they mean everywhere, but for a few sentences."""
STRICT = ("spec/", "laws/")
"""Where pages are about the laws alone."""
LEFT_OUT = ("source/", "findings/", "changelog", "glossary", "index.md")

_SKIPPED = {
    "a",
    "code",
    "pre",
    "svg",
    "script",
    "style",
    "button",
    "summary",
    "th",
    "h1",
    "h2",
    "h3",
    "h4",
}
_TAG = re.compile(r"(<!--.*?-->|<[^>]+>)", re.DOTALL)


def terms(glossary: str) -> dict[str, str]:
    """The words of the glossary, each with its anchor there."""
    found: dict[str, str] = {}
    for words in _first_cells(glossary):
        anchor = anchor_of(words[0])
        for each in words:
            found.setdefault(each.lower(), anchor)
    return found


def with_anchors(glossary: str) -> str:
    """The glossary with an anchor at each row that explains a word."""
    lines, inside = [], False
    for line in glossary.splitlines():
        first = _cell(line)
        inside = first in HEADS if not inside else line.startswith("|")
        words = _words(first) if inside and first not in HEADS else []
        anchor = f'<a id="{anchor_of(words[0])}"></a>' if words else ""
        lines.append(line.replace("| ", f"| {anchor}", 1) if words else line)
    return "\n".join(lines) + "\n"


def anchor_of(word: str) -> str:
    """The anchor of a word."""
    return f"term-{re.sub(r'[^a-z0-9]+', '-', word.lower())}"


def linked(html: str, page: str, words: Mapping[str, str]) -> str:
    """The content of a page with the first use of each word as a link.

    `page` is its file, as "laws/LOCK-1/index.md".
    """
    if page.startswith(LEFT_OUT) or page == GLOSSARY:
        return html
    strict = page.startswith(STRICT)
    mine = {w: at for w, at in words.items() if _is_plain(w) or (strict and w not in EVERYDAY)}
    there = posixpath.relpath("glossary.html", posixpath.dirname(page) or ".")
    return in_prose(html, lambda text: _link_words(text, mine, there) if mine else text)


def in_prose(html: str, change: Callable[[str], str]) -> str:
    """The content of a page with its sentences changed, and its headings, links and code left."""
    parts, depth = [], 0
    for part in _TAG.split(html):
        if part.startswith("<"):
            depth += _depth(part)
        is_prose = depth == 0 and not part.startswith("<")
        parts.append(change(part) if is_prose else part)
    return "".join(parts)


def _is_plain(word: str) -> bool:
    return word in SINGLE or bool(re.search(r"[ _-]", word))


def _link_words(text: str, words: dict[str, str], there: str) -> str:
    """Link the words that are still to be linked, and take them off the list."""

    def link(match: re.Match[str]) -> str:
        word = match[1].lower()
        anchor = words.get(word)
        if anchor is None:
            return match[0]
        for each in [each for each, at in words.items() if at == anchor]:
            del words[each]
        return f'<a class="kv-term" href="{there}#{anchor}">{match[0]}</a>'

    longest_first = sorted(words, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(rf"\b({pattern})(?:s|es)?\b(?![-_])", link, text, flags=re.IGNORECASE)


def _depth(markup: str) -> int:
    """How much deeper a tag leads into what is left as it is."""
    name = re.match(r"</?([a-zA-Z0-9]+)", markup)
    if name is None or name[1] not in _SKIPPED or markup.endswith("/>"):
        return 0
    return -1 if markup.startswith("</") else 1


def _first_cells(glossary: str) -> Iterator[list[str]]:
    inside = False
    for line in glossary.splitlines():
        first = _cell(line)
        inside = first in HEADS if not inside else line.startswith("|")
        words = _words(first) if inside and first not in HEADS else []
        if words:
            yield words


def _cell(line: str) -> str:
    return line.split("|")[1].strip() if line.startswith("|") and line.count("|") > 2 else ""


def _words(cell: str) -> list[str]:
    """The words that a row explains; none for the line below the heads."""
    if cell.startswith(("-", "(")):
        return []
    plain = re.sub(r"^medi(?:um|a) ", "", cell.replace("`", ""))
    return [each for each in plain.split(", ") if each]
