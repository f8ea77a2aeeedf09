"""Maintenance commands: `backfill`, `checkpoint`, `cleanup`, `optimize`, `reorg`, `vacuum`, `policy`, `verify`,
`repair`, `backup`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer import Argument, Option

from refimpl.cli import options, output
from refimpl.cli.output import ExitCode
from refimpl.protocol.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.care.verify import Finding
    from refimpl.client.data_maintenance import Optimized
    from refimpl.client.table import Table
    from refimpl.protocol.commit_owner import MaintenancePolicy

commands = typer.Typer()


_PANEL = "Maintenance"
_STYLES = {"error": "bold red", "warning": "yellow", "note": ""}


_BACKFILL = """Examples:

commit-owner backfill sales --to 20

commit-owner backfill sales --by-client"""


@commands.command(rich_help_panel=_PANEL, epilog=_BACKFILL)
def backfill(
    table: options.TableArgument,
    to: Annotated[int | None, Option("--to", metavar="N", help="last version to publish (default: the latest)")] = None,
    by_client: Annotated[
        bool, Option("--by-client", help="publish from this process, then report it to the owner (catalogManaged only)")
    ] = False,
    address: options.AnyWarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Publish ratified commits, in order and durably.

    Each commit becomes `<version>.json` in the table's log. An interrupted backfill is continued.
    """
    with options.reached(address) as warehouse:
        if by_client:
            done = warehouse.table(table).publish(to)
        else:
            done = warehouse.owner.backfill_to_version(warehouse.owner.resolve(table).table_id, to)
    output.show(
        done,
        f"published {output.counted(done.published, 'commit')}; the log is complete through version {done.through}",
        json=json,
    )


_CHECKPOINT = """Examples:

commit-owner checkpoint sales

commit-owner checkpoint sales --compact 10:19"""


