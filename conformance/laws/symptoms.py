"""Symptoms: what a user sees in an engine, and the laws to read first.

`symptoms.toml` is their one source: `kvcanon laws --about` finds them, and docs/symptoms.md is
their page.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

FILE = Path(__file__).with_name("symptoms.toml")


@frozen
class Symptom:
    """What a user sees."""

    area: str
    seen: str
    also: str
    """Other words for it."""
    laws: tuple[str, ...]
    """The ids of the laws to read, the likeliest first."""
    note: str = ""


@cache
def symptoms() -> Sequence[Symptom]:
    """All symptoms, in the order of the page."""
    entries = tomllib.loads(FILE.read_text("utf-8"))["symptom"]
    return [Symptom(**{**each, "laws": tuple(each["laws"])}) for each in entries]
