"""The command `run`."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from conformance.command.options import TIMEOUT_TEXT, ClasspathOption, JsonOption, SubjectArgument, TimeoutOption
from conformance.command.output import counted, say
from conformance.command.progress import progress
from conformance.command.summary import show_result
from conformance.reports import ReportFolder, to_json
from conformance.results import RunResult
from conformance.running import known_failures
from conformance.running.errors import UnusableError
from conformance.running.execution import Options, execute
from conformance.running.plan import select
from conformance.running.profiles import PROFILES, profile_named, seconds
from conformance.subjects.names import FORMS

_EPILOG: Final = """Examples:

delta-commit-conformance run reference

delta-commit-conformance run 'stdio:node my-owner.mjs' --profile standard --report report -n 2

delta-commit-conformance run http://127.0.0.1:8080 --family backfill-ordering --seed 7

delta-commit-conformance run python:my_owner:MyOwner --known known.toml --report report"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(run)


def run(
    subject: SubjectArgument = None,
    classpath: ClasspathOption = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", metavar="NAME", help=f"size of the run: {', '.join(PROFILES)}")
    ] = "quick",
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="maximum time; a run that exceeds it is incomplete (exit code 3)"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="seed of the generated scenarios")] = 0,
    workers: Annotated[
        str,
        typer.Option(
            "-n", "--workers", metavar="N", help="number of worker processes, each with its own subject; or: auto"
        ),
    ] = "auto",
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check", metavar="PATTERN", help="only checks or cases with this name (repeatable; `*` matches any text)"
        ),
    ] = None,
    requirement: Annotated[
        list[str] | None,
        typer.Option(
            "--requirement", metavar="ID", help="only cases about this requirement (repeatable; `*` matches any text)"
        ),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="only checks of this family (repeatable)")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option("--layer", help="only this layer: example, model, simulation or processes (repeatable)"),
    ] = None,
    known: Annotated[
        Path | None, typer.Option("--known", metavar="FILE", help="list of known failures with reasons (TOML)")
    ] = None,
    write_known: Annotated[
        Path | None, typer.Option("--write-known", metavar="FILE", help="write a list of known failures from this run")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FOLDER",
            help="write the HTML page, JSON, JUnit, Markdown, badge and findings to this folder",
        ),
    ] = None,
    json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="also fail on a violated SHOULD")] = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="stop at the first failure")] = False,
) -> None:
    """Test a subject against every requirement that applies to it.

    The verdict goes to stdout, progress to stderr. The same seed and subject give the same result, independent of
    the selection and of the number of workers. The exception is the layer `processes`, whose cases run
    concurrently.
    """
    options = Options(
        subject=subject_of(subject, classpath),
        profile=profile_named(profile),
        seed=seed,
        workers=_number_of(workers),
        selection=select(check=check or (), requirement=requirement or (), family=family or (), layer=layer or ()),
        known=() if known is None else known_failures.read(known),
        strict=strict,
        fail_fast=fail_fast,
        timeout=seconds(timeout, "--timeout"),
        budget=None if budget is None else seconds(budget, "--budget"),
    )
    if write_known is not None:
        _must_be_new(write_known, known)
    with ExitStack() as stack:
        folder = None if report is None else stack.enter_context(ReportFolder(report))
        with interruptible(), progress() as watcher:
            result = execute(options, watcher)
        if folder is not None:
            folder.write(result)
        if write_known is not None:
            _write_known(write_known, result)
    if json:
        print(to_json(result), end="")
    else:
        show_result(result, report)
    raise typer.Exit(result.exit_code)


def subject_of(name: str | None, classpath: str | None = None) -> str:
    """The subject's name, with the class path as a part of it. There is no default: raises `UnusableError` with the
    forms."""
    if name is None or not name.strip():
        raise UnusableError(f"SUBJECT is required; it is one of\n{FORMS}")
    if classpath is None:
        return name
    if not name.startswith("jvm:"):
        raise UnusableError(f"--classpath works only with a subject jvm:CLASS, not with {name!r}")
    return f"{name} --classpath {shlex.quote(classpath)}"


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends a run with what was found so far; SIGTERM, with which a CI system cancels, likewise. Also where
    Ctrl-C is ignored, as a shell does it for what it starts in the background."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _number_of(workers: str) -> int:
    if workers == "auto":
        return max(1, min(os.cpu_count() or 1, 4))
    if not workers.isdecimal() or not int(workers):
        raise UnusableError(f"invalid -n {workers!r}; expected a number >= 1, or auto")
    return int(workers)


def _must_be_new(file: Path, known: Path | None) -> None:
    """The reasons in a list are somebody's work."""
    if file.exists() and (known is None or file.resolve() != known.resolve()):
        raise UnusableError(f"{file} exists already; pass it with --known too to keep its reasons, or delete it")


def _write_known(file: Path, result: RunResult) -> None:
    if not result.complete:
        say(f"{file} was not written: the run is incomplete")
        return
    file.write_text(
        known_failures.generate(result.subject.named, result.cases, result.known, strict=result.strict), "utf-8"
    )
    failures = sum(line == "[[known-failure]]" for line in file.read_text("utf-8").splitlines())
    say(f"{file}: {counted(failures, 'known failure')}; fill in the empty reasons, then run with --known {file}")
