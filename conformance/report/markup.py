"""Writes HTML by nested calls. Plain strings are escaped, so that a cache cannot inject markup."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML, which is not escaped again."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Make an element; an attribute that is a Python keyword takes an underscore at its end."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Join elements and text."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c, quote=False) for c in children))
