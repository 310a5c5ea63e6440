"""Proofs: the solvers' verdicts, the claims, the record, and the output of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import claimed
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.cli import prove as command
from kvcanon.lab.prove.claim import ClaimKind, claims, oracle_functions, read_claim
from kvcanon.lab.prove.mutation import mutant_of, planted
from kvcanon.lab.prove.proof_run import Refutation, chosen_claims, lines_of, require_solvers, settle
from kvcanon.lab.prove.record import Confirmed, confirmed, lost, read_record, write_record
from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver
from paths import ROOT

WRONG_IN_WINDOW = mutant_of("kvcanon.spec.oracle.window.in_window", "ge-gt:1")


def proofs_of(function: Callable[..., object], budget_s: float = 60.0) -> list[Proof]:
    """Return the proofs of a function's contract."""
    return [settle(line, budget_s) for line in lines_of([read_claim(ClaimKind.CONTRACT, function)])]


def verdicts(function: Callable[..., object], budget_s: float = 60.0) -> list[str]:
    """Return the verdict of each line, with its solver."""
    return [f"{each.solver}: {each.verdict}" for each in proofs_of(function, budget_s)]


# Verdicts of solvers.


def test_lines_are_confirmed_or_refuted_one_by_one() -> None:
    """A sound line is confirmed beside a wrong one that is refuted, with its input."""
    sound, wrong = proofs_of(claimed.doubled)
    assert (sound.verdict, wrong.verdict) == (ProofVerdict.CONFIRMED, ProofVerdict.REFUTED)
    assert "doubled(31)" in wrong.found


def test_what_raises_is_refuted() -> None:
    """A function that raises for an input within its bounds is refuted by it."""
    (proof,) = proofs_of(claimed.raised)
    assert proof.verdict is ProofVerdict.REFUTED
    assert "raised(4711)" in proof.found


def test_bounds_that_nothing_meets_confirm_nothing() -> None:
    """A claim that no input meets is reported as vacuous by both solvers, and not confirmed."""
    assert verdicts(claimed.halved) == ["crosshair: unable to meet precondition"]
    assert verdicts(claimed.none_at_all) == [
        "crosshair: unable to meet precondition",
        "z3: unable to meet precondition",
    ]


def test_a_budget_that_is_used_up_confirms_nothing() -> None:
    """A line that is not decided in time is neither confirmed nor refuted."""
    assert verdicts(claimed.hashed, budget_s=0.5) == ["crosshair: not confirmed"]


def test_z3_settles_tuples_of_the_named_size() -> None:
    """z3 decides the same contract as CrossHair, for tuples of the size that it names."""
    *_, sound, wrong = proofs_of(claimed.all_alike)
    assert sound.bounds == ("tuples of 8", "same")
    assert (sound.verdict, wrong.verdict) == (ProofVerdict.CONFIRMED, ProofVerdict.REFUTED)
    assert wrong.found.count("False") >= 1
    assert "same = True" in wrong.found


def test_an_input_is_tried_before_it_refutes() -> None:
    """An input that breaks nothing in plain Python is a false alarm, and refutes nothing."""
    (proof,) = proofs_of(claimed.cut_alike)
    assert proof.verdict is ProofVerdict.NOT_CONFIRMED
    assert "false alarm" in proof.found


# Claims.


def test_claims_can_be_chosen_by_oracle_function_and_by_name() -> None:
    """An oracle function's name chooses its contract and every claim that speaks of it."""
    chosen = [claim.name for claim in chosen_claims(["may_leave_device"])]
    assert chosen == [
        "may_leave_device",
        "may_leave_device_is_trying",
        "eviction_grounds_device",
    ]
    assert [claim.name for claim in chosen_claims(["no_slot_is_lost"])] == ["no_slot_is_lost"]
    assert len(chosen_claims([])) == len(claims())
    with pytest.raises(UsageError, match="nothing is claimed of 'nobody'"):
        chosen_claims(["nobody"])


@pytest.mark.parametrize("name", oracle_functions())
def test_each_oracle_function_has_a_contract_and_a_second_definition(name: str) -> None:
    """Every oracle function has a claim that it equals an independent definition."""
    about = {claim.kind for claim in chosen_claims([name])}
    assert about >= {ClaimKind.CONTRACT, ClaimKind.EQUIVALENCE}


def test_a_function_that_claims_nothing_is_said() -> None:
    """A function without a `post:` line is refused by name."""
    with pytest.raises(UsageError, match="main claims nothing"):
        read_claim(ClaimKind.CONTRACT, main)


# The record.


def test_all_that_is_claimed_is_recorded_as_confirmed() -> None:
    """Every current claim was confirmed by a run of `kvcanon lab prove --record`."""
    recorded = {(each.claim, each.post, each.solver) for each in read_record()}
    lines = lines_of(list(claims().values()))
    assert recorded == {(line.claim.name, line.claim.post[line.at], line.solver) for line in lines}


def test_the_record_keeps_bounds() -> None:
    """Every line was confirmed under the bounds that its claim has now."""
    by_name = claims()
    for each in read_record():
        claim = by_name[each.claim]
        if each.solver is Solver.CROSSHAIR:
            assert each.bounds == claim.pre
        else:
            assert each.bounds == (f"tuples of {claim.terms}", *claim.pre[1:])


