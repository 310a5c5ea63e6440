"""namespace."""
