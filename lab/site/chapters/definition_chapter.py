"""The chapter of the definitions: each with its formula, its code and its contract."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.lab.site.chapters.definitions import Definition, Module, NameKind
from kvcanon.lab.site.chapters.formulas import FORMULAS, policy_table
from kvcanon.lab.site.chapters.prose import UP, prose
from kvcanon.lab.site.chapters.sections import (
    Document,
    definition_section,
    module_sections,
    section_anchor,
    shown,
    source_line,
)

WITH_FORMULAS = ("oracle", "hashing")
"""The modules whose functions are definitions, and short."""


def definitions_chapter(document: Document) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# The definitions"
    yield (
        "What the laws mean by a usable prefix, a window, a shortage, the next victim, a page "
        "hash. Each is a small pure function that the laws and the plain cache call: what is "
        f"written here runs. Most have a contract, which [a solver checks]({UP}/prove.md). "
        "A formula takes the arguments of its function; tests hold the two together."
    )
    for module in document.names.modules_of("definitions"):
        part = module.name.removeprefix("kvcanon.spec.").partition(".")[0]
        if part in WITH_FORMULAS:
            yield from _with_formulas(module, document)
        else:
            yield from module_sections(module, document, with_code=False)


def _with_formulas(module: Module, document: Document) -> Iterator[str]:
    yield f"## {module.title} {{ #{section_anchor(module)} }}"
    yield prose(module.text.partition("\n\n")[2], document.names, module.name)
    yield source_line(module)
    for each in shown(module, document.names):
        heading, *parts = definition_section(each, module, document, with_code=True)
        yield heading
        yield from _formula(each)
        yield from parts


def _formula(definition: Definition) -> Iterator[str]:
    if definition.kind is not NameKind.FUNCTION:
        return
    if definition.name in FORMULAS:
        yield f"```python\n{definition.name} = {FORMULAS[definition.name]}\n```"
    if definition.name == "policy_key":
        yield "The leaf with the smallest key is evicted first. Its two parts, by policy:"
        yield policy_table()
