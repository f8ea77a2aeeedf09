"""The command `matrix`: several subjects on one page."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conformance.command import running
from conformance.command.output import TIMEOUT_TEXT, TimeoutOption, argument, option, say, show
from conformance.command.reporting import read_result
from conformance.interface.results import ExitCode, UnusableError, counted
from conformance.interface.safe_text import one_line
from conformance.interface.subject import UsageError
from conformance.running.plan import profile_named, seconds

if TYPE_CHECKING:
    from conformance.interface.results import RunResult
    from conformance.reports.page import Column
    from conformance.running.execution import Options

OURS: Final = ("reference", "jvm:in-memory", "jvm:dynamodb", "reference-client", "reference-client-remote")
"""The default subjects of a matrix, before all engines."""


def matrix(
    subjects: Annotated[
        list[str] | None,
        argument(
            "SUBJECT",
            "subjects to test, or folders of `run --report` to take a result from, or a folder of such folders "
            "(default: this repository's owner and clients, Delta's coordinators and all engines)",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, option("--output -o FOLDER", "folder for the page and the subjects' reports")] = Path(
        "matrix"
    ),
    profile: running.ProfileOption = "quick",
    budget: Annotated[
        str | None,
        option(
            "--budget TIME",
            "maximum time for each subject; a run that exceeds it is incomplete (default: the profile's; "
            "quick: 5m, which Delta Spark exceeds on a busy machine)",
        ),
    ] = None,
    seed: running.SeedOption = 0,
    workers: running.WorkersOption = "auto",
    fetch: Annotated[
        bool, option("--fetch", "first download or build the engines that are missing (Maven, cargo)")
    ] = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Test several subjects and write one page: subjects across, requirements down, a verdict in each cell.

    The page names subjects that cannot run here, with the packages to install. Ctrl-C and SIGTERM end the command,
    and the page has the finished subjects. Exit code 0: every subject was run, with any verdict; 2: usage error;
    3: a subject was not run, or its run was interrupted.
    """
    from conformance.reports import ReportFolder
    from conformance.reports.page import Column, slug, to_matrix
    from conformance.reports.stored import write_file
    from conformance.running.execution import Options
    from conformance.subjects.names import ENGINES, check_name

    given = subjects or (*OURS, *(f"engine:{engine}" for engine in ENGINES))
    names = list(dict.fromkeys(name for subject in given for name in _reports_in(subject)))
    for name in names:
        if Path(name).is_dir():
            read_result(Path(name) / "result.json")
        else:
            check_name(name)
    places = _places(names)
    folders = [slug(place) for place in places]
    if same := [name for name, folder in zip(names, folders, strict=True) if folders.count(folder) > 1]:
        raise UnusableError(f"{' and '.join(same)} would have the same folder in {output}; run matrix once for each")
    chosen, many, limit = profile_named(profile), running.number_of(workers), seconds(timeout, "--timeout")
    longest = None if budget is None else seconds(budget, "--budget")
    running.require_libraries("", report=True)
    columns: list[Column] = []
    with ReportFolder(output) as claimed:
        with running.interruptible() as interrupted, suppress(KeyboardInterrupt):
            for number, (name, place, folder) in enumerate(zip(names, places, folders, strict=True), 1):
                say(f"{number} of {counted(len(names), 'subject')}: {name}")
                begun = time.monotonic()
                options = Options(subject=name, profile=chosen, seed=seed, workers=many, timeout=limit, budget=longest)
                column = _column(name, place, options, output / folder, fetch=fetch)
                columns.append(column)
                said = column.reason if column.result is None else _verdict(column.result)
                say(f"  {time.monotonic() - begun:.0f} s: {said}")
                if interrupted.is_set():
                    break
        columns += [Column(subject=place, reason="interrupted") for place in places[len(columns) :]]
        page = claimed.path / "index.html"
        write_file(page, to_matrix(columns, output))
    for column in columns:
        show(f"{column.subject}: {_verdict(column.result) if column.result else f'not run: {column.reason}'}")
    show(f"page: {page}")
    missing = interrupted.is_set() or any(column.result is None for column in columns)
    raise typer.Exit(ExitCode.INCOMPLETE if missing else ExitCode.CONFORMANT)


def _reports_in(name: str) -> list[str]:
    """For a folder that holds folders of reports, those; otherwise the name itself."""
    here = Path(name, "result.json").exists()
    return [name] if here else sorted(str(file.parent) for file in Path(name).glob("*/result.json")) or [name]


def _places(names: list[str]) -> list[str]:
    """The names of the subjects' report folders; for given folders their last parts, as many as distinguish them."""
    paths = [Path(name).resolve() if Path(name).is_dir() else None for name in names]
    longest = max((len(path.parts) for path in paths if path is not None), default=1)
    for length in range(1, longest + 1):
        places = [
            name if path is None else "/".join(path.parts[-length:]) for name, path in zip(names, paths, strict=True)
        ]
        if len(set(places)) == len(places):
            break
    return places


def _column(name: str, place: str, options: "Options", folder: Path, *, fetch: bool) -> "Column":
    from conformance.reports import write
    from conformance.reports.page import Column
    from conformance.running.execution import execute

    if Path(name).is_dir():
        result = read_result(Path(name) / "result.json")
        name = place
    else:
        try:
            if fetch:
                _fetch(name)
            running.require_libraries(name)
            result = execute(options, running.Progress())
        except (UnusableError, UsageError) as error:
            return Column(subject=name, reason=one_line(error.problem.partition("\n")[0]))
        if result.exit_code == ExitCode.USAGE:
            return Column(subject=name, reason=one_line(result.stopped))
    write(result, folder)
    return Column(subject=name, result=result)


def _fetch(name: str) -> None:
    """Raises `UsageError`."""
    from conformance.adapters.engines.engine import fetch_jars
    from conformance.subjects.names import engine_of

    kind, _, rest = name.partition(":")
    if kind == "engine":
        engine, version = engine_of(name, rest)
        if engine.missing(version):
            say(f"  {engine.fetch(version)}")
    elif kind == "jvm":
        fetch_jars()


def _verdict(result: "RunResult") -> str:
    from conformance.reports import summarise

    return summarise(result).brief
