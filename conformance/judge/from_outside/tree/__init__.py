"""Checks of a `TreeCache` from its answers, events and bytes alone."""
