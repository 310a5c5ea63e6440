"""vLLM's prefix cache before the judge: its KVCacheManager, used by requests.

`release` finds names in the installed release, `factory` makes a manager as small as a case says,
`prompts` and `events` translate values, `request_cache` translates operations, and `adapters`
declares what the cache is.

The manager has no API for prefixes, only for requests. A request is looked up, gets blocks, grows
and is freed, in the order in which vLLM's scheduler calls the manager.
"""
