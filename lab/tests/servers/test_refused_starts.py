"""Starts that must be refused: each mistake reaches the server, and one that starts is found."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.release import release_in, write_refusing
from kvcanon.lab.servers import refused_starts
from kvcanon.lab.servers.refused_starts import CORE, HOW_BACK, NOT_ON_A_CPU, STARTS, run_refusals
from paths import DOCS


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release that needs no model."""
    made = SimpleNamespace(save_pretrained=lambda _: None)
    monkeypatch.setattr(refused_starts, "make_model", lambda *_: made)
    return release_in(tmp_path, monkeypatch)


def tried(release: Path, folder: Path, sentence: str, only: str) -> tuple[list[str], str]:
    """The starts that were not refused, and what was printed."""
    write_refusing(release, sentence)
    printed: list[str] = []
    return run_refusals(folder, 0, only, printed.append), "\n".join(printed)


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        ("session", f"cannot serve with {{own[0]}}: {HOW_BACK}"),
        ("misspelt", f"{CORE}='{{name}}': not 'kvcanon'"),
        ("newer", f"made for sglang==0.5.23, this is {{releases[0]}}: {HOW_BACK}"),
        ("no-native", "no native core ({hidden}): pip install --force"),
    ],
)
def test_each_kind_of_mistake_reaches_the_server(
    release: Path, tmp_path: Path, only: str, sentence: str
) -> None:
    """Flags, variables, a claimed release and a hidden module; another sentence is not enough."""
    wrong, printed = tried(release, tmp_path, sentence, only)
    assert wrong == [], printed
    assert ("no native core (None)" in printed) is (only == "no-native")
    (name,) = (start.name for start in STARTS if only in start.name)
    wrong, printed = tried(release, tmp_path / "again", "something else", only)
    assert wrong == [name]


def test_a_server_that_starts_is_not_refused(release: Path, tmp_path: Path) -> None:
    """It is named, and stopped."""
    wrong, printed = tried(release, tmp_path, "", "session")
    assert wrong == ["enable-session-radix-cache"]
    assert "IT STARTED" in printed


def test_every_flag_that_the_page_refuses_is_tried() -> None:
    """A flag in docs/sglang.md is that of a start, or needs a model that no CPU serves."""
    page = (DOCS / "sglang.md").read_text(encoding="utf-8")
    offered = page[page.index("## What it offers") : page.index("### Hints")]
    refused = offered[offered.index("Refused with") :]
    named = set(re.findall(r"`(--[a-z0-9-]+)", refused))
    named_starts = {flag for start in STARTS for flag in start.flags}
    assert named <= named_starts | set(NOT_ON_A_CPU)
