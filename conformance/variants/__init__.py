"""Variants: lawful differences from the plain cache, made by overriding its rules.

A variant is no mutant. A mutant must break a law; a law that a variant breaks is too narrow.
"""
