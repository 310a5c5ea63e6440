"""Classes and functions of an installed engine, found by name when an adapter first needs them.

Not everyone has every engine, and an engine takes seconds to import. So its adapter is declared
without an import of it, and a missing package or module is one clear line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

from attrs import Factory, define

from kvcanon.conformance.engines.package_version import installed_version
from kvcanon.conformance.errors import UsageError, describe_exception

EngineObject: TypeAlias = Any
"""An object, a class or a function of an engine. No engine is installed where types are checked."""


@define(eq=False)
class InstalledNames:
    """The names that an adapter uses of one engine."""

    package: str
    """Its package in the package index."""
    engine: str
    """Its name in messages."""
    release: str
    """A release that `kvcanon lab peers make` makes an environment for."""
    modules: Mapping[str, str]
    """The module of each name."""
    quiet: bool = False
    """Whether its log, which repeats what answers say, is left to errors."""
    _found: dict[str, EngineObject] = Factory(dict)

    def version(self) -> str:
        """The installed version. Raises: UsageError."""
        return installed_version(self.package, self.engine, self.release)

    def __getitem__(self, name: str) -> EngineObject:
        """The class or function of this name. Raises: UsageError."""
        if name not in self._found:
            self._found[name] = self._import(name)
        return self._found[name]

    def _import(self, name: str) -> object:
        version, module = self.version(), self.modules[name]
        try:
            found: object = getattr(import_module(module), name)
        except AttributeError:
            raise UsageError(f"{self.engine} {version} has no {name} in {module}") from None
        except Exception as error:
            raise UsageError(
                f"{self.engine} {version} cannot be used here: {describe_exception(error)}"
            ) from error
        if self.quiet:
            logging.getLogger(self.package).setLevel(logging.ERROR)
        return found
