"""The command `smoke`."""

from __future__ import annotations

from typing import Final

import typer

from conformance.command.options import TIMEOUT_TEXT, ClasspathOption, JsonOption, SubjectArgument, TimeoutOption
from conformance.command.output import show, show_json
from conformance.command.running import subject_of
from conformance.running.errors import ExitCode, UnusableError
from conformance.running.profiles import seconds
from conformance.running.worker_pool import Session
from conformance.subjects.smoke import Step, first_hello

_EPILOG: Final = """Examples:

delta-commit-conformance smoke 'stdio:node my-owner.mjs'

delta-commit-conformance smoke http://127.0.0.1:8080 --json"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(smoke)


def smoke(
    subject: SubjectArgument = None,
    classpath: ClasspathOption = None,
    json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Send a subject the first requests, and separate adapter errors from owner errors.

    Exit code 0: no error; 1: the owner violates a requirement; 2: the adapter is broken, no verdict is possible;
    3: incomplete.
    """
    try:
        with Session(subject_of(subject, classpath), timeout=seconds(timeout, "--timeout")) as session:
            report = session.smoke()
    except UnusableError as error:
        if not error.says:
            raise
        _show_first_hello(first_hello(error.came, error.says), json=json)
        raise typer.Exit(ExitCode.USAGE) from None
    if json:
        show_json({"ok": report.ok, "adapter": report.adapter, "owner": report.owner, "steps": report.steps})
    else:
        show(str(report))
    if report.adapter:
        raise typer.Exit(ExitCode.USAGE)
    if report.owner:
        raise typer.Exit(ExitCode.VIOLATION)
    raise typer.Exit(ExitCode.CONFORMANT if report.ok else ExitCode.INCOMPLETE)


def _show_first_hello(step: Step, *, json: bool) -> None:
    """Who answers `hello` by nothing that can be read has no name, and is asked no more."""
    if json:
        show_json({"ok": False, "adapter": str(step), "owner": "", "steps": [step]})
    else:
        show(f"the adapter is broken; repair it to get a verdict\n{step}")
