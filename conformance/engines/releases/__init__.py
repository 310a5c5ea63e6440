"""Peers: other people's caches, each in an environment of its own.

`releases` says which there are, `environment` makes their environments, `stand_ins` holds the small
modules that take the place of what no CPU can load, and `pins` the exact packages of each.

What readers get wrong: an environment is not an adapter. It makes a release importable on a machine
without a GPU, and changes nothing of it; who calls the cache, and how, is said elsewhere.
"""
