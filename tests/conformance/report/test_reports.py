"""Reports: text, JSON, JUnit and the page say the same, and all of it."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve, fields
from jsonschema import Draft202012Validator
from rich.console import Console

from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.conformance.report.call_code import lines_of
from kvcanon.conformance.report.html_page import check_html
from kvcanon.conformance.report.json_report import FORMAT, SCHEMA, check_json, json_text
from kvcanon.conformance.report.junit import check_junit
from kvcanon.conformance.report.known_differences import KnownDifference
from kvcanon.conformance.report.replayed import judges_of, retell
from kvcanon.conformance.report.report import DEPARTURES, CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.text import text_report
from kvcanon.conformance.search.campaign import adapter_as
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.result import Standing
from kvcanon.spec.config import MambaRefresh, Profile
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Evicted, Settled
from kvcanon.spec.types import Counts, Slots
from reported import ASK_TOO_MUCH, SERVE, check_of, failure_in, failure_of, result_of

KNOWN = KnownDifference("EVICT-3", "a leaf's window goes with its lock", "https://example.org/1")
VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
EXTERNAL = re.compile(r"""(?:src|href)=["'](?!#|https://example\.org)|@import|url\(""")


def sound() -> CheckReport:
    """A report of a cache that holds."""
    return report_of(check_of(result_of("reference")))


def faulty() -> CheckReport:
    """A report of three caches with all that can be in one."""
    forgetful = result_of(
        "reported:Forgetful",
        failure_in("reported:Forgetful", SERVE),
        known=KNOWN.law,
        lacks=("bytes", "reset"),
        profile=Profile(window_lock_exact=False),
    )
    wordy = result_of("reported:Wordy", failure_in("reported:Wordy", ASK_TOO_MUCH, "reference"))
    crashing = result_of("reported:Crashing", failure_of("reported:Crashing"))
    return report_of(check_of(forgetful, wordy, crashing, against="reference"), (), (KNOWN,))


@pytest.fixture(scope="module")
def report() -> CheckReport:
    """The report that has all in it."""
    return faulty()


def text(report: CheckReport, scripts: dict[int, str] | None = None) -> str:
    """The report as text."""
    out = Console(file=io.StringIO(), width=100, highlight=False)
    for part in text_report(report, scripts or {}):
        out.print(part, soft_wrap=isinstance(part, str), markup=False)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def words(printed: str) -> str:
    """What was printed, wherever its lines end."""
    return " ".join(printed.split())


# Text.


def test_text_says_what_was_done_and_with_which_seed(report: CheckReport) -> None:
    """Nobody can tell how much was played, or repeat it."""
    printed = text(report)
    assert "quick effort, seed 7, against reference" in printed
    assert re.search(r"walker +480 +31,415 +12.2 +cut short: time was over", printed)


def test_text_tells_the_standing_of_laws(report: CheckReport) -> None:
    """A law that was not exercised, or is known to be broken, passes for one that held."""
    printed = words(text(report))
    assert f"{len(LAWS) - 3} held, 1 broken, 1 known, 1 not exercised" in printed
    assert "not exercised DATA-1: not offered: the cache has no bytes" in printed
    assert "held least TREE-1 9 times, TREE-2 9 times" in printed
    assert f"known EVICT-3 {LAWS['EVICT-3'].name}: {KNOWN.reason} ({KNOWN.link})" in printed
    assert "lacks bytes, reset" in printed
    assert "departs from the canon: window_lock_exact is False, not True: a window lock" in printed


def test_text_tells_a_failure_from_its_law_to_its_last_call(report: CheckReport) -> None:
    """An author is told that a law is broken, and not how."""
    printed = text(report)
    finding = report.caches[0].failures[0].failure.finding
    assert f"Failure 1: LOCK-8 {LAWS['LOCK-8'].name}" in printed
    assert words(finding.words) in words(printed)
    assert "First seen by the walker, seed 7, case 3; 12 times in all." in printed
    assert "at operation 5, in action 1 of 1, serve" in printed
    assert re.search(r"\n +3 +slots_1 = allocate\(Counts\(full=2\)\) +full 0 1 *\n", printed)
    assert re.search(r"\n +5 +unlock\(receipt_1\) +done <- breaks LOCK-8 *\n", printed)


