"""A package that can be imported; every name in it is a class that does nothing.

It is installed under the name of the package that it replaces, so that modules that import from it
load. Results of calling its classes are meaningless.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.0"


class StubClass(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> StubClass:
        return _attribute(cls, name)


class StubModule(ModuleType):
    """A module that has every attribute and every submodule."""

    def __getattr__(self, name: str) -> StubClass:
        return _attribute(self, name)


class Submodules(MetaPathFinder, Loader):
    """Finds every module below this one."""

    def find_spec(self, fullname: str, *_others: object) -> ModuleSpec | None:
        """The spec of a module below this one; None for other modules."""
        if not fullname.startswith(f"{__name__}."):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make an empty module."""
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is nothing to run."""


def _attribute(owner: object, name: str) -> StubClass:
    # Names that Python itself looks up (`__path__`, `__wrapped__`) must stay absent.
    if name.startswith("__"):
        raise AttributeError(name)
    made = StubClass(name, (), {})
    setattr(owner, name, made)
    return made


sys.meta_path.append(Submodules())
sys.modules[__name__].__class__ = StubModule
