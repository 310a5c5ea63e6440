"""Vectors: fixed cases, each with a law and a name, for caches in any language.

The answers in a vector are the plain cache's. Another sound cache may answer differently where a
call is marked with a freedom; the laws decide.
"""
