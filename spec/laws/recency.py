"""recency."""
