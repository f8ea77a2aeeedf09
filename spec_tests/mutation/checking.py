"""Runs checks on a changed copy of the repository. The checkout stays as it is.

One process collects all checks, once. Each mutant runs in a process forked from it, which replaces the code of the
changed functions. So a mutant takes only the time of its checks, and no imports.
"""

import ast
import builtins
import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

START_SECONDS: Final = 90.0
"""Time limit until the first check begins."""
HANG_SECONDS: Final = 8.0
HANG_FACTOR: Final = 20.0
"""A check hangs if it takes longer than `HANG_SECONDS`, and longer than `HANG_FACTOR` times its time on the unchanged
source. Both limits grow with the load of the processors."""


@dataclass(frozen=True, slots=True)
class Check:
    """The facts about a test that passes on the unchanged source."""

    id: str
    seconds: float
    """Processor time."""
    hits: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class Job:
    """Some checks on one changed copy."""

    modules: Mapping[str, ast.Module]
    checks: Sequence[str]
    """The ids of the checks, in the order of their run."""
    done: "Callable[[Ended], None]"
    usual: Mapping[str, float] = field(default_factory=dict)
    """The known times of checks on the unchanged source, in seconds."""
    whole: bool = False
    """Run all checks, also after a failure; otherwise stop at the first failure."""


@dataclass(slots=True, kw_only=True)
class Ended:
    """The result of a job's checks."""

    killer: str | None = None
    """The first check that failed, or that did not end."""
    broken: str | None = None
    """The reason why no check could begin; then the mutant is not judged."""
    detail: str = ""
    seconds: float = 0.0
    passed: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class _Running:
    job: Job
    pid: int
    started: float
    deadline: float
    folder: Path
    ended: Ended = field(default_factory=Ended)
    buffer: bytes = b""
    current: str = ""
    """The running check; empty if none has begun."""
    forked_hits: set[int] = field(default_factory=set)
    """Hits in processes that the current check forked."""
    finished: bool = False


class Collected:
    """The checks of a copy, and the functions of its modules, in a process that has imported both."""

    def __init__(self, session: pytest.Session, copy: Path, files: Sequence[str]) -> None:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.functions = functions_of(copy, files)


def collect(copy: Path, tests: Sequence[str], files: Sequence[str], body: Callable[[Collected], bytes]) -> bytes:
    """The result of `body`, which runs in another process that has collected these test files of the copy.

    Raises `ValueError` with pytest's output if the collection fails.
    """
    ours, theirs = os.pipe()
    path = copy.parent / "collected.txt"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            with path.open("wb", buffering=0) as output:
                os.dup2(output.fileno(), 1)
            answer = _collected(copy, tests, files, body)
            sys.stdout.flush()
            with os.fdopen(theirs, "wb") as pipe:
                pipe.write(b"" if answer is None else b"=" + answer)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        received = pipe.read()
    os.waitpid(pid, 0)
    if not received:
        raise ValueError(path.read_text(encoding="utf-8", errors="replace")[-4000:])
    return received[1:]


def _collected(
    copy: Path, tests: Sequence[str], files: Sequence[str], body: Callable[[Collected], bytes]
) -> bytes | None:
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # the process's own, to its end
    os.chdir(copy)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing them takes seconds, and no check here needs one
    enter(copy)
    answers: list[bytes] = []

    class Loop:
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if not session.testsfailed:
                held = Collected(session, copy, files)
                gc.freeze()  # so that forked processes share the memory
                answers.append(body(held))
            return True

    options = ["-s", "-q", "-o", "addopts=", "-o", "tmp_path_retention_policy=none", "-p", "no:cacheprovider"]
    pytest.main([*options, f"--rootdir={copy}", *tests], plugins=[Loop()])
    return answers[0] if answers else None


def run(jobs: Iterator[Job], held: Collected, folder: Path, *, at_once: int) -> None:
    """Run the jobs, `at_once` at a time, and pass the result of each job to its `done`. `jobs` is read as jobs end.

    `folder`: the folder for files of the checks.
    """
    chosen = selectors.DefaultSelector()
    running: dict[int, _Running] = {}
    more = True
    while more or running:
        while more and len(running) < at_once:
            job = next(jobs, None)
            if job is None:
                more = False
                break
            descriptor, started = _start(job, held, folder)
            running[descriptor] = started
            chosen.register(descriptor, selectors.EVENT_READ)
        for key, _ in chosen.select(timeout=0.5):
            _read(running[key.fd], key.fd)
        for descriptor, child in list(running.items()):
            if not child.finished and time.monotonic() < child.deadline:
                continue
            chosen.unregister(descriptor)
            del running[descriptor]
            _end(child, descriptor)
            child.job.done(child.ended)


def _start(job: Job, held: Collected, parent: Path) -> tuple[int, _Running]:
    ours, theirs = os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=parent))
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            os.setsid()
            _check(job, held, folder, theirs)
        except BaseException:
            os.write(theirs, json.dumps({"broken": traceback.format_exc()}).encode() + b"\n")
            raise
        finally:
            os._exit(0)
    os.close(theirs)
    now = time.monotonic()
    return ours, _Running(job, pid, now, now + START_SECONDS, folder)


def _read(running: _Running, descriptor: int) -> None:
    part = os.read(descriptor, 1 << 20)
    if not part:
        running.finished = True
        return
    *lines, running.buffer = (running.buffer + part).split(b"\n")
    for line in lines:
        _take(running, json.loads(line))


