"""Adapters for vLLM's prefix cache: its KVCacheManager, used by requests.

`factory` finds names in the installed release, and makes a manager with blocks for the case,
`prompts` and `events` translate values, `request_cache` translates operations, and `adapters`
declares the adapters.

The manager has an API for requests only, not for prefixes. A request is looked up, gets blocks,
grows and is freed, in the order of vLLM's scheduler.
"""
