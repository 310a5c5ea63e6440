"""The tables of docs/limits.md on what quick checks visit, as Markdown."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from kvcanon.lab.reach.branches import Branch, find_branches
from kvcanon.lab.reach.count import STAGES
from kvcanon.lab.reach.features import IS, Feature, FeatureKind
from kvcanon.lab.reach.measure import LEAST, Measured
from kvcanon.spec.refusals import cells

WHYS = Path(__file__).with_name("seldom.toml")
"""Why some branches are visited in few cases or in none."""


def reach_tables(found: Measured) -> Iterator[str]:
    """All tables, as lines."""
    yield from _summary(found)
    yield ""
    yield from _settings(found)
    yield ""
    yield from _refusals(found)
    yield ""
    yield from _seldom(found)


@cache
def whys() -> Mapping[str, str]:
    """Why a branch is seldom visited, by its key."""
    entries = tomllib.loads(WHYS.read_text("utf-8"))["seldom"]
    return {each["branch"]: each["why"] for each in entries}


def key_of(branch: Branch) -> str:
    """The name of a branch in `WHYS`, which has no line number."""
    return f"{branch.path} {branch.function}: {branch.text} is {branch.arm}"


def _summary(found: Measured) -> Iterator[str]:
    seeds = list(found.by_seed)
    branches = [Feature(FeatureKind.BRANCH, str(each)) for each in find_branches()]
    rows = [
        Feature(FeatureKind.REFUSAL, f"{operation}: {error}") for operation, error, _ in cells()
    ]
    yield _row("", *(f"seed {seed}" for seed in seeds))
    yield _row("---", *("---:" for _ in seeds))
    for stage in STAGES:
        yield _row(f"cases of {stage}", *(f"{found.cases(seed, stage):,}" for seed in seeds))
    for least, words in ((1, ""), (LEAST, f" in {LEAST} cases or more")):
        for what, features in (
            ("branches of `reference/` visited", branches),
            ("rows of [refusals.md](refusals.md) drawn", rows),
        ):
            shares = [sum(found.count(seed, each) >= least for each in features) for seed in seeds]
            yield _row(f"{what}{words}", *(f"{each:,} of {len(features):,}" for each in shares))
    laws = found.features(FeatureKind.LAW)
    for least, words in ((1, ""), (LEAST, f" in {LEAST} cases or more")):
        counts = [sum(found.count(seed, each) >= least for each in laws) for seed in seeds]
        yield _row(f"laws exercised{words}", *(str(each) for each in counts))
    pairs = [len(found.pairs(seed)) for seed in seeds]
    yield _row("pairs of settings, answers and refusals", *(f"{each:,}" for each in pairs))


def _settings(found: Measured) -> Iterator[str]:
    """The values of each setting, with the cases of the seed that has the fewest."""
    yield "| setting | values, each with its cases |"
    yield "|---|---|"
    values: dict[str, list[str]] = {}
    for feature in found.features(FeatureKind.SETTING):
        name, _, value = feature.name.partition(IS)
        values.setdefault(name, []).append(f"{value} ({found.fewest(feature):,})")
    for name, some in values.items():
        yield _row(f"`{name}`", ", ".join(some))


def _refusals(found: Measured) -> Iterator[str]:
    """The rows of the table of refusals that are seldom drawn, and the reasons that are."""
    seldom = [each for each in found.features(FeatureKind.REASON) if found.fewest(each) < LEAST]
    if not seldom:
        yield f"Each reason of a refusal that was drawn, was drawn in {LEAST} cases or more."
        return
    yield f"| refusal, for a reason drawn in fewer than {LEAST} cases | cases |"
    yield "|---|---:|"
    for feature in seldom:
        yield _row(_cell(feature.name), str(found.fewest(feature)))


def _seldom(found: Measured) -> Iterator[str]:
    yield f"| branch visited in fewer than {LEAST} cases | cases | why |"
    yield "|---|---:|---|"
    for branch, count in found.seldom():
        yield _row(_cell(str(branch)), str(count), whys().get(key_of(branch), ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
