"""The vectors are all read and all played, and lawful caches pass them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from few_cases import plan_of
from kvcanon.conformance import vectors
from kvcanon.conformance.check import vector_stage
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import CheckStage
from kvcanon.conformance.check.result import Grounds, Standing, Unplayed
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.check.vector_stage import play_vector
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import (
    FOLDER,
    Vector,
    VectorLevel,
    read_vectors,
    vector_files,
    vector_from_json,
)
from kvcanon.lab.mutants.vector_text import vector_text
from kvcanon.lab.variants.script_recorder import record_script
from kvcanon.lab.variants.variant import VARIANT
from kvcanon.spec.law import LAWS

VECTORS = read_vectors()
IDS = [each.vector_id for each in VECTORS]
each_vector = pytest.mark.parametrize("each", VECTORS, ids=IDS)


@each_vector
def test_calls_are_those_of_the_case(each: Vector) -> None:
    """The plain cache gets exactly the written calls from the case, and gives the answers.

    Which of them may differ is tested beside the lab's variations.
    """
    unmarked = tuple(evolve(call, may_differ=()) for call in each.script.calls)
    assert record_script(each.case) == evolve(each.script, calls=unmarked)


@each_vector
def test_a_file_has_one_form(each: Vector) -> None:
    """A vector that is read is written back as the same file."""
    assert (FOLDER / f"{each.vector_id}.json").read_text("utf-8") == vector_text(each)


@each_vector
@pytest.mark.parametrize("adapter", [REFERENCE, VARIANT], ids=["reference", "variant"])
def test_sound_caches_pass(adapter: Adapter, each: Vector) -> None:
    """A lawful cache has no finding in any vector, judged by states or in black-box mode."""
    # Ranks are judged by their states alone.
    for black_box in (False, True)[: 2 if each.case.ranks == 1 else 1]:
        finding, tally = Trial(adapter, JudgeConfig(black_box=black_box)).play(each.case)
        assert finding is None
        # What has a store is judged by states.
        offered = each.case.store is None or not black_box
        assert bool(tally.steps) == offered


def test_every_file_is_read() -> None:
    """Every file in the folder is a vector that is read."""
    assert {path.stem for path in FOLDER.iterdir()} == {each.vector_id for each in read_vectors()}
    assert len(vector_files()) == len(IDS)


def test_every_file_is_played_or_counted() -> None:
    """The stage plays every vector."""
    result = check(plan_of("reference", only=["vectors"]))
    (played,) = result.stages
    assert (played.name, played.cases, played.unoffered) == ("vectors", len(IDS), 0)
    assert not played.cut_short
    assert not result.failures


def test_what_a_cache_does_not_offer_is_counted() -> None:
    """A cache without a window is not judged by vectors with one; they are counted."""
    offer = Offer(windows_tokens=(None,))
    windowed = [
        each
        for each in VECTORS
        if each.case.config.window_tokens is not None or each.case.store is not None
    ]
    held = [
        play_vector(each, Trial(Adapter("windowless", REFERENCE.make, offer))) for each in VECTORS
    ]
    assert sum(each.tally.unoffered for each in held) == len(windowed) > 0
    assert sum(each.tally.cases for each in held) == len(VECTORS) - len(windowed) > 0


def test_a_lost_vector_makes_the_check_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that plays fewer vectors than there are files says so."""
    monkeypatch.setattr(vector_stage, "read_vectors", lambda: VECTORS[:-1])
    result = check(plan_of("reference", only=["vectors"]), apart=False)
    assert result.unplayed == (Unplayed(CheckStage.VECTORS, len(IDS) - 1, len(IDS)),)


def test_a_faulty_cache_fails_by_name_of_the_vector() -> None:
    """A failure names the vector that shows it."""
    result = check(plan_of("faulty:Leaky", only=["vectors"]))
    assert result.failures
    assert all(each.origin.removeprefix("vector ") in IDS for each in result.failures)


def test_black_box_vectors_are_also_judged_from_outside() -> None:
    """A black-box vector is played twice on a cache with snapshots."""
    some = next(each for each in VECTORS if each.level is VectorLevel.BLACK_BOX)
    inside = play_vector(evolve(some, level=VectorLevel.SNAPSHOT), Trial(REFERENCE)).tally
    both = play_vector(some, Trial(REFERENCE)).tally
    assert both.cases == inside.cases == 1
    assert both.steps == 2 * inside.steps


