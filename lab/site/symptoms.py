"""docs/symptoms.md, which `python -m kvcanon.lab.site --symptoms` writes from the symptoms."""

from __future__ import annotations

from itertools import groupby

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.laws.symptoms import symptoms
from kvcanon.spec.law import LAWS, SITE

PAGE = "docs/symptoms.md"

_HEAD = f"""\
# From a symptom to a law

What you see in an engine, and the laws to read first, each in a sentence. The page of a law has
pictures of a cache that breaks it, and the code of faults that do. [By what goes
wrong]({SITE}laws/by-fault.html) has every planted fault in a sentence. In a terminal,
`kvcanon laws --about "window split"` searches this page and the laws.

`conformance/laws/symptoms.toml` has the symptoms, and `make docs-figures` writes this page.
"""


def sentence_of(law_id: str) -> str:
    """The first paragraph of a law, on one line."""
    return " ".join(LAWS[law_id].statement.split("\n\n")[0].split())


def symptoms_page() -> str:
    """The page of all symptoms, as Markdown."""
    parts = [_HEAD]
    for area, some in groupby(symptoms(), key=lambda each: each.area):
        parts.append(f"## {area}\n")
        for each in some:
            parts.append(f"### {each.seen}\n")
            parts += [f"{each.note.strip()}\n"] if each.note else []
            laws = (f"- [{one}]({LAWS[one].address}): {_escaped(one)}" for one in each.laws)
            parts.append("\n".join(laws) + "\n")
            parts.append(f"Other words for it: {each.also}.\n")
    return "\n".join(parts)


def _escaped(law_id: str) -> str:
    return sentence_of(law_id).replace("<", "&lt;")
