"""A copy of the repository in which one module is another: what a mutant runs in. The checkout stays as it is."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("refimpl", "conformance", "spec_tests")
HIT: Final = "_mutation_hit"
"""The name, among the built-in ones, of what instrumented code calls."""


def copied(target: Path) -> Path:
    """A copy of everything that the checks need, as it is now: others may go on working in the checkout."""
    shutil.rmtree(target, ignore_errors=True)
    for name in (*PACKAGES, "fixtures"):
        shutil.copytree(CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CHECKOUT / name, target / name)
    return target


def enter(copy: Path) -> None:
    """Let this process import everything from the copy. What it had imported of the checkout, it imports anew."""
    for name in [each for each in sys.modules if each.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    elsewhere = [each for each in sys.path if Path(each or ".").resolve() != CHECKOUT]
    sys.path[:] = [str(copy), *elsewhere]


class Functions:
    """Those that this process has of some files of the copy."""

    def __init__(self, found: Mapping[str, list[FunctionType]]) -> None:
        self._found = found

    def put_in_place(self, file: str, tree: ast.Module) -> None:
        """Let the functions of the file be those of the tree, wherever somebody holds them.

        `ValueError` where that cannot be: a function is gone, or takes other names from around it.
        """
        functions = self._found[file]
        if not functions:
            raise ValueError(f"no check imports {file}")
        path = functions[0].__code__.co_filename
        fresh = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, path, "exec"))}
        for each in functions:
            code = fresh.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
            if code is None or len(code.co_freevars) != len(each.__code__.co_freevars):
                raise ValueError(f"{each.__qualname__} of {file} cannot be changed while it is held")
            each.__code__ = code


def functions(copy: Path, files: Iterable[str]) -> Functions:
    """Import these files, and find their functions."""
    files = list(files)
    for file in files:
        importlib.import_module(module_of(file))
    paths = {str(copy / file): file for file in files}
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in paths:
            found[paths[each.__code__.co_filename]].append(each)
    return Functions(found)


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
