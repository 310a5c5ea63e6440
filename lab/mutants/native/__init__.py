"""Mutants of the native core: one build holds a whole sample; one mutant is active at a time."""
