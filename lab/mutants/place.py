"""A place: one change of one line of a source, with its id."""

from __future__ import annotations

from pathlib import PurePosixPath

from attrs import frozen


@frozen
class MutantPlace:
    """A change that a mutant is made of."""

    place_id: str
    """Its function, the kind of change, and the number of that change in the function."""
    path: str
    """The source file, relative to the checkout."""
    line: int
    old: str
    new: str

    @property
    def module(self) -> str:
        """The file name of the source, without its folder."""
        return PurePosixPath(self.path).stem

    @property
    def diff(self) -> str:
        """The change in a line."""
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"