def test_what_is_no_longer_confirmed_is_lost(tmp_path: Path) -> None:
    """A recorded line counts as lost when it is gone, unconfirmed, or confirmed in other bounds."""
    proofs = proofs_of(claimed.doubled)
    path = tmp_path / "confirmed.jsonl"
    write_record(proofs, path)
    recorded = read_record(path)
    assert recorded == confirmed(proofs)
    assert len(recorded) == 1
    assert lost(recorded, proofs, None) == []
    assert lost(recorded, [], None) == recorded
    assert lost(recorded, [], {"doubled"}) == recorded
    assert lost(recorded, [], {"another"}) == []
    (kept,) = recorded
    narrower = Confirmed(kept.claim, kept.post, kept.solver, ("0 <= number <= 1000",))
    assert lost([narrower], proofs, None) == [narrower]


def test_the_page_holds_what_is_recorded() -> None:
    """`docs/prove.md` has a row for each recorded line, as `kvcanon lab prove --markdown` does."""
    page = (ROOT / "docs/prove.md").read_text("utf-8")
    for each in read_record():
        post = f"`{each.post}`".replace("|", "&#124;")
        rows = [row for row in page.splitlines() if row.startswith(f"| `{each.claim}`")]
        assert any(post in row and f"confirmed by {each.solver}" in row for row in rows), each


# The command.

Prove = Callable[..., tuple[int, str]]


@pytest.fixture
def prove(capsys: pytest.CaptureFixture[str]) -> Prove:
    """The command in this process, where a mutant can be planted: its exit code and its output."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["lab", "prove", "--jobs", "1", *arguments])
        captured = capsys.readouterr()
        return code, captured.out or captured.err

    return run


def test_a_table_says_what_is_confirmed(prove: Prove) -> None:
    """The table has the claim, its contract, its bounds and the verdict."""
    code, out = prove("in_window_is_every_page")
    assert code == 0
    for cell in (
        "in_window_is_every_page",
        "second_definitions.in_window",
        "1 <= pages <= 6",
        "CONFIRMED",
    ):
        assert cell in out
    assert "1 of 1 contract lines are confirmed" in out


def test_a_refutation_prints_the_input(prove: Prove) -> None:
    """A wrong oracle function fails the command, which prints the input that shows it."""
    with planted(WRONG_IN_WINDOW):
        code, out = prove("in_window_is_every_page")
    assert code == 1
    assert "REFUTED: in_window_is_every_page" in out
    assert "when calling in_window_is_every_page(" in out
    assert "NO LONGER CONFIRMED by crosshair: in_window_is_every_page" in out
    assert "1 refuted or unreachable, 1 no longer confirmed." in out


def test_what_is_lost_fails(prove: Prove, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded line that is not confirmed fails the command, if its claim was chosen."""
    kept = Confirmed("evicted_room_is_enough", "__return__ is True", Solver.CROSSHAIR, ())
    monkeypatch.setattr(command, "read_record", lambda: [kept])
    code, out = prove("evicted_room_is_enough")
    assert code == 1
    assert "NO LONGER CONFIRMED by crosshair: evicted_room_is_enough" in out
    assert prove("in_window_is_every_page")[0] == 0


def test_json_has_the_same(prove: Prove) -> None:
    """The JSON has the claim, the verdict and the seconds."""
    code, out = prove("has_ground_is_being_a_part", "--json")
    assert code == 0
    (proof,) = json.loads(out)["proofs"]
    assert proof["verdict"] == "confirmed"
    assert proof["claim"] == "has_ground_is_being_a_part"
    assert proof["seconds"] >= 0


def test_faults_are_planted_and_refuted(prove: Prove) -> None:
    """`--faults` prints for each claim the mutant that it refutes, and the input."""
    code, out = prove("--faults", "in_window_is_every_page")
    assert code == 0
    assert "return start > window_from" in out
    assert "Each of 1 claims refutes a mutant, of 1 functions in all." in out


def test_refutations_as_json_name_the_change(prove: Prove) -> None:
    """`--faults --json` has the changed line and the proof for each claim."""
    code, out = prove("--faults", "in_window_is_every_page", "--json")
    assert code == 0
    (entry,) = json.loads(out)
    assert entry["seeded"] == {
        "where": "kvcanon.spec.oracle.window.in_window",
        "was": "return start >= window_from",
        "becomes": "return start > window_from",
        "refuted_by": ["in_window_is_every_page"],
    }
    assert [proof["verdict"] for proof in entry["refuted"]] == ["refuted"]
    assert entry["missed"] == []


def test_a_claim_that_refutes_nothing_fails(prove: Prove, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--faults` fails where a claim holds for every mutant."""
    monkeypatch.setattr(command, "refute_all", lambda *_: [Refutation("in_window", None, None)])
    code, out = prove("--faults", "in_window_is_every_page")
    assert code == 1
    assert "1 claims refute no mutant of what they speak of." in out


def test_solvers_that_are_missing_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the solvers one line says what to install."""
    monkeypatch.setattr("kvcanon.lab.prove.proof_run.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"install kvcanon\[formal\]"):
        require_solvers()
