"""event."""
