"""Sections about definitions, as Markdown: a type with its fields, a function with its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from attrs import frozen

from kvcanon.lab.site.chapters.code_links import code_of, linked_code, signature_of
from kvcanon.lab.site.chapters.definitions import Definition, Module, NameKind
from kvcanon.lab.site.chapters.places import SpecNames, anchor_of
from kvcanon.lab.site.chapters.prose import UP, contract, prose, sentence, sources


@frozen
class Document:
    """What the chapters are made from."""

    checkout: Path
    names: SpecNames

    def source(self, module: Module) -> str:
        """The text of a module's file."""
        return (self.checkout / module.file).read_text("utf-8")


def module_sections(module: Module, document: Document, *, with_code: bool) -> Iterator[str]:
    """All public definitions of a module, below its title and its introduction."""
    yield f"## {module.title} {{ #{section_anchor(module)} }}"
    _, _, rest = module.text.partition("\n\n")
    yield prose(rest, document.names, module.name)
    yield source_line(module)
    for each in shown(module, document.names):
        yield from definition_section(each, module, document, with_code=with_code)


def section_anchor(module: Module) -> str:
    """The anchor of a module's section."""
    return f"module-{module.name.removeprefix('kvcanon.spec.').replace('.', '-')}"


def source_line(module: Module) -> str:
    """Where the code of a section is."""
    return f"In [`{module.file}`]({UP}/source/{module.file}.md)."


def shown(module: Module, names: SpecNames) -> Iterator[Definition]:
    """The definitions of a module that its chapter explains, each once."""
    seen = set[str]()
    for each in module.definitions:
        if each.full_name in names.chapter_of and each.full_name not in seen:
            seen.add(each.full_name)
            yield each


def definition_section(
    definition: Definition, module: Module, document: Document, *, with_code: bool
) -> Iterator[str]:
    """One definition: its heading, its text, and its members, its code or its value."""
    names = document.names
    yield f"### `{definition.name}` {{ #{anchor_of(definition.full_name)} }}"
    match definition.kind:
        case NameKind.CLASS:
            yield prose(definition.text, names, module.name)
            yield from members_table(definition, module, document)
        case NameKind.FUNCTION:
            yield from function_parts(definition, module, document, with_code=with_code)
        case NameKind.VALUE:
            code = ast.unparse(definition.node)
            if len(code) <= LONGEST_VALUE:
                yield linked_code(code, module.name, names, UP)
            if definition.text:
                yield prose(definition.text, names, module.name)


LONGEST_VALUE = 600
"""A longer value is a table of its own, which its page shows in another way."""


def function_parts(
    definition: Definition, module: Module, document: Document, *, with_code: bool
) -> Iterator[str]:
    """A function: its signature or its code, its text, and its contract."""
    names, source = document.names, document.source(module)
    yield prose(definition.text, names, module.name)
    code = code_of(definition.node, source) if with_code else signature_of(definition.node, source)
    yield linked_code(code, module.name, names, UP)
    promises = contract(definition.text)
    if promises:
        before = [f"`{expression}`" for kind, expression in promises if kind == "pre"]
        after = [f"`{expression}`" for kind, expression in promises if kind == "post"]
        lines = [f"- Before: {', '.join(before)}"] if before else []
        lines += [f"- After: {each.replace('__return__', 'result')}" for each in after]
        yield f"What [a solver checks]({UP}/prove.md), within these bounds:"
        yield "\n".join(lines)
    if said := sources(definition.text):
        yield f"Source: {said}"


def members_table(
    definition: Definition, module: Module, document: Document, *, cited: bool = True
) -> Iterator[str]:
    """The members of a class, in its order; they are `cited` where each has its address."""
    rows, seen = [], set[str]()
    for each in definition.members:
        if each.is_public and each.name not in seen:
            seen.add(each.name)
            anchor = f'<a id="{anchor_of(each.full_name)}"></a>' if cited else ""
            words = sentence(each.text, document.names, module.name)
            rows.append(f"| {anchor}`{each.name}` | {_type(each, module, document)} | {words} |")
    if rows:
        yield "\n".join(["| member | type or value | what it is |", "|---|---|---|", *rows])


def _type(member: Definition, module: Module, document: Document) -> str:
    """The type of a member, and its usual value; of a method its answer. Types are links."""
    parts: list[str] = []
    match member.node:
        case ast.AnnAssign(annotation=annotation, value=value):
            usual = "" if value is None else ast.unparse(value)
            usual = f" = {usual}" if 0 < len(usual) <= LONGEST_DEFAULT else ""
            parts = [f"{ast.unparse(annotation)}{usual}"]
        case ast.Assign(value=value):
            parts = [ast.unparse(value)]
        case ast.FunctionDef(returns=returns) if _is_property(member.node):
            parts = [ast.unparse(returns)] if returns else []
        case ast.FunctionDef() as function:
            arguments = ", ".join(each.arg for each in function.args.args[1:])
            parts = [
                f"({arguments})",
                *([ast.unparse(function.returns)] if function.returns else []),
            ]
    return " → ".join(_linked_types(part, module, document) for part in parts)


def _linked_types(text: str, module: Module, document: Document) -> str:
    """A type, or a value, in which the names of spec/ are links."""

    def link(match: re.Match[str]) -> str:
        address = document.names.address(f"{module.name}.{match[0]}", UP)
        return match[0] if address is None else f'<a href="{address}">{match[0]}</a>'

    code = re.sub(r"\b[A-Z]\w+\b", link, escape(text, quote=False))
    return f"<code>{code}</code>".replace("|", "&#124;")


LONGEST_DEFAULT = 40
"""A longer usual value is left to the code."""


def _is_property(node: ast.AST) -> bool:
    assert isinstance(node, ast.FunctionDef)  # noqa: S101  # Others have no decorators.
    return any(ast.unparse(each) in ("property", "kept") for each in node.decorator_list)