def _take(running: _Running, event: dict[str, Any]) -> None:
    ended, job = running.ended, running.job
    if "broken" in event:
        ended.broken = event["broken"]
    elif "start" in event:
        running.current = event["start"]
        running.forked_hits.clear()
        usual = job.usual.get(running.current, HANG_SECONDS)
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        running.deadline = time.monotonic() + busy * max(HANG_SECONDS, HANG_FACTOR * usual)
    elif "hit" in event:
        running.forked_hits.add(event["hit"])
    elif "passed" in event:
        running.current = "the end, after the last check"
        hits = frozenset(event["hits"]) | running.forked_hits
        ended.passed.append(Check(event["passed"], event["seconds"], hits))
    elif ended.killer is None:
        ended.killer, ended.detail = event["failed"], event["detail"]


def _end(running: _Running, descriptor: int) -> None:
    ended = running.ended
    ended.seconds = time.monotonic() - running.started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    os.close(descriptor)
    # Delete in another process: some checks leave thousands of files, and events of running checks must not wait.
    subprocess.Popen(["rm", "-rf", str(running.folder)])
    complete = len(ended.passed) == len(running.job.checks)
    if ended.killer is None and ended.broken is None and not running.current:
        ended.broken = "the process ended before the first check" if running.finished else "no check began"
    if ended.killer is None and ended.broken is None and not (running.finished and complete):
        ended.killer = running.current
        ended.detail = "the process ended" if running.finished else "hangs"


# In the forked process


def _check(job: Job, held: Collected, folder: Path, pipe: int) -> None:
    with open(folder / "output", "wb", buffering=0) as output:  # noqa: PTH123  # a descriptor for all output
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)

    def tell(event: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    watch = _Watch(tell)
    held.session.config.pluginmanager.register(watch)
    for file, tree in job.modules.items():
        held.functions.put_in_place(file, tree)
    items = [held.items[check] for check in job.checks]
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if watch.failures and not job.whole:
            break


class _Watch:
    """A plugin of pytest that reports the result of each check."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._process = os.getpid()
        self._hits: set[int] = set()
        self._failed = False
        self._began = 0.0
        self.failures = 0
        setattr(builtins, HIT, self._hit)

    def _hit(self, point: int) -> None:
        """Record a hit. A process that a check forked has only a copy of the hits, so it sends each new hit at once."""
        if point not in self._hits:
            self._hits.add(point)
            if os.getpid() != self._process:
                self._tell({"hit": point})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._hits.clear()
        self._failed, self._began = False, time.process_time()
        self._tell({"start": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = True
            self.failures += 1
            self._tell({"failed": report.nodeid, "detail": _last_line(report.longreprtext)})
        if report.when == "teardown" and not self._failed:
            seconds = round(time.process_time() - self._began, 4)
            self._tell({"passed": report.nodeid, "seconds": seconds, "hits": sorted(self._hits)})


def _last_line(text: str) -> str:
    """The first line that pytest marks as the error."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked or text.splitlines() or [""])[0][:200]


CHECKOUT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("refimpl", "conformance", "spec_tests")
HIT: Final = "_mutation_hit"
"""The name of the built-in function that instrumented code calls."""


def copied(target: Path) -> Path:
    """A copy of all files that the checks need, so that the checkout may change during the run."""
    shutil.rmtree(target, ignore_errors=True)
    for name in (*PACKAGES, "fixtures"):
        shutil.copytree(CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CHECKOUT / name, target / name)
    return target


def enter(copy: Path) -> None:
    """Let this process import all modules from the copy. Modules of the checkout are imported again."""
    for name in [module for module in sys.modules if module.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    elsewhere = [folder for folder in sys.path if Path(folder or ".").resolve() != CHECKOUT]
    sys.path[:] = [str(copy), *elsewhere]


class Functions:
    """The functions of some files of the copy, in this process."""

    def __init__(self, functions: Mapping[str, list[FunctionType]]) -> None:
        self._found = functions

    def put_in_place(self, file: str, tree: ast.Module) -> None:
        """Give the functions of the file the code of the tree, so that every reference to them has the new code. The
        tree has the same functions in the same order; their lines may differ.

        Raises `ValueError` if that is impossible, because a function is missing or has other closure variables.
        """
        functions = self._found[file]
        if not functions:
            raise ValueError(f"no check imports {file}")
        path = functions[0].__code__.co_filename
        fresh = _by_name(compile(tree, path, "exec"))
        known = _by_name(compile(Path(path).read_text(encoding="utf-8"), path, "exec"))
        names = {(code.co_qualname, code.co_firstlineno): name for name, code in known.items()}
        for function in functions:
            code = fresh.get(names[function.__code__.co_qualname, function.__code__.co_firstlineno])
            if code is None or len(code.co_freevars) != len(function.__code__.co_freevars):
                raise ValueError(f"{function.__qualname__} of {file} cannot be changed while it is held")
            function.__code__ = code


def functions_of(copy: Path, files: Iterable[str]) -> Functions:
    """Import these files, and find their functions."""
    files = list(files)
    for file in files:
        importlib.import_module(module_of(file))
    paths = {str(copy / file): file for file in files}
    functions: dict[str, list[FunctionType]] = {file: [] for file in files}
    for candidate in gc.get_objects():
        if isinstance(candidate, FunctionType) and candidate.__code__.co_filename in paths:
            functions[paths[candidate.__code__.co_filename]].append(candidate)
    return Functions(functions)


def _by_name(module: CodeType) -> dict[tuple[str, int], CodeType]:
    """The code of each function by its qualified name, and its number among the functions of this name."""
    count: Counter[str] = Counter()
    codes: dict[tuple[str, int], CodeType] = {}
    waiting = [module]
    for code in waiting:
        codes[code.co_qualname, count[code.co_qualname]] = code
        count[code.co_qualname] += 1
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def module_of(file: str) -> str:
    """The name of a file's module."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
