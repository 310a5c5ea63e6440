"""Judges stores of pages by the laws of `spec.stores`: `kvcanon check-store`.

A store has an adapter (`adapter`). Cases are drawn from a seed (`draw`) and played (`play`) on a
store in this process or in processes of its own (`hosts`), which are killed, stopped half-way and
started again. `check` gives every law its standing and reduces what was found.
"""
