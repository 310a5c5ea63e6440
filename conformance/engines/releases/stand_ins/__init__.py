"""Stand-ins: modules that a release imports and that its cache never needs on a CPU.

These files are copied into an environment under the name of the module that they replace, and run
there. Nothing of this project imports them, and they import nothing of it.
"""
