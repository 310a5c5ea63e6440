"""Text from outside is printed as text: nothing of it moves a cursor or commands a workflow."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvcanon.printable import printable


@given(st.text())
@example("\N{ZERO WIDTH JOINER}::x")
@example("\ud800")
def test_no_letter_does_more_than_stand_there(text: str) -> None:
    """And no line begins a command of a workflow, wherever it is wrapped."""
    shown = printable(text)
    assert shown.isprintable()
    assert not any(word.startswith("::") for word in shown.split())
    assert "##[" not in shown
    assert printable(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("a\n::error::b\r\n", r"a\n::error::b\r\n"),
        ("::error::b", r"\x3a:error::b"),
        ("a ##[error]b", r"a \x23#[error]b"),
        ("\x9b2J\x7f\u2028\u202egnp.exe", r"\x9b2J\x7f\u2028\u202egnp.exe"),
        ("meta-llama/Llama-3.1 é 模型 [::1]:80 a::b", "meta-llama/Llama-3.1 é 模型 [::1]:80 a::b"),
    ],
)
def test_what_is_shown_says_what_it_was(text: str, shown: str) -> None:
    """Names of models stay as they are."""
    assert printable(text) == shown
