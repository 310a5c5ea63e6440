"""Changes of C++: the small replacements of text in a function.

The operators are those for the plain cache, as far as C++ has them. An expression is replaced by an
expression, so that one build can hold the mutant and the original.

No parser reads the C++. A replacement that is not a valid expression does not compile, and the
build leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import frozen

from kvcanon.lab.mutants.native.functions import Function
from kvcanon.lab.mutants.native.tokens import CppSource, TokenKind


@frozen
class CppChange:
    """One change of a stretch of text."""

    name: str
    begin: int
    end: int
    replacement: str
    """Empty if the change removes a statement."""

    @property
    def is_removal(self) -> bool:
        """Whether the change removes a statement."""
        return not self.replacement

    @property
    def is_condition(self) -> bool:
        """Whether the changed text is used only as a condition."""
        return self.name in OF_CONDITIONS


PRECEDENCE: Mapping[str, int] = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
"""Precedence of binary operators; a higher number binds tighter."""

SWAPPED: Mapping[str, tuple[str, str]] = {
    "<": ("lt-le", "<="),
    "<=": ("le-lt", "<"),
    ">": ("gt-ge", ">="),
    ">=": ("ge-gt", ">"),
    "==": ("eq-ne", "!="),
    "!=": ("ne-eq", "=="),
    "+": ("add-sub", "-"),
    "-": ("sub-add", "+"),
    "*": ("mul-div", "/"),
    "/": ("div-mul", "*"),
}

SWAPPED_NAMES: Mapping[str, str] = {
    "GPU": "CPU",
    "CPU": "GPU",
    "FULL": "SWA",
    "SWA": "MAMBA",
    "MAMBA": "FULL",
    "true": "false",
    "false": "true",
}

SWAPPED_CALLS: Mapping[str, str] = {
    "min": "max",
    "max": "min",
    "all_of": "any_of",
    "any_of": "all_of",
}

OF_CONDITIONS = frozenset({"negate", "true", "false", "and-or", "or-and", "drop-operand"})
"""Changes whose text is used only as true or false, whatever its type."""

COUNTERS = "counters."
"""Names that only the metrics show."""

ASSIGNMENTS = frozenset({"=", "+=", "-=", "|=", "&=", "^="})
STOPS = frozenset(
    {"=", "?", ":", ",", ";", "+=", "-=", "|=", "&=", "^=", "return", "case", "throw"}
)
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
JUMPS = frozenset({"break", "continue"})
CONDITIONS = frozenset({"if", "while"})
NO_CALLS = frozenset({"if", "while", "for", "switch", "return", "throw", "assert", "sizeof"})

Operator = Callable[[CppSource, Function], Iterator[CppChange]]


def changes_in(source: CppSource, function: Function) -> Iterator[CppChange]:
    """All changes of a function, operator by operator, each in the order of the text."""
    asserts = _asserts(source, function)
    for operator in OPERATORS:
        for change in operator(source, function):
            inside = any(begin <= change.begin < end for begin, end in asserts)
            if not inside and COUNTERS not in source.text[change.begin : change.end]:
                yield change


def _asserts(source: CppSource, function: Function) -> list[tuple[int, int]]:
    tokens = source.tokens
    starts = [at for at in range(function.first, function.last) if tokens[at].text == "assert"]
    return [(tokens[at].begin, tokens[source.partners[at + 1]].end) for at in starts]


def swap_operator(source: CppSource, function: Function) -> Iterator[CppChange]:
    """`<` for `<=`, `==` for `!=`, `+` for `-`, `*` for `/`, and back."""
    for at in _binary(source, function):
        token = source.tokens[at]
        if token.text in SWAPPED:
            name, other = SWAPPED[token.text]
            left, right = _operands(source, at)
            if token.text == "+" and _has_text(source, left, right):
                continue
            begin, end = source.tokens[left].begin, source.tokens[right].end
            text = source.text
            swapped = f"{text[begin : token.begin]}{other}{text[token.end : end]}"
            yield CppChange(name, begin, end, swapped)


def change_logic(source: CppSource, function: Function) -> Iterator[CppChange]:
    """`&&` for `||` and back, and either operand dropped."""
    for at in _binary(source, function):
        token = source.tokens[at]
        if token.text not in {"&&", "||"}:
            continue
        left, right = _operands(source, at)
        begin, end = source.tokens[left].begin, source.tokens[right].end
        one = source.text[begin : token.begin].strip()
        other = source.text[token.end : end].strip()
        sign = "||" if token.text == "&&" else "&&"
        name = "and-or" if token.text == "&&" else "or-and"
        yield CppChange(name, begin, end, f"({one}) {sign} ({other})")
        yield CppChange("drop-operand", begin, end, other)
        yield CppChange("drop-operand", begin, end, one)


def force_condition(source: CppSource, function: Function) -> Iterator[CppChange]:
    """The condition of a statement or of `?:`: negated, always true, always false."""
    for at in range(function.first, function.last):
        token = source.tokens[at]
        if token.text in CONDITIONS and source.tokens[at + 1].text == "(":
            first, last = at + 2, source.partners[at + 1] - 1
        elif token.text == "?":
            first, last = _left_of(source, at, 0), at - 1
        else:
            continue
        begin, end = source.tokens[first].begin, source.tokens[last].end
        if not _has_opposite(source, function, first, last):
            yield CppChange("negate", begin, end, f"!({source.text[begin:end]})")
        yield CppChange("true", begin, end, "true")
        yield CppChange("false", begin, end, "false")


def change_constant(source: CppSource, function: Function) -> Iterator[CppChange]:
    """A number one more and one less, the other truth value, another medium or component."""
    for at in range(function.first, function.last):
        token = source.tokens[at]
        if token.kind is TokenKind.NUMBER and token.text.isdecimal():
            yield CppChange("plus-one", token.begin, token.end, f"{int(token.text) + 1}")
            yield CppChange("minus-one", token.begin, token.end, f"{int(token.text) - 1}")
        elif token.kind is TokenKind.NAME and token.text in SWAPPED_NAMES:
            other = SWAPPED_NAMES[token.text]
            yield CppChange(f"{token.text}-{other}".lower(), token.begin, token.end, other)


def swap_call(source: CppSource, function: Function) -> Iterator[CppChange]:
    """`std::min` for `std::max`, `std::all_of` for `std::any_of`, and back."""
    for at in range(function.first + 2, function.last):
        token = source.tokens[at]
        if token.text not in SWAPPED_CALLS or source.tokens[at - 1].text != "::":
            continue
        opening = next(n for n in range(at, function.last) if source.tokens[n].text == "(")
        begin = source.tokens[at - 2].begin
        end = source.tokens[source.partners[opening]].end
        other = SWAPPED_CALLS[token.text]
        text = f"{source.text[begin : token.begin]}{other}{source.text[token.end : end]}"
        yield CppChange(f"{token.text}-{other}".replace("_", ""), begin, end, text)


def remove_statement(source: CppSource, function: Function) -> Iterator[CppChange]:
    """A call, an assignment, a jump or an early return left out."""
    for first, last in _statements(source, function):
        name = _removal(source, function, first, last)
        if name:
            yield CppChange(name, source.tokens[first].begin, source.tokens[last].end, "")


OPERATORS: tuple[Operator, ...] = (
    swap_operator,
    change_logic,
    force_condition,
    change_constant,
    swap_call,
    remove_statement,
)


# Operands.


def _has_text(source: CppSource, first: int, last: int) -> bool:
    """Whether a sum concatenates strings."""
    return any(source.tokens[at].kind is TokenKind.TEXT for at in range(first, last + 1))


def _has_opposite(source: CppSource, function: Function, first: int, last: int) -> bool:
    """Whether a condition is one comparison, which another operator negates."""
    equal = (at for at in _binary(source, function) if source.tokens[at].text in {"==", "!="})
    return any(_operands(source, at) == (first, last) for at in equal)


def _binary(source: CppSource, function: Function) -> Iterator[int]:
    for at in range(function.first, function.last):
        token = source.tokens[at]
        if token.kind is TokenKind.BINARY and token.text in PRECEDENCE:
            yield at


def _operands(source: CppSource, at: int) -> tuple[int, int]:
    """The first token of the left operand of a binary operator, and the last one of the right."""
    precedence = PRECEDENCE[source.tokens[at].text]
    return _left_of(source, at, precedence), _right_of(source, at, precedence)


def _left_of(source: CppSource, at: int, precedence: int) -> int:
    while True:
        token = source.tokens[at - 1]
        if token.text in CLOSING and token.text != "}":
            at = source.partners[at - 1]
        elif _ends_operand(token.text) or (
            token.kind is TokenKind.BINARY and PRECEDENCE.get(token.text, 99) < precedence
        ):
            return at
        else:
            at -= 1


def _right_of(source: CppSource, at: int, precedence: int) -> int:
    while True:
        token = source.tokens[at + 1]
        if token.text in OPENING:
            at = source.partners[at + 1]
        elif _ends_operand(token.text) or (
            token.kind is TokenKind.BINARY and PRECEDENCE.get(token.text, 99) <= precedence
        ):
            return at
        else:
            at += 1


def _ends_operand(text: str) -> bool:
    return text in STOPS or text in OPENING or text in CLOSING


# Statements.


def _statements(source: CppSource, function: Function) -> Iterator[tuple[int, int]]:
    """Every simple statement: its first token, and its semicolon."""
    for last in range(function.first, function.last):
        if source.tokens[last].text != ";":
            continue
        first = _start(source, last)
        if first is not None and first < last:
            yield first, last


def _start(source: CppSource, last: int) -> int | None:
    """The first token of the statement that ends with a semicolon; None inside a `for (...)`."""
    at = last
    while True:
        token = source.tokens[at - 1]
        if token.text in {";", "{", "else"}:
            return at
        if token.text in {"(", "["}:
            return None
        if token.text == ")":
            opening = source.partners[at - 1]
            if source.tokens[opening - 1].text in {"if", "while", "for"}:
                return at
            at = opening
        elif token.text == "]":
            at = source.partners[at - 1]
        elif token.text == "}":
            opening = source.partners[at - 1]
            if not _is_value(source, opening):
                return at
            at = opening
        else:
            at -= 1


def _is_value(source: CppSource, opening: int) -> bool:
    """Whether a brace opens a value or a lambda, and not a block."""
    before = source.tokens[opening - 1].text
    if before in {"]", ",", "(", "=", "return", "{"}:
        return True
    if before == ")":
        # The body of a lambda follows its parameters, which follow its captures.
        return source.tokens[source.partners[opening - 1] - 1].text == "]"
    return before not in {")", "else", "do", ";", "}", "const", "noexcept"}


def _removal(source: CppSource, function: Function, first: int, last: int) -> str:
    """The name of the change that removes a statement; empty if it must stay."""
    text = source.tokens[first].text
    if text in JUMPS:
        return f"remove-{text}"
    if text == "return":
        return "remove-return" if _is_early(source, function, first) else ""
    if text in {"++", "--"}:
        return "remove-assignment"
    end = _postfix_end(source, first)
    after = source.tokens[end].text
    if after in ASSIGNMENTS or after in {"++", "--"}:
        return "remove-assignment"
    if after == ";" and end == last and source.tokens[end - 1].text == ")" and text not in NO_CALLS:
        return "remove-call"
    return ""


def _is_early(source: CppSource, function: Function, first: int) -> bool:
    """Whether statements follow a return, so that without it the function still returns."""
    before = source.tokens[first - 1].text
    end = next(n for n in range(first, function.last) if source.tokens[n].text == ";")
    return before == ")" and source.tokens[end + 1].text not in {"}", "else"}


def _postfix_end(source: CppSource, first: int) -> int:
    """The index after an expression such as `a->b[c].d(e)`; `first` if there is none."""
    at = first + (source.tokens[first].text == "*")
    if source.tokens[at].kind is not TokenKind.NAME:
        return first
    at += 1
    while True:
        text = source.tokens[at].text
        if text in {"(", "["}:
            at = source.partners[at] + 1
        elif text in {".", "->", "::"}:
            at += 2
        else:
            return at
