"""Reach: what the cases of a check visit in a cache, counted by stage.

A law finds nothing in a cache whose branches no case visits. `kvcanon lab reach` counts in how many
cases each branch of the plain cache is visited, each law is exercised, each call is refused for
each reason, and each value of a configuration is drawn, alone and beside others.
"""
