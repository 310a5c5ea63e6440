"""Variants: lawful differences from the plain cache, made by overriding its rules.

A variant is the opposite of a mutant. A mutant must break a law; if a variant breaks a law, the law
is too narrow.
"""
