"""The report as text, and its verdict."""

from __future__ import annotations

import json
import re

import pytest
from attrs import evolve, fields
from jsonschema import Draft202012Validator

from kvcanon.conformance.check.result import Standing
from kvcanon.conformance.judge import sentence
from kvcanon.conformance.report.json_report import SCHEMA, check_json, json_text
from kvcanon.conformance.report.known_differences import KnownDifference
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.text import laws_in_short
from kvcanon.spec.config import MambaRefresh, Profile, choices
from kvcanon.spec.law import LAWS
from reported import SERVE, check_of, failure_in, failure_of, result_of
from sample_reports import KNOWN, idle, junit, page, sound, text, unkept, words

VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_text_says_what_was_done_and_with_which_seed(report: CheckReport) -> None:
    """The text gives effort, seed, the other cache, and the counts of each stage."""
    printed = text(report)
    assert "quick effort, seed 7, against reference" in printed
    assert re.search(r"walker +480 +31,415 +12.2 +cut short: time was over", printed)


def test_text_tells_the_standing_of_laws(report: CheckReport) -> None:
    """The text counts laws by standing, and gives the reason for each that is not held."""
    printed = words(text(report))
    assert f"{len(LAWS) - 3} held, 1 broken, 1 known, 1 not exercised" in printed
    assert "not exercised DATA-1: not offered: the cache has no bytes" in printed
    assert "held least TREE-1 9 times, TREE-2 9 times" in printed
    assert f"known EVICT-3 {LAWS['EVICT-3'].name}: {KNOWN.reason} ({KNOWN.link})" in printed
    assert "lacks bytes, reset" in printed
    assert "departs from the canon: window_lock_exact is False, not True: a window lock" in printed


def test_text_tells_a_failure_from_its_law_to_its_last_call(report: CheckReport) -> None:
    """The text of a failure has its law, its explanation, and its calls with answers."""
    printed = text(report)
    finding = report.caches[0].failures[0]
    assert f"Failure 1 of reported:Forgetful: LOCK-8 {LAWS['LOCK-8'].name}" in printed
    assert words(finding.words) in words(printed)
    assert "First found by the walker, seed 7, case 3; 12 times in all." in printed
    assert "at operation 5, in action 1 of 1, serve" in printed
    assert re.search(r"\n +3 +slots_1 = allocate\(Counts\(full=2\)\) +full 0 1 *\n", printed)
    assert re.search(r"\n +5 +unlock\(receipt_1\) +done <- breaks LOCK-8 *\n", printed)


def test_the_first_screen_tells_what_is_wrong_and_what_to_do() -> None:
    """The first 24 lines have the verdict, the sentence, the calls, the script and the law."""
    first, other = (failure_in("reported:Forgetful", SERVE) for _ in range(2))
    other = evolve(other, name="RES-4", broken=("RES-4",), text="so", texts=("so",))
    other = evolve(other, why_folded="after the same call")
    failing = result_of("reported:Forgetful", evolve(first, folded=(other,)))
    shown = report_of(check_of(failing))
    whole = text(shown, {"1": "s/one.py", "1.1": "s/two.py"}).splitlines()
    screen = [line.rstrip() for line in whole[:24]]
    assert screen[1] == "BROKEN (sound, serving): RES-4, LOCK-8"
    assert screen[3] == f"Failure 1: LOCK-8 {LAWS['LOCK-8'].name} (sound)"
    assert screen[4] == f"  {sentence(LAWS['LOCK-8'])}"
    assert screen[5].startswith(f"  Here: {first.text[:60]}")
    assert "  also broken: RES-4 (after the same call)" in screen
    assert any(line.endswith("done <- breaks LOCK-8") for line in screen)
    assert "  Play it again:  python s/one.py" in screen
    assert "  The law:        kvcanon laws LOCK-8" in screen
    assert any("1.1: RES-4" in line for line in whole)
    assert "    RES-4: so" in [line.rstrip() for line in whole]
    assert "    Play it again:  python s/two.py" in [line.rstrip() for line in whole]


def test_what_is_folded_is_whole_in_every_format() -> None:
    """A folded failure is whole in JSON, fails its own test in JUnit, and is on the page."""
    first = failure_in("reported:Forgetful", SERVE)
    other = evolve(first, name="RES-4", broken=("RES-4",), text="so", texts=("so",))
    other = evolve(other, why_folded="after the same call", reduced=False)
    shown = report_of(check_of(result_of("reported:Forgetful", evolve(first, folded=(other,)))))
    value = json.loads(json_text(check_json(shown)))
    VALIDATOR.validate(value)
    (failure,) = value["caches"][0]["failures"]
    (inner,) = failure["folded"]
    assert inner["case"] == failure["case"]
    assert inner["script"].startswith('"""RES-4')
    assert (inner["why_folded"], inner["evidence"]) == ("after the same call", {"RES-4": "so"})
    assert (failure["reduced"], inner["reduced"]) == (True, False)
    failed = junit(shown).find(f".//testcase[@name='RES-4 {LAWS['RES-4'].name}']/failure")
    assert failed is not None
    caused = f"so (most likely caused by LOCK-8 {LAWS['LOCK-8'].name})"
    assert failed.get("message") == caused
    said = " ".join(page(shown).said)
    assert "also broken: RES-4 (after the same call)" in said
    assert "A shorter case may show it: it was not reduced to its end." in said


