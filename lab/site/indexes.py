"""The indexes of the laws: by area, by operation, by historical bug, by engine, and by fault."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from kvcanon.conformance.laws.laws_json import links_of
from kvcanon.lab.mutants.faulty import what_goes_wrong
from kvcanon.lab.site.evidence import all_operations, operations_of
from kvcanon.lab.site.law_page import TRACKERS, Book, link_to_law, upstream_link
from kvcanon.spec.law import LAWS, Law
from kvcanon.spec.operations import method_of

HERE = "."
"""The indexes lie beside the folders of the laws."""
_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def all_indexes(book: Book) -> dict[str, str]:
    """Every index, by its place below `laws/`."""
    return {
        "index.md": _by_area(),
        "by-operation.md": _by_operation(book),
        "by-bug.md": _by_bug(book),
        "by-engine.md": _by_engine(book),
        "by-fault.md": _by_fault(book),
    }


def area_title(law: Law) -> str:
    """The first line of the chapter that the law stands in."""
    chapter = sys.modules[law.check.__module__].__doc__ or law.area
    return chapter.splitlines()[0].rstrip(".")


def areas() -> dict[str, list[Law]]:
    """The laws of each area, by the title of its first chapter."""
    found: dict[str, list[Law]] = {}
    titles: dict[str, str] = {}
    for law in LAWS.values():
        title = titles.setdefault(law.area, area_title(law))
        found.setdefault(title, []).append(law)
    return found


def sentence_of(law: Law) -> str:
    """The first paragraph of a law, on one line."""
    text = " ".join(law.statement.split("\n\n")[0].split())
    return text.replace("<", "&lt;").replace("|", "\\|")


def _by_area() -> str:
    parts = [
        "# The laws",
        (
            f"{len(LAWS)} laws say what a prefix KV cache must do. Each is a function that runs, "
            "and has a page: why it is there, where it was seen broken, pictures of a cache that "
            "breaks it, its code, and what is known about it. The address of a page never changes."
        ),
        (
            "Other ways in: [by operation](by-operation.md), [by historical bug](by-bug.md), "
            "[by engine](by-engine.md), [by what goes wrong](by-fault.md), and "
            "[from a symptom](../symptoms.md). All laws as one file: [laws.json](../laws.json), "
            "with [its schema](../laws.schema.json)."
        ),
    ]
    for title, laws in areas().items():
        parts.append(f"## {title}")
        parts.append(_table(laws))
    return "\n\n".join(parts) + "\n"


def _by_operation(book: Book) -> str:
    parts = [
        "# Laws by operation",
        (
            "An operation is listed with the laws whose code names it, and with those that a "
            "planted fault breaks in it in a [witness](../reading-the-pictures.md). Laws of states "
            "hold after every operation, and stand where a witness shows them."
        ),
    ]
    for operation in all_operations():
        method = method_of(operation)
        laws = [law for law in LAWS.values() if method in _methods(law, book)]
        if laws:
            said = " ".join((operation.__doc__ or "").split())
            parts += [f"## `{method}`", said, _table(laws)]
    return "\n\n".join(parts) + "\n"


def _methods(law: Law, book: Book) -> set[str]:
    calls = (witness.scenes[-1].call.call for witness in book.witnesses[law.law_id])
    broken_in = {
        method_of(each) for call in calls for each in all_operations() if isinstance(call, each)
    }
    return broken_in | set(operations_of(law))


def _by_bug(book: Book) -> str:
    laws_of_bug: dict[tuple[str, int], set[str]] = {}
    for law in LAWS.values():
        for url in links_of(law):
            if found := _ISSUE.match(url):
                laws_of_bug.setdefault((found[1], int(found[2])), set()).add(law.law_id)
    for mutant in book.mutants:
        found = re.search(r"([\w-]+)#(\d+)", mutant.upstream)
        if found and found[1] in TRACKERS:
            key = (TRACKERS[found[1]], int(found[2]))
            laws_of_bug.setdefault(key, set()).add(mutant.law_id)
    parts = [
        "# Laws by historical bug",
        (
            f"{len(laws_of_bug)} issues and pull requests of "
            f"{len({repo for repo, _ in laws_of_bug})} projects: those that a law names as the "
            "place where it was seen broken, and those that a planted fault is modelled on."
        ),
    ]
    for repo in sorted({repo for repo, _ in laws_of_bug}, key=str.lower):
        rows = ["| bug | laws |", "|---|---|"]
        for (of_repo, number), law_ids in sorted(laws_of_bug.items()):
            if of_repo == repo:
                url = f"https://github.com/{repo}/issues/{number}"
                rows.append(f"| [#{number}]({url}) | {_links(law_ids)} |")
        parts += [f"## {repo}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _by_engine(book: Book) -> str:
    parts = [
        "# Laws by engine",
        (
            "Faults that were found in engines, and the laws that they break. A fault without a "
            "law lies outside of what the judge sees. [All findings](../findings.md)."
        ),
    ]
    for engine, name in book.engines.items():
        faults = [each for each in book.faults if each.engine == engine]
        parts.append(f"## {name}")
        if not faults:
            parts.append(f"No fault was found. [What was judged](../findings/{engine}/README.md).")
            continue
        rows = ["| fault | cache | releases | laws |", "|---|---|---|---|"]
        rows += [
            f"| [{each.title}](../findings/{each.page}) | {each.cache} "
            f"| {', '.join(each.releases)} | {_links(each.laws) or 'none'} |"
            for each in faults
        ]
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _by_fault(book: Book) -> str:
    parts = [
        "# Laws by what goes wrong",
        (
            f"{len(book.mutants)} faults that are planted in the plain cache, each in a sentence, "
            "and the law that it is planted to break. Look for a sentence like yours. "
            "[From a symptom to a law](../symptoms.md) begins with what a user sees."
        ),
    ]
    for title, laws in areas().items():
        rows = ["| what the cache does wrong | law | modelled on |", "|---|---|---|"]
        ids = [law.law_id for law in laws]
        own = sorted(
            (each for each in book.mutants if each.law_id in ids),
            key=lambda each: ids.index(each.law_id),
        )
        rows += [
            f"| {what_goes_wrong(each)} | {link_to_law(each.law_id, HERE)} "
            f"| {upstream_link(each.upstream)} |"
            for each in own
        ]
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _table(laws: Iterable[Law]) -> str:
    rows = ["| law | what holds |", "|---|---|"]
    rows += [f"| {link_to_law(law.law_id, HERE)} | {sentence_of(law)} |" for law in laws]
    return "\n".join(rows)


def _links(law_ids: Iterable[str]) -> str:
    return ", ".join(link_to_law(each, HERE) for each in _in_order(law_ids))


def _in_order(law_ids: Iterable[str]) -> Iterator[str]:
    wanted = set(law_ids)
    return (each for each in LAWS if each in wanted)
