"""Maintenance in one page: checkpoints, compactions and checksums of what is published, cleanup of what is too old.

managed-commits and catalog-managed, "Metadata Cleanup" and "Maintenance Operations". What the owner may forbid is asked
for first; checkpoints, compactions and checksums are always allowed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from conformance.interface import messages as m
from conformance.interface.log_names import STAGING
from conformance.models.log_files import HINT, Listing, actions_in, checkpoint_parquet
from conformance.models.reader import ModelReader, Refused, Resolved, State, Unsure

METADATA_CLEANUP: Final = "metadata-cleanup"


class ModelMaintainer(ModelReader):
    """Jobs on a table that has concurrent writers."""

    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        return self._job(lambda: self._checkpoint(client, self._resolve(client, request.table), request.version))

    def compact(self, client: str, request: m.Compact) -> m.Answer:
        return self._job(lambda: self._compact(client, self._resolve(client, request.table), request))

    def checksum(self, client: str, request: m.Checksum) -> m.Answer:
        return self._job(lambda: self._checksum(client, self._resolve(client, request.table), request.version))

    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        return self._job(lambda: self._cleanup(client, self._resolve(client, request.table), request.older_than))

    def maintain(self, client: str, request: m.Maintain) -> m.Answer:
        return self._job(lambda: self._ask_for(client, self._resolve(client, request.table), request.job))

    def _job(self, run: Callable[[], None]) -> m.Answer:
        try:
            run()
        except Refused as refused:
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            return m.Unknown(reason=str(unsure))
        return m.Done()

    # What may be done at any time, of what is published

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        listed = self._published(client, table, version)
        state = self._replay(table, listed, version)
        self._write(table.log / f"{version:020}.checkpoint.parquet", checkpoint_parquet(_actions(state)))
        self._hint(table, version)

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        """All actions of the commits, the last one of each kind and file."""
        start, end = request.start, request.end
        listed = self._published(client, table, end)
        kept: dict[str, dict[str, Any]] = {}
        for version in range(start, end + 1):
            for action in actions_in(listed.commits[version]):
                kept[_identity(action)] = action
        lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in kept.values())
        self._write(table.log / f"{start:020}.{end:020}.compacted.json", lines.encode())

    def _checksum(self, client: str, table: Resolved, version: int) -> None:
        """Of any ratified version, published or not."""
        listed = self._gather(client, table)
        state = self._replay(table, listed, self._target(table, listed, version))
        sizes = [add.get("size", 0) for add in state.files.values()]
        body = {
            "tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1,
            "metadata": state.metadata, "protocol": state.protocol,
        }  # fmt: skip
        self._write(table.log / f"{version:020}.crc", json.dumps(body).encode())

    def _published(self, client: str, table: Resolved, version: int) -> Listing:
        """The listing, once the version is published in it: if it is not, the owner is asked to publish it."""
        listed = self._gather(client, table)
        if version > self._latest(table, listed):
            raise Refused(f"version {version} does not exist")
        if version not in listed.commits:
            self.owner(client, m.BackfillToVersion(table=table.reference or "", version=version))
            listed = self._gather(client, table)
        if version not in listed.commits:
            raise Refused(f"version {version} is not published")
        return listed

    def _hint(self, table: Resolved, version: int) -> None:
        """`_last_checkpoint` never goes back."""
        path = table.log / HINT
        known = json.loads(path.read_text("utf-8"))["version"] if path.exists() else -1
        if version > known:
            self._write(path, json.dumps({"version": version, "size": 1}).encode())

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all; two jobs that write the same file do not meet."""
        temporary = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)

    # What the owner may forbid

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        """The owner's permission. Raises `Refused` without it."""
        reply = self.owner(client, m.MaintenancePolicy(table=table.reference or ""))
        if not isinstance(reply, m.Policy) or job not in reply.allowed:
            raise Refused(f"the owner does not allow {job}")

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        """Up to a cut-off checkpoint; without one nothing is deleted."""
        self._ask_for(client, table, METADATA_CLEANUP)
        listed = self._gather(client, table)
        cut_off = self._cut_off(table, listed, older_than)
        if cut_off is None:
            return
        newest = max(listed.commits, default=-1)
        self._delete(path for version, path in listed.commits.items() if version < cut_off and version != newest)
        self._delete(path for each in listed.checkpoints if each.version < cut_off for path in each.files)
        self._delete(path for (start, _), path in listed.compactions.items() if start <= cut_off)
        if table.feature == "catalogManaged":
            self._delete(path for version, path in listed.checksums.items() if version < cut_off)
        self._delete(self._staged(table, cut_off))

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        """The newest complete checkpoint at or before the newest commit that is not later than the time."""
        commit = self._cut_off_commit(table, listed, older_than)
        versions = [each.version for each in listed.checkpoints if each.complete and each.version <= commit]
        return max(versions, default=None)

    def _cut_off_commit(self, table: Resolved, listed: Listing, older_than: int) -> int:
        try:
            return self._at(table, listed, older_than)
        except Refused:
            return -1

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        """Staged files of the cut-off version and of earlier ones, but for those that the owner still lists."""
        folder = table.log / STAGING[table.feature or ""]
        listed = {commit.file_name for commit in table.commits}
        found = sorted(folder.iterdir()) if folder.exists() else []
        return [path for path in found if int(path.name[:20]) <= cut_off and path.name not in listed]

    def _delete(self, paths: Iterable[Path]) -> None:
        for path in list(paths):
            path.unlink(missing_ok=True)


def _actions(state: State) -> list[dict[str, Any]]:
    """A snapshot as a checkpoint holds it."""
    actions = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    actions += [{"add": add} for add in state.files.values()]
    actions += [{"txn": {"appId": name, "version": version}} for name, version in state.applications.items()]
    return actions + [{"domainMetadata": body} for body in state.domains.values()]


def _identity(action: dict[str, Any]) -> str:
    """What an action replaces: the last one of these holds."""
    kind, body = next(iter(action.items()))
    match kind:
        case "add" | "remove":
            return f"file {body['path']} {json.dumps(body.get('deletionVector'))}"
        case "txn":
            return f"txn {body['appId']}"
        case "domainMetadata":
            return f"domain {body['domain']}"
        case _:
            return str(kind)
