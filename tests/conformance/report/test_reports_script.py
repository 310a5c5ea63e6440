"""Scripts: whoever runs one sees the fault while it is there, and sees that it is gone after."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.report import replayed as retelling_module
from kvcanon.conformance.report.call_code import lines_of
from kvcanon.conformance.report.replayed import Asked, ReplayedCall, Retelling, judges_of, retell
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.report.script import WIDTH, file_name
from kvcanon.conformance.search import play
from kvcanon.conformance.search.campaign import adapter_as
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.result import Failure
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Allocate, Free, Insert, Match
from kvcanon.spec.types import Counts, Key, Namespace, Slots
from paths import HELPERS
from reported import ASK_TOO_MUCH, SERVE, check_of, failure_in, failure_of, result_of

MUTANTS = (
    "duplicates_leak",
    "cut_forgets_copies_in_flight",
    "settle_as_they_come",
    "host_insert_is_silent",
    "refusal_evicts",
)
"""Faults whose cases have refusals, copies that are decided about, and fetched pages."""


def script(failure: Failure) -> str:
    """The script of a failure."""
    cache = result_of(failure.finding.cache, failure)
    return report_of(check_of(cache, against=failure.against)).caches[0].failures[0].script


def retelling(failure: Failure) -> Retelling:
    """The failure, played once more."""
    adapter = adapter_as(failure.finding.cache)
    return retell(failure, adapter, judges_of(failure, ()))


def run(code: str) -> tuple[int, str]:
    """Run a script where the cache can be imported: its exit code, and what it says."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Forgetful", "Generous", "Blind", "REQUESTS", *MUTANTS])
def test_script_shows_the_fault_and_then_that_it_is_mended(name: str) -> None:
    """A script passes on the faulty cache, or fails on a sound one."""
    failure = failure_of(f"reported:{name}")
    code = script(failure)
    exit_code, said = run(code)
    assert exit_code == 1
    assert failure.finding.name in said
    assert 'File "<string>", line ' in said, "no line of the script is to blame"
    sound = "serving:ServingCache" if name == "REQUESTS" else "reference"
    mended = code.replace(f'    "reported:{name}",', f'    "{sound}",')
    if name == "REQUESTS":
        mended = mended.replace(f'"{sound}"', '"sound_requests:SOUND"')
        mended = f"{SOUND_REQUESTS}\n{mended}"
    exit_code, said = run(mended)
    assert exit_code == 0, said
    assert said.endswith("Holds: what this script was written for does not happen.\n")


SOUND_REQUESTS = """
import sys, types
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from serving import ServingCache
sys.modules["sound_requests"] = types.SimpleNamespace(
    SOUND=Adapter("sound", ServingCache, kind=CacheKind.REQUEST)
)
"""


def test_script_of_a_crash_raises_what_the_cache_raised() -> None:
    """An author cannot see where the cache raises."""
    failure = failure_of("reported:Crashing")
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "in lock" in said
    assert "KeyError: '<nothing> & " in said


def test_script_of_a_difference_says_who_did_what() -> None:
    """A script plays the calls of one cache, and does not ask the other."""
    failure = failure_in("reported:Wordy", ASK_TOO_MUCH, "reference")
    assert failure.finding.grounds is Grounds.AGREEMENT
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "the model:" in said


def test_script_is_python_that_one_can_read() -> None:
    """Lines are longer than a screen, or a call has no number to find it by."""
    for name in ("Forgetful", *MUTANTS):
        code = script(failure_of(f"reported:{name}"))
        compile(code, name, "exec")
        assert max(len(line) for line in code.splitlines()) <= WIDTH + 20
        assert "# 1: " in code


def test_scripts_of_one_check_have_names_of_their_own() -> None:
    """The script of one failure overwrites that of another."""
    found = [failure_of(f"reported:{name}").finding for name in ("Forgetful", "Crashing", *MUTANTS)]
    names = {file_name(finding.cache, finding) for finding in found}
    assert len(names) == len(found)
    assert "reported_Forgetful-LOCK_8.py" in names
    assert all(name.replace("-", "").replace(".", "").isidentifier() for name in names)


def test_retelling_hears_every_operation_once() -> None:
    """A report leaves out a call, or tells one that nobody made."""
    told = retelling(failure_in("reported:Forgetful", SERVE))
    assert told.again
    assert [call.number for call in told.calls] == [1, 2, 3, None, 4, 5]
    assert {call.action for call in told.calls} == {0}


def test_retelling_says_when_the_fault_does_not_show_again() -> None:
    """A cache in which there is chance is reported as if its fault came each time."""
    assert not retelling(failure_in("reported:once", SERVE)).again


def test_a_cache_that_is_not_made_is_told_as_such() -> None:
    """A factory that raises is reported as if it had raised only once."""
    failure = failure_of("faulty:unmade")
    assert not failure.finding.operation
    assert retelling(failure).again
    exit_code, said = run(script(failure))
    assert exit_code == 1
    assert "no such kernel" in said


def test_retelling_ends_where_caches_differ() -> None:
    """What both caches did after they differed is told as if it led there."""
    failure = failure_in("reported:Wordy", ASK_TOO_MUCH, "reference")
    told = retelling(failure)
    numbers = [call.number for call in told.calls if call.number is not None]
    assert numbers[-1] == failure.finding.operation


def test_the_operation_that_differs_is_told_and_not_the_last_of_its_action() -> None:
    """An author looks at a call that did just what the other cache did."""
    case = Case(CacheConfig(device_slots=Counts(full=2)), (Action("serve", c=4),), ())
    failure = failure_in("reported:Wordy", case, "reference")
    assert failure.finding.action == 0
    last = retelling(failure).calls[-1]
    assert isinstance(last.asked, Allocate)
    assert last.number == failure.finding.operation == 3


def test_a_cache_that_gives_no_answer_is_told_up_to_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a cache that hangs hangs, too."""
    monkeypatch.setattr(play, "ACTION_SECONDS", 0.2)
    monkeypatch.setattr(retelling_module, "ACTION_SECONDS", 0.2)
    failure = failure_in("reported:Silent", SERVE)
    told = retelling(failure)
    assert told.again
    assert isinstance(told.calls[-1].asked, Insert)
    assert "it does not end" in script(failure)


def test_slots_are_named_by_who_gave_them() -> None:
    """A script hands over other slots than the client did, once numbers are other ones."""
    given = Slots(full=(4, 5, 6), swa=(1, 2, 3))
    asked: tuple[tuple[Asked, object], ...] = (
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
    calls = [ReplayedCall(0, number, *each) for number, each in enumerate(asked, 1)]
    assert [line.code for line in lines_of(calls)] == [
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


def test_keys_are_named_once_and_told_by_their_prefixes() -> None:
    """A key of another namespace, or another key, is taken for one that was named before."""
    key, elsewhere = Key(((1,), (2,))), Key(((1,),), Namespace(lora="a"))
    asked = (Match(key), Match(key.prefix(1)), Match(elsewhere), Match(key))
    lines = lines_of([ReplayedCall(0, number, each, None) for number, each in enumerate(asked, 1)])
    assert [(line.before, line.code) for line in lines] == [
        (("key_1 = Key(((1,), (2,)))",), "cache.match(key_1)"),
        ((), "cache.match(key_1.prefix(1))"),
        (("key_2 = Key(((1,),), Namespace(lora='a'))",), "cache.match(key_2)"),
        ((), "cache.match(key_1)"),
    ]
