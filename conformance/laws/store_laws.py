"""The laws of stores as `kvcanon laws` gives them: as JSON, and by their ids."""

from __future__ import annotations

import inspect

from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.spec.stores.store_law import STORE_LAWS, StoreLaw

STORE_AREA = "STORE"
STORE_TITLE = "STORE: what a store of pages below the host must do"


def store_laws_named(law_id: str | None) -> list[StoreLaw]:
    """The laws of stores that an id or the area names; all of them without a name."""
    if law_id is None or law_id.upper() == STORE_AREA:
        return list(STORE_LAWS.values())
    found = STORE_LAWS.get(law_id.upper())
    return [] if found is None else [found]


def store_law_json(law: StoreLaw) -> dict[str, object]:
    """One law of stores."""
    _, line = inspect.getsourcelines(law.check)
    return {
        "id": law.law_id,
        "area": STORE_AREA,
        "name": law.name,
        "class": law.law_class.value,
        "needs": sorted(need.value for need in law.needs),
        "premise": law.premise,
        "statement": law.statement,
        "why": law.why,
        "seen_broken": law.seen_broken,
        "witnesses": [case.as_json() for case in read_witnesses().get(law.law_id, ())],
        "source": f"spec/stores/{law.check.__module__.rpartition('.')[2]}.py:{line}",
    }
