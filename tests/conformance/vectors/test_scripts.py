"""The scripts of the vectors: which answers they compare, and which caches answer differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.conformance.protocol.wire import CALLS
from kvcanon.conformance.vectors import (
    FOLDER,
    Script,
    ScriptCall,
    Vector,
    VectorLevel,
    read_vectors,
    script_from_json,
)
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import MUTANTS, STORE_MUTANTS
from kvcanon.lab.variants.marks import BY_PROFILE, freedoms_of
from kvcanon.lab.variants.registry import VARIATIONS
from kvcanon.lab.variants.script_runner import fits, play_script, with_numbers
from kvcanon.lab.variants.variant import VARIANT
from kvcanon.spec.config import CANON
from paths import ROOT

VECTORS = read_vectors()
IDS = [each.vector_id for each in VECTORS]
each_vector = pytest.mark.parametrize("each", VECTORS, ids=IDS)

MUTANT = {mutant.name: mutant for mutant in (*MUTANTS, *STORE_MUTANTS)}

SCHEMA = json.loads((ROOT / "conformance/vectors/vector.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
README = (ROOT / "conformance/vectors/README.md").read_text("utf-8")

NOT_SEEN_IN_CALLS = {"ALLOC-6-c", "ALLOC-7-a", "EVICT-1-b", "RES-5-a", "RES-5-b"}
"""Black-box vectors whose fault shows in no unmarked answer, but to the judge."""


def read_json(vector_id: str) -> Any:  # noqa: ANN401  # Tests look at any part of it.
    """Read the file of a vector."""
    return json.loads((FOLDER / f"{vector_id}.json").read_text("utf-8"))


@each_vector
def test_a_file_keeps_the_schema(each: Vector) -> None:
    """Every file is valid by the published schema."""
    VALIDATOR.validate(read_json(each.vector_id))


def test_the_schema_is_a_schema() -> None:
    """The schema is valid by its own standard, and describes every field of a vector."""
    Draft202012Validator.check_schema(SCHEMA)
    assert all("description" in each for each in SCHEMA["properties"].values())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "kvcanon-vector/1"),
        (("more",), 1),
        (("config", "page_size"), 0),
        (("calls", 0, "op"), "dance"),
        (("calls", 0, "answer"), {"ok": [{"kind": "BlockLost"}]}),
        (("calls", 1, "answer"), {"error": "lost"}),
        (("calls", 1, "key"), {"pages": []}),
        (("calls", 1, "quota_pages"), None),
        (("calls", 1, "answer"), {"ok": None}),
        (("calls", 0, "may_differ"), []),
        (("case", "actions", 0), ["serve"]),
    ],
)
def test_the_schema_refuses(path: tuple[str | int, ...], value: object) -> None:
    """A file with another field, operation or answer is not valid."""
    vector = read_json("LOAD-1-a")
    place = vector
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    assert not VALIDATOR.is_valid(vector)


@pytest.mark.parametrize("name", ["reference", "optimized"])
def test_our_caches_answer_as_written(name: str) -> None:
    """Both caches give every answer of every vector."""
    adapter = load_adapter(name)
    for each in VECTORS:
        assert play_script(each.script, adapter, each.case.config) is None, each.vector_id


@each_vector
def test_calls_have_the_form_of_the_pipe(each: Vector) -> None:
    """Every call has all arguments of its operation on a pipe, in their order, or no states'."""
    for one in each.script.calls:
        given = {name: value for name, value in one.call.items() if name != "op"}
        takes = CALLS[str(one.call["op"])].takes
        assert list(given) == [each for each in takes if each != "state_pages" or each in given]


def test_marks_are_freedoms() -> None:
    """A mark is a variation that any cache may have, or a value of a field of the profile."""
    anybody = {name for name, each in VARIATIONS.items() if each.declared(CANON) == CANON}
    for each in VECTORS:
        for one in each.script.calls:
            for mark in one.may_differ:
                field = mark.removeprefix(BY_PROFILE).partition("=")[0]
                assert hasattr(CANON, field) if mark.startswith(BY_PROFILE) else mark in anybody


def test_numbers_are_no_difference() -> None:
    """No mark is needed for a cache that chooses other slots and ids."""
    marks = {mark for each in VECTORS for one in each.script.calls for mark in one.may_differ}
    assert "page_nodes" in marks
    assert not marks & {"high_slots_first", "scattered_ids", "upper_parts_keep_ids"}


def test_a_mark_says_what_is_declared() -> None:
    """The marks of a cache with a profile are the profile's values, not variations."""
    marks = freedoms_of(VARIANT)
    assert "profile.heals_in_place=false" in marks
    assert "profile.load_back_usable=enqueued" in marks
    assert "profile.limits=no_quota" in marks
    assert freedoms_of(REFERENCE) == ["reference"]


