"""Faults of refusals: what is let through, and what is refused for the wrong reason.

What readers get wrong: that any refusal is as good as another: the caller does different things
at different reasons.
"""

from __future__ import annotations
