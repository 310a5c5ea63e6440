"""The scopes that have names, a module for each group of them.

What readers get wrong: a group says how long its scopes take and what they are for, and not what
they are of. Any may be explored alone, by its name.
"""
