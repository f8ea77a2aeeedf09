"""The commands about earlier results: `report`, `check` and `findings`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from conformance.adapters.wire import near
from conformance.command.output import JsonOption, argument, option, say, show, show_json
from conformance.interface.results import ExitCode, UnusableError, counted
from conformance.interface.safe_text import without_markup

if TYPE_CHECKING:
    from conformance.history.times import Times
    from conformance.history_checkers.check import HistoryVerdict
    from conformance.interface.results import RunResult


def report(
    file: Annotated[Path, argument("RESULT.json", "result that `run --report` or `run --json` wrote")],
    folder: Annotated[
        Path | None, option("--folder FOLDER", "write all formats and the findings to this folder")
    ] = None,
) -> None:
    """Show the verdict of an earlier run, or write all its reports.

    The exit code is that of the earlier run; 2 if the file is not a result.
    """
    from conformance import reports
    from conformance.reports.text import to_text

    result = read_result(file)
    if folder is None:
        show(to_text(result, None))
    else:
        for path in reports.write(result, folder):
            show(str(path))
    raise typer.Exit(result.exit_code)


def read_result(file: Path) -> "RunResult":
    """Raises `UnusableError` for a file that cannot be read, `ReportError` for one that is not a result."""
    from conformance import reports

    try:
        content = file.read_bytes()
    except OSError as error:
        raise UnusableError(
            f"cannot read {file}: {error.strerror or error}; expected the result file of a run"
        ) from error
    try:
        return reports.from_json(content)
    except reports.ReportError as error:
        raise reports.ReportError(f"{file}: {error.problem}; expected the result.json of a run") from None


def check(
    file: Annotated[Path, argument("HISTORY", "history file in JSON Lines, with header and footer")],
    json: JsonOption = False,
) -> None:
    """Check a recorded history, of this kit or of a system in production.

    Exit code 0: conformant; 1: the history shows a violation; 2: the file is not a valid history; 3: the final log of
    a table could not be read, and the rest shows no violation.
    """
    from conformance.history.events import InvalidHistoryError
    from conformance.history.times import times_of_file
    from conformance.history_checkers.check import check_file

    try:
        verdict = check_file(file)
    except InvalidHistoryError as error:
        _unusable(file, error.problem, error.line, as_json=json)
    except MemoryError:
        _unusable(file, "it does not fit in the memory of this machine", None, as_json=json)
    if verdict.violations:
        verdict = _readable(verdict, times_of_file(file))
    word = "conformant" if verdict.conformant else "violation" if verdict.violations else "incomplete"
    if json:
        show_json({"file": str(file), "verdict": word, **msgspec.to_builtins(verdict)})
    else:
        _show(file, word, verdict)
    codes = {"conformant": ExitCode.CONFORMANT, "violation": ExitCode.VIOLATION, "incomplete": ExitCode.INCOMPLETE}
    raise typer.Exit(codes[word])


def _readable(verdict: "HistoryVerdict", times: "Times") -> "HistoryVerdict":
    """The verdict with readable times in its messages; the operations keep the times of the history."""
    violations = [
        msgspec.structs.replace(violation, message=times.in_words(violation.message))
        for violation in verdict.violations
    ]
    return msgspec.structs.replace(verdict, violations=tuple(violations))


def _unusable(file: Path, problem: str, line: int | None, *, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"file": str(file), "verdict": "invalid", "line": line, "problem": problem})
    else:
        where = "" if line is None else f", line {line}"
        say(
            f"error: {file}{where}: invalid history: {problem}; "
            f"for the format see: delta-commit-conformance schema history"
        )
    raise typer.Exit(ExitCode.USAGE)


def _show(file: Path, word: str, verdict: "HistoryVerdict") -> None:
    tables = ", ".join(f"{table} ({counted(n, 'version')})" for table, n in verdict.tables.items()) or "no table"
    operations = counted(verdict.operations, "operation")
    show(f"{file}: {word}: {operations} on {tables}; {verdict.header.subject.name}")
    for number, violation in enumerate(verdict.violations, 1):
        where = "" if violation.version is None else f", version {violation.version}"
        show(f"\n{number}. {violation.rule.value}: {violation.table}{where}")
        show(f"   Required: {violation.requirement}")
        show(f"   Found: {violation.message}")
    for table, reason in verdict.unseen.items():
        show(f"\n{table}: no final log, checked by the answers alone: {reason}")
    if verdict.left_out:
        show(f"\nNot shown: {counted(verdict.left_out, 'more violation')} of the same rules.")


def findings(
    identifier: Annotated[
        str | None, argument("ID", "one finding, as a report for the maintainers", show_default=False)
    ] = None,
) -> None:
    """Print the bugs found in published owners and clients, each with a command that reproduces it."""
    from conformance.findings import markdown, stored

    folder = markdown.FOLDER if markdown.FOLDER.is_dir() else stored.HOME / "found"
    pages = {finding.id: markdown.report(finding, folder) for finding in stored.findings()}
    if identifier is None:
        _show_markdown(markdown.page(stored.runs(), stored.findings(), folder))
    elif identifier in pages:
        _show_markdown(pages[identifier])
    else:
        raise UnusableError(
            f"unknown finding {identifier!r}{near(identifier, pages)} (all: delta-commit-conformance findings)"
        )


def _show_markdown(text: str) -> None:
    """Print Markdown; on a terminal the text alone, with each command on one line."""
    sys.stdout.write(without_markup(text) if sys.stdout.isatty() else text)
