"""The page on the guard: its examples run, and its table names every option."""

from __future__ import annotations

import inspect
import re

import pytest

from kvcanon.conformance import GuardedCache, guard
from paths import DOCS

PAGE = (DOCS / "guard.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(snippet: str) -> dict[str, object]:
    """Return what a snippet defines."""
    names: dict[str, object] = {}
    exec(compile(snippet, "guard.md", "exec"), names)  # noqa: S102  # The page is ours.
    return names


def test_first_example_judges_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The example prints what it found, and that all three calls were judged."""
    run(SNIPPETS[0])
    assert capsys.readouterr().out == "3 pages found; 3 calls judged\n"


def test_example_for_an_engine_logs_violations(caplog: pytest.LogCaptureFixture) -> None:
    """The second example makes a guard that logs."""
    names = run(SNIPPETS[1])
    assert isinstance(names["cache"], GuardedCache)
    log = names["log"]
    assert callable(log)
    log("REC-1 window_only_refresh: said so", None)
    assert "said so" in caplog.text


def test_each_option_is_on_the_page() -> None:
    """The table has the parameters of `guard`, but `new`, which only a judge needs."""
    options = inspect.signature(guard).parameters.keys() - {"cache", "new"}
    assert not [name for name in options if f"`{name}`" not in PAGE]
