"""Ranks in processes of their own: a scheduler of each, and the comparison of all decisions."""
