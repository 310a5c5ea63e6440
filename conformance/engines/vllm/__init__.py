"""vLLM's prefix cache before the judge: its KVCacheManager, used by requests.

`installed` finds what the installed release has, `making` makes a manager as small as a case asks,
`prompts` and `events` translate values, `managed` translates operations, and `declared` says what
the cache is.

What readers get wrong: the manager has no prefixes to ask for, only requests. A request is looked
up, gets blocks, grows and ends, in the order in which vLLM's scheduler calls for it.
"""