def test_text_has_every_script_or_its_file(report: CheckReport) -> None:
    """A failure cannot be shown again, or its script is broken where a line was wrapped."""
    printed = text(report)
    for cache in report.caches:
        for retold in cache.failures:
            assert retold.script in printed
    printed = text(report, {1: "one.py", 2: "two.py", 3: "three.py"})
    assert "Script: two.py" in printed
    assert "import judged" not in printed


def test_last_line_is_the_verdict(report: CheckReport) -> None:
    """Whoever reads the end of a log does not see what came of it."""
    last = text(report).splitlines()[-1]
    assert last == "BROKEN: LOCK-8, no agreement: allocate, crash: KeyError"
    count = len(LAWS)
    assert (
        text(sound()).splitlines()[-1]
        == f"No law is broken. {count} of {count} laws were exercised."
    )


def test_first_lines_are_the_verdict_where_something_is_wrong(report: CheckReport) -> None:
    """Whoever reads the beginning of a long report takes it for a good one."""
    broken = text(report).splitlines()
    assert broken[1] == broken[-1]
    assert "BROKEN" not in text(sound())


def idle() -> CheckReport:
    """A report of a cache that serves no insert, beside one that holds."""
    missing = ("insert was refused each of 312 times", "abort was never called")
    return report_of(check_of(result_of("reported:Wordy", missing=missing), result_of("reference")))


def test_a_cache_that_does_nothing_has_not_passed() -> None:
    """A cache that refuses every insert breaks no law, and a green report says so."""
    told = (
        "NOT EXERCISED: reported:Wordy: insert was refused each of 312 times, "
        "abort was never called"
    )
    assert idle().verdict is CheckVerdict.NOT_EXERCISED
    assert [cache.verdict for cache in idle().caches] == [
        CheckVerdict.NOT_EXERCISED,
        CheckVerdict.HOLDS,
    ]
    lines = text(idle()).splitlines()
    assert lines[1] == lines[-1] == told
    alone = report_of(check_of(idle().caches[0].result))
    assert text(alone).splitlines()[-1] == told.replace("reported:Wordy: ", "")
    said = page(idle()).said
    assert "Too little was exercised" in said
    assert told in said
    (failed,) = junit(alone).iterfind(".//failure")
    assert failed.get("message") == "; ".join(idle().caches[0].result.missing)
    assert json.loads(json_text(check_json(alone)))["caches"][0]["missing"] == list(
        idle().caches[0].result.missing
    )


def test_a_broken_cache_that_refuses_says_both() -> None:
    """A law is broken, and nobody sees that the cache serves nothing."""
    failure = failure_in("reported:Forgetful", SERVE)
    refusing = result_of(
        "reported:Forgetful", failure, missing=("lock was refused each of 3 times",)
    )
    last = text(report_of(check_of(refusing))).splitlines()[-1]
    assert last == "BROKEN: LOCK-8. NOT EXERCISED: lock was refused each of 3 times"
    assert report_of(check_of(refusing)).verdict is CheckVerdict.BROKEN


def unkept() -> CheckReport:
    """A report of a cache that does not keep what it should."""
    failure = failure_in("reported:Forgetful", SERVE)
    finding = evolve(failure.finding, name="EVICT-7", broken=("EVICT-7",), text="kept twice")
    of_should = evolve(failure, finding=finding, laws=frozenset({"EVICT-7"}))
    return report_of(check_of(result_of("reported:Forgetful", unkept=(of_should,))))


