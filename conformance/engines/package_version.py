"""An engine in this environment: its installed version, or the modules of a copied source."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from types import ModuleType

from kvcanon.conformance.errors import UsageError, describe_exception


def installed_version(package: str, engine: str, release: str) -> str:
    """The version of an installed package. Raises: UsageError, which says how to install it."""
    try:
        return version_of(package)
    except PackageNotFoundError:
        if not release:
            raise UsageError(
                f"{engine} is not installed here; `pip install {package}` brings it"
            ) from None
        raise UsageError(
            f"{engine} is not installed here; `kvcanon lab peers make {release}` makes an "
            "environment that has it, and this command runs in there"
        ) from None


def source_module(name: str, engine: str) -> ModuleType:
    """A module of a project that is copied from its source. Raises: UsageError."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise UsageError(f"{engine} cannot be used here: {describe_exception(error)}") from None
        raise UsageError(
            f"{engine} is not installed here; `kvcanon lab peers make {engine} --source DIR` makes "
            "an environment that has it, and this command runs in there"
        ) from None
