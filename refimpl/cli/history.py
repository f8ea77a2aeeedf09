"""Commands about versions: `log`, `commits`, `explain`, `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from refimpl.cli import output
from refimpl.cli.options import AnyWarehouseOption, JsonOption, TableArgument, WarehouseOption, opened, reached
from refimpl.cli.output import ExitCode

if TYPE_CHECKING:
    from refimpl.care.explain import Explanation, Step
    from refimpl.log.history import HistoryEntry
    from refimpl.protocol.commits import RatifiedCommit

commands = typer.Typer()


_PANEL = "Versions"
_TIMES = frozenset({"at", "inCommitTimestamp", "previous", "clock"})
"""Facts of an explanation that are times in ms since the epoch."""


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner log sales --limit 5")
def log(
    table: TableArgument,
    limit: Annotated[
        int | None, Option("--limit", "-n", min=1, metavar="N", help="show only the newest N versions")
    ] = None,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """List the versions of a table with their operations.

    Newest first; staged and inline commits are included.
    """
    with reached(address) as warehouse:
        entries = warehouse.table(table).history(limit)
    if json:
        output.show_json([_entry(entry) for entry in entries])
        return
    output.show_table(
        ("version", "committed", "stored", "operation", "parameters"),
        [
            (
                output.plain(entry.version),
                output.moment(entry.timestamp),
                entry.stored.value,
                entry.operation,
                _parameters(entry),
            )
            for entry in entries
        ],
        right=("version",),
        whole=("committed", "stored"),
    )


def _parameters(entry: HistoryEntry) -> str | None:
    """The parameters without those that are empty."""
    shown = {key: value for key, value in entry.parameters.items() if value not in (None, "", "[]", "{}")}
    return ", ".join(f"{key}={value}" for key, value in shown.items()) or None


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "timestamp": entry.timestamp,
        "stored": entry.stored.value,
        "operation": entry.operation,
        "commit_info": None if entry.info is None else entry.info.fields,
    }


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner commits sales --start 10")
def commits(
    table: TableArgument,
    start: Annotated[
        int | None, Option("--start", metavar="N", help="first version (default: the first one stored)")
    ] = None,
    end: Annotated[
        int | None, Option("--end", metavar="N", help="last version, inclusive (default: the latest)")
    ] = None,
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Show the owner's answer to get_commits.

    The answer has the ratified commits that the owner still stores, and the latest ratified version.
    """
    with reached(address) as warehouse:
        resolved = warehouse.owner.resolve(table)
        answer = warehouse.owner.get_commits(resolved.table_id, start, end)
    if json:
        output.show_json(
            {
                "latest_ratified_version": answer.latest_ratified_version,
                "commits": [_commit(commit) for commit in answer.commits],
            }
        )
        return
    if answer.commits:
        output.show_table(
            ("version", "mode", "attempt", "in-commit timestamp"),
            [
                (
                    output.plain(commit.version),
                    commit.commit_mode.value,
                    commit.attempt,
                    output.moment(commit.in_commit_timestamp),
                )
                for commit in answer.commits
            ],
            right=("version",),
            whole=("mode", "attempt", "in-commit timestamp"),
        )
    latest = output.plain(answer.latest_ratified_version)
    number = output.counted(len(answer.commits), "unpublished commit") if answer.commits else "no unpublished commits"
    number += "" if start is None and end is None else " in this range"
    output.show_line(f"latest ratified version {latest}; {number}")


def _commit(commit: RatifiedCommit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "commit_mode": commit.commit_mode.value,
        "attempt": commit.attempt,
        "in_commit_timestamp": commit.in_commit_timestamp,
        "ratified_at": commit.ratified_at,
        "size": commit.size,
        "file_name": commit.file_name,
        "inline": commit.content is not None,
    }


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner explain sales 12")
def explain(
    table: TableArgument,
    version: Annotated[int, Argument(metavar="VERSION", help="ratified version")],
    address: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Explain how a version was decided.

    Shows its proposal, the attempts that lost, its timestamps, when it was ratified and published, and the rule
    that applied at each step.
    """
    from refimpl.care.explain import explain as explained

    with opened(address) as warehouse:
        explanation = explained(warehouse.owner, table, version)
    if json:
        output.show_json(explanation)
        return
    _show_explanation(explanation)


def _show_explanation(explanation: Explanation) -> None:
    output.show_line(f"{explanation.table}, version {explanation.version}", style="bold")
    for number, step in enumerate(explanation.steps, start=1):
        output.show_line()
        output.show_facts(_step_facts(step), title=f"{number}. {step.title}")


def _step_facts(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, value in step.facts.items():
        if key in _TIMES and isinstance(value, int):
            shown[key] = f"{output.moment(value)} ({value})"
        elif isinstance(value, int):
            shown[key] = output.plain(value) if "version" in key else value
        elif value != []:
            shown[key] = value
    return shown | {"because": step.why, "rule": step.source}


@commands.command(
    rich_help_panel=_PANEL, epilog="Example:  commit-owner resolve sales 0b6e1f0e-6ad5-4a1c-b6a5-2f5d7c1f9a10"
)
def resolve(
    table: TableArgument,
    attempt: Annotated[str, Argument(metavar="ATTEMPT", help="attempt id: the uuid in the name of the staged file")],
    address: AnyWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Report the outcome of a commit whose answer was lost.

    Exit code 0: the attempt landed; 1: it did not land, and never will.
    """
    from refimpl.protocol.commits import Landed

    with reached(address) as warehouse:
        resolved = warehouse.owner.resolve(table)
        outcome = warehouse.owner.attempt_outcome(resolved.table_id, attempt)
    landed = outcome.commit if isinstance(outcome, Landed) else None
    line = f"{attempt} did not land and never will; the changes can be committed again"
    if landed is not None:
        line = f"{attempt} landed: it is version {landed.version}, ratified {output.moment(landed.ratified_at)}"
    facts = {"attempt": attempt, "landed": landed is not None, "commit": None if landed is None else _commit(landed)}
    output.show(facts, line, json=json)
    if landed is None:
        raise typer.Exit(ExitCode.REFUSED)
