"""Sabotages: single edits as in a careless refactoring, each with the tests that must fail.

The catalogue is `sabotages.toml`. An entry names the file, the text before (exactly once in the file) and after, the
harm, and the tests: files or node ids, without parameters. `explained` says why no test can fail. With `slow = true`,
its tests start a Java virtual machine.
"""

import ast
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Final

FILE: Final = Path(__file__).with_name("sabotages.toml")
PARTS: Final = {
    "owner": "owner", "care": "owner", "announced": "owner", "served": "owner", "groups": "owner",
    "client": "client", "rows": "client", "log": "client", "schema": "client",
    "server": "server", "spark": "spark",
}  # fmt: skip
"""The part of `refimpl` that a package belongs to. All others are `files`, the layer below."""
SECONDS: Final = 300.0
"""Time limit for the tests of one edit. They pass without the edit, so it is the edit that makes them hang."""
_CHECKOUT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sabotage:
    """One entry of the catalogue."""

    id: str
    file: str
    before: str
    after: str
    harm: str
    tests: tuple[str, ...]
    explained: str | None = None
    slow: bool = False

    @property
    def package(self) -> str:
        return PARTS.get(Path(self.file).parent.name, "files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one sabotage. `killer`: the first test that failed; None: the edit survived."""

    sabotage: Sabotage
    killer: str | None
    detail: str = ""


def load(text: str) -> list[Sabotage]:
    """The entries. Raises `ValueError` for an entry that is incomplete, or whose id is not unique."""
    try:
        entries = [
            Sabotage(**{**entry, "tests": tuple(entry["tests"])}) for entry in tomllib.loads(text).get("sabotage", [])
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"invalid entry in the catalogue of sabotages: {error}") from error
    ids = [entry.id for entry in entries]
    for sabotage in entries:
        if ids.count(sabotage.id) > 1:
            raise ValueError(f"{sabotage.id}: the id is not unique")
        if not sabotage.tests:
            raise ValueError(f"{sabotage.id}: no test is named")
        for what, sentence in (("harm", sabotage.harm), ("explanation", sabotage.explained)):
            if sentence is not None and len(sentence.split()) < 5:
                raise ValueError(f"{sabotage.id}: the {what} must be a sentence, not {sentence!r}")
    return entries


def replaced(text: str, sabotage: Sabotage) -> str:
    """The file with the edit made. Raises `ValueError` unless the edit fits in exactly one place."""
    places = text.count(sabotage.before)
    if places != 1:
        raise ValueError(f"{sabotage.id}: the text before occurs {places} times in {sabotage.file}; expected once")
    return text.replace(sabotage.before, sabotage.after)


def sabotaged(text: str, sabotage: Sabotage) -> str:
    """The file with the edit made. Raises `ValueError` unless the edit fits, and changes the code."""
    changed = replaced(text, sabotage)
    try:
        same = ast.dump(ast.parse(changed)) == _dumped(text)
    except SyntaxError as error:
        raise ValueError(f"{sabotage.id}: the text after is not Python: {error}") from error
    if same:
        raise ValueError(f"{sabotage.id}: the edit changes nothing")
    return changed


@lru_cache(maxsize=4)
def _dumped(text: str) -> str:
    """The dumped tree of a file, cached for many edits."""
    return ast.dump(ast.parse(text))


def copied(target: Path) -> Path:
    """A copy of all files that the tests need, so that the checkout may change during the run."""
    for name in ("refimpl", "conformance", "spec_tests", "fixtures"):
        shutil.copytree(_CHECKOUT / name, target / name)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(_CHECKOUT / name, target / name)
    return target


def judged(entries: Sequence[Sabotage], copies: Sequence[Path]) -> Iterator[Verdict]:
    """Make each edit in one of the copies, and run its tests there; as many at the same time as there are copies.

    Raises `ValueError` if an edit does not fit, if a named test is missing or fails without an edit, or if pytest fails
    in another way.
    """
    edits = [(entry, sabotaged((copies[0] / entry.file).read_text(encoding="utf-8"), entry)) for entry in entries]
    if failed := _failed(copies[0], sorted({test for entry in entries for test in entry.tests}), first=False):
        raise ValueError("\n".join(["tests fail without any edit:", *failed]))
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge(sabotage: Sabotage, changed: str) -> Verdict:
        copy = free.get()
        try:
            return _judged(sabotage, changed, copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for each in as_completed([pool.submit(judge, *edit) for edit in edits]):
            yield each.result()


def _judged(sabotage: Sabotage, changed: str, copy: Path) -> Verdict:
    path = copy / sabotage.file
    kept = path.rename(path.with_suffix(".kept"))  # with its time of modification, to which the compiled file belongs
    path.write_text(changed, encoding="utf-8")
    try:
        failed = _failed(copy, sabotage.tests, first=True)
    except subprocess.TimeoutExpired:
        return Verdict(sabotage=sabotage, killer=" ".join(sabotage.tests), detail="hangs")
    except ValueError as error:
        raise ValueError(f"{sabotage.id} cannot be judged: {error}") from error
    finally:
        kept.replace(path)
    if not failed:
        return Verdict(sabotage=sabotage, killer=None)
    killer, _, detail = failed[0].partition(" - ")
    return Verdict(sabotage=sabotage, killer=killer, detail=detail)


def _failed(copy: Path, tests: Sequence[str], *, first: bool) -> list[str]:
    """The tests that fail, or only the first of them, each with its error. Plugins take seconds to import, and no test
    here needs one."""
    temporary = copy / "temporary"  # pytest deletes the folders of other runs that keep none
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-o", "addopts=", "-o", "tmp_path_retention_policy=none"]
    environment = {
        "PYTHONPATH": str(copy),
        "PYTEST_DEBUG_TEMPROOT": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",  # two edits within a second may have the same size
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "300",
    }
    with subprocess.Popen(
        [*command, "-p", "no:cacheprovider", *(["-x"] if first else []), *tests],
        cwd=copy,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS if first else None)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    failed = [line.partition(" ")[2] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if process.returncode not in (0, 1) or bool(failed) != bool(process.returncode):
        raise ValueError(output[-4000:])
    return failed
