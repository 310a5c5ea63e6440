"""What the canonical form of a state is made of."""

from __future__ import annotations

from typing import TypeAlias

Part: TypeAlias = "int | str | bytes | tuple[Part, ...]"
Form: TypeAlias = tuple[Part, ...]
"""Nested tuples, mostly of numbers."""
