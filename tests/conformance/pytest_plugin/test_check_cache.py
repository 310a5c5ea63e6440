"""`check_cache`, and the page in the docs that shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.conformance.pytest_plugin.checks import check_cache
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.reference import ReferenceCache, host_insert
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from paths import DOCS, HELPERS
from small_effort import SMALL


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play few cases."""
    monkeypatch.setitem(EFFORTS, "quick", SMALL)


def silent(patch: Overrides) -> None:
    """Emits no events for fetched pages."""
    patch.setattr(host_insert, "emit_stored", lambda *_: None)


def test_check_cache_raises_with_law_and_case() -> None:
    """`check_cache` names law and sentence in its first line, and gives the case."""
    with pytest.raises(AssertionError) as broken:
        check_cache(overriding(silent))
    words = str(broken.value)
    assert re.match(r"[A-Z]+-\d+ \w+: \S.*\n", words)
    assert "EVENT-10 media_of_operations: " in words
    assert 'the case: {"config": {' in words


def test_check_cache_takes_a_closure_and_forgets_it() -> None:
    """A second factory is judged anew, though both have the same name."""
    made: list[CacheConfig] = []

    def make(config: CacheConfig) -> ReferenceCache:
        made.append(config)
        return ReferenceCache(config)

    check_cache(make)
    assert len(made) > SMALL.walker_cases  # type: ignore[operator]
    with pytest.raises(AssertionError, match="EVENT-10"):
        check_cache(overriding(silent))
    with pytest.raises(UsageError, match="no cache 'the cache'"):
        load_adapter("the cache")


@pytest.mark.nightly
def test_check_cache_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_cache` takes a cache to agree with; a local name hides a built-in one meanwhile."""
    monkeypatch.syspath_prepend(str(HELPERS))
    wordy = load_adapter("reported:Wordy").make
    reference = Adapter("reference", ReferenceCache)
    check_cache(Adapter("it", ReferenceCache), against=reference)
    with pytest.raises(AssertionError, match="no agreement"):
        check_cache(Adapter("it", wordy), against=reference)
    with pytest.raises(UsageError, match="two caches are named 'reference'"):
        check_cache(reference, against=reference)
    assert load_adapter("reference") is REFERENCE


def test_check_cache_requires_the_essentials() -> None:
    """A cache that refuses every insert does not pass."""

    class Idle(ReferenceCache):
        def insert(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise BadArgument("key", "is not liked")

    with pytest.raises(AssertionError, match="NOT EXERCISED: insert was refused each of"):
        check_cache(Idle)  # type: ignore[arg-type]


def test_known_laws_are_excused() -> None:
    """A law that is given as known fails nothing."""
    with pytest.raises(AssertionError) as broken:
        check_cache(overriding(silent), known=["EVENT-10"])
    assert not str(broken.value).startswith("EVENT-10")


def test_page_shows_code_that_runs(tmp_path: Path) -> None:
    """The code on the page in the docs runs."""
    page = (DOCS / "pytest.md").read_text(encoding="utf-8")
    one_line, by_hand = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    theirs = tmp_path / "my_package"
    theirs.mkdir()
    (theirs / "my_module.py").write_text(
        "from kvcanon.reference import ReferenceCache as make_cache", encoding="utf-8"
    )
    small = by_hand.replace("max_examples=500", "max_examples=5")
    (tmp_path / "test_theirs.py").write_text(f"{one_line}\n{small}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "small_effort", "test_theirs.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(HELPERS), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
