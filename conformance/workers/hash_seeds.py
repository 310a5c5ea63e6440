"""The seed of Python's hashes in this process, as far as it is known.

Sets of strings, and what else goes by `hash` of strings or bytes, are in another order under
another seed. Only a process that was started with a seed repeats what it does.
"""

from __future__ import annotations

import os

VARIABLE = "PYTHONHASHSEED"
"""The variable that Python reads when it starts."""
SEEDS = 1 << 32


def environment(seed: int) -> dict[str, str]:
    """The environment of a process with this seed."""
    return os.environ | {VARIABLE: str(seed % SEEDS)}


def own_seed() -> int | None:
    """The seed that this process was started with; None if Python drew one."""
    said = os.environ.get(VARIABLE, "")
    return int(said) if said.isdecimal() else None


def forget_seed() -> None:
    """Let the seed count as unknown, as in a copy of a process that must stay alone."""
    os.environ.pop(VARIABLE, None)
