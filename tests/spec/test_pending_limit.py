"""Events that nobody takes: at most `max_pending_events` wait, and a router is always right again.

The judge draws no limit. Here its cases are played with small ones.
"""

from __future__ import annotations
