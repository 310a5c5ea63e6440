"""Mutants of the native core: one build holds a whole sample, one mutant active at a time."""
