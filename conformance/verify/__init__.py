"""Verify: exhaustive search of small scopes (`explore`) and solver proofs (`prove`)."""
