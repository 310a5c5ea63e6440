"""Judging: cases are drawn, played on caches, and reduced to what breaks a law.

What readers get wrong: acceptance and agreement are two questions. A cache that does another lawful
thing than the reference is accepted, and does not agree.
"""
