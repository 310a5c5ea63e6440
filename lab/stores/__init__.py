"""Faults planted in the plain stores: each breaks a law of stores, and a check must find it."""
