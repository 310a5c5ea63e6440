"""Serves requests, of a trace or generated, from a cache as an engine does, and counts hits."""