@commands.command(rich_help_panel=_PANEL, epilog=_CHECKPOINT)
def checkpoint(
    table: options.TableArgument,
    version: Annotated[
        int | None, Option("--version", "-v", metavar="N", help="version to write it for (default: the latest)")
    ] = None,
    compact: Annotated[
        str | None, Option("--compact", metavar="FIRST:LAST", help="write a log compaction of these versions instead")
    ] = None,
    checksum: Annotated[bool, Option("--checksum", help="write a version checksum instead")] = False,
    address: options.AnyWarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Write a checkpoint, a log compaction or a checksum.

    Checkpoints and compactions need published versions. A checksum is possible for any version.
    """
    if compact is not None and (checksum or version is not None):
        raise InvalidRequestError("--compact cannot be combined with --version or --checksum")
    with options.reached(address) as warehouse:
        handle = warehouse.table(table)
        written = (
            _compacted(handle, compact) if compact is not None else _of_version(handle, version, checksum=checksum)
        )
    output.show(written, f"wrote {written['name']}", json=json)


def _of_version(table: Table, version: int | None, *, checksum: bool) -> dict[str, Any]:
    if checksum:
        from refimpl.client.maintenance import write_checksum

        return {"kind": "checksum", "name": write_checksum(table, version)}
    from refimpl.client.maintenance import write_checkpoint

    return {"kind": "checkpoint"} | dataclasses.asdict(write_checkpoint(table, version))


def _compacted(table: Table, versions: str) -> dict[str, Any]:
    from refimpl.client.maintenance import compact

    first, colon, last = versions.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise InvalidRequestError(f"invalid version range {versions!r}; expected FIRST:LAST, for example 10:19")
    return {"kind": "log-compaction", "name": compact(table, int(first), int(last))}


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner cleanup sales --older-than 30d")
def cleanup(
    table: options.TableArgument,
    older_than: Annotated[
        str | None,
        Option("--older-than", metavar="AGE", help="minimum age, for example 30d (default: the table's log retention)"),
    ] = None,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Delete old log files that no retained version needs.

    The table's policy must allow metadata-cleanup, and a sufficiently old checkpoint must exist. Versions before
    that checkpoint can no longer be read.
    """
    from refimpl.client.maintenance import clean_up

    age = None if older_than is None else options.duration_ms(older_than)
    with options.opened(address) as warehouse:
        done = clean_up(warehouse.table(table), older_than=age)
    line = f"deleted {output.counted(len(done.deleted), 'file')}; the log begins with the checkpoint of {done.cut_off}"
    if done.cut_off is None:
        line = "nothing deleted: no checkpoint is old enough"
    output.show(dataclasses.asdict(done), line, json=json)


_WhereOption = Annotated[
    str | None, Option("--where", metavar="SQL", help="condition on partition columns (default: all partitions)")
]
_TargetSizeOption = Annotated[
    int, Option("--target-size", min=1, metavar="MIB", help="approximate size of the new files in MiB")
]


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner optimize sales --where 'month = 11'")
def optimize(
    table: options.TableArgument,
    where: _WhereOption = None,
    target_size: _TargetSizeOption = 128,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Combine small data files into larger ones.

    The table's policy must allow optimize. The rows stay the same, and concurrent appends do not conflict. The old
    files stay until vacuum deletes them.
    """
    from refimpl.client.data_maintenance import optimize as optimized

    with options.opened(address) as warehouse:
        done = optimized(warehouse.table(table), where, target_size=target_size * 1024 * 1024)
    _show_rewritten(done, "no two small files are in one partition", json=json)


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner reorg sales --where 'month = 11'")
def reorg(
    table: options.TableArgument,
    where: _WhereOption = None,
    target_size: _TargetSizeOption = 128,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Rewrite data files that have deletion vectors, without the deleted rows.

    The same as REORG TABLE ... APPLY (PURGE) in Delta Spark. The table's policy must allow reorg. Concurrent appends do
    not conflict. The old files stay until vacuum deletes them.
    """
    from refimpl.client.data_maintenance import reorg as reorganized

    with options.opened(address) as warehouse:
        done = reorganized(warehouse.table(table), where, target_size=target_size * 1024 * 1024)
    _show_rewritten(done, "no file has a deletion vector", json=json)


def _show_rewritten(done: Optimized, nothing: str, *, json: bool) -> None:
    line = f"nothing to do: {nothing}"
    if done.version is not None:
        before, after = output.size(done.removed_bytes), output.size(done.added_bytes)
        line = (
            f"version {done.version}: {output.counted(done.removed, 'file')} ({before}) became {done.added} ({after})"
        )
    output.show(dataclasses.asdict(done), line, json=json)


_VACUUM = """Examples:

commit-owner vacuum sales

commit-owner vacuum sales --delete --older-than 30d"""


@commands.command(rich_help_panel=_PANEL, epilog=_VACUUM)
def vacuum(
    table: options.TableArgument,
    delete: Annotated[bool, Option("--delete", help="delete the files (default: only list them)")] = False,
    older_than: Annotated[
        str | None,
        Option("--older-than", metavar="AGE", help="minimum age, for example 30d (default: the table's retention)"),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="allow an age below the table's retention, if no other process uses the table")
    ] = False,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """List, or delete, data files that no retained version needs.

    The table's policy must allow vacuum. Versions older than AGE may become unreadable. If the table's retention was
    shorter in the past, all versions before the oldest commit in the log may become unreadable.
    """
    from refimpl.client.data_maintenance import vacuum as vacuumed

    age = None if older_than is None else options.duration_ms(older_than)
    with options.opened(address) as warehouse:
        done = vacuumed(warehouse.table(table), older_than=age, dry_run=not delete, force=force)
    names = [os.fsencode(path).decode(errors="backslashreplace") for path in done.files]  # the output must be UTF-8
    if json:
        output.show_json(dataclasses.asdict(done) | {"files": names, "deleted": delete})
        return
    for name in names:
        output.show_line(name)
    what = f"{output.counted(len(done.files), 'file')} ({output.size(done.size)})"
    kept = f"{output.counted(done.kept, 'file')} {'is' if done.kept == 1 else 'are'} kept"
    if not done.files:
        output.show_line(f"no file to delete; {kept}")
        return
    output.show_line(f"deleted {what}; {kept}" if delete else f"would delete {what}; {kept}; delete with: --delete")


_POLICY = """Examples:

commit-owner policy sales

commit-owner policy sales --allow metadata-cleanup --backfill-every 10

commit-owner policy sales --forbid checkpoint --no-hand-back"""


@commands.command(rich_help_panel=_PANEL, epilog=_POLICY)
def policy(
    table: options.TableArgument,
    allow: options.AllowOption = None,
    forbid: options.ForbidOption = None,
    backfill_every: Annotated[
        str | None, Option("--backfill-every", metavar="N", help="publish after every N commits, or: never")
    ] = None,
    backlog_limit: Annotated[
        int | None,
        Option("--backlog-limit", metavar="N", help="maximum unpublished commits; further ones are rejected"),
    ] = None,
    hand_back: Annotated[
        bool | None,
        Option("--hand-back/--no-hand-back", help="accept or reject a hand-back of the table to the filesystem"),
    ] = None,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Show or change the maintenance policy of a table.

    Checkpoints, log compactions and checksums are allowed unless the policy forbids them; every other job only if the
    policy lists it.
    """
    options.changed_jobs(frozenset(), allow, forbid)  # before the warehouse is opened

    def changed(before: MaintenancePolicy) -> MaintenancePolicy:
        return msgspec.structs.replace(
            before,
            allowed=options.changed_jobs(before.allowed, allow, forbid),
            hand_back=before.hand_back if hand_back is None else hand_back,
            backfill_every=before.backfill_every if backfill_every is None else options.backfill_number(backfill_every),
            backlog_limit=before.backlog_limit if backlog_limit is None else backlog_limit,
        )

    with options.opened(address) as warehouse:
        resolved = warehouse.owner.resolve(table)
        after = changed(resolved.policy)
        if after != resolved.policy:
            after = warehouse.owner.change_policy(resolved.table_id, changed)
    allowed = sorted(job.value for job in after.allowed)
    if json:
        output.show_json(msgspec.structs.asdict(after) | {"allowed": allowed})
        return
    output.show_facts(
        {
            "allowed": allowed,
            "published": after.backfills,
            "backlog limit": after.backlog_limit,
            "hand-back": "allowed" if after.hand_back else "rejected",
        },
        title=resolved.name or resolved.table_id,
    )


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner verify -w /data/warehouse --json")
def verify(
    data: Annotated[bool, typer.Option("--data", help="Also read all data files of the newest versions.")] = False,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Check the ledger and all tables, their commits, checkpoints, compactions and data files, read-only.

    It lists the files of each table: a data file of the newest version that is missing is an error. With --data it
    also reads these files: another size, number of rows or checksum is an error. Exit code 1: an invariant is violated.
    """
    from refimpl.care.verify import Severity

    with options.opened(address) as warehouse:
        findings = warehouse.verify(data=data)
        tables = len(warehouse.owner.recorded_tables())
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    if json:
        output.show_json({"ok": not wrong, "tables": tables, "findings": findings})
    else:
        _show_findings(findings)
        repairable = sum(finding.repairable for finding in findings)
        step = f"; {repairable} can be repaired: commit-owner repair" if repairable else ""
        output.show_line(f"{output.counted(tables, 'table')}: {_count(findings)}{step}")
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
        return "no problems found"
    severities = [finding.severity.value for finding in findings]
    return ", ".join(output.counted(severities.count(kind), kind) for kind in _STYLES if kind in severities)


_REPAIR = """Examples:

commit-owner repair

commit-owner repair --adopt-published --older-than 7d"""


@commands.command(rich_help_panel=_PANEL, epilog=_REPAIR)
def repair(
    older_than: Annotated[
        str, Option("--older-than", metavar="AGE", help="minimum age of the orphaned staged files to remove")
    ] = "24h",
    adopt_published: Annotated[
        bool,
        Option("--adopt-published", help="record published files above the ledger's latest version (after a restore)"),
    ] = False,
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Repair what is safe to repair.

    Completes interrupted operations and backfills, and removes old orphaned staged files. It cannot restore missing
    data files; verify says what to do. Exit code 1: a repair failed.
    """
    from refimpl.care.repair import left_over
    from refimpl.care.repair import repair as repaired

    age = options.duration_ms(older_than)
    with options.opened(address) as warehouse:
        actions = repaired(warehouse.owner, orphan_age_ms=age, adopt_published=adopt_published)
        kept = 0 if actions or json else left_over(warehouse.owner)
    undone = [action for action in actions if not action.done]
    if json:
        output.show_json({"ok": not undone, "actions": actions})
    elif not actions:
        young = f"{output.counted(kept, 'left-over staged file')} {'is' if kept == 1 else 'are'}"
        rest = f"; {young} younger than {older_than} (--older-than)" if kept else ""
        output.show_line(f"nothing to repair{rest}")
    else:
        output.show_table(
            ("done", "table", "code", "what"),
            [("yes" if action.done else "NO", action.table, action.code, action.message) for action in actions],
        )
    if undone:
        raise typer.Exit(ExitCode.REFUSED)


@commands.command(rich_help_panel=_PANEL, epilog="Example:  commit-owner backup /backups/ledger-2026-11-21.db")
def backup(
    target: Annotated[Path, Argument(metavar="FILE", help="path of the copy; must not exist")],
    address: options.WarehouseOption = None,
    json: options.JsonOption = False,
) -> None:
    """Copy the owner's ledger while it runs.

    The copy is consistent and durable. It does not contain the tables' files.
    """
    place_of_copy = target.absolute()
    with options.opened(address) as warehouse:
        warehouse.owner.ledger.back_up(place_of_copy)
    bytes_written = place_of_copy.stat().st_size
    output.show(
        {"path": str(place_of_copy), "bytes": bytes_written},
        f"wrote {place_of_copy} ({output.size(bytes_written)})",
        json=json,
    )
