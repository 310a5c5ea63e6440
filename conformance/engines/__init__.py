"""Engines: adapters for SGLang's and vLLM's caches, and environments of their releases."""
