"""The command `report`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from conformance import reports
from conformance.command.output import show
from conformance.command.summary import show_result
from conformance.reports.bundle import write_file
from conformance.results import RunResult
from conformance.running.errors import UnusableError

_EPILOG: Final = """Examples:

delta-commit-conformance report report/result.json

delta-commit-conformance report report/result.json --markdown >> "$GITHUB_STEP_SUMMARY"

delta-commit-conformance report result.json --html --output page.html

delta-commit-conformance report result.json --folder report"""

_MAKERS: Final[dict[str, Callable[[RunResult], str]]] = {
    "html": reports.to_html,
    "markdown": reports.to_markdown,
    "junit": reports.to_junit,
    "badge": reports.to_badge,
    "json": reports.to_json,
}


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(report)


def report(
    file: Annotated[
        Path, typer.Argument(metavar="RESULT.json", help="result that `run --report` or `run --json` wrote")
    ],
    html: Annotated[bool, typer.Option("--html", help="write the HTML page, in one file")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="write a summary in Markdown")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="write JUnit XML")] = False,
    badge: Annotated[bool, typer.Option("--badge", help="write JSON for a shields.io endpoint badge")] = False,
    json: Annotated[bool, typer.Option("--json", help="write the result in this version's JSON format")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="output file (default: stdout)")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="write all formats and the findings to this folder"),
    ] = None,
) -> None:
    """Convert the result of an earlier run to another format (default: the verdict as text).

    The exit code is that of the earlier run; 2 if the file is not a result.
    """
    asked = {"html": html, "markdown": markdown, "junit": junit, "badge": badge, "json": json}
    wanted = [name for name, chosen in asked.items() if chosen]
    if len(wanted) > 1:
        raise UnusableError(
            f"only one format is possible, not --{' and --'.join(wanted)}; --folder FOLDER writes all formats"
        )
    if output is not None and not wanted:
        raise UnusableError(f"--output requires a format: --{', --'.join(_MAKERS)}")
    result = read_result(file)
    if folder is not None:
        for path in reports.write(result, folder):
            show(str(path))
    elif not wanted:
        show_result(result, None)
    elif output is None:
        sys.stdout.write(_MAKERS[wanted[0]](result))
    else:
        write_file(output, _MAKERS[wanted[0]](result))
    raise typer.Exit(result.exit_code)


def read_result(file: Path) -> RunResult:
    """Raises `UnusableError` for a file that cannot be read, `ReportError` for one that is no result."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UnusableError(
            f"cannot read {file}: {error.strerror or error}; expected the result file of a run"
        ) from error
    return reports.from_json(content)
