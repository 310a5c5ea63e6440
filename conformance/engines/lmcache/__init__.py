"""The adapter for LMCache's backend in the memory of the host, used by prefixes."""
