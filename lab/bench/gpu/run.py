"""Runs the sections of the GPU bench one by one, and keeps what each found in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from attrs import define, field

from kvcanon import __version__
from kvcanon.conformance.errors import describe_exception
from kvcanon.lab.bench.gpu.scenes import WrongBytes
from kvcanon.run_record import run_record

Section = Callable[[], object]


@define
class Outcome:
    """What the sections found so far."""

    command: str = ""
    """What runs them; empty for the command line of this process."""

    found: dict[str, object] = field(factory=dict)
    """A value for JSON, by section."""
    errors: dict[str, str] = field(factory=dict)
    """Why a section failed."""
    wrong: bool = False
    """Whether one failed because bytes were wrong."""

    def to_json(self) -> dict[str, object]:
        """All of it, as it is written."""
        return {
            "kvcanon": __version__,
            "run": run_record(self.command),
            "errors": self.errors,
            "sections": self.found,
        }


def run_sections(
    sections: Mapping[str, Section], names: Iterable[str], file: Path | None, command: str = ""
) -> Outcome:
    """Run the sections of these names; one that fails does not stop the others.

    The file is written after each, so that a run that is cut short keeps its results.
    """
    outcome = Outcome(command)
    for name in names:
        try:
            outcome.found[name] = sections[name]()
        except Exception as error:  # noqa: BLE001  # The other sections still run.
            outcome.errors[name] = describe_exception(error)
            outcome.wrong = outcome.wrong or isinstance(error, WrongBytes)
        if file is not None:
            file.write_text(json.dumps(outcome.to_json(), indent=2) + "\n", encoding="utf-8")
    return outcome
