"""Handwritten mutants of the plain cache, one module for each area of laws.

Each mutant overrides one function; most are modelled on historical bugs. They are a sample which
shows that every law can be broken, not a list of the faults that the canon looks for.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from kvcanon.lab.mutants.planted.entry import MUTANTS, STORE_MUTANTS, Mutant

__all__ = ["MUTANTS", "STORE_MUTANTS", "Mutant"]

# Importing a module lists its mutants, in the order of the names of modules.
for _module in sorted(each.name for each in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
