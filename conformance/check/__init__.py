"""The search for faults: draws cases, plays them on judged caches, and reduces those that fail.

A cache may hold every law and still not agree with the reference: laws leave some choices open.
"""
