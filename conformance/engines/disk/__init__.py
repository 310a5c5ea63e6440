"""Adapters for kvcanon's own disk tier."""
