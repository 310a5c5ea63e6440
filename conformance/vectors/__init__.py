"""Vectors: cases that stand still, with a law and a name each, for caches in any language.

What readers get wrong: a vector holds no answers. What a sound cache answers is for the laws to
say, so that two caches that differ lawfully pass the same vectors.
"""
