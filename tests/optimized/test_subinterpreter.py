"""A subinterpreter: the native core refuses to be imported there."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
try:
    import _interpreters as interpreters
except ModuleNotFoundError:
    import _xxsubinterpreters as interpreters
if sys.argv[1:] == ["after the main one"]:
    import kvcanon.optimized
other = interpreters.create()
raised = None
try:
    raised = interpreters.run_string(
        other, f"import sys; sys.path[:] = {sys.path!r}; import kvcanon.optimized"
    )
except RuntimeError as error:
    raised = error
print(raised)
"""


@pytest.mark.parametrize("main", ["alone", "after the main one"])
def test_a_subinterpreter_is_refused_with_a_sentence(main: str) -> None:
    """The import fails at once, and says where the core can be imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, main],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    words = "serves the main interpreter of a process only, and this is a subinterpreter"
    assert words in done.stdout
