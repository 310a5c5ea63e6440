"""The adapters for LMCache: its memory of the host, used by prefixes, and its disk, as a store."""
