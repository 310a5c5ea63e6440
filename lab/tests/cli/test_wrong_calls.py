"""Wrong calls of the lab's commands: each exits with 2, and says in one line what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import usage_error
from kvcanon.spec.types import WritePolicy
from paths import ROOT

TREE = "lab bench tree --conversations 3 --rounds 1 --page-size 16 --no-events --peers {folder}"
POLICIES = ", ".join(f"'{each}'" for each in WritePolicy)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("frob", ""),
        ("bench frob", "bench is in the lab"),
        ("replay", ""),
        ("lab bench engine rusty", "no core 'rusty'"),
        ("lab bench judge --seconds 0 faulty:CrashingAtOnce", "faulty:CrashingAtOnce is not sound"),
        ("lab bench judge nope", "no cache 'nope'"),
        ("lab bench judge --nodes 5", "one size shows no growth"),
        ("lab bench live speed", "Invalid value"),
        ("lab bench replay nope --conversations 1", "no cache 'nope'"),
        ("lab bench tree --write-policy sometimes", f"'sometimes' is not one of {POLICIES}"),
        (f"{TREE} nope", "no cache 'nope'"),
        (f"{TREE} vllm", "vllm: no environment"),
        (f"{TREE} --no-requests", "leaves nothing to measure; add --growth"),
        (f"{TREE} reference --pool-tokens 64", "a prompt has"),
        (f"{TREE} --page-size 0", "page-size"),
        ("lab mutants --only nobody", "no mutant 'nobody'"),
        ("lab mutants --effort deep", "no effort 'deep' for mutants"),
        ("lab mutants --mechanical --only nobody", "no mechanical mutant 'nobody' of reference"),
        ("lab mutants --mechanical --effort deep", "no effort 'deep' for mutants"),
        ("lab mutants --sample 3", "--sample and --core need --mechanical"),
        ("lab prove nobody", "nothing is claimed of 'nobody'"),
        ("lab prove --faults nobody", "nothing is claimed of 'nobody'"),
        ("lab prove --record in_window", "--record records everything"),
    ],
)
def test_a_wrong_call_is_one_line(
    call: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong call says in one line what is wrong."""
    monkeypatch.chdir(ROOT / "tests")
    arguments = call.replace("{folder}", str(tmp_path)).split()
    assert said in usage_error(capsys, *arguments)
