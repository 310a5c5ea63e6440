"""Judges from outside: checks laws by answers, events and bytes alone, without snapshots.

The guards do not compute what a cache should choose. They take its choices as they are, and check
whether each was allowed.
"""
