"""The explorer: visits every state that a cache can reach in a small scope, and every step.

It is exhaustive within the scope only. It says nothing about larger scopes.
"""
