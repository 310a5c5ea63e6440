"""The version of an engine installed in this environment."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from kvcanon.conformance.errors import UsageError


def installed_version(package: str, engine: str, release: str) -> str:
    """The version of an installed package. Raises: UsageError, which says how to install it."""
    try:
        return version_of(package)
    except PackageNotFoundError:
        raise UsageError(
            f"{engine} is not installed here; `kvcanon peers make {release}` makes an environment "
            "that has it, and this command runs in there"
        ) from None
