"""docs/optimized.md: its snippets run, and its tables are complete."""

from __future__ import annotations

import re

import pytest

from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from paths import DOCS

PAGE = (DOCS / "optimized.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(
    r"^```python\n(.+?)^```$(?:\n\n^```\n(.+?)^```$)?", PAGE, re.MULTILINE | re.DOTALL
)


def test_snippets_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The snippets, pasted in order, print what the page shows."""
    names: dict[str, object] = {"__name__": "snippet"}
    for snippet, output in SNIPPETS:
        exec(compile(snippet, "optimized.md", "exec"), names)  # noqa: S102 # The page is ours.
        assert capsys.readouterr().out == output
    cache = names["cache"]
    assert isinstance(cache, PrefixCache)
    cache.tree.check()
    assert len([output for _, output in SNIPPETS if output]) == 11


def test_tables_have_every_call_and_every_refusal() -> None:
    """The tables list every public call and every refusal."""
    calls = PAGE[PAGE.index("## All calls") :]
    cache = PrefixCache(CacheConfig())
    public = {
        name for name in dir(cache) if not name.startswith("_") and callable(getattr(cache, name))
    }
    assert {name for name in public if f"`{name}(" not in calls} == set()
    refusals = {each.__name__ for each in CacheError.__subclasses__()}
    assert {name for name in refusals if f"| `{name}` |" not in PAGE} == set()
