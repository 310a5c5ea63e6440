"""All planted faults."""

from __future__ import annotations

from collections.abc import Mapping

from kvcanon.lab.stores import planted_contents, planted_disk, planted_presence, planted_service
from kvcanon.lab.stores.fault import STORE_FAULTS, StoreFault

MODULES = (planted_contents, planted_disk, planted_presence, planted_service)
"""Importing them registers their faults."""


def store_faults() -> Mapping[str, StoreFault]:
    """Every planted fault by name, in the order of the laws that they break."""
    ordered = sorted(STORE_FAULTS.items(), key=lambda each: int(each[1].law_id.split("-")[1]))
    return dict(ordered)
