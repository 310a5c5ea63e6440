"""Writes the history of the laws: what is new since the version before, told by digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon import __version__
from kvcanon.conformance.laws.history import LawHistory
from kvcanon.lab.site.law_code import code_without_docstring
from kvcanon.spec.law import LAWS, Law

HEAD = """\
# For each law the version that added it, the later ones that changed its sentence or its code, and
# a digest of both. `python -m kvcanon.lab.site --history` writes this file.
"""


def digest_of(law: Law) -> str:
    """A digest of a law's statement and code, which line breaks and spaces do not change."""
    code = re.sub(r"\s+", "", code_without_docstring(law))
    code = re.sub(r",([)\]}])", r"\1", code)
    said = " ".join(law.statement.split())
    return hashlib.sha256(f"{said}\n{code}".encode()).hexdigest()[:16]


def moved_on(
    history: Mapping[str, LawHistory], laws: Mapping[str, Law], version: str = __version__
) -> dict[str, LawHistory]:
    """The history with what `version` adds and changes; a law that is gone keeps its row."""
    found = dict(history)
    for law_id, law in laws.items():
        digest, known = digest_of(law), history.get(law_id)
        if known is None:
            found[law_id] = LawHistory(version, (), digest)
        elif known.digest != digest:
            last = (known.added, *known.changed)[-1]
            changed = known.changed if last == version else (*known.changed, version)
            found[law_id] = evolve(known, changed=changed, digest=digest)
    order = list(LAWS)
    return dict(sorted(found.items(), key=lambda each: order.index(each[0])))


def history_text(history: Mapping[str, LawHistory]) -> str:
    """The file of a history."""
    rows = (
        f'{law_id} = {{ added = "{each.added}", changed = {json.dumps(each.changed)}, '
        f'digest = "{each.digest}" }}'
        for law_id, each in history.items()
    )
    return f"{HEAD}\n" + "\n".join(rows) + "\n"
