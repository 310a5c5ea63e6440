"""Cases: one language of operations, in which random engines, vectors and reports all speak.

What readers get wrong: a case says what clients *try*. What comes of it depends on the cache, so
that two lawful caches may be asked different things by one case.
"""
