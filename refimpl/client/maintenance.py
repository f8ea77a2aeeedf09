"""May this job run now? Every job asks first, each time anew.

catalog-managed, "Maintenance Operations", as tightened since: checkpoints and log compaction of what is
published, and checksums of any version, are always allowed; everything else only where the owner says so.
managed-commits, "Maintenance operations on managed-commit tables". A filesystem table has nobody to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl.client.snapshot import Snapshot
from refimpl.commit_owner import Maintenance, ResolvedTable, TableState
from refimpl.errors import MaintenanceRefusedError
from refimpl.log_path import Version, commit

if TYPE_CHECKING:
    from refimpl.client.table import Table


def ask(table: Table, snapshot: Snapshot, job: Maintenance) -> ResolvedTable | None:
    """What the owner says of the table now; None for a filesystem table.

    Raises `MaintenanceRefusedError` (fact `job`) where the owner does not allow the job, or was not asked.
    """
    if table.owner is None or table.table_id is None:
        if snapshot.staleness is not None:
            raise MaintenanceRefusedError(
                f"{job.value} is rejected: {snapshot.staleness}; open the table by its name, if it has an owner",
                job=job,
            )
        return None
    found = table.owner.resolve(table.table_id)
    if job not in found.policy.allowed:
        allowed = ", ".join(sorted(allowed.value for allowed in found.policy.allowed))
        raise MaintenanceRefusedError(
            f"the owner of {table.label} does not allow {job.value}, only {allowed}; change its policy first", job=job
        )
    if found.state is not TableState.ACTIVE or found.halted is not None:
        why = found.halted or f"it is {found.state.value}"
        raise MaintenanceRefusedError(f"no {job.value} on {table.label} now: {why}; run verify first", job=job)
    return found


def check_published(table: Table, version: Version, job: Maintenance) -> None:
    """managed-commits and catalog-managed: these jobs only for versions whose `<v>.json` exists."""
    if not table.log.published(version):
        raise MaintenanceRefusedError(
            f"{job.value} of version {version} of {table.label} needs {commit(version)}, which is not published; "
            f"backfill to version {version} first",
            job=job,
            version=version,
        )
