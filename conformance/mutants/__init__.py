"""Mutants: faults that are planted to measure the laws.

`kill_matrix` is of the faults that people wrote, in tests/meta/mutants. All else is of mechanical
mutants, which a program makes of the plain cache and of the native core. A mechanical mutant that
no law sees shows a hole in the laws, or does the same as the original; a reviewed list says which
do.
"""
