"""Runs checks on a changed copy of the repository, each in a process of its own that is forked from a warm one."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spec_tests.mutation import overlay

WARM: Final = (
    "pytest", "hypothesis", "_pytest.assertion", "_pytest.unraisableexception", "apsw", "apsw.bestpractice", "filelock",
    "greenlet", "msgspec", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "sqlglot", "rich", "typer", "jinja2",
)  # fmt: skip
"""Nothing of the repository, which every process imports from the copy; what others wrote is imported once."""
START_SECONDS: Final = 90.0
"""For imports and collection."""
HANG_SECONDS: Final = 30.0
HANG_FACTOR: Final = 10.0
"""A check hangs when it takes longer than the first, and than so many times what it takes unchanged."""


@dataclass(frozen=True, slots=True)
class Check:
    """What is known of a test that passes on the unchanged source."""

    id: str
    seconds: float
    hits: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class Job:
    """Some checks on one changed copy."""

    modules: Mapping[str, ast.Module]
    files: Sequence[str]
    """The test files that hold the checks, each run by itself: what the later ones import is spared to most mutants."""
    checks: Sequence[Check] | None
    """File by file in this order, up to the first that fails; None: all of these files, whatever fails."""
    done: Callable[[Ended], None]
    warm: bool = False
    """Whether this process has imported the copy (`overlay.warm_up`), so that functions are changed where they are."""


@dataclass(slots=True, kw_only=True)
class Ended:
    """How the checks of a job ended."""

    killer: str | None = None
    """The first check that failed, or what else went wrong."""
    detail: str = ""
    seconds: float = 0.0
    passed: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class _Running:
    job: Job
    pid: int
    started: float
    deadline: float
    place: Path
    ended: Ended = field(default_factory=Ended)
    buffer: bytes = b""
    current: str = "the imports"
    finished: bool = False


def warm_up() -> None:
    """Import here, once, what the forked processes would import one after the other."""
    for name in WARM:
        with contextlib.suppress(ImportError):
            __import__(name)


def run(jobs: Iterator[Job], copy: Path, *, at_once: int) -> None:
    """Run the jobs, so many at once; each is told how it ended. A new job is taken when another one has ended."""
    chosen = selectors.DefaultSelector()
    running: dict[int, _Running] = {}
    more = True
    while more or running:
        while more and len(running) < at_once:
            job = next(jobs, None)
            if job is None:
                more = False
                break
            descriptor, started = _start(job, copy)
            running[descriptor] = started
            chosen.register(descriptor, selectors.EVENT_READ)
        for key, _ in chosen.select(timeout=0.5):
            _read(running[key.fd], key.fd)
        for descriptor, each in list(running.items()):
            if not each.finished and time.monotonic() < each.deadline:
                continue
            chosen.unregister(descriptor)
            del running[descriptor]
            _end(each, descriptor)
            each.job.done(each.ended)


def _start(job: Job, copy: Path) -> tuple[int, _Running]:
    ours, theirs = os.pipe()
    place = Path(tempfile.mkdtemp(prefix="job-", dir=copy.parent))
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            os.setsid()
            _check(job, copy, place, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    now = time.monotonic()
    return ours, _Running(job, pid, now, now + START_SECONDS, place)


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
    if "start" in event:
        running.current = event["start"]
        usual = next((check.seconds for check in job.checks or () if check.id == running.current), 30.0)
        running.deadline = time.monotonic() + max(HANG_SECONDS, HANG_FACTOR * usual)
    elif "passed" in event:
        running.current = "what comes after the last check"
        ended.passed.append(Check(event["passed"], event["seconds"], frozenset(event["hits"])))
    elif ended.killer is None:
        ended.killer, ended.detail = event["failed"], event["detail"]


def _end(running: _Running, descriptor: int) -> None:
    ended = running.ended
    ended.seconds = time.monotonic() - running.started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    os.close(descriptor)
    # In a process of its own: some checks leave thousands of files, and the others that run are to be heard meanwhile.
    subprocess.Popen(["rm", "-rf", str(running.place)])
    complete = running.job.checks is None or len(ended.passed) == len(running.job.checks)
    if ended.killer is None and not (running.finished and complete):
        ended.killer = running.current
        ended.detail = "the process ended" if running.finished else "hangs"


# In the forked process


def _check(job: Job, copy: Path, place: Path, pipe: int) -> None:
    with open(place / "output", "wb", buffering=0) as output:  # noqa: PTH123  # a descriptor for all output
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # the process's own, to its end
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115

    def tell(event: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    os.chdir(copy)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they are imported for seconds, and no check here needs one
    if not (job.warm and all(overlay.put_in_place(copy, file, tree) for file, tree in job.modules.items())):
        overlay.enter(copy, job.modules)
    import pytest

    options = ["-o", "addopts=", "-o", "tmp_path_retention_policy=none", "-p", "no:cacheprovider", "-q"]
    options += [f"--basetemp={place}/tmp", f"--rootdir={copy}"]
    if job.checks is not None:
        options.append("--maxfail=1")
    for file in job.files:
        status = pytest.main([*options, file], plugins=[_Watch(job.checks, tell)])
        if status == pytest.ExitCode.TESTS_FAILED and job.checks is not None:
            break
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            sys.stdout.flush()
            told = (place / "output").read_text(encoding="utf-8", errors="replace")
            tell({"failed": f"the start of {file}", "detail": _last_line(told)})
            break


class _Watch:
    """A plugin of pytest: chooses and orders the checks, and tells how each of them went."""

    def __init__(self, checks: Sequence[Check] | None, tell: Callable[[dict[str, Any]], None]) -> None:
        self._wanted = None if checks is None else {check.id: at for at, check in enumerate(checks)}
        self._tell = tell
        self._hits: set[int] = set()
        self._failed = False
        self._seconds = 0.0
        overlay.count_hits(self._hits.add)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._wanted is not None:
            chosen = [item for item in items if item.nodeid in self._wanted]
            items[:] = sorted(chosen, key=lambda item: self._wanted[item.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._tell({"failed": f"the imports of {report.nodeid}", "detail": _last_line(report.longreprtext)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._hits.clear()
        self._failed, self._seconds = False, 0.0
        self._tell({"start": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds += report.duration
        if report.failed and not self._failed:
            self._failed = True
            self._tell({"failed": report.nodeid, "detail": _last_line(report.longreprtext)})
        if report.when == "teardown" and not self._failed:
            self._tell({"passed": report.nodeid, "seconds": round(self._seconds, 4), "hits": sorted(self._hits)})


def _last_line(text: str) -> str:
    """The first line that pytest marks as the error."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked or text.splitlines() or [""])[0][:200]
