"""Commands that keep tables and the owner well: `backfill`, `checkpoint`, `cleanup`, `verify`, `repair`, `backup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refimpl.cli import output
from refimpl.cli.exit_codes import ExitCode
from refimpl.cli.options import JsonOption, TableArgument, WarehouseOption, duration_ms, opened

if TYPE_CHECKING:
    from refimpl.owner.verify import Finding

_PANEL = "Upkeep"
_STYLES = {"error": "bold red", "warning": "yellow", "note": ""}


def register(application: typer.Typer) -> None:
    application.command(rich_help_panel=_PANEL, epilog=_BACKFILL)(backfill)
    application.command(rich_help_panel=_PANEL, epilog=_VERIFY)(verify)
    application.command(rich_help_panel=_PANEL, epilog=_REPAIR)(repair)
    application.command(rich_help_panel=_PANEL, epilog=_BACKUP)(backup)


_BACKFILL = "Example:  commit-owner backfill sales --to 20"


def backfill(
    table: TableArgument,
    to: Annotated[int | None, typer.Option("--to", metavar="N", help="Up to this version; without it all.")] = None,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Publish ratified commits, in order and durably.

    Each becomes <version>.json in the table's log. Continues a backfill that was interrupted.
    """
    with opened(warehouse) as place:
        found = place.owner.resolve(table)
        done = place.owner.backfill_to_version(found.table_id, to)
    if json:
        output.show_json(done)
        return
    output.show_line(f"published {done.published} commits; the log is complete through version {done.through}")


_CHECKPOINT = "Example:  commit-owner checkpoint sales"
_CLEANUP = "Example:  commit-owner cleanup sales --older-than 30d"
_VERIFY = "Example:  commit-owner verify -w /data/warehouse --json"


def verify(warehouse: WarehouseOption = None, json: JsonOption = False) -> None:
    """Check the ledger and all tables.

    Every invariant, reading only. Exit code 1: one of them is broken.
    """
    from refimpl.owner.verify import Severity
    from refimpl.owner.verify import verify as verified

    with opened(warehouse) as place:
        findings = verified(place.owner)
        tables = len(place.owner.tables())
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    if json:
        output.show_json({"ok": not wrong, "tables": tables, "findings": findings})
    else:
        _show_findings(findings)
        repairable = sum(finding.repairable for finding in findings)
        step = f"; {repairable} can be repaired: commit-owner repair" if repairable else ""
        output.show_line(f"{tables} tables: {_count(findings)}{step}")
    if wrong:
        raise typer.Exit(ExitCode.REFUSED)


def _show_findings(findings: list[Finding]) -> None:
    if findings:
        output.show_table(
            ("severity", "table", "code", "what"),
            [(finding.severity.value, finding.table, finding.code, finding.message) for finding in findings],
        )


def _count(findings: list[Finding]) -> str:
    if not findings:
        return "every invariant holds"
    severities = [finding.severity.value for finding in findings]
    return ", ".join(f"{severities.count(kind)} {kind}s" for kind in _STYLES if kind in severities)


_REPAIR = """Examples:

commit-owner repair

commit-owner repair --adopt-published --older-than 7d"""


def repair(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Remove orphaned staged files of this age.")
    ] = "24h",
    adopt_published: Annotated[
        bool,
        typer.Option("--adopt-published", help="Believe published files above the ledger's latest version."),
    ] = False,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Repair what is provably safe to repair.

    Finish promises and backfills, remove old orphaned staged files. Exit code 1: something could not be done.
    """
    from refimpl.owner.repair import repair as repaired

    age = duration_ms(older_than)
    with opened(warehouse) as place:
        actions = repaired(place.owner, orphan_age_ms=age, adopt_published=adopt_published)
    undone = [action for action in actions if not action.done]
    if json:
        output.show_json({"ok": not undone, "actions": actions})
    elif not actions:
        output.show_line("there was nothing to repair")
    else:
        output.show_table(
            ("done", "table", "code", "what"),
            [("yes" if action.done else "NO", action.table, action.code, action.message) for action in actions],
        )
    if undone:
        raise typer.Exit(ExitCode.REFUSED)


_BACKUP = "Example:  commit-owner backup /backups/ledger-2026-11-21.db"


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Copy the owner's ledger while it runs.

    The copy is consistent and durable. The tables' own files are not in it.
    """
    place_of_copy = target.absolute()
    with opened(warehouse) as place:
        place.owner.ledger.back_up(place_of_copy)
    bytes_written = place_of_copy.stat().st_size
    if json:
        output.show_json({"path": str(place_of_copy), "bytes": bytes_written})
        return
    output.show_line(f"wrote {place_of_copy} ({output.size(bytes_written)})")
