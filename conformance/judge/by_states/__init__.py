"""Judges by states: wraps a cache, checks laws on its snapshots, and counts what was exercised."""