def test_text_has_every_script_or_its_file(report: CheckReport) -> None:
    """The text has every script unwrapped, or the file that the script was written to."""
    printed = text(report)
    for cache in report.caches:
        for finding in cache.failures:
            assert finding.script in printed
    printed = text(report, {"1": "one.py", "2": "two.py", "3": "three.py"})
    assert "Play it again:  python two.py" in printed
    assert "import judged" not in printed


def test_last_line_is_the_verdict(report: CheckReport) -> None:
    """The last line of the text is the verdict."""
    last = text(report).splitlines()[-1]
    assert last == (
        "BROKEN (sound): LOCK-8, no agreement: allocate, crash: KeyError. "
        "Played 82 vectors, 480 walker cases."
    )
    count = len(LAWS)
    assert (
        text(sound()).splitlines()[-1]
        == f"No law is broken. {count} of {count} laws were exercised. {PLAYED}"
    )


def test_first_lines_are_the_verdict_where_something_is_wrong(report: CheckReport) -> None:
    """A verdict of a failed check also stands in the second line."""
    broken = text(report).splitlines()
    assert broken[-1] == f"{broken[1]}. {PLAYED}"
    assert "BROKEN" not in text(sound())


def test_a_cache_that_does_nothing_has_not_passed() -> None:
    """A cache that refuses every insert is reported as not exercised, in every format."""
    expected = (
        "NOT EXERCISED: reported:Wordy: insert was refused each of 312 times, "
        "abort was never called"
    )
    assert idle().verdict is CheckVerdict.NOT_EXERCISED
    assert [cache.verdict for cache in idle().caches] == [
        CheckVerdict.NOT_EXERCISED,
        CheckVerdict.HOLDS,
    ]
    lines = text(idle()).splitlines()
    assert (lines[1], lines[-1]) == (expected, f"{expected}. {PLAYED}")
    alone = report_of(check_of(idle().caches[0].result))
    assert text(alone).splitlines()[1] == expected.replace("reported:Wordy: ", "")
    said = page(idle()).said
    assert "Too little was exercised" in said
    assert expected in said
    (failed,) = junit(alone).iterfind(".//failure")
    assert failed.get("message") == "; ".join(idle().caches[0].result.missing)
    assert json.loads(json_text(check_json(alone)))["caches"][0]["missing"] == list(
        idle().caches[0].result.missing
    )


def test_a_broken_cache_that_refuses_says_both() -> None:
    """The verdict of a broken cache also names the essentials that were not exercised."""
    failure = failure_in("reported:Forgetful", SERVE)
    refusing = result_of(
        "reported:Forgetful", failure, missing=("lock was refused each of 3 times",)
    )
    second = text(report_of(check_of(refusing))).splitlines()[1]
    assert second == "BROKEN (sound): LOCK-8. NOT EXERCISED: lock was refused each of 3 times"
    assert report_of(check_of(refusing)).verdict is CheckVerdict.BROKEN


def test_what_only_should_be_kept_is_reported_and_fails_nothing() -> None:
    """A broken SHOULD law is in every report, and does not fail the check."""
    report = unkept()
    assert report.verdict is CheckVerdict.HOLDS
    printed = text(report)
    count = len(LAWS)
    assert words(printed).endswith(
        "No MUST law is broken; SHOULD laws not kept: EVICT-7. "
        f"{count} of {count} laws were exercised. {PLAYED}"
    )
    assert f"{count - 1} held, 0 broken, 1 not kept, 0 not exercised" in printed
    assert f"SHOULD, not kept, 1: EVICT-7 {LAWS['EVICT-7'].name}" in printed
    assert report.caches[0].unkept[0].script in printed
    case = junit(report).find(f".//testcase[@name='EVICT-7 {LAWS['EVICT-7'].name}']/skipped")
    assert case is not None
    assert case.get("message") == "SHOULD, not kept: kept twice"
    value = json.loads(json_text(check_json(report)))
    VALIDATOR.validate(value)
    (cache,) = value["caches"]
    assert (len(cache["failures"]), cache["not_kept"][0]["name"]) == (0, "EVICT-7")
    assert "SHOULD, not kept" in page(report).said


