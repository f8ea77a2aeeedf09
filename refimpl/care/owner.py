"""The owner under an operator's care: it notices damage to its ledger's files, and its tables' policies can be
changed."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from refimpl.care.watched_ledger import WatchedLedger
from refimpl.owner.local import LocalOwner
from refimpl.owner.tables import disk_errors
from refimpl.protocol.commit_owner import MaintenancePolicy, checked_policy
from refimpl.protocol.log_path import Version
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

_SETTLED_MS: Final = 2000
"""A folder whose modification time is older than this has not changed since, even if its file system's clock is
coarse."""


class WatchedOwner(LocalOwner):
    """An owner with a `WatchedLedger`. Safe across `fork`: a child opens its own connections."""

    ledger: WatchedLedger

    def __init__(self, warehouse: Path, environment: Environment) -> None:
        super().__init__(warehouse, environment, WatchedLedger)
        self._listings: dict[Path, tuple[int, Collection[Version]]] = {}

    def set_policy(self, table_id: str, wanted: MaintenancePolicy) -> None:
        """Set which jobs clients may run on a table, and how it is backfilled."""
        self.change_policy(table_id, lambda _: wanted)

    def change_policy(
        self, table_id: str, change: Callable[[MaintenancePolicy], MaintenancePolicy]
    ) -> MaintenancePolicy:
        """Set the policy to `change` of the current one, in one transaction; returns the new policy."""
        with disk_errors("change a policy"), self.lock(), self.changing(table_id) as (writer, table):
            changed = checked_policy(change(table.policy))
            if changed != table.policy:
                writer.set(table, policy=changed)
        return changed

    def listed(self, log: LogStore) -> Collection[Version]:
        """Cached while the folder's modification time stays the same: a table whose ledger is older than a cleanup of
        its log is listed at each request, for a commit under the lock that all tables share."""
        status = self.environment.files.stat(log.folder)
        changed = None if status is None else status.modified
        known = self._listings.get(log.location)
        if known is not None and known[0] == changed:
            return known[1]
        versions = super().listed(log)
        if changed is not None and changed + _SETTLED_MS < self.now:
            self._listings[log.location] = (changed, versions)
        return versions
