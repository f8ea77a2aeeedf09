"""The command `replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from conformance.command.options import TIMEOUT_TEXT, JsonOption, TimeoutOption
from conformance.command.output import say
from conformance.command.progress import progress
from conformance.command.running import interruptible
from conformance.command.summary import show_result
from conformance.reports import read_finding, to_json
from conformance.running.durations import seconds
from conformance.running.errors import UnusableError
from conformance.running.execution import execute
from conformance.running.replay import options_of, remarks, replay_code

_EPILOG: Final = """Examples:

delta-commit-conformance replay report/findings/some-case/finding.json

delta-commit-conformance replay finding.json 'stdio:./my-owner --debug'"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(replay)


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FINDING.json", help="finding.json from a bundle that `run --report` wrote")
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="SUBJECT", help="other subject (default: the finding's own)", show_default=False),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="same as the argument SUBJECT")
    ] = None,
    json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Replay the case of a finding, on the same subject or on another one.

    Exit code 0: the case passes; 1: it still fails; 2: invalid file or subject; 3: no verdict.
    """
    if other is not None and subject is not None and other != subject:
        raise UnusableError(f"two subjects given: {other!r} and --subject {subject!r}; pass one of them")
    subject = subject or other
    finding = read_finding(file)
    for remark in remarks(finding, subject):
        say(f"note: {remark}")
    options = options_of(finding, subject=subject, timeout=seconds(timeout, "--timeout"))
    with interruptible(), progress() as watcher:
        result = execute(options, watcher)
    if json:
        print(to_json(result), end="")
    else:
        show_result(result, None)
    raise typer.Exit(replay_code(result))
