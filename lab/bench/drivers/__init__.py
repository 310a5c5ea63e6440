"""Drivers, one per cache. Each module has a function `make_driver`.

A driver module is imported only in a process where its cache is installed, and looks up the cache's
classes by name.
"""
