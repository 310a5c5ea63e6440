"""Cases: the actions and configurations that random engines, vectors and reports share.

A case says what clients *try*. Which operations that makes depends on the cache's answers, so that
two lawful caches may get different operations from one case.
"""
