"""The table of the laws of stores in docs/stores.md."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.stores import STORE_LAWS


def store_law_table() -> Iterator[str]:
    """A row for each law: its id, its class, its first sentence, and what it needs."""
    yield "| law | class | what it says | judged of stores that are or have |"
    yield "|---|---|---|---|"
    for law in STORE_LAWS.values():
        sentence = " ".join(law.statement.partition("\n\n")[0].split())
        needs = ", ".join(sorted(need.value for need in law.needs)) or "any store"
        yield f"| {law.law_id} | {law.law_class.value} | {sentence} | {needs} |"
