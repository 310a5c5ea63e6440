"""Adapters: how a cache that was made elsewhere comes before the judge.

What readers get wrong: an adapter translates, it does not help. Where a cache lacks an operation
the adapter lacks it too, and the report says which laws were not exercised.
"""
