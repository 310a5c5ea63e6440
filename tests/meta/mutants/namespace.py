"""Faults of namespaces: what two tenants share, and what they must not.

What readers get wrong: that equal tokens are equal pages: they are so within one namespace only.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    announce,
)
from meta.mutants.entry import mutant


@mutant("NS-3", "C1 sgl#24568")
def names_ignore_the_namespace(patch: Overrides) -> None:
    """Equal tokens of two tenants have one name."""
    patch.setattr(announce, "namespace_seed", lambda namespace: b"")
