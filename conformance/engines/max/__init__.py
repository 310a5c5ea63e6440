"""Adapters for the KV caches of Modular MAX: the paged manager, and the jenga manager.

`factory` makes a manager with pages for the case, and `request_cache` makes the calls that MAX's
scheduler makes. Both managers have one interface, so that one adapter serves both.
"""
