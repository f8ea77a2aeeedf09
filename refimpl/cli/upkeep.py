"""Maintenance commands: `backfill`, `checkpoint`, `cleanup`, `optimize`, `vacuum`, `policy`, `verify`,
`repair`, `backup`."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode, Facts, Result, TextTable

if TYPE_CHECKING:
    from refimpl.care.verify import Finding
    from refimpl.protocol.commit_owner import MaintenancePolicy
    from refimpl.warehouse import AnyWarehouse, Warehouse

_PANEL = "Maintenance"


@command(_PANEL, "backfill sales --to 20", server=True)
def backfill(warehouse: "AnyWarehouse", table: str, to: int | None = None) -> Result:
    """Publish ratified commits, in order and durably.

    Each commit becomes `<version>.json` in the table's log. An interrupted backfill is continued.
    """
    done = warehouse.owner.backfill_to_version(warehouse.owner.resolve(table).table_id, to)
    published = output.counted(done.published, "commit")
    return Result(done, f"published {published}; the log is complete through version {done.through}")


@command(_PANEL, "checkpoint sales", "checkpoint sales --version 10", server=True)
def checkpoint(warehouse: "AnyWarehouse", table: str, version: int | None = None, checksum: bool = False) -> Result:
    """Write a checkpoint or a checksum.

    A checkpoint needs a published version. A checksum is possible for any version.
    """
    from refimpl.client.maintenance import write_checkpoint, write_checksum

    handle = warehouse.table(table)
    written: dict[str, Any] = (
        {"kind": "checksum", "name": write_checksum(handle, version)}
        if checksum
        else {"kind": "checkpoint"} | dataclasses.asdict(write_checkpoint(handle, version))
    )
    return Result(written, f"wrote {written['name']}")


@command(_PANEL, "cleanup sales --older-than 30d", server=True)
def cleanup(warehouse: "AnyWarehouse", table: str, older_than: str | None = None) -> Result:
    """Delete old log files that no retained version needs.

    The table's policy must allow metadata-cleanup, and a sufficiently old checkpoint must exist. Versions before
    that checkpoint can no longer be read.
    """
    from refimpl.client.maintenance import clean_up

    done = clean_up(warehouse.table(table), older_than=None if older_than is None else options.duration_ms(older_than))
    line = f"deleted {output.counted(len(done.deleted), 'file')}; the log begins with the checkpoint of {done.cut_off}"
    if done.cut_off is None:
        line = "nothing deleted: no checkpoint is old enough"
    return Result(dataclasses.asdict(done), line)


@command(_PANEL, "optimize sales --where 'month = 11'", server=True)
def optimize(warehouse: "AnyWarehouse", table: str, partitions: str | None = None) -> Result:
    """Combine small data files into larger ones, and remove the rows that deletion vectors mark as deleted.

    The table's policy must allow optimize. The rows stay the same, and concurrent appends do not conflict. The old
    files stay until vacuum deletes them.
    """
    from refimpl.client.data_maintenance import optimize as optimized

    done = optimized(warehouse.table(table), partitions)
    before, after = output.size(done.removed_bytes), output.size(done.added_bytes)
    files = f"{output.counted(done.removed, 'file')} ({before}) became {done.added} ({after})"
    nothing = "nothing to do: no two small files are in one partition, and no file has a deletion vector"
    return Result(dataclasses.asdict(done), nothing if done.version is None else f"version {done.version}: {files}")


@command(_PANEL, "vacuum sales", "vacuum sales --delete --older-than 30d", server=True)
def vacuum(
    warehouse: "AnyWarehouse", table: str, delete: bool = False, older_than: str | None = None, force: bool = False
) -> Result:
    """List, or delete, data files that no retained version needs.

    The table's policy must allow vacuum. Versions older than AGE may become unreadable. If the table's retention was
    shorter in the past, all versions before the oldest commit in the log may become unreadable.
    """
    from refimpl.client.data_maintenance import vacuum as vacuumed

    age = None if older_than is None else options.duration_ms(older_than)
    done = vacuumed(warehouse.table(table), older_than=age, dry_run=not delete, force=force)
    names = [os.fsencode(path).decode(errors="backslashreplace") for path in done.files]  # the output must be UTF-8
    what = f"{output.counted(len(done.files), 'file')} ({output.size(done.size)})"
    line = f"deleted {what}" if delete else f"would delete {what}"
    kept = f"{output.counted(done.kept, 'file')} {'is' if done.kept == 1 else 'are'} kept"
    hint = "" if delete or not names else "; delete with: --delete"
    document = dataclasses.asdict(done) | {"files": names, "deleted": delete}
    return Result(document, *names, f"{line if names else 'no file to delete'}; {kept}{hint}")


@command(
    _PANEL,
    "policy sales",
    "policy sales --allow metadata-cleanup --backfill-every 10",
    "policy sales --forbid checkpoint --no-hand-back",
)
def policy(
    warehouse: "Warehouse",
    table: str,
    allow: list[str] | None = None,
    forbid: list[str] | None = None,
    backfill_every: str | None = None,
    backlog_limit: int | None = None,
    hand_back: bool | None = None,
) -> Result:
    """Show or change the maintenance policy of a table.

    Checkpoints, log compactions and checksums are allowed unless the policy forbids them; every other job only if the
    policy lists it.
    """

    changed_jobs = options.changed_jobs(allow, forbid)
    every = None if backfill_every is None else options.backfill_number(backfill_every)

    def changed(before: "MaintenancePolicy") -> "MaintenancePolicy":
        return msgspec.structs.replace(
            before,
            allowed=changed_jobs(before.allowed),
            hand_back=before.hand_back if hand_back is None else hand_back,
            backfill_every=before.backfill_every if backfill_every is None else every,
            backlog_limit=before.backlog_limit if backlog_limit is None else backlog_limit,
        )

    resolved = warehouse.owner.resolve(table)
    after = changed(resolved.policy)
    if after != resolved.policy:
        after = warehouse.owner.change_policy(resolved.table_id, changed)
    allowed = sorted(job.value for job in after.allowed)
    shown = {
        "allowed": allowed,
        "published": after.backfills,
        "backlog limit": after.backlog_limit,
        "hand-back": "allowed" if after.hand_back else "rejected",
    }
    return Result(
        msgspec.structs.asdict(after) | {"allowed": allowed}, Facts(shown, resolved.name or resolved.table_id)
    )


@command(_PANEL, "verify -w /data/warehouse --json")
def verify(warehouse: "Warehouse", data: bool = False) -> Result:
    """Check the ledger and all tables, their commits, checkpoints and data files, read-only.

    It lists the files of each table: a data file of the newest version that is missing is an error. With --data it
    also reads these files: another size, number of rows or checksum is an error. Exit code 1: an invariant is violated.
    """
    from refimpl.care.verify import Severity

    findings = warehouse.verify(data=data)
    tables = len(warehouse.owner.recorded_tables())
    wrong = any(finding.severity is Severity.ERROR for finding in findings)
    repairable = sum(finding.repairable for finding in findings)
    step = f"; {repairable} can be repaired: commit-owner repair" if repairable else ""
    rows = [(finding.severity.value, finding.table, finding.code, finding.message) for finding in findings]
    return Result(
        {"ok": not wrong, "tables": tables, "findings": findings},
        *([TextTable(columns=("severity", "table", "code", "what"), rows=rows)] if rows else []),
        f"{output.counted(tables, 'table')}: {_count(findings)}{step}",
        code=ExitCode.REFUSED if wrong else ExitCode.OK,
    )


def _count(findings: "list[Finding]") -> str:
    severities = [finding.severity.value for finding in findings]
    kinds = [kind for kind in ("error", "warning", "note") if kind in severities]
    return ", ".join(output.counted(severities.count(kind), kind) for kind in kinds) or "no problems found"


@command(_PANEL, "repair", "repair --adopt-published --older-than 7d")
def repair(warehouse: "Warehouse", older_than: str = "24h", adopt_published: bool = False) -> Result:
    """Repair what is safe to repair.

    Completes interrupted operations and backfills, and removes old orphaned staged files. It cannot restore missing
    data files; verify says what to do. Exit code 1: a repair failed.
    """
    from refimpl.care.repair import left_over
    from refimpl.care.repair import repair as repaired

    age = options.duration_ms(older_than)
    actions = repaired(warehouse.owner, orphan_age_ms=age, adopt_published=adopt_published)
    ok = all(action.done for action in actions)
    kept = left_over(warehouse.owner)
    document, code = {"ok": ok, "actions": actions, "kept": kept}, ExitCode.OK if ok else ExitCode.REFUSED
    if actions:
        rows = [("yes" if action.done else "NO", action.table, action.code, action.message) for action in actions]
        return Result(document, TextTable(columns=("done", "table", "code", "what"), rows=rows), code=code)
    young = f"{output.counted(kept, 'left-over staged file')} {'is' if kept == 1 else 'are'}"
    rest = f"; {young} younger than {older_than} (--older-than)" if kept else ""
    return Result(document, f"nothing to repair{rest}")


@command(_PANEL, "backup /backups/ledger-2026-11-21.db")
def backup(warehouse: "Warehouse", target: Path) -> Result:
    """Copy the owner's ledger while it runs.

    The copy is consistent and durable. It does not contain the tables' files.
    """
    copy = target.absolute()
    warehouse.owner.ledger.back_up(copy)
    size = copy.stat().st_size
    return Result({"path": str(copy), "bytes": size}, f"wrote {copy} ({output.size(size)})")
