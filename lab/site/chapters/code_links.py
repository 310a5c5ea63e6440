"""Writes code of spec/ as HTML in which every name is a link to where it is explained."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from html import escape

from pygments import lex
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, Token, is_token_subtype

from kvcanon.lab.site.chapters.code_types import Place, names_in
from kvcanon.lab.site.chapters.places import SpecNames


def linked_code(code: str, module: str, names: SpecNames, up: str) -> str:
    """A block of code of a module, from a page `up` below the top of the site."""
    found = names_in(code, module)
    links = {
        place: address
        for place, name in found.items()
        if (address := names.address(name, up)) is not None
    }
    return highlighted(code, links)


def highlighted(code: str, links: Mapping[Place, str]) -> str:
    """Code in the colours of the site, with links at some places."""
    inner = "".join(_tokens(code, links))
    return f'<div class="highlight kv-code"><pre><span></span><code>{inner}</code></pre></div>'


def _tokens(code: str, links: Mapping[Place, str]) -> Iterator[str]:
    line, column = 1, 0
    for kind, text in lex(code, PythonLexer(stripnl=False, ensurenl=False)):
        shown = escape(text, quote=False)
        style = STANDARD_TYPES.get(kind, "")
        shown = f'<span class="{style}">{shown}</span>' if style and text.strip() else shown
        address = links.get((line, column)) if is_token_subtype(kind, Token.Name) else None
        yield f'<a href="{escape(address)}">{shown}</a>' if address else shown
        breaks = text.count("\n")
        line += breaks
        column = len(text.rpartition("\n")[2]) if breaks else column + len(text)


def code_of(node: ast.AST, source: str) -> str:
    """The lines of a definition, without its docstring."""
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)  # noqa: S101  # Others have no body.
    lines = source.splitlines()
    said = node.body[0] if ast.get_docstring(node) is not None else None
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    kept = range(first, (node.end_lineno or first) + 1)
    gone = range(said.lineno, (said.end_lineno or said.lineno) + 1) if said else range(0)
    return _plain("\n".join(lines[at - 1] for at in kept if at not in gone))


def signature_of(node: ast.AST, source: str) -> str:
    """The head of a function, as its file has it, with `...` in place of its body."""
    assert isinstance(node, ast.FunctionDef)  # noqa: S101  # Others have no signature.
    head = "\n".join(source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1])
    return f"{_plain(head)} ..."


def _plain(code: str) -> str:
    """Code at the left margin, without what it says to the linter."""
    return textwrap.dedent(re.sub(r" +# noqa.*$", "", code, flags=re.MULTILINE))
