"""Faults of a tree core, planted around any core through the interface that SGLang calls."""
from __future__ import annotations
from typing import Any
FAULTS: dict[str, Any] = {}
def faulty_factory(create: Any, fault: Any) -> Any:
    return create
