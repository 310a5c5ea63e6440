"""The tables of the docs, made of the files that the benches write with `--json`.

A module for each bench; `tables` says which table is made by which of their functions. A function
takes the files of its table, of which most have one: two runs, or a run for each set of options,
are several.
"""
