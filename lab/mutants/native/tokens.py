"""A C++ tokenizer, sufficient to find operators, statements and functions.

It relies on formatted sources: a binary operator has a space on either side, and the brackets of a
template have none. Comments and preprocessor lines are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property

from attrs import define, frozen


class TokenKind(StrEnum):
    """The kind of a token."""

    NAME = "name"
    NUMBER = "number"
    TEXT = "text"
    BINARY = "binary"
    """An operator with a space on either side."""
    SIGN = "sign"


SCANNED = re.compile(
    r"""
    (?P<left_out>\s+ | //[^\n]* | /\*.*?\*/ | ^\#(?:[^\n\\]|\\.)*)
  | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
  | (?P<number>\d(?:[\w.]|'\d)*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><<= | >>= | <=> | \.\.\. | -> | :: | \+\+ | -- | << | >> | [<>=!+\-*/%&|^]= | && | \|\|
            | [-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


@frozen
class Token:
    """A piece of a source."""

    kind: TokenKind
    text: str
    begin: int
    end: int


@define(frozen=True, slots=False)
class CppSource:
    """A source file, cut into tokens."""

    module: str
    """Its file name, without folder and suffix."""
    text: str

    @cached_property
    def tokens(self) -> Sequence[Token]:
        """The tokens, in the order of the text."""
        matches = SCANNED.finditer(self.text)
        return [self._token(each) for each in matches if each.lastgroup != "left_out"]

    @cached_property
    def partners(self) -> dict[int, int]:
        """The index of the matching bracket of each bracket."""
        found: dict[int, int] = {}
        open_ones: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.text in {"(", "[", "{"}:
                open_ones.append(at)
            elif token.text in {")", "]", "}"}:
                other = open_ones.pop()
                found[at], found[other] = other, at
        return found

    def line(self, begin: int) -> int:
        """The number of the line that a position of the text is in."""
        return self.text.count("\n", 0, begin) + 1

    def _token(self, match: re.Match[str]) -> Token:
        kind = TokenKind(match.lastgroup or "")
        begin, end = match.span()
        around = self.text[begin - 1 : begin], self.text[end : end + 1]
        if kind is TokenKind.SIGN and all(each.isspace() for each in around):
            kind = TokenKind.BINARY
        return Token(kind, match.group(), begin, end)
