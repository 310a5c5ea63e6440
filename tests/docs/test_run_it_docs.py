"""The page for a newcomer: its cache has the fault that it names, and none once it is mended."""

from __future__ import annotations

import re

import pytest

from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.walker import draw_case
from kvcanon.conformance.protocol.adapter import Adapter
from paths import DOCS

PAGE = DOCS / "run-it-on-your-cache.md"
WRONG, RIGHT = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CASES = 40


def laws_broken(source: str) -> set[str]:
    """The names of the laws that the cache of a module breaks, and of what it raises."""
    module: dict[str, object] = {}
    exec(source, module)  # noqa: S102 # Our own page.
    adapter = module["ADAPTER"]
    assert isinstance(adapter, Adapter)
    found = [each for n in range(CASES) for each in play(draw_case(n, adapter.offer), [adapter])[0]]
    return {each.name for each in found}


@pytest.mark.parametrize("mended", [False, True])
def test_the_cache_of_the_page_is_as_it_says(mended: bool) -> None:
    """The cache of the page breaks ALLOC-1, and nothing once it is mended."""
    begin = WRONG.index("        for page, slot in enumerate(slots.full, start_pages):")
    end = WRONG.index("    def find")
    replaced = WRONG[begin:end].strip("\n").splitlines()
    assert len(replaced) == 4
    source = f"{WRONG[:begin]}{RIGHT}\n{WRONG[end:]}" if mended else WRONG
    assert laws_broken(source) == (set() if mended else {"ALLOC-1"})