def test_what_only_should_be_kept_is_reported_and_fails_nothing() -> None:
    """A law that need not be kept fails a check, or that it is not kept goes unsaid."""
    report = unkept()
    assert report.verdict is CheckVerdict.HOLDS
    printed = text(report)
    count = len(LAWS)
    assert words(printed).endswith(
        "No law is broken but what only SHOULD be kept: EVICT-7. "
        f"{count} of {count} laws were exercised."
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
    """The last line says that all holds, where one law is only excused."""
    excused = report_of(check_of(result_of("reference", known=KNOWN.law)), (), (KNOWN,))
    assert excused.verdict is CheckVerdict.HOLDS
    assert text(excused).splitlines()[-1].startswith("No law is broken but what is known. ")
    assert "No law is broken but what is known" in page(excused).said


def test_markup_in_what_a_cache_says_is_shown(report: CheckReport) -> None:
    """A cache's words in brackets vanish from the terminal."""
    failure = failure_in("reported:Forgetful", SERVE)
    finding = evolve(failure.finding, words="[red]slot[/red] [0]")
    told = report_of(check_of(result_of("reported:Forgetful", evolve(failure, finding=finding))))
    assert "[red]slot[/red] [0]" in text(told)


# What came of it.


def test_nothing_judged_is_no_success() -> None:
    """A check in which no law was exercised says that none is broken."""
    nothing = result_of("reference")
    nothing = evolve(nothing, standings=dict.fromkeys(LAWS, Standing.NOT_EXERCISED))
    assert report_of(check_of(nothing)).verdict is CheckVerdict.NOT_JUDGED
    assert report_of(check_of(result_of("reference"), nothing)).verdict is CheckVerdict.NOT_JUDGED
    assert report_of(check_of()).verdict is CheckVerdict.NOT_JUDGED
    assert text(report_of(check_of(nothing))).splitlines()[-1] == "Nothing was judged."


def test_a_crash_is_broken_though_no_law_is() -> None:
    """A cache that raises passes, because it breaks no law."""
    crashed = report_of(check_of(result_of("reported:Crashing", failure_of("reported:Crashing"))))
    assert crashed.verdict is CheckVerdict.BROKEN


@pytest.mark.parametrize(
    ("only", "known", "lacks", "said"),
    [
        ((), (), ("snapshot", "recency", "events"), "not offered: the cache has no snapshot"),
        ((), (), ("events",), "never came up: a host copy below another node"),
        (("LOCK-8",), (), ("snapshot",), "not asked for"),
        (("walker",), (), (), "never came up: a host copy below another node"),
        ((), (KnownDifference("RES-4", "so", "https://example.org"),), (), "no vector came to it"),
    ],
)
def test_why_a_law_was_not_exercised(
    only: tuple[str, ...], known: tuple[KnownDifference, ...], lacks: tuple[str, ...], said: str
) -> None:
    """An author looks for a fault of a case where the cache shows too little, or the reverse."""
    result = evolve(
        result_of("reference", lacks=lacks),
        standings={**dict.fromkeys(LAWS, Standing.HELD), "RES-4": Standing.NOT_EXERCISED},
    )
    cache = report_of(check_of(result), only, known).caches[0]
    (reason,) = cache.not_exercised
    assert said in reason
    assert ("RES-4" in reason) == ("asked" not in said)
    assert cache.asked == len(LAWS) - ("asked" in said)


def test_what_a_cache_offers_is_told_where_it_is_not_everything() -> None:
    """A cache that can be made in one way only looks like one that can be in all."""
    narrow = report_of(check_of(result_of("lazy:FULL_ALONE")))
    told = "offers windows tokens: none; mamba: False; write policies: none"
    assert told in words(text(narrow))
    assert narrow.caches[0].offered == tuple(told.removeprefix("offers ").split("; "))
    assert not sound().caches[0].offered


def test_every_departure_has_its_meaning() -> None:
    """A report names a field of a profile, and does not say what follows."""
    assert DEPARTURES.keys() == {each.name for each in fields(Profile)}
    departed = result_of("reference", profile=Profile(mamba_refresh=MambaRefresh.PATH))
    (departure,) = report_of(check_of(departed)).caches[0].departures
    assert departure.value == "MambaRefresh.PATH"
    assert departure.canon == "MambaRefresh.NODE"


def test_what_does_not_show_again_is_said(report: CheckReport) -> None:
    """A cache in which there is chance is reported as if its fault came each time."""
    failure = failure_in("reported:Forgetful", SERVE)
    sound_now = evolve(failure, finding=evolve(failure.finding, cache="reference"))
    told = text(report_of(check_of(result_of("reference", sound_now))))
    assert "Played once more for this report, the case did not show it" in told
    assert "did not show it" not in text(report)


# JSON.


def test_schema_is_a_schema() -> None:
    """What is published as a schema is none."""
    Draft202012Validator.check_schema(VALIDATOR.schema)


def test_json_is_as_its_schema_says(report: CheckReport) -> None:
    """Whoever reads reports by the schema fails at one."""
    for each in (report, sound()):
        VALIDATOR.validate(json.loads(json_text(check_json(each))))


def test_schema_leaves_nothing_open(report: CheckReport) -> None:
    """A field is added to the format, and its version stays."""

    def objects(value: Any) -> Any:  # noqa: ANN401 # JSON
        if isinstance(value, dict):
            yield from [value] if "properties" in value else []
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from objects(each)

    found = list(objects(VALIDATOR.schema))
    assert len(found) > 8
    for each in found:
        assert each["additionalProperties"] is False
        assert set(each["properties"]) - {"events_late"} == set(each["required"])
    value = json.loads(json_text(check_json(report)))
    value["caches"][0]["failures"][0]["more"] = 1
    assert not VALIDATOR.is_valid(value)


def test_json_has_what_the_text_has(report: CheckReport) -> None:
    """A machine is told less than a person."""
    value = json.loads(json_text(check_json(report)))
    assert value["format"] == FORMAT == "kvcanon-check/2"
    assert (value["verdict"], value["seed"], value["against"]) == ("broken", 7, "reference")
    cache = value["caches"][0]
    counts = {"held": len(LAWS) - 3, "broken": 1, "not kept": 0, "known": 1, "not exercised": 1}
    assert cache["counts"] == counts
    assert [law["id"] for law in cache["laws"]] == list(LAWS)
    tree = cache["laws"][0]
    assert (tree["times"], tree["stages"]) == (9, {"vectors": 2, "walker": 7})
    assert tree["premise"] == LAWS["TREE-1"].premise.words
    assert {"name": "insert", "served": 9, "refused": 1} in cache["operations"]
    (failure,) = cache["failures"]
    assert failure["broken"] == ["LOCK-8"]
    assert failure["case"]["actions"] == [["serve", 0, 0, 0]]
    assert failure["calls"][-1]["code"] == "cache.unlock(receipt_1)"
    assert failure["script"].startswith('"""LOCK-8')


# JUnit.


def junit(report: CheckReport) -> ET.Element:
    """The report as a CI server reads it."""
    return ET.fromstring(check_junit(report))  # noqa: S314  # We have just written it.


def test_junit_has_a_test_for_each_law_and_the_rest(report: CheckReport) -> None:
    """A CI server shows other tests from run to run, and no history of any."""
    for each in (report, sound()):
        for suite, cache in zip(junit(each), each.caches, strict=True):
            names = [case.get("name") for case in suite.iter("testcase")]
            expected = [f"{law.law_id} {law.name}" for law in LAWS.values()]
            agreement = ["agreement with reference"] if each is report else []
            assert names == [*expected, *agreement, "no crash", "essentials came up"]
            assert {case.get("classname") for case in suite.iter("testcase")} == {cache.name}


def test_junit_tells_broken_from_skipped(report: CheckReport) -> None:
    """A law that was not exercised is green, or one that is broken is."""
    forgetful, wordy, crashing = junit(report)
    case = {each.get("name", "").split()[0]: each for each in forgetful.iter("testcase")}
    failure = case["LOCK-8"].find("failure")
    assert failure is not None
    assert failure.get("message") == "receipt 1 is still open after its release"
    assert "judged(" in (failure.text or "")
    skipped = {name: each.find("skipped") for name, each in case.items()}
    told = {name: each.get("message") for name, each in skipped.items() if each is not None}
    assert told == {
        "DATA-1": "not exercised: not offered: the cache has no bytes",
        "EVICT-3": f"known to be broken: {KNOWN.reason} ({KNOWN.link})",
    }
    held = case["TREE-1"].find("properties/property[@name='exercised']")
    assert held is not None
    assert held.get("value") == "9"
    assert wordy.find("testcase[@name='agreement with reference']/failure") is not None
    assert crashing.find("testcase[@name='no crash']/error") is not None


def test_junit_counts_what_it_has(report: CheckReport) -> None:
    """A CI server sums up other numbers than there are tests."""
    root = junit(report)
    assert root.get("tests") == str(len(list(root.iter("testcase"))))
    counts = [(each.get("failures"), each.get("errors"), each.get("skipped")) for each in root]
    assert counts == [("1", "0", "2"), ("1", "0", "0"), ("0", "1", "0")]
    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("2", "1", "2")


def test_junit_holds_what_no_xml_can(report: CheckReport) -> None:
    """A cache that says a control character makes a report that no CI server reads."""
    failure = report.caches[2].failures[0].failure
    finding = evolve(failure.finding, text="a \x00 b", words="\x1b[0m")
    result = result_of("reported:Crashing", evolve(failure, finding=finding))
    error = junit(report_of(check_of(result))).find(".//error")
    assert error is not None
    assert error.get("message") == "a \ufffd b"


# The page.


class Page(HTMLParser):
    """What is on the page, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element, which must be the last that was opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is said."""
        self.said.append(data)


def page(report: CheckReport) -> Page:
    """The page, read."""
    read = Page()
    read.feed(check_html(report))
    read.close()
    assert not read.open
    return read


def test_page_needs_nothing_but_itself(report: CheckReport) -> None:
    """A page that somebody sends around looks for files that are not there."""
    html = check_html(report)
    assert not EXTERNAL.search(html)
    assert {tag for tag, _ in page(report).seen}.isdisjoint({"script", "link", "img", "iframe"})


def test_page_says_what_the_text_says(report: CheckReport) -> None:
    """The page leaves out a failure, its calls, its script or a law."""
    said = "".join(page(report).said)
    for cache in report.caches:
        for retold in cache.failures:
            assert retold.failure.finding.words.rstrip() in said
            assert retold.script in said
            assert all(line.code in said for line in retold.lines)
    assert "A law is broken" in said
    assert "No law is broken" in "".join(page(sound()).said)
    assert f"All {len(LAWS)} laws" in said


def test_page_has_how_often_each_law_was_exercised(report: CheckReport) -> None:
    """A law that held once looks like one that held a million times."""
    html = check_html(report)
    for heading in ("Exercised", "Vectors", "Walker"):
        assert f'<th scope="col" class="number">{heading}</th>' in html
    row = re.search(r"<tr><th scope=\"row\">TREE-1</th>.*?</tr>", html)
    assert row is not None
    assert re.findall(r'<td class="number">(\d+)</td>', row[0]) == ["9", "2", "7"]


def test_page_shows_markup_as_text(report: CheckReport) -> None:
    """What a cache says becomes a part of the page."""
    html = check_html(report)
    assert "<nothing>" not in html
    assert "&lt;nothing&gt; &amp;" in html


def test_page_can_be_read_aloud_and_by_keyboard(report: CheckReport) -> None:
    """Headings leave a level out, a table has no headers, or a wide box cannot be scrolled."""
    seen = page(report).seen
    levels = [int(tag[1]) for tag, _ in seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert ("html", {"lang": "en"}) in seen
    for tag, attributes in seen:
        if tag == "th":
            assert attributes["scope"] in {"col", "row", "colgroup"}
        if tag == "pre" or attributes.get("class") == "scroll":
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    targets = {attributes["id"] for _, attributes in seen if "id" in attributes}
    links = {attributes["href"] for tag, attributes in seen if tag == "a"}
    assert links == {f"#{each}" for each in targets}


def test_page_is_made_for_the_dark_for_phones_and_for_all_to_see(report: CheckReport) -> None:
    """The page is white at night, or its colours are too faint to read."""
    html = check_html(report)
    assert "prefers-color-scheme: dark" in html
    assert "width=device-width" in html
    light, dark = (dict(re.findall(r"--(\w+): (#\w+);", part)) for part in _schemes(html))
    for colours in (light, dark):
        for ink in ("ink", "soft", "good", "bad", "doubt"):
            assert contrast(colours[ink], colours["paper"]) >= 4.5
        assert contrast(colours["ink"], colours["panel"]) >= 4.5
        assert contrast(colours["bad"], colours["mark"]) >= 4.5


def _schemes(html: str) -> tuple[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    return light, dark


def contrast(one: str, other: str) -> float:
    """The ratio by which WCAG says whether text can be read."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# Words.


@pytest.mark.parametrize(
    "answer",
    [
        Slots(full=None),  # type: ignore[arg-type]
        Evicted(freed=3),  # type: ignore[arg-type]
        Settled(transfers=7),  # type: ignore[arg-type]
        "text\nof two lines",
        ("no", "events"),
    ],
)
def test_nonsense_has_words(answer: object) -> None:
    """The report of a cache that answers nonsense ends in a traceback."""
    assert "\n" not in answer_in_words(answer)


def test_answers_in_words() -> None:
    """A list of calls says something else than what was answered."""
    assert answer_in_words(Evicted(Counts(full=2, mamba=1))) == "freed 2 full, 1 mamba"
    assert answer_in_words(Evicted(Counts())) == "freed nothing"
    assert answer_in_words(None) == "done"


def test_nonsense_is_told_to_its_end() -> None:
    """A cache whose slots are none ends the report, not the case."""
    failure = failure_of("reported:Nonsense")
    assert failure.finding.grounds is Grounds.CRASH
    lines = lines_of(retell(failure, adapter_as("reported:Nonsense"), judges_of(failure, ())).calls)
    answers = [line.answer for line in lines]
    assert any(each == "no slots" or "raised" in each for each in answers)
