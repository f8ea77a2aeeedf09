"""A copy of the repository in which one module is another: what a mutant runs in. The checkout stays as it is."""

from __future__ import annotations

import ast
import builtins
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("refimpl", "conformance", "spec_tests")
HIT: Final = "_mutation_hit"
"""The name, among the built-in ones, of what instrumented code calls."""


def copied(target: Path) -> Path:
    """A copy of everything that the checks need, as it is now: others may go on working in the checkout."""
    for name in (*PACKAGES, "fixtures"):
        shutil.copytree(CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CHECKOUT / name, target / name)
    return target


def enter(copy: Path, modules: Mapping[str, ast.Module]) -> None:
    """Let this process import everything from the copy, and these files (by path below it) as the trees given."""
    for name in [each for each in sys.modules if each.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    elsewhere = [each for each in sys.path if Path(each or ".").resolve() != CHECKOUT]
    sys.path[:] = [str(copy), *elsewhere]
    named = {module_of(file): (copy / file, tree) for file, tree in modules.items()}
    sys.meta_path.insert(0, _Finder(named))


def count_hits(tell: Callable[[int], object]) -> None:
    setattr(builtins, HIT, tell)


def module_of(file: str) -> str:
    """The name by which a file is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True, slots=True)
class _Finder(MetaPathFinder):
    """Finds the changed modules before anybody else does."""

    modules: Mapping[str, tuple[Path, ast.Module]]

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        found = self.modules.get(fullname)
        if found is None:
            return None
        file, tree = found
        return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file), tree))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, tree: ast.Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)
