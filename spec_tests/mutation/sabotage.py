"""Sabotages: single edits as in a careless refactoring, each with the tests that must fail.

The catalogue is `sabotages.toml`. An entry names the file, the text before (exactly once in the file) and after, the
harm, and the tests: files or node ids, without parameters. `explained` says why no test can fail.

Most edits change only functions. They run in processes forked from a process that has collected the tests. An edit at
module level is written into the copy of the repository, and runs in a new process. So is an edit with `slow = true`:
its test starts a Java virtual machine, whose workers import the files.
"""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from spec_tests.mutation import checking
from spec_tests.mutation.checking import Collected, Ended, Job

FILE: Final = Path(__file__).with_name("sabotages.toml")
PACKAGES: Final = ("owner", "client", "server", "spark")
"""Packages of `refimpl`. All other modules count as `files`, the layer below."""
SECONDS_ON_DISK: Final = 300.0


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
        folder = Path(self.file).parent.name
        return folder if folder in PACKAGES else "files"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one sabotage. `killer`: the first test that failed; None: the edit survived."""

    id: str
    killer: str | None
    detail: str
    seconds: float


class Result(msgspec.Struct, kw_only=True):
    """The result of a run. `errors`: entries that could not be judged."""

    verdicts: list[Verdict]
    errors: list[str]


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


def sabotaged(text: str, sabotage: Sabotage) -> str:
    """The file with the edit made. Raises `ValueError` unless the edit fits in exactly one place."""
    places = text.count(sabotage.before)
    if places != 1:
        raise ValueError(f"{sabotage.id}: the text before occurs {places} times in {sabotage.file}; expected once")
    changed = text.replace(sabotage.before, sabotage.after)
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


def _outline(tree: ast.Module) -> str:
    """The module without the bodies of its functions, but with the functions that they define."""

    class Emptied(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return self.generic_visit(node)
            inner = [part for part in ast.walk(node) if isinstance(part, ast.FunctionDef | ast.Lambda | ast.ClassDef)]
            names = " ".join(getattr(part, "name", "lambda") for part in inner)
            node.body = [ast.Expr(ast.Constant(names))]
            return node

    return ast.dump(Emptied().visit(tree))


class Run:
    """One run of some entries on a copy of the repository."""

    def __init__(self, copy: Path, entries: Sequence[Sabotage], *, at_once: int, say: Callable[[str], None]) -> None:
        self._copy = copy
        self._at_once = at_once
        self._say = say
        self._result = Result(verdicts=[], errors=[])
        self._in_process: list[tuple[Sabotage, ast.Module]] = []
        self._on_disk: list[tuple[Sabotage, str]] = []
        for entry in entries:
            try:
                self._sort(entry)
            except (ValueError, OSError) as error:
                self._result.errors.append(str(error))

    def _sort(self, sabotage: Sabotage) -> None:
        for test in sabotage.tests:
            if not (self._copy / _file_of(test)).is_file():
                raise ValueError(f"{sabotage.id}: there is no file {_file_of(test)}")
        text = (self._copy / sabotage.file).read_text(encoding="utf-8")
        changed = sabotaged(text, sabotage)
        tree = ast.parse(changed)
        if sabotage.slow or _outline(ast.parse(changed)) != _outline(ast.parse(text)):
            self._on_disk.append((sabotage, changed))
        else:
            self._in_process.append((sabotage, tree))

    def go(self) -> Result:
        """Judge every entry. Raises `ValueError` if the tests cannot be collected."""
        if self._in_process:
            files = sorted({sabotage.file for sabotage, _ in self._in_process})
            tests = sorted({_file_of(test) for sabotage, _ in self._in_process for test in sabotage.tests})
            answer = checking.collect(self._copy, tests, files, self._judged_in_process)
            self._result = msgspec.json.decode(answer, type=Result)
        for sabotage, changed in self._on_disk:
            self._judge_on_disk(sabotage, changed)
        return self._result

    def _judged_in_process(self, held: Collected) -> bytes:
        chosen = []
        for sabotage, tree in self._in_process:
            ids = [check for test in sabotage.tests for check in held.items if _names(test, check)]
            missing = [test for test in sabotage.tests if not any(_names(test, check) for check in held.items)]
            if missing:
                self._result.errors.append(f"{sabotage.id}: there is no test {', '.join(missing)}")
            else:
                chosen.append((sabotage, tree, ids))
        checking.run(self._jobs(chosen), held, self._copy.parent, at_once=self._at_once)
        wrong = self._failing(held, {verdict.killer for verdict in self._result.verdicts if verdict.killer is not None})
        for verdict in [verdict for verdict in self._result.verdicts if verdict.killer in wrong]:
            self._result.verdicts.remove(verdict)
            self._result.errors.append(f"{verdict.id}: {verdict.killer} fails without the edit")
        return msgspec.json.encode(self._result)

    def _failing(self, held: Collected, checks: set[str]) -> set[str]:
        """The checks that fail on the unchanged source."""
        passed: set[str] = set()
        ordered = [check for check in held.items if check in checks]

        def done(ended: Ended) -> None:
            passed.update(check.id for check in ended.passed)

        halves = [ordered[at :: self._at_once] for at in range(self._at_once)]
        jobs = (Job(modules={}, checks=half, done=done, whole=True) for half in halves if half)
        checking.run(jobs, held, self._copy.parent, at_once=self._at_once)
        return checks - passed

    def _jobs(self, chosen: Iterable[tuple[Sabotage, ast.Module, list[str]]]) -> Iterator[Job]:
        for sabotage, tree, ids in chosen:

            def done(ended: Ended, sabotage: Sabotage = sabotage) -> None:
                if ended.broken is not None:
                    self._result.errors.append(f"{sabotage.id} cannot be judged: {ended.broken}")
                    return
                self._judged(sabotage, ended.killer, ended.detail, ended.seconds)

            yield Job(modules={sabotage.file: tree}, checks=ids, done=done)

    def _judge_on_disk(self, sabotage: Sabotage, changed: str) -> None:
        path = self._copy / sabotage.file
        text = path.read_text(encoding="utf-8")
        path.write_text(changed, encoding="utf-8")
        try:
            ended = self._pytest(sabotage)
        except subprocess.TimeoutExpired as error:
            self._result.errors.append(f"{sabotage.id} cannot be judged: its tests took more than {error.timeout} s")
            return
        finally:
            path.write_text(text, encoding="utf-8")
        if ended.returncode not in (0, 1):
            self._result.errors.append(f"{sabotage.id} cannot be judged: {ended.stdout[-2000:]}")
            return
        failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        killer, _, detail = failed[0].partition(" ")[2].partition(" - ") if failed else ("", "", "")
        if ended.returncode == 1 and self._pytest(sabotage).returncode != 0:
            self._result.errors.append(f"{sabotage.id}: {', '.join(sabotage.tests)} fails without the edit")
            return
        self._judged(sabotage, killer or None, detail, 0.0)

    def _pytest(self, sabotage: Sabotage) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-rfE", "-n", "0", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, "-m", "", *sabotage.tests],
            cwd=self._copy,
            env={**os.environ, "PYTHONPATH": str(self._copy)},
            capture_output=True,
            text=True,
            timeout=SECONDS_ON_DISK,
        )

    def _judged(self, sabotage: Sabotage, killer: str | None, detail: str, seconds: float) -> None:
        verdict = Verdict(id=sabotage.id, killer=killer, detail=detail, seconds=round(seconds, 1))
        self._result.verdicts.append(verdict)
        self._say(f"{sabotage.id}: {f'killed by {killer} ({detail})' if killer else 'survives'} [{verdict.seconds} s]")


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _names(test: str, check: str) -> bool:
    """Whether a named test is this check, or the file or the parametrized test that contains it."""
    return check == test or check.startswith((f"{test}::", f"{test}["))
