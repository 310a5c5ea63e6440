"""Acceptance from outside: laws judged by answers and events alone, without a look at the state.

What readers get wrong: the acceptor does not say what a cache should have chosen. It takes the
cache's choices as they are, and says whether each was allowed.
"""
