"""A package that can be imported, and whose every name is a class that does nothing.

It is installed under the name of the package that it stands for. Whoever imports from it gets what
was asked for, so that the modules that import it load; whoever then uses it gets nonsense.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.0"


class StubClass(type):
    """A class with an attribute for every name."""

    def __getattr__(cls, name: str) -> StubClass:
        return _attribute(cls, name)


class StubModule(ModuleType):
    """A module with an attribute for every name, and a submodule too."""

    def __getattr__(self, name: str) -> StubClass:
        return _attribute(self, name)


class Submodules(MetaPathFinder, Loader):
    """Finds every module below this one."""

    def find_spec(self, fullname: str, *_others: object) -> ModuleSpec | None:
        """The spec of a module below this one; of no other."""
        if not fullname.startswith(f"{__name__}."):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module without contents."""
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is nothing to run."""


def _attribute(owner: object, name: str) -> StubClass:
    # What Python looks up by itself (`__path__`, `__wrapped__`) must stay absent.
    if name.startswith("__"):
        raise AttributeError(name)
    made = StubClass(name, (), {})
    setattr(owner, name, made)
    return made


sys.meta_path.append(Submodules())
sys.modules[__name__].__class__ = StubModule
