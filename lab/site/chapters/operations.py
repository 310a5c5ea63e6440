"""The chapter of the operations: for each its call, its refusals, its effects, laws and events."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcanon.lab.site.chapters.code_links import linked_code, signature_of
from kvcanon.lab.site.chapters.definitions import ROOT, Definition
from kvcanon.lab.site.chapters.places import anchor_of
from kvcanon.lab.site.chapters.prose import UP, in_line, prose, sentence
from kvcanon.lab.site.chapters.sections import Document, members_table, module_sections
from kvcanon.lab.site.evidence import all_operations, operations_of
from kvcanon.spec.law import LAWS, Kind, Law
from kvcanon.spec.laws.emission import EMISSIONS, HEADS, cells
from kvcanon.spec.operations import ANSWERS, Operation, method_of
from kvcanon.spec.refusals import REFUSALS

CACHE, OPERATIONS, ERRORS = f"{ROOT}.cache", f"{ROOT}.operations", f"{ROOT}.errors"


def operations_chapter(document: Document) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# The operations"
    yield (
        "What a client calls. Each operation has a method of [`Cache`](#Cache), or of a cache with "
        "a store, and a value, which cases and vectors are made of. It is *refused* with an error "
        "while one of its grounds stands, and then it changes nothing. Otherwise it is served, and "
        f"does what its laws demand. [When a call is refused]({UP}/refusals.md) and [the events of "
        f"each operation]({UP}/events.md) have both tables whole."
    )
    links = (f"[`{method_of(each)}`](#op-{method_of(each)})" for each in all_operations())
    yield f"{', '.join(links)}."
    for operation in all_operations():
        yield from _operation(operation, document)
    yield "## Laws of every step { #laws-of-every-step }"
    yield (
        "These laws name no operation. Those of a state are checked in every state, those of a "
        "step after every call, those of a stream on the events of a run."
    )
    named = {law_id for each in all_operations() for law_id in _laws_of(each)}
    for kind in Kind:
        rest = [law for law in LAWS.values() if law.law_id not in named and law.kind is kind]
        if rest:
            yield f"Of a {kind.value}:"
            yield _law_list(rest, document)
    for module in document.names.modules_of("operations"):
        yield from module_sections(module, document, with_code=False)


def _operation(operation: type[Operation], document: Document) -> Iterator[str]:
    names, method = document.names, method_of(operation)
    module = names.modules[CACHE]
    call = next(
        names.definitions[full]
        for of in ("Cache", "StoredCache")
        if (full := f"{CACHE}.{of}.{method}") in names.definitions
    )
    value = names.definitions[f"{OPERATIONS}.{operation.__name__}"]
    yield f"## `{method}` {{ #op-{method} }}"
    signature = signature_of(call.node, document.source(module))
    yield linked_code(signature, CACHE, names, UP)
    effects, others = _effects(call)
    yield prose(others, names, CACHE)
    link = f"[`{operation.__name__}`](#{anchor_of(value.full_name)})"
    yield f"**Arguments**{'' if value.members else ': none'}; as a value it is {link}."
    yield from members_table(value, names.modules[OPERATIONS], document, cited=False)
    answer = ANSWERS[operation].__name__
    yield f"**Answer**: {in_line(f'`{answer}`', names, OPERATIONS)}."
    yield "**Refused** " + ("if:" if REFUSALS[operation] else "never.")
    if REFUSALS[operation]:
        yield _grounds(operation, document)
    yield f"**Effects**: {in_line(effects, names, CACHE)}"
    yield "**Afterwards** these laws hold, besides [those of every step](#laws-of-every-step):"
    yield _law_list([LAWS[law_id] for law_id in _laws_of(operation)], document)
    yield _events(operation)


def _effects(call: Definition) -> tuple[str, str]:
    """What the docstring of a method says of its effects, and the rest but its refusals."""
    text = call.text
    found = re.search(r"\bEffects: ((?:[^.]|\.(?=\w))+\.(?: Nothing else\.)?)", text)
    text = text.replace(found[0], "") if found else text
    text = re.sub(r"\bRaises: .+", "", text, flags=re.DOTALL)
    effects = " ".join(found[1].split()) if found else "those that its laws name, and no other."
    return effects[:1].upper() + effects[1:], "\n\n".join(filter(str.strip, text.split("\n\n")))


def _grounds(operation: type[Operation], document: Document) -> str:
    rows = ["| error | when | checked by |", "|---|---|---|"]
    for error, ground in REFUSALS[operation].items():
        link = f"[`{error.__name__}`](#{error.__name__})"
        checks = (ground.stands, ground.limit, ground.unseen)
        functions = [each for each in checks if each.__name__ != "<lambda>"]
        by = ", ".join(
            f"[`{each.__name__}`](#{anchor_of(f'{each.__module__}.{each.__name__}')})"
            for each in functions
        )
        rows.append(f"| {link} | {in_line(ground.words, document.names, ERRORS)} | {by} |")
    return "\n".join(rows)


def _laws_of(operation: type[Operation]) -> list[str]:
    method = method_of(operation)
    return [law.law_id for law in LAWS.values() if method in operations_of(law)]


def _law_list(laws: list[Law], document: Document) -> str:
    if not laws:
        return "- None names it alone."
    return "\n".join(f"- {_law_line(law, document)}" for law in laws)


def _law_line(law: Law, document: Document) -> str:
    module = law.check.__module__
    words = sentence(law.statement, document.names, module).replace("\\|", "|")
    return f"[{law.law_id}]({UP}/laws/{law.law_id}/index.md): {words}"


def _events(operation: type[Operation]) -> str:
    rows = [cells(row)[1:] for row in EMISSIONS if operation in row.operations]
    if not rows:
        return "**Events**: none."
    heads = f"| {' | '.join(HEADS[1:])} |\n|{'---|' * (len(HEADS) - 1)}"
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        f"**Events** that it may emit ([the whole table](wire.md#emissions)):\n\n{heads}\n{lines}"
    )
