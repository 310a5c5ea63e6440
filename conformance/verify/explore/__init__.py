"""The explorer: every state of a cache that a small scope can reach, and every step between them.

What readers get wrong: exhaustive is a word about a scope. Within it nothing is left to chance;
beyond it nothing is said.
"""
