"""The named scopes, one module for each group.

A group says how long its scopes take and what they are for. Each scope can be explored alone, by
its name.
"""
