"""Markup: HTML out of nested calls, in which text is escaped unless it was made here.

What readers get wrong: a plain string is text, whatever it looks like. A cache may say `<script>`,
and the page must show just that.
"""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML that is what it is."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element; an attribute that is a keyword of Python ends with an underscore."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Elements and text, one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c, quote=False) for c in children))
