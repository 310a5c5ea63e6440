"""A copy of the plain cache in a package of its own, with one place changed.

The copy is compiled in memory only. Its modules import each other and not the originals, so the
plain cache and several mutants run in one process. All of them share errors, engines and the other
modules of the spec and the judge.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from itertools import count
from types import ModuleType

from kvcanon.conformance.protocol.adapter import Adapter, MakeCache, Offer
from kvcanon.lab.mutants.finder import changed_tree
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.mutants.sources import FOLDER, PACKAGE, module_names, source_of
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA

NUMBERS = count(1)
"""Numbers the copies made in this process."""

CONSTANTS: Mapping[str, object] = {
    "GPU": GPU,
    "CPU": CPU,
    "FULL": FULL,
    "SWA": SWA,
    "MAMBA": MAMBA,
}
"""Names that a changed module may use without importing them."""


def mutant_of(place: MutantPlace | None) -> Adapter:
    """The plain cache with a change, or without any. Raises: whatever its import raises."""
    offer = Offer(states_within=True, stores=True)
    return Adapter(place.place_id if place else "copy", _factory(place), offer)


def _factory(place: MutantPlace | None) -> MakeCache:
    package = f"kvcanon_mutant_{next(NUMBERS)}"
    trees = {name: _tree(name, place) for name in module_names()}
    with _importable(package, trees):
        make: MakeCache = import_module(package).ReferenceCache
    return make


def _tree(module: str, place: MutantPlace | None) -> ast.Module:
    source = source_of(module)
    if place is None or place.module != module:
        return ast.parse(source)
    return changed_tree(module, source, place.place_id)


@contextmanager
def _importable(package: str, trees: Mapping[str, ast.Module]) -> Iterator[None]:
    """Make a package importable from trees; later its modules leave `sys.modules`."""
    finder = _Copies(package, trees)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [each for each in sys.modules if each.partition(".")[0] == package]:
            del sys.modules[name]


class _Copies(MetaPathFinder, Loader):
    """Finds the modules of one copy, and runs them."""

    def __init__(self, package: str, trees: Mapping[str, ast.Module]) -> None:
        self._package = package
        self._trees = trees

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of the copy; None of any other."""
        package, _, module = fullname.partition(".")
        if package != self._package or (module and module not in self._trees):
            return None
        return spec_from_loader(fullname, self, is_package=not module)

    def exec_module(self, module: ModuleType) -> None:
        """Run a module of the copy."""
        name = module.__name__.partition(".")[2] or "__init__"
        tree = _Rewritten(self._package).visit(self._trees[name])
        if name != "__init__":
            vars(module).update(CONSTANTS)
        code = compile(tree, str(FOLDER / f"{name}.py"), "exec")
        exec(code, vars(module))  # noqa: S102  # This is our own source with one change.


class _Rewritten(ast.NodeTransformer):
    """Rewrites imports, so that the modules of a copy import each other."""

    def __init__(self, package: str) -> None:
        self._package = package

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """Replace an import from the plain cache by an import from the copy."""
        if node.module is not None and f"{node.module}.".startswith(f"{PACKAGE}."):
            node.module = self._package + node.module.removeprefix(PACKAGE)
        return node
