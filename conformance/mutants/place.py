"""A place: one change of one line of a source, and what it is called."""

from __future__ import annotations

from pathlib import PurePosixPath

from attrs import frozen


@frozen
class MutantPlace:
    """A change that a mutant is made of."""

    place_id: str
    """Its function, the kind of change, and a number: which change of that kind it is there."""
    path: str
    """The source, from the checkout on."""
    line: int
    old: str
    new: str

    @property
    def module(self) -> str:
        """The name of the source without its folder."""
        return PurePosixPath(self.path).stem

    @property
    def diff(self) -> str:
        """The change in a line."""
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"
