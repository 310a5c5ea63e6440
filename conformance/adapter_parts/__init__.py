"""Adapter parts: ready-made help for adapters of foreign caches; it repairs no answer."""
