"""A copy of the repository in which one module is another: what a mutant runs in. The checkout stays as it is."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType
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


def warm_up(copy: Path, files: Iterable[str]) -> None:
    """Import these files of the copy, and what the checks use, so that a forked process need not."""
    enter(copy, {})
    helpers = ("conformance/adapters/reference", "conformance/simulation", "spec_tests/support")
    found = [str(each.relative_to(copy)) for folder in helpers for each in sorted((copy / folder).glob("[!_]*.py"))]
    for file in (*files, *found):
        importlib.import_module(module_of(file))


def put_in_place(copy: Path, file: str, tree: ast.Module) -> bool:
    """Let the functions of an imported module be those of the tree; whether that could be done to all of them."""
    path = str(copy / file)
    fresh = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, path, "exec"))}
    for each in gc.get_objects():
        if not isinstance(each, FunctionType) or each.__code__.co_filename != path:
            continue
        code = fresh.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
        if code is None or len(code.co_freevars) != len(each.__code__.co_freevars):
            return False
        each.__code__ = code
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


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
