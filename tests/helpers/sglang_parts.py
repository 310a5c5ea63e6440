"""Stand-ins for parts of SGLang's tree, for the mends of its core."""

from __future__ import annotations

from types import SimpleNamespace as Made
from typing import Any


def node(name: int, above: Any, tokens: int, **more: object) -> Any:  # noqa: ANN401 # A stand-in.
    """A node with this many tokens below another; None above makes the root."""
    return Made(id=name, parent=above, key=range(tokens), **more)
