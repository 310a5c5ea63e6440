"""Checks of a `RequestCache` from its answers, events and bytes alone."""
