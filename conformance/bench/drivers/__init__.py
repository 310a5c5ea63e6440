"""Drivers, one a cache. Each module has a function `make_driver`.

What readers get wrong: a module here is imported only where its cache is installed, in a process of
its own. Whatever it needs of that cache it looks up by name.
"""
