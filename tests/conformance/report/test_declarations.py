"""What a report says that an author can declare, and the verdict where nothing else is wrong."""

from __future__ import annotations

import pytest

from few_cases import plan_of
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.conformance.report.json_report import check_json
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.lab.variants.variant import varied
from kvcanon.spec.law import LawClass
from nights import at_night
from sample_reports import text


def reported(name: str, *only: str) -> CheckReport:
    """The report of a cache by some laws."""
    return report_of(check(plan_of(name, only=["walker", *only]), apart=False))


@pytest.mark.parametrize(
    ("name", "law_id", "field"),
    [
        ("evictions_in_batches", "REC-3", "eviction"),
        ("recent_at_release", "REC-7", "recency"),
        *at_night(
            ("latest_first", "REC-3", "eviction"),
            ("recent_at_lock", "REC-7", "recency"),
            ("backups_at_the_first_hit", "RES-10", "backups"),
        ),
    ],
)
def test_a_design_of_its_own_departs_and_is_told_what_to_declare(
    name: str, law_id: str, field: str
) -> None:
    """A sound cache with another policy breaks laws of policy alone; declared, it breaks none.

    The report names the field that declares it.
    """
    report = reported(f"reported:{name}")
    assert report.verdict is CheckVerdict.DEPARTS
    assert report.classes_broken == (LawClass.POLICY,)
    first = report.caches[0].failures[0]
    assert first.name == law_id
    declared = f"Profile({field}=Choosing.OWN)"
    assert next(iter(first.permitted_by)) == declared
    assert f"{declared}: {first.permitted_by[declared]}" in " ".join(text(report).split())
    assert not {"Profile(backups=Choosing.OWN)", "Profile(loads=Choosing.OWN)"} & {
        *first.permitted_by
    } or (first.case.config.host_tier)
    verdict = " ".join(text(report).split()).rpartition("DEPARTS (policy): ")[2]
    assert law_id in verdict
    assert declared in verdict.partition("If the cache chooses so, declare ")[2]
    for seed in range(24):
        found, _ = Trial(varied(name, [name])).play(draw_case(seed, Offer()))
        assert found is None, found.words


def test_a_fault_is_broken_and_names_its_class() -> None:
    """A fault of another class is no departure, though a law of policy may be broken, too."""
    report = reported("faulty:Leaky")
    assert report.verdict is CheckVerdict.BROKEN
    assert report.classes_broken[0] is LawClass.SOUND
    assert text(report).splitlines()[-1].startswith("BROKEN (sound")
    value = check_json(report)
    assert value["caches"][0]["classes_broken"][0] == "sound"  # type: ignore[index]


def test_a_case_names_the_offer_that_leaves_it_out() -> None:
    """A fault that needs a window names the offer of a cache that has none."""
    report = reported("docs_caches:FORGETS_WINDOWS")
    first = report.caches[0].failures[0]
    assert first.case.config.window_tokens is not None
    assert "Offer(windows_tokens=(None,))" in first.left_out_by
    assert "If the cache has nothing of the kind, declare Offer(windows_tokens=(None,))" in text(
        report
    )
