"""Scripts of failures, and the replays from which they are written."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest
from attrs import evolve, fields

from kvcanon.conformance import judged
from kvcanon.conformance.cases.case import Action, Case, case_from_json
from kvcanon.conformance.check.recorded_calls import Call, RecordedCall
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.time_limit import LIMIT
from kvcanon.conformance.check.trial import adapter_as
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.call_code import code_lines
from kvcanon.conformance.report.failure_replay import FindingReplay, judges_of, replay_finding
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.report.script import NAMES_FROM, WIDTH, file_name
from kvcanon.spec import operations
from kvcanon.spec.operations import Allocate, Free, Insert, Match, Operation
from kvcanon.spec.types import Counts, Key, Namespace, Slots
from paths import HELPERS
from reported import ASK_TOO_MUCH, SERVE, TWO_POOLS, check_of, failure_in, failure_of, result_of

MUTANTS = (
    "duplicates_leak",
    "cut_forgets_copies_in_flight",
    "settle_as_they_come",
    "host_insert_is_silent",
    "refusal_evicts",
)
"""Faults whose cases have refusals, decisions about copies, and fetched pages."""


def script(failure: Finding) -> str:
    """Return the script of a failure."""
    cache = result_of(failure.cache, failure)
    return report_of(check_of(cache, against=failure.against)).caches[0].failures[0].script


def replay(failure: Finding) -> FindingReplay:
    """Replay a failure."""
    adapter = adapter_as(failure.cache)
    return replay_finding(failure, adapter, judges_of(failure, ()))


def run(code: str) -> tuple[int, str]:
    """Run a script where the cache can be imported; return its exit code and output."""
    environment = os.environ | {"PYTHONPATH": str(HELPERS.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HELPERS,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "Forgetful",
        "REQUESTS",
        *[
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("Generous", "Blind", *MUTANTS)
        ],
    ],
)
def test_script_fails_on_the_faulty_cache_and_passes_on_a_sound_one(name: str) -> None:
    """A script fails on the faulty cache, and passes on a sound one."""
    failure = failure_of(f"reported:{name}")
    code = script(failure)
    exit_code, said = run(code)
    assert exit_code == 1
    assert failure.name in said
    assert 'File "<string>", line ' in said, "no line of the script is to blame"
    sound = "serving:ServingCache" if name == "REQUESTS" else "reference"
    mended = code.replace(f'    "reported:{name}",', f'    "{sound}",')
    if name == "REQUESTS":
        mended = mended.replace(f'"{sound}"', '"sound_requests:SOUND"')
        mended = f"{SOUND_REQUESTS}\n{mended}"
    exit_code, said = run(mended)
    assert exit_code == 0, said
    assert said.endswith("Holds: the fault of this script does not show.\n")


def test_a_script_imports_what_any_call_is_made_of() -> None:
    """Each type of a call's arguments, but that of fetched pages, for which a helper stands."""
    known = {name for names in NAMES_FROM.values() for name in names}
    needed: set[str] = set()
    for operation in get_args(Operation):
        hints = get_type_hints(operation, vars(operations))
        for field in fields(operation):
            parts = get_args(hints[field.name]) or (hints[field.name],)
            needed |= {part.__name__ for part in parts if part is not ... and is_ours(part)}
    assert needed - {"HostPayload"} <= known
    assert {"Completion", "Receipt", "Key", "Medium"} <= needed


def is_ours(part: type) -> bool:
    """Whether a type is none of Python's own."""
    return part.__module__.startswith("kvcanon.")


SOUND_REQUESTS = """
import sys, types
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from serving import ServingCache
sys.modules["sound_requests"] = types.SimpleNamespace(
    SOUND=Adapter("sound", ServingCache, kind=CacheKind.REQUEST)
)
"""


def test_script_of_a_crash_raises_what_the_cache_raised() -> None:
    """The script of a crash ends with the cache's exception."""
    failure = failure_of("reported:Crashing")
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "in lock" in said
    assert "KeyError: '<nothing> & " in said


def test_script_of_a_difference_says_who_did_what() -> None:
    """The script of a difference plays both caches, and prints what each did."""
    failure = failure_in("reported:Wordy", ASK_TOO_MUCH, "reference")
    assert failure.grounds is Grounds.AGREEMENT
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "the model:" in said


def test_script_of_unknown_laws_is_refused() -> None:
    """A mistyped law is told as one, with those near it."""
    case: dict[str, object] = {"config": {}, "actions": [], "drain": []}
    with pytest.raises(UsageError, match="no law RES-44; near it are"):
        judged("reference", case, laws=["RES-44"]).__enter__()


def test_script_has_the_whole_case() -> None:
    """The case in a script is the finding's, with all that decides how it is judged."""
    failure = failure_of("reported:Forgetful")
    case = evolve(failure.case, unobserved=True, one_namespace=True)
    tree = ast.parse(script(evolve(failure, case=case)))
    (value,) = [
        ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "CASE"
    ]
    assert case_from_json(value) == case