def is_seen(each: Vector) -> bool:
    """Whether the planted fault of a vector shows in an answer that no mark excuses."""
    mutant = mutated(MUTANT[each.mutant])
    difference = play_script(each.script, mutant, each.case.config)
    if difference is None:
        return False
    marks = each.script.calls[difference.index].may_differ
    return all(mark.startswith(BY_PROFILE) for mark in marks)


def test_planted_faults_show_in_the_calls() -> None:
    """The README says in how many vectors the fault shows; in black-box vectors it does in most."""
    words = " ".join(README.split())
    for level in VectorLevel:
        vectors = [each for each in VECTORS if each.level is level]
        unseen = {each.vector_id for each in vectors if not is_seen(each)}
        seen = f"{len(vectors) - len(unseen)} of {len(vectors)} `{level.value}` vectors"
        assert seen in words
        if level is VectorLevel.BLACK_BOX:
            assert unseen == NOT_SEEN_IN_CALLS


# Names and answers.


FITTING: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({"ok": {"full": ["$full_1", 7]}}, {"ok": {"full": [3, 7], "swa": [], "mamba": []}}),
    ({"ok": {"freed": {}}}, {"ok": {"freed": {"full": 0, "swa": 0}}}),
    ({"ok": None}, {"ok": None}),
    ({"ok": []}, {"ok": []}),
    ({"ok": {"receipt_id": "$receipt_1"}}, {"ok": {"receipt_id": 0}}),
    ({"refused": {"kind": "BadArgument"}}, {"refused": {"kind": "BadArgument", "problem": "x"}}),
    ({"ok": {"key": "$key_1"}}, {"ok": {"key": {"pages": [[0]], "namespace": {"lora": None}}}}),
)
"""Answers of a script, and of a cache that gives them; what is 0, null or empty may lack."""
BUSY: dict[str, object] = {"refused": {"kind": "CacheBusy", "open_receipts": 1}}
DIFFERENT: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({"ok": {"full": ["$full_1", "$full_1"]}}, {"ok": {"full": [3, 4]}}),
    ({"ok": {"full": ["$full_1"]}}, {"ok": {"full": [3, 4]}}),
    ({"ok": {"full": ["$full_1"]}}, {"ok": {}}),
    ({"ok": {"freed": {}}}, {"ok": {"freed": {"full": 1}}}),
    ({"ok": {"freed": {}}}, {"ok": {"freed": 3}}),
    ({"ok": None}, {"error": "lost"}),
    ({"ok": None}, BUSY),
    (BUSY, {"refused": {"kind": "CacheBusy"}}),
    ({"ok": {"namespace": {"lora": ""}}}, {"ok": {"namespace": {"lora": None}}}),
    ({"ok": {"transfer_id": "$transfer_1"}}, {"ok": {"transfer_id": None}}),
)
"""Answers that do not fit: another number for a bound name, or any other value."""


@pytest.mark.parametrize(
    ("answer", "got", "fit"),
    [*((*each, True) for each in FITTING), *((*e, False) for e in DIFFERENT)],
)
def test_answers_fit_or_differ(
    answer: dict[str, object], got: dict[str, object], fit: bool
) -> None:
    """Names are bound where they appear first, and everything else is compared."""
    assert fits(answer, got, {"$key_1": {"pages": [[0]]}}) is fit


def test_names_stand_for_what_they_are_bound_to() -> None:
    """A call is sent with keys and numbers in place of names."""
    call = {"op": "free", "key": "$key_1", "slots": {"full": ["$full_2", 9]}}
    sent = {"op": "free", "key": {"pages": []}, "slots": {"full": [5, 9]}}
    assert with_numbers(call, {"$key_1": {"pages": []}, "$full_2": 5}) == sent


def test_a_difference_is_where_it_is() -> None:
    """The first call that a cache answers differently is found, with its answer."""
    script = Script({}, (ScriptCall({"op": "take_events"}, {"ok": []}),))
    config = VECTORS[0].case.config
    difference = play_script(script, Adapter("plain", REFERENCE.make), config)
    assert difference is not None
    assert (difference.index, difference.got) == (0, {"ok": [{"kind": "AllBlocksCleared"}]})


@pytest.mark.parametrize(("keys", "calls"), [([], []), ({}, {}), ({}, [1]), ({}, [{"op": "poll"}])])
def test_what_is_no_script_is_refused(keys: object, calls: object) -> None:
    """Keys that are not an object and calls without an answer are refused."""
    with pytest.raises(ValueError, match="must be an object"):
        script_from_json(keys, calls)


def test_the_readme_shows_a_vector() -> None:
    """The vector that the README shows is the one in the folder."""
    shown = README.partition("```json\n")[2].partition("```")[0]
    vector_id = json.loads(shown)["id"]
    assert shown == Path(FOLDER / f"{vector_id}.json").read_text("utf-8")


def test_every_field_is_in_the_readme() -> None:
    """The README explains each field of a vector."""
    fields = README.partition("## The format")[2].partition("## ")[0]
    assert [each for each in SCHEMA["properties"] if f"`{each}`" not in fields] == []
