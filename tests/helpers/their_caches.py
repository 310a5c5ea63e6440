"""The worked adapters of the docs, with or without a fault planted in the cache behind them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import load_adapter
from paths import DOCS

EXAMPLES = DOCS / "examples" / "adapters"
BLACK_BOX = JudgeConfig(black_box=True)


def broken_laws(adapter: Adapter, cases: int, until: str | None = None) -> tuple[set[str], Tally]:
    """The laws that are broken in the cases of seeds 0, 1, ..., and what was judged.

    If the law `until` is broken, no more cases are played.
    """
    spoken, total = set[str](), Tally()
    for seed in range(cases):
        found, tallies = play(
            draw_case(seed, adapter.offer, kind=adapter.kind), [adapter], BLACK_BOX
        )
        spoken.update(law_id for each in found for law_id in (*each.broken, each.name))
        total.add(tallies[adapter.name])
        if until in spoken:
            break
    return spoken, total


@contextmanager
def adapter_from(folder: Path, module: str) -> Iterator[Adapter]:
    """Load the adapter of a module and of its neighbors in a folder, and forget both after."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield load_adapter(f"{module}:ADAPTER")
    finally:
        sys.path.remove(str(folder))
        for name in {each.stem for each in folder.glob("*.py")} - before:
            sys.modules.pop(name, None)


@contextmanager
def planted(folder: Path, cache: str, good: str, bad: str) -> Iterator[Adapter]:
    """The adapter of a cache in whose source one text is replaced, in copies in a folder."""
    source = (EXAMPLES / f"{cache}.py").read_text("utf-8")
    assert source.count(good) == 1, good
    (folder / f"{cache}.py").write_text(source.replace(good, bad), "utf-8")
    adapter = (EXAMPLES / f"{cache}_adapter.py").read_text("utf-8")
    (folder / f"{cache}_adapter.py").write_text(adapter, "utf-8")
    with adapter_from(folder, f"{cache}_adapter") as made:
        yield made
