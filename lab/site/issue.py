"""A finding's page with its script in place of the link: what is pasted into an issue tracker."""

from __future__ import annotations

import re
from pathlib import Path

_SCRIPT = re.compile(r"^\[`(?P<file>\w+\.py)`\]\((?P=file)\)$", re.MULTILINE)
"""The link to a script, on a line of its own."""


def with_script(page: Path) -> str:
    """The text of a page. Raises: OSError."""

    def code(link: re.Match[str]) -> str:
        return f"```python\n{(page.parent / link['file']).read_text('utf-8')}```"

    return _SCRIPT.sub(code, page.read_text("utf-8"))
