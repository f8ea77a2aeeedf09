"""Commands about versions: `log`, `commits`, `resolve`."""

from typing import TYPE_CHECKING, Any

from refimpl.cli import output
from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode, Result, TextTable

if TYPE_CHECKING:
    from refimpl.log.history import HistoryEntry
    from refimpl.protocol.commits import RatifiedCommit
    from refimpl.warehouse import AnyWarehouse

_PANEL = "Versions"


@command(_PANEL, "log sales --limit 5", server=True)
def log(warehouse: "AnyWarehouse", table: str, limit: int | None = None) -> Result:
    """List the versions of a table with their operations.

    Newest first; staged and inline commits are included.
    """
    entries = warehouse.table(table).history(limit)
    document = [
        {
            "version": entry.version,
            "timestamp": entry.timestamp,
            "stored": entry.stored.value,
            "operation": entry.operation,
            "commit_info": None if entry.info is None else entry.info.fields,
        }
        for entry in entries
    ]
    rows = [
        (str(each.version), output.moment(each.timestamp), each.stored.value, each.operation, _parameters(each))
        for each in entries
    ]
    columns = ("version", "committed", "stored", "operation", "parameters")
    return Result(document, TextTable(columns=columns, rows=rows, right=("version",), whole=("committed", "stored")))


def _parameters(entry: "HistoryEntry") -> str | None:
    """The parameters without those that are empty."""
    shown = {key: value for key, value in entry.parameters.items() if value not in (None, "", "[]", "{}")}
    return ", ".join(f"{key}={value}" for key, value in shown.items()) or None


@command(_PANEL, "commits sales --start 10", server=True)
def commits(warehouse: "AnyWarehouse", table: str, start: int | None = None, end: int | None = None) -> Result:
    """Show the owner's answer to get_commits.

    The answer has the ratified commits that the owner still stores, and the latest ratified version.
    """
    answer = warehouse.owner.get_commits(warehouse.owner.resolve(table).table_id, start, end)
    number = output.counted(len(answer.commits), "unpublished commit") if answer.commits else "no unpublished commits"
    number += "" if start is None and end is None else " in this range"
    times = ("mode", "attempt", "in-commit timestamp")
    rows = [
        (str(each.version), each.commit_mode.value, each.attempt, output.moment(each.in_commit_timestamp))
        for each in answer.commits
    ]
    return Result(
        {"latest_ratified_version": answer.latest_ratified_version, "commits": list(map(_commit, answer.commits))},
        *([TextTable(columns=("version", *times), rows=rows, right=("version",), whole=times)] if rows else []),
        f"latest ratified version {output.plain(answer.latest_ratified_version)}; {number}",
    )


def _commit(commit: "RatifiedCommit") -> dict[str, Any]:
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


@command(_PANEL, "resolve sales 0b6e1f0e-6ad5-4a1c-b6a5-2f5d7c1f9a10", server=True)
def resolve(warehouse: "AnyWarehouse", table: str, attempt: str) -> Result:
    """Report the outcome of a commit whose answer was lost.

    Exit code 0: the attempt landed; 1: it did not land, and never will.
    """
    from refimpl.protocol.commits import Landed

    outcome = warehouse.owner.attempt_outcome(warehouse.owner.resolve(table).table_id, attempt)
    if not isinstance(outcome, Landed):
        line = f"{attempt} did not land and never will; the changes can be committed again"
        return Result({"attempt": attempt, "landed": False, "commit": None}, line, code=ExitCode.REFUSED)
    commit = outcome.commit
    return Result(
        {"attempt": attempt, "landed": True, "commit": _commit(commit)},
        f"{attempt} landed: it is version {commit.version}, ratified {output.moment(commit.ratified_at)}",
    )
