"""Mutating the native core: all mutants of a sample in one build, one of them awake at a time."""
