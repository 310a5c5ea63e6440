"""evict."""
