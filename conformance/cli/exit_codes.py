"""Exit codes of the command line. 0: nothing was found."""

BROKEN = 1
"""A law is broken, or too little was exercised to say that the cache holds."""
USAGE_ERROR = 2
"""The call is wrong, or the cache that it names cannot be judged."""
INTERRUPTED = 130
"""The user pressed Ctrl-C."""
