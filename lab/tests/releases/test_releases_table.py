"""The table of regressions: past bugs are looked for in the release before a fix and after it.

No peer is installed: an environment is a folder with an interpreter that prints what a test sets.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from attrs import asdict, evolve

from command_line import read, read_json, usage_error
from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.lab.releases import hunt as hunt_module
from kvcanon.lab.releases.catalogue import RELEASES, release_named
from kvcanon.lab.releases.environment import MANIFEST, Peer, peers_in
from kvcanon.lab.releases.hunt import HERE, Hunt, Hunted, hunt, hunt_from_json, hunt_to_json
from kvcanon.lab.releases.past_bugs import PAST_BUGS, Drawn, PastBug
from kvcanon.lab.releases.table import HuntEffort, HuntOutcome, TableCell, cell_of
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import WritePolicy
from paths import DOCS

BEFORE, AFTER = "sglang==0.5.13", "sglang==0.5.14"
DRAWN = Drawn(windows_tokens=(1, 2), mamba=(False,), write_policies=(WritePolicy.NONE,))
ROW = PastBug("bug#1", "slots are lost", "faulty:Leaky", "ALLOC-3", BEFORE, AFTER, DRAWN)
HUNT = Hunt("faulty:Leaky", "ALLOC-3", "", DRAWN, seed=0, cases=40, seconds=60)
EFFORT = HuntEffort(seed=0, cases=40, seconds=60)
CALLS = ("key_1 = Key(((0,),))", "cache.match(key_1) # 1: nothing")
FOUND = Hunted(True, 9, 3, 70, 0.5, text="two are missing", calls=CALLS)
NOT_FOUND = Hunted(False, 99, 40, 900, 2.5)


def environment(folder: Path, release: str, says: Hunted | str, code: str = HERE) -> Peer:
    """Return an environment whose interpreter prints a hunt, or fails with this text."""
    peer = Peer(release_named(release), folder / release_named(release).folder)
    peer.python.parent.mkdir(parents=True)
    (peer.folder / MANIFEST).touch()
    fails = isinstance(says, str)
    said = says if isinstance(says, str) else json.dumps({"kvcanon": code, "hunted": asdict(says)})
    (peer.folder / "said").write_text(f"{said}\n", encoding="utf-8")
    script = f"#!/bin/sh\necho imported\ncat {peer.folder / 'said'} >&{2 if fails else 1}\n"
    peer.python.write_text(f"{script}exit {int(fails)}\n", encoding="utf-8")
    peer.python.chmod(0o755)
    return peer


@pytest.fixture(name="one_row", autouse=True)
def _one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the table have one row."""
    monkeypatch.setattr(import_module("kvcanon.lab.cli.peers"), "PAST_BUGS", (ROW,))


@pytest.mark.parametrize("row", PAST_BUGS, ids=lambda row: f"{row.bug} {row.before}")
def test_rows_can_be_looked_for(row: PastBug) -> None:
    """Every row names a law, an adapter and two releases that exist."""
    assert row.law_id in LAWS
    assert set(row.releases) <= RELEASES.keys()
    order = list(RELEASES)
    assert order.index(row.before) < order.index(row.after)


def test_all_founding_bugs_have_a_row() -> None:
    """The five reports that this project began with are looked for."""
    page = (DOCS / "founding-reports.md").read_text(encoding="utf-8")
    founding = set(re.findall(r"^## (sgl#\d+):", page, re.MULTILINE))
    assert len(founding) == 5
    assert founding <= {row.bug for row in PAST_BUGS}


def test_a_narrower_offer_is_otherwise_the_same() -> None:
    """A row narrows the fields that it names, and keeps the rest of the offer."""
    offer = DRAWN.of(Offer(page_sizes=(4,)))
    assert offer == Offer(
        page_sizes=(4,),
        windows_tokens=(1, 2),
        mamba=(False,),
        write_policies=(WritePolicy.NONE,),
    )
    assert Drawn(config=CacheConfig()).of(offer) == offer


def test_what_to_look_for_is_read_as_it_was_written() -> None:
    """A hunt is equal after a round trip through JSON."""
    assert hunt_from_json(hunt_to_json(HUNT)) == HUNT
    for drawn in (Drawn(), *(row.drawn for row in PAST_BUGS)):
        other = evolve(HUNT, drawn=drawn)
        assert hunt_from_json(hunt_to_json(other)) == other


def test_a_hunt_finds_what_breaks_the_law_and_shortens_it() -> None:
    """The fault is found, and its case is reduced."""
    came = hunt(HUNT)
    assert came.found
    assert "slots are said to be freed" in came.text
    assert all("cache." in call or " = Key(" in call for call in came.calls)
    assert came.calls[-1].startswith("cache.free(")
    config = case_from_json(came.case).config
    assert (config.mamba, config.write_policy) == (False, WritePolicy.NONE)
    assert 'laws=["ALLOC-3"]' in came.script


