"""The history of each law: which version added it, and which changed it.

`history.toml` is its file. `python -m kvcanon.lab.site --history` writes it, and a test holds it
to the laws as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from attrs import frozen

from kvcanon import __version__

FILE = Path(__file__).with_name("history.toml")


@frozen
class LawHistory:
    """When a law came, and when it changed; versions are those of the package."""

    added: str
    changed: tuple[str, ...]
    """The later versions that changed its sentence or its code, the earliest first."""
    digest: str
    """A digest of both, as of the last of these versions."""

    @property
    def words(self) -> str:
        """The versions in words, as "0.1.0, changed in 0.3.0"."""
        return f"{self.added}, changed in {', '.join(self.changed)}" if self.changed else self.added


@cache
def read_history() -> Mapping[str, LawHistory]:
    """The history of every law, by id."""
    return {
        law_id: LawHistory(each["added"], tuple(each["changed"]), each["digest"])
        for law_id, each in tomllib.loads(FILE.read_text("utf-8")).items()
    }


def history_of(law_id: str) -> LawHistory:
    """The history of a law; one that no file notes yet is new in this version."""
    return read_history().get(law_id, LawHistory(__version__, (), ""))
