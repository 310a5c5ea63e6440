"""Coverage: why a law was not exercised, and which methods a cache needs for it.

Caches with snapshots are judged by every law. All others are judged in black-box mode, by the laws
that answers, events and bytes show (`Law.from_outside`).
"""

from __future__ import annotations

from collections.abc import Collection

from kvcanon.spec.law import Law, Need


def why_not_exercised(law: Law, lacks: Collection[str]) -> str:
    """Return why a law was not exercised: the cache lacks a method, or no call met the premise."""
    hidden: list[str] = sorted(need.value for need in law.needs if need.value in lacks)
    if Need.SNAPSHOT.value in hidden:
        hidden = [Need.SNAPSHOT.value] if law.from_outside is None else missing_for(law, lacks)
    if hidden:
        return f"not offered: the cache has no {' and no '.join(hidden)}"
    return f"never came up: {law.premise.words}"


def missing_for(law: Law, lacks: Collection[str]) -> list[str]:
    """Return the methods that a cache lacks for a law in black-box mode, as "a or b"."""
    groups = [[method.__name__ for method in group] for group in law.from_outside or ()]
    return [" or ".join(names) for names in groups if all(name in lacks for name in names)]
