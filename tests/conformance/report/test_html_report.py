"""The report as an HTML page."""

from __future__ import annotations

import re
from itertools import pairwise

from attrs import evolve

from kvcanon.conformance.judge import sentence
from kvcanon.conformance.report.html_page import check_html
from kvcanon.conformance.report.report import CheckReport, report_of
from kvcanon.spec.law import LAWS
from reported import SERVE, check_of, failure_in, result_of
from sample_reports import page, sound

EXTERNAL = re.compile(r"""\ssrc=|<(?!a )[^>]*href=|@import|url\(""")


def test_page_needs_nothing_but_itself(report: CheckReport) -> None:
    """The page loads no other file, and has no script; it links pages of laws alone."""
    html = check_html(report)
    assert not EXTERNAL.search(html)
    links = {attributes["href"] for tag, attributes in page(report).seen if tag == "a"}
    pages = {each for each in links if each is not None and not each.startswith("#")}
    assert pages == {law.address for law in LAWS.values()}
    assert {tag for tag, _ in page(report).seen}.isdisjoint({"script", "link", "img", "iframe"})


def test_page_says_what_the_text_says(report: CheckReport) -> None:
    """The page has every failure, its calls, its script, and all laws."""
    said = "".join(page(report).said)
    for cache in report.caches:
        for finding in cache.failures:
            assert finding.words.rstrip() in said
            assert finding.script in said
            assert all(line.code in said for line in finding.calls)
    assert f"LOCK-8 is broken. {sentence(LAWS['LOCK-8'])}" in said
    assert said.index("What breaks in") < said.index("What was checked")
    of_law = re.search(
        r'<p class="soft">[^<]+<a href="([^"]+)">Its page\.</a></p>', check_html(report)
    )
    assert of_law is not None
    assert of_law[1] == LAWS["LOCK-8"].address
    assert "No law is broken" in "".join(page(sound()).said)
    assert f"All {len(LAWS)} laws" in said


def test_page_has_how_often_each_law_was_exercised(report: CheckReport) -> None:
    """The page has how often each law was exercised in each stage."""
    html = check_html(report)
    for heading in ("Exercised", "Vectors", "Walker"):
        assert f'<th scope="col" class="number">{heading}</th>' in html
    row = re.search(r"<tr><th scope=\"row\"><a [^>]*>TREE-1</a></th>.*?</tr>", html)
    assert row is not None
    assert re.findall(r'<td class="number">(\d+)</td>', row[0]) == ["9", "2", "7"]


def test_page_shows_markup_as_text(report: CheckReport) -> None:
    """The page escapes a cache's words."""
    html = check_html(report)
    assert "<nothing>" not in html
    assert "&lt;nothing&gt; &amp;" in html


def test_page_can_be_read_aloud_and_by_keyboard(report: CheckReport) -> None:
    """Headings skip no level, table headers have scopes, and scrolling boxes take the focus."""
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
    inside = {each for each in links if each is not None and each.startswith("#")}
    assert inside == {f"#{each}" for each in targets}


def test_page_is_made_for_the_dark_for_phones_and_for_all_to_see(report: CheckReport) -> None:
    """The page has a dark scheme and a viewport, and its colours have enough contrast."""
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
    """The contrast ratio of two colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_headline_stays_short_however_much_is_broken() -> None:
    """Of many broken laws the first is the headline, a few are named, and the rest is counted."""
    failure = failure_in("reported:Forgetful", SERVE)
    others = [law_id for law_id in LAWS if law_id != failure.name][:40]
    folded = tuple(evolve(failure, name=each, broken=(each,)) for each in others)
    html = check_html(report_of(check_of(result_of("reported:Forgetful", *[failure, *folded]))))
    said = re.findall(r"<p>(Also broken: [^<]+)</p>", html.partition("<main>")[0])
    assert len(said) == 1
    assert said[0].endswith(" and 34 more.")
