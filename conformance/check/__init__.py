"""Draws cases, plays them on judged caches, and reduces those that fail: `kvcanon check`.

A cache may hold every law and still not agree with the reference: laws leave some choices open.
"""
