"""The adapter for the paged cache of transformers' continuous batching, used by requests."""
