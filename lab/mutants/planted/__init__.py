"""Handwritten mutants of the plain cache, one module for each area of laws.

Each mutant overrides one function; most are modelled on historical bugs. They are a sample which
shows that every law can be broken, not a list of the faults that the canon looks for.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted import (
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
    ranks,
    receipts,
    recency,
    refusal,
    residency,
    tree,
    turns,
)
from kvcanon.lab.mutants.planted.entry import MUTANTS, Mutant

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
    "ranks",
    "receipts",
    "recency",
    "refusal",
    "residency",
    "tree",
    "turns",
]
