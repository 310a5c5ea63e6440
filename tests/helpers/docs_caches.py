"""The caches that the docs show, as a reader copies them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvcanon.conformance import Adapter
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from paths import DOCS


def block(page: str, has: str) -> dict[str, Any]:
    """What the first Python block of a page defines that has these words."""
    text = (DOCS / page).read_text(encoding="utf-8")
    source = next(
        each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if has in each
    )
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, page, "exec"), names)  # noqa: S102  # It is our own page.
    return names


NO_REUSE: Adapter = block("adapters.md", "class NoReuse")["ADAPTER"]
LEAKING: Adapter = block("run-it-on-your-cache.md", "class MyCache")["ADAPTER"]
FORGETS_WINDOWS: Callable[[CacheConfig], ReferenceCache] = block("check.md", "class MyCache")[
    "MyCache"
]


def not_one(_: CacheConfig) -> ReferenceCache:
    """Offer no configuration. Raises: BadArgument."""
    raise BadArgument("config", "is never offered")
