"""asynchrony."""
