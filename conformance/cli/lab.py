"""`kvcanon lab`: what judges the judge, in a checkout of the repository.

The wheel has no lab, and no module of the product imports it. This command finds it by name, as a
cache is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from kvcanon.conformance.errors import UsageError

IN_THE_LAB = ("bench", "mutants", "peers", "prove")
"""Commands that are reached through `kvcanon lab` alone."""


def require_lab() -> None:
    """Require a checkout. Raises: UsageError."""
    if find_spec("kvcanon.lab") is None:
        raise UsageError(
            "the lab is in the repository, not in the wheel; clone it, and run `make venv` there"
        )


def run_lab(arguments: Sequence[str], *, copied: bool) -> int:
    """Run a command of the lab and return its exit code. Raises: UsageError, without a lab."""
    require_lab()
    return int(import_module("kvcanon.lab.cli").run(arguments, copied=copied))


def lab_help() -> None:
    """Judge the judge: mutants, proofs, past releases and benchmarks, in a checkout."""
    # `main` hands the words after `lab` to the lab; this is its line in the help.
    require_lab()
