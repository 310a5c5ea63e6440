"""Stand-ins: modules that a release imports but whose contents its cache does not need on a CPU.

These files are copied into an environment under the name of the module that they replace, and run
there. This project does not import them, and they do not import this project.
"""
