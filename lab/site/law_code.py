"""The code of a law, as its page shows it."""

from __future__ import annotations

import ast
import inspect

from kvcanon.spec.law import Law


def code_without_docstring(law: Law) -> str:
    """The code of a law with its decorator, and without the text that the page has already."""
    source = inspect.getsource(inspect.unwrap(law.check))
    lines = source.splitlines()
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101  # A law is a function.
    said = function.body[0]
    del lines[said.lineno - 1 : said.end_lineno]
    return "\n".join(lines)
