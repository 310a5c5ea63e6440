"""Adapters for databases of keys and values, used as stores of pages as an engine would use them.

The names of pages are digests over identity and page, so what the laws say of names is said of
them. Nothing is added that the database does not have: no checksum, no order of eviction.
"""
