"""Faults of the plain cache, each by overriding one function, most modelled on what has happened.

What readers get wrong: that these are the faults the canon looks for. They are a sample that
shows that every law can speak: one module for each area of laws.
"""

from __future__ import annotations

from meta.mutants import (
    ageing,
    alloc,
    asynchrony,
    data,
    event,
    evict,
    host_copies,
    load,
    lock,
    match,
    namespace,
    receipts,
    recency,
    refusal,
    residency,
    tree,
    turns,
)
from meta.mutants.entry import MUTANTS, Mutant

__all__ = [
    "MUTANTS",
    "Mutant",
    "ageing",
    "alloc",
    "asynchrony",
    "data",
    "event",
    "evict",
    "host_copies",
    "load",
    "lock",
    "match",
    "namespace",
    "receipts",
    "recency",
    "refusal",
    "residency",
    "tree",
    "turns",
]