def test_a_hunt_for_another_law_finds_nothing() -> None:
    """A fault that breaks another law is not found."""
    came = hunt(evolve(HUNT, law_id="MATCH-1", cases=20))
    assert (came.found, came.cases, came.cut_short) == (False, 20, False)
    assert came.exercised > 0
    assert hunt(evolve(HUNT, law_id="MATCH-1", cases=5, seconds=-1.0)).cut_short


def test_a_hunt_goes_by_the_words_of_the_finding() -> None:
    """Of two faults against a law, only the one with the row's text is found."""
    assert hunt(evolve(HUNT, words="slots are said to be freed")).found
    came = hunt(evolve(HUNT, words="a fault that this cache has not", cases=20))
    assert (came.found, came.cases) == (False, 20)


def test_the_process_there_says_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The child prints its result as JSON, and a usage error as one line."""
    assert hunt_module.main(hunt_to_json(evolve(HUNT, cases=1))) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kvcanon"] == HERE
    assert Hunted(**said["hunted"]).cases == 1
    assert hunt_module.main(hunt_to_json(evolve(HUNT, cache="nobody"))) == 2
    assert capsys.readouterr().err.startswith("kvcanon: no cache 'nobody'")


@pytest.mark.parametrize(
    ("hunted", "outcome", "before", "after"),
    [
        (FOUND, HuntOutcome.FOUND, True, False),
        (NOT_FOUND, HuntOutcome.NOT_FOUND, False, True),
        (evolve(NOT_FOUND, exercised=0), HuntOutcome.NOT_EXERCISED, False, False),
        (None, HuntOutcome.MISSING, True, True),
    ],
)
def test_outcomes(hunted: Hunted | None, outcome: HuntOutcome, before: bool, after: bool) -> None:
    """Each outcome follows from what was found and whether the law was exercised."""
    assert TableCell(ROW, BEFORE, hunted).outcome is outcome
    assert TableCell(ROW, BEFORE, hunted).is_as_expected is before
    assert TableCell(ROW, AFTER, hunted).is_as_expected is after


def test_table_tells_what_was_found_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The table has the outcome for each release, and the calls that show the bug."""
    environment(tmp_path, BEFORE, FOUND)
    environment(tmp_path, AFTER, NOT_FOUND)
    asked = ("lab", "peers", "table", "--into", str(tmp_path), "--cases", "40")
    lines = [" ".join(line.split()) for line in read(capsys, *asked).splitlines()]
    assert "bug#1 sglang==0.5.13 ALLOC-3 found 3 70 0.5" in lines
    assert "bug#1 sglang==0.5.14 ALLOC-3 not found 40 900 2.5" in lines
    assert "bug#1 in sglang==0.5.13: slots are lost" in lines
    assert [line for line in lines if line in CALLS] == list(CALLS)
    told = read_json(capsys, *asked)
    assert told["effort"] == {"seed": 0, "cases": 40, "seconds": 300.0}
    assert [each["outcome"] for each in told["cells"]] == ["found", "not found"]
    assert told["cells"][0]["hunted"]["calls"] == list(CALLS)


def test_table_says_what_is_missing_and_what_is_odd(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The table marks missing environments, and outcomes other than expected."""
    environment(tmp_path, AFTER, evolve(NOT_FOUND, cut_short=True))
    asked = ("lab", "peers", "table", "--into", str(tmp_path))
    told = read(capsys, *asked)
    assert "no environment of sglang==0.5.13: `kvcanon lab peers make sglang==0.5.13` makes" in told
    assert "not found, cut short" in told
    (tmp_path / release_named(AFTER).folder / "said").write_text(
        json.dumps({"kvcanon": HERE, "hunted": asdict(FOUND)}), encoding="utf-8"
    )
    assert "NOT AS EXPECTED: bug#1 in sglang==0.5.14 is found" in read(capsys, *asked, code=1)


def test_table_without_environments_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without any environment the command exits with 2 and one line."""
    assert usage_error(capsys, "lab", "peers", "table", "--into", str(tmp_path)).endswith(
        "has no environment of sglang==0.5.13, sglang==0.5.14; "
        "`kvcanon lab peers make RELEASE` makes one"
    )


def test_environment_of_another_kvcanon_is_refused(tmp_path: Path) -> None:
    """An environment that is linked to another checkout is refused."""
    environment(tmp_path, BEFORE, FOUND, code="/elsewhere/hunting.py")
    with pytest.raises(
        UsageError, match=r"is not this kvcanon; `kvcanon lab peers make sglang==0.5.13`"
    ):
        cell_of(ROW, BEFORE, peers_in(tmp_path), EFFORT)


def test_environment_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    """An environment that fails gives an error of one line."""
    environment(tmp_path, BEFORE, "first\nImportError: no such kernel")
    with pytest.raises(
        UsageError, match=r"ALLOC-3 could not be asked in .*: ImportError: no such kern"
    ):
        cell_of(ROW, BEFORE, peers_in(tmp_path), EFFORT)
