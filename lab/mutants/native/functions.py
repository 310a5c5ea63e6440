"""Functions of a C++ source: the name of each, and the tokens of its body."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvcanon.lab.mutants.native.tokens import CppSource, TokenKind

SCOPES = frozenset({"namespace", "class", "struct", "enum", "union"})


@frozen
class Function:
    """A function with a body."""

    name: str
    first: int
    """Index of the token after its opening brace."""
    last: int
    """Index of its closing brace."""


def functions_of(source: CppSource) -> Iterator[Function]:
    """The functions and methods of a source; lambdas belong to the function around them."""
    yield from _within(source, 0, len(source.tokens), "")


def _within(source: CppSource, first: int, last: int, scope: str) -> Iterator[Function]:
    """The functions between two tokens of a namespace or class."""
    tokens, partners = source.tokens, source.partners
    head, at = first, first
    while at < last:
        text = tokens[at].text
        if text == "{":
            words = [token.text for token in tokens[head:at]]
            end = partners[at]
            name = _name(source, head, at)
            if SCOPES.intersection(words) and "(" not in words:
                inner = scope if "namespace" in words else f"{scope}{_scope(words)}."
                yield from _within(source, at + 1, end, inner)
            elif name and not _is_initialiser(source, at):
                yield Function(f"{scope}{name}", at + 1, end)
            elif name:
                # The braces of a member in a constructor's initializer list, before its body.
                at = end + 1
                continue
            head = at = end + 1
            continue
        if text in {"(", "["}:
            at = partners[at]
        elif text == ";" or (text == ":" and tokens[at - 1].text in {"public", "private"}):
            head = at + 1
        at += 1


def _scope(words: list[str]) -> str:
    keyword = next(word for word in words if word in SCOPES)
    return words[words.index(keyword) + 1]


def _name(source: CppSource, first: int, last: int) -> str:
    """The name before the first parenthesis; for an operator, its symbol."""
    tokens = source.tokens
    for at in range(first, last):
        if tokens[at].text == "(":
            before = tokens[at - 1]
            if before.kind is TokenKind.NAME:
                qualified = at >= 3 and tokens[at - 2].text == "::"
                return f"{tokens[at - 3].text}.{before.text}" if qualified else before.text
            return f"operator{before.text}"
    return ""


def _is_initialiser(source: CppSource, at: int) -> bool:
    """Whether a brace initializes a member, and does not open a function's body."""
    before = source.tokens[at - 1]
    return before.kind is TokenKind.NAME and before.text not in {"const", "noexcept", "override"}
