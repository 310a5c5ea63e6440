"""Mutants: faults planted in a cache to measure the laws.

`kill_matrix` judges the handwritten mutants of lab/mutants/planted. Everything else is for
mechanical mutants, which a program makes from the plain cache and from the native core. A
mechanical mutant that no law detects shows a gap in the laws, or behaves like the original; a
reviewed list says which mutants behave like the original.
"""
