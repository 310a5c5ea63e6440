"""Mutating: faults that a program plants, so that nobody's idea of a fault decides what is found.

What readers get wrong: this measures the laws, not a cache. A mutant that no law sees is either a
hole in the book, or does the same as what it was made from; a list says which of them do.
"""
