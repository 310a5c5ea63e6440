"""Observe: wraps a running cache and records what it does, for laws, evidence and timing."""
