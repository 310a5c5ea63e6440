"""Stand-ins: modules that a peer imports and that its cache never needs on a CPU.

What readers get wrong: these files are copied into a peer's environment, under the name of the
module that they stand for, and run there. Nothing of this project imports them, and they import
nothing of it.
"""
