"""The chapter of the laws: each in a sentence, by class and area, with the version it is from."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.conformance.laws.history import history_of, read_history
from kvcanon.conformance.laws.laws_json import members_in_words
from kvcanon.lab.site.chapters.prose import UP, in_line, sentence
from kvcanon.lab.site.chapters.sections import Document, module_sections
from kvcanon.lab.site.indexes import areas
from kvcanon.spec.law import LAWS, Law, LawClass


def laws_chapter(document: Document) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# The laws by class"
    yield (
        f"{len(LAWS)} laws, each in a sentence. Its id leads to its page: why it is there, where "
        "it was seen broken, pictures, code, and what is known about it. An id is never used again."
    )
    words = members_in_words(LawClass)
    for each in LawClass:
        yield f"## {each.value.capitalize()} {{ #class-{each} }}"
        yield words[each]
        for title, laws in areas().items():
            some = [law for law in laws if law.law_class is each]
            if some:
                yield f"### {title} {{ #{each}-{some[0].area} }}"
                yield _table(some, document)
    for module in document.names.modules_of("laws"):
        yield from module_sections(module, document, with_code=False)


def _table(laws: list[Law], document: Document) -> str:
    rows = ["| law | what holds | it checks | since |", "|---|---|---|---|"]
    for law in laws:
        said = sentence(law.statement, document.names, law.check.__module__)
        anchor = f'<a id="{law.law_id}"></a>'
        link = f"[{law.law_id}]({UP}/laws/{law.law_id}/index.md)"
        should = "" if law.level.value == "must" else " (SHOULD)"
        rows.append(
            f"| {anchor}{link}{should} | {said} | a {law.kind} | {history_of(law.law_id).words} |"
        )
    return "\n".join(rows)


def history_chapter(document: Document) -> Iterator[str]:
    """The parts of the page of versions: what each added, and what it changed."""
    history = read_history()
    yield "# Versions of the specification"
    yield (
        "The specification has the version of the package that it comes with. A law keeps its id "
        "for ever; its sentence or its code may change, and then its row says in which version. "
        "What happened before the first release is not listed."
    )
    versions = dict.fromkeys(v for each in history.values() for v in (each.added, *each.changed))
    for version in reversed(list(versions)):
        yield f"## {version} {{ #version-{version.replace('.', '-')} }}"
        added = [law_id for law_id, each in history.items() if each.added == version]
        changed = [law_id for law_id, each in history.items() if version in each.changed]
        if added:
            yield f"Added {len(added)} laws: {in_line(', '.join(added), document.names, LAW)}."
        if changed:
            yield f"Changed {len(changed)}: {in_line(', '.join(changed), document.names, LAW)}."


LAW = "kvcanon.spec.law"
