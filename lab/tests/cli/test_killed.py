"""What is left of a command of the lab that is killed."""

from __future__ import annotations

import pytest

from killed import left_after_a_kill


@pytest.mark.parametrize(
    "arguments", [("mutants",), ("mutants", "--mechanical"), ("prove",)], ids=" ".join
)
def test_no_process_outlives_a_killed_command(arguments: tuple[str, ...]) -> None:
    """After SIGKILL of a command none of its workers is left."""
    assert not left_after_a_kill(("lab", *arguments, "--jobs", "2"), 2)
