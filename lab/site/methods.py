"""The table of methods in docs/adapters.md, made from what each law needs to see.

How many planted faults are found is measured by `kvcanon.lab.mutants.by_methods`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.lab.mutants.by_methods import IN_TURN, measured
from kvcanon.spec.law import LAWS, Law, Need


def method_table() -> Iterator[str]:
    """How many laws can be checked of a cache that has more and more methods, and what they find.

    What is found with snapshots is measured by the kill matrix, in more cases.
    """
    found = list(measured().values())
    yield "| a cache by prefixes that has | laws that can be checked | planted faults found |"
    yield "|---|---|---|"
    there: set[str] = set()
    for step, more in enumerate([(), *IN_TURN]):
        there |= {each.value for each in more}
        names = ", ".join(f"`{each.value}`" for each in more)
        row = f"and {names}" if more else "the six operations alone"
        seen = sum(at is not None and at <= step for at in found)
        yield f"| {row} | {_count(there)} | {_share(seen, len(found))} |"
    without_store = sum(Need.STORE not in law.needs for law in LAWS.values())
    hidden = f"{without_store}, those of what it hides left out"
    yield f"| and `snapshot` | {hidden} | all, in a longer check ([kill matrix](mutants.md)) |"


def _share(seen: int, of_all: int) -> str:
    """A number of faults, and what part of all that is."""
    return f"{seen} of {of_all} ({100 * seen // of_all} %)"


def _count(there: Collection[str]) -> int:
    return sum(_is_shown(law, there) for law in LAWS.values())


def _is_shown(law: Law, there: Collection[str]) -> bool:
    """Whether a law shows without snapshots, to who may call these methods."""
    groups = law.from_outside
    return groups is not None and all(
        any(method.__name__ in there for method in group) for group in groups
    )