def test_what_is_known_is_not_forgotten_where_nothing_else_is_broken() -> None:
    """The verdict says so if only known laws are broken."""
    excused = report_of(check_of(result_of("reference", known=KNOWN.law)), (KNOWN,))
    assert excused.verdict is CheckVerdict.HOLDS
    assert text(excused).splitlines()[-1].startswith("No law is broken except the known ones. ")
    assert "No law is broken except the known ones" in page(excused).said


def test_markup_in_what_a_cache_says_is_shown(report: CheckReport) -> None:
    """The text shows brackets in a cache's words."""
    failure = failure_in("reported:Forgetful", SERVE)
    finding = evolve(failure, words="[red]slot[/red] [0]")
    shown = report_of(check_of(result_of("reported:Forgetful", finding)))
    assert "[red]slot[/red] [0]" in text(shown)


def test_nothing_judged_is_no_success() -> None:
    """A check that exercised no law for some cache has the verdict NOT_JUDGED."""
    nothing = result_of("reference")
    nothing = evolve(nothing, standings=dict.fromkeys(LAWS, Standing.NOT_EXERCISED))
    assert report_of(check_of(nothing)).verdict is CheckVerdict.NOT_JUDGED
    assert report_of(check_of(result_of("reference"), nothing)).verdict is CheckVerdict.NOT_JUDGED
    assert report_of(check_of()).verdict is CheckVerdict.NOT_JUDGED
    assert text(report_of(check_of(nothing))).splitlines()[1] == "Nothing was judged."


def test_a_crash_is_broken_though_no_law_is() -> None:
    """A cache that crashes has the verdict BROKEN."""
    crashed = report_of(check_of(result_of("reported:Crashing", failure_of("reported:Crashing"))))
    assert crashed.verdict is CheckVerdict.BROKEN


PLAYED = "Played 82 vectors, 480 walker cases."


@pytest.mark.parametrize(
    ("only", "known", "lacks", "said"),
    [
        ((), (), ("snapshot", "recency", "events"), "not offered: the cache has no snapshot"),
        ((), (), ("events",), "never came up: a host copy below another node"),
        (("LOCK-8",), (), ("snapshot",), "left out by --only"),
        (
            (),
            (KnownDifference("RES-4", "so", "https://example.org"),),
            (),
            "known to be broken, but nothing in this check shows it: so (https://example.org)",
        ),
    ],
)
def test_why_a_law_was_not_exercised(
    only: tuple[str, ...], known: tuple[KnownDifference, ...], lacks: tuple[str, ...], said: str
) -> None:
    """A law that was not exercised has the right reason."""
    result = evolve(
        result_of("reference", lacks=lacks),
        standings={**dict.fromkeys(LAWS, Standing.HELD), "RES-4": Standing.NOT_EXERCISED},
    )
    cache = report_of(check_of(result, laws=only or None), known).caches[0]
    ((reason, law_ids),) = cache.not_exercised.items()
    assert law_ids == ["RES-4"]
    shown = f"{laws_in_short(law_ids, reason)}: {reason}"
    assert said in shown
    assert ("RES-4" in shown) == ("left out" not in said)
    assert cache.checked == len(LAWS) - ("left out" in said)


def test_long_lists_of_laws_are_cut_in_the_text() -> None:
    """Of many laws the first are named, and the rest is counted."""
    assert laws_in_short(["A-1", "A-2"], "so") == "A-1, A-2"
    many = [f"A-{number}" for number in range(1, 31)]
    assert laws_in_short(many, "so") == "A-1, A-2, A-3, A-4, A-5, A-6 and 24 more"
    assert laws_in_short(many[:8], "so").endswith("A-8"), "two more take no more room than a count"


def test_what_a_cache_offers_is_told_where_it_is_not_everything() -> None:
    """The text lists what a cache offers if that is not everything."""
    narrow = report_of(check_of(result_of("lazy:FULL_ALONE")))
    expected = "offers windows tokens: none; mamba: False; write policies: none"
    assert expected in words(text(narrow))
    assert narrow.caches[0].offered == tuple(expected.removeprefix("offers ").split("; "))
    assert not sound().caches[0].offered


def test_every_departure_has_its_meaning() -> None:
    """Every field of a profile says what the canon does, and what a cache does otherwise."""
    assert list(choices()) == [each.name for each in fields(Profile)]
    assert all(each.canon and each.otherwise for each in choices().values())
    departed = result_of("reference", profile=Profile(mamba_refresh=MambaRefresh.PATH))
    (departure,) = report_of(check_of(departed)).caches[0].departures
    assert departure.value == "MambaRefresh.PATH"
    assert departure.canon == "MambaRefresh.NODE"


def test_what_does_not_show_again_is_said(report: CheckReport) -> None:
    """The text says if a replay does not show the fault."""
    failure = failure_in("reported:Forgetful", SERVE)
    sound_now = evolve(failure, cache="reference")
    printed = text(report_of(check_of(result_of("reference", sound_now))))
    assert "A replay for this report did not show it" in printed
    assert "did not show it" not in text(report)
