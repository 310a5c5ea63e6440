"""Variants: what a sound cache may do otherwise, made by overriding rules of the plain cache.

What readers get wrong: a variant is no mutant. A mutant must be found by a law; where a law speaks
about a variant, it is the law that draws its line too narrowly.
"""