@pytest.mark.nightly
def test_a_known_law_is_shown_and_hides_no_other() -> None:
    """A known law is counted, is no failure, and does not hide other broken laws."""
    (cache,) = check(plan_of("reported:duplicates_leak", only=["vectors"])).caches
    broken = {law_id for first in cache.failures for each in first.every for law_id in each.broken}
    known = cache.failures[0].name
    assert len(broken) > 1
    excused = plan_of("reported:duplicates_leak", only=["vectors"], known=[known])
    (again,) = check(excused).caches
    assert again.standings[known] is Standing.KNOWN
    assert again.tally.known[known] > 0
    every = {law_id for first in again.failures for each in first.every for law_id in each.broken}
    assert known not in every
    assert every


GOOD = vector_text(VECTORS[0])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": "kvcanon-vector/2"', '"format": "kvcanon-vector/1"', "format"),
        (f'"law": "{VECTORS[0].law_id}"', '"law": "TREE-99"', "no law"),
        (f'"id": "{VECTORS[0].vector_id}"', '"id": "TREE-1-zz"', "its id"),
        ('"level": "', '"level": "very ', "not a valid VectorLevel"),
        ('"reason"', '"because"', "exactly"),
        ('"actions": [', '"actions": [["dance", 0, 0, 0],', "no action"),
        ('"drain": [', '"drain": ["brain"', "no case"),
        ('"op": ', '"up": ', "no call"),
        ('"keys": {', '"keys": 1, "locks": {', "exactly"),
        ("{", "", "cannot be read"),
    ],
)
def test_a_file_that_is_no_vector_is_refused(old: str, new: str, said: str) -> None:
    """A malformed file is refused."""
    with pytest.raises(UsageError, match=said):
        vector_from_json(VECTORS[0].vector_id, GOOD.replace(old, new, 1))


def test_a_broken_file_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A vector that cannot be read ends a command with one line and exit code 2."""
    (tmp_path / "LOAD-1-a.json").write_text("{}")
    monkeypatch.setattr(vectors, "FOLDER", tmp_path)
    read_vectors.cache_clear()
    try:
        assert main(["laws", "LOAD-1"]) == 2
    finally:
        read_vectors.cache_clear()
    assert capsys.readouterr().err.startswith("kvcanon: vector LOAD-1-a cannot be read: ")


def test_the_page_of_a_law_has_its_witness(capsys: pytest.CaptureFixture[str]) -> None:
    """The page of a law has a mutant that breaks it, and the calls in which it does."""
    some = VECTORS[0]
    assert main(["laws", some.law_id]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"Witness {some.vector_id}" in page
    assert some.reason in page
    assert "match(key_1)" in page


def test_the_list_names_witnesses(capsys: pytest.CaptureFixture[str]) -> None:
    """The list of laws as JSON names every vector, once."""
    assert main(["laws", "--json"]) == 0
    listed = {each["id"]: each["witnesses"] for each in json.loads(capsys.readouterr().out)["laws"]}
    assert listed.keys() == LAWS.keys()
    assert sorted(one for some in listed.values() for one in some) == sorted(IDS)


def test_a_silent_cache_gets_no_more_vectors() -> None:
    """A cache that does not answer gets no further vectors, and these are reported."""
    result = check(plan_of("faulty:Silent", only=["vectors"]))
    (played,) = result.stages
    assert "faulty:Silent: it gave no answer after" in played.cut_short
    assert 0 < played.cases < len(IDS)
    assert [each.name for each in result.failures] == ["ChildSilent"]


def test_any_number_of_processes_comes_to_the_same_result() -> None:
    """One process and two give the same report."""
    one, two = (check(plan_of("faulty:Leaky", only=["vectors"], jobs=jobs)) for jobs in (1, 2))
    assert one.caches == two.caches


@pytest.mark.nightly
def test_a_vector_that_ends_the_process_is_a_failure() -> None:
    """A cache that ends its process fails in the vector that ended it."""
    (cache,) = check(plan_of("faulty:Dying", only=["vectors"], jobs=2)).caches
    crash = next(each for each in cache.failures if each.grounds is Grounds.CRASH)
    assert crash.name.startswith(("SIG", "exit code"))
    assert crash.origin.removeprefix("vector ") in IDS