@pytest.mark.nightly
def test_script_is_python_that_one_can_read() -> None:
    """Scripts are valid Python with short lines, and number their calls."""
    for name in ("Forgetful", *MUTANTS):
        code = script(failure_of(f"reported:{name}"))
        compile(code, name, "exec")
        assert max(len(line) for line in code.splitlines()) <= WIDTH + 20
        assert "# 1: " in code


@pytest.mark.nightly
def test_scripts_of_one_check_have_names_of_their_own() -> None:
    """Each failure of a check has its own file name."""
    found = [failure_of(f"reported:{name}") for name in ("Forgetful", "Crashing", *MUTANTS)]
    names = {file_name(finding) for finding in found}
    assert len(names) == len(found)
    assert "reported_Forgetful-LOCK_8.py" in names
    assert all(name.replace("-", "").replace(".", "").isidentifier() for name in names)


def test_replay_records_every_operation_once() -> None:
    """A replay records each call once, with its number."""
    replayed = replay(failure_in("reported:Forgetful", SERVE))
    assert replayed.again
    assert [call.number for call in replayed.calls] == [1, 2, 3, None, 4, 5]
    assert {call.action for call in replayed.calls} == {0}


def test_replay_says_when_the_fault_does_not_show_again() -> None:
    """A replay that does not show the fault says so."""
    assert not replay(failure_in("reported:once", SERVE)).again


def test_a_cache_that_cannot_be_made_fails_again() -> None:
    """A replay on a cache that cannot be made shows the failure again."""
    failure = failure_of("faulty:unmade")
    assert not failure.operation
    assert replay(failure).again
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "no such kernel" in said


def test_replay_ends_where_caches_differ() -> None:
    """The calls of a difference end at the operation that differs."""
    failure = failure_in("reported:Wordy", ASK_TOO_MUCH, "reference")
    replayed = replay(failure)
    numbers = [call.number for call in replayed.calls if call.number is not None]
    assert numbers[-1] == failure.operation


def test_calls_end_at_the_operation_that_differs_within_its_action() -> None:
    """A difference within an action ends the calls within that action."""
    case = Case(TWO_POOLS, (Action("serve", c=4),), ())
    failure = failure_in("reported:Wordy", case, "reference")
    assert failure.action == 0
    last = replay(failure).calls[-1]
    assert isinstance(last.call, Allocate)
    assert last.number == failure.operation == 3


def test_calls_of_a_cache_that_hangs_end_with_the_call_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The calls of a cache that hangs end with the call that hangs."""
    monkeypatch.setattr(LIMIT, "shorter", (0.2, 0.5))
    failure = failure_in("reported:Silent", SERVE)
    replayed = replay(failure)
    assert replayed.again
    assert isinstance(replayed.calls[-1].call, Insert)
    assert "it does not end" in script(failure)


def test_slots_are_named_by_their_allocation() -> None:
    """Slots are written as parts of the last allocation that contains them."""
    given = Slots(full=(4, 5, 6), swa=(1, 2, 3))
    calls_and_answers: tuple[tuple[Call, object], ...] = (
        (Allocate(Counts(full=3, swa=3)), given),
        (Free(given), None),
        (Free(Slots(given.full, given.swa[1:])), None),
        (Free(Slots(full=(5,), swa=(1, 2))), None),
        (Free(Slots(full=(99,))), None),
        (Allocate(Counts(full=2)), Slots(full=(6, 7))),
        (Free(Slots(full=(6,))), None),
        (Free(Slots(full=(6, 4, 5, 99))), None),
        (Free(Slots(swa=(1, 1))), None),
    )
    calls = [RecordedCall(0, number, *each) for number, each in enumerate(calls_and_answers, 1)]
    assert [line.code for line in code_lines(calls)] == [
        "slots_1 = cache.allocate(Counts(full=3, swa=3))",
        "cache.free(slots_1)",
        "cache.free(Slots(full=slots_1.full, swa=slots_1.swa[1:]))",
        "cache.free(Slots(full=slots_1.full[1:2], swa=slots_1.swa[:2]))",
        "cache.free(Slots(full=(99,)))",
        "slots_2 = cache.allocate(Counts(full=2))",
        "cache.free(Slots(full=slots_2.full[:1]))",
        "cache.free(Slots(full=(*slots_2.full[:1], *slots_1.full[:2], 99)))",
        "cache.free(Slots(swa=(*slots_1.swa[:1], *slots_1.swa[:1])))",
    ]


def test_keys_are_named_once_and_their_prefixes_by_that_name() -> None:
    """A key gets one name; its prefixes are written by that name."""
    key, elsewhere = Key(((1,), (2,))), Key(((1,),), Namespace(lora="a"))
    calls = (Match(key), Match(key.prefix(1)), Match(elsewhere), Match(key))
    lines = code_lines([RecordedCall(0, at, each, None) for at, each in enumerate(calls, 1)])
    assert [(line.before, line.code) for line in lines] == [
        (("key_1 = Key(((1,), (2,)))",), "cache.match(key_1)"),
        ((), "cache.match(key_1.prefix(1))"),
        (("key_2 = Key(((1,),), Namespace(lora='a'))",), "cache.match(key_2)"),
        ((), "cache.match(key_1)"),
    ]
