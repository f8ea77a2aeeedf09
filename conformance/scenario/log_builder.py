"""Tables with realistic logs, built file by file, and the snapshots that readers must return.

    log = LogBuilder.create(s)                       # version 0, through the kit's owner
    log.land(file("a"), file("b"))                   # version 1
    log.land(gone("a"))
    log.backfill(2)
    log.checkpoint(1)
    log.hide(commit_file(1))                     # as cleanup would
    replay(log.actions, 2).files                 # {"b": None}

The expected snapshots are those of `conformance.oracle.client`. The end of the scenario restores all planted or hidden
files.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, checkpoint_file, checksum_file, commit_file, compacted_file, version_of
from conformance.models import proposals
from conformance.models.log_files import Listing, checkpoint_parquet, listing_of
from conformance.oracle.client import Action, reconciled, replay
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import Exchange, TableHandle


@dataclass(kw_only=True)
class LogBuilder:
    """One table's log. `actions` has the actions of each version, and is the only source of expected snapshots."""

    s: ClientScenario
    name: str
    location: str
    table: TableHandle
    actions: dict[int, list[Action]] = field(default_factory=dict)
    committed: dict[int, Exchange] = field(default_factory=dict)
    """The operations that committed the versions."""
    _before: dict[Path, tuple[bytes, int] | None] = field(default_factory=dict)
    """The original content of files that the builder changed."""

    @classmethod
    def create(
        cls, s: ClientScenario, name: str = "orders", *, in_history: str | None = None,
        backlog_limit: int | None = None, timestamp: int | None = None, **options: Any,
    ) -> "LogBuilder":  # fmt: skip
        """A table with version 0. `in_history`: its name in the history, if another table had its name before.
        `options`: those of `table_actions`."""
        attempt, shown = s.attempt(), in_history or name
        request = s.creation(
            name,
            attempt=attempt,
            backlog_limit=backlog_limit,
            actions=table_actions(s.feature, attempt, timestamp or s.timestamp(0), **options),
        )
        exchange = s.ask("creator", request, TableHandle(name=shown, reference="", versions=0))
        table = s.created(
            shown, exchange, s.expect(exchange, m.Ratified, "PROFILE-VERSION0-01", expected="a new table")
        )
        log = cls(s=s, name=name, location=s.location(table), table=table)
        published = log.folder / commit_file(0)
        log.actions[0] = [json.loads(line) for line in published.read_text("utf-8").splitlines()]
        s.undo.append(log.restore)
        return log

    @classmethod
    def filesystem(cls, s: ClientScenario, name: str = "imports") -> "LogBuilder":
        """A table without versions and without an owner."""
        location = str(s.folder / s.physical(name))
        table = TableHandle(name=name, reference=location, versions=0, path=location)
        s.tables.append(table)
        log = cls(s=s, name=name, location=location, table=table)
        s.undo.append(log.restore)
        return log

    # Versions

    def land(self, *actions: str, timestamp: int | None = None, blind: bool | None = None) -> Exchange:
        """Commit the next version through the owner. Returns the exchange. `blind`: `isBlindAppend`, if given."""
        version, attempt = self.table.versions, self.s.attempt()
        time = self.s.timestamp(version) if timestamp is None else timestamp
        more: dict[str, Any] = {} if blind is None else {"isBlindAppend": blind}
        lines = (proposals.commit_info(attempt, time, ms=60_000, **more), *actions)
        exchange = self.s.land(self.table, attempt=attempt, actions=lines)
        self.actions[version] = [json.loads(line) for line in lines]
        self.committed[version] = exchange
        return exchange

    def write(self, *lines: str, modified: int) -> int:
        """Write the next version of a filesystem table, with its file's modification time. Returns the version."""
        version = len(self.actions)
        self.actions[version] = [json.loads(line) for line in lines]
        self._put(self.folder / commit_file(version), proposals.content(lines).encode(), modified)
        self.table.versions = self.table.before = version + 1
        self.table.id = proposals.table_id_in(lines) or self.table.id
        return version

    def take_over(self, *, timestamp: int, properties: dict[str, str]) -> Exchange:
        """The owner takes a filesystem table over with its next version, which also sets these properties."""
        version, attempt = len(self.actions), self.s.attempt()
        lines = (
            proposals.commit_info(attempt, timestamp, "SET TBLPROPERTIES"),
            proposals.protocol(self.s.feature),
            proposals.metadata(self.table.id or self.s.attempt(), timestamp, properties),
        )
        request = m.TakeOver(
            path=self.location, name=self.s.physical(self.name), feature=self.s.feature, commit_mode=self.s.commit_mode,
            version=version, attempt=attempt, actions=lines,
        )  # fmt: skip
        exchange = self.s.ask("migrator", request, self.table)
        ratified = self.s.expect(exchange, m.Ratified, "PROFILE-TRANSFER-01", expected="the owner takes the table over")
        self.table.reference, self.table.versions = ratified.table or "", version + 1
        self.table.ownership.append(attempt)
        self.actions[version] = [json.loads(line) for line in lines]
        self.committed[version] = exchange
        return exchange

    def backfill(self, version: int) -> None:
        """Publish up to a version."""
        self.s.backfill(self.table, version)

    @property
    def latest(self) -> int:
        return max(self.actions)

    def listing(self) -> Listing:
        """The files of the log's folder."""
        return listing_of(sorted(self.folder.iterdir()))

    @property
    def published(self) -> int:
        """The highest version that a listing shows."""
        versions = [version_of(path.name) for path in self.folder.glob("*.json")]
        return max((version for version in versions if version is not None), default=-1)

    # Other files of the log

    @property
    def folder(self) -> Path:
        return Path(self.location) / LOG

    def plant(self, name: str, content: bytes, *, modified: int | None = None) -> None:
        """Create or replace a file atomically. Its path is below the log folder."""
        self._remember(self.folder / name)
        self._put(self.folder / name, content, proposals.BASE_TIME if modified is None else modified)

    def touch(self, version: int, modified: int) -> None:
        """Set another modification time of a published commit, as a copy of the table has it."""
        path = self.folder / commit_file(version)
        self._remember(path)
        os.utime(path, ns=(modified * 1_000_000, modified * 1_000_000))

    def hide(self, *names: str) -> None:
        """Hide files until the end of the scenario or until `restore`."""
        for name in names:
            self._remember(self.folder / name)
            (self.folder / name).unlink()

    def staged(self) -> list[str]:
        """The files in the staging folder, by their paths below the log folder."""
        return [str(path.relative_to(self.folder)) for path in sorted(self.folder.glob("_*commits/*.json"))]

    def restore(self) -> None:
        """Restore all files."""
        for path, before in self._before.items():
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before[0])
                os.utime(path, ns=(before[1], before[1]))
        self._before.clear()

    def checkpoint(self, version: int, *, parts: int = 1) -> list[str]:
        """Write a classic checkpoint, or one with several parts. Returns the names of its files. One of the parts, the
        first or the last, has both the protocol and the metadata: a reader that misses another part notices nothing."""
        actions = reconciled(self.actions, version)
        heads = [action for action in actions if action.keys() & {"protocol", "metaData"}]
        rest = [action for action in actions if action not in heads]
        if parts == 1:
            names = [checkpoint_file(version)]
        else:
            names = [f"{version:020}.checkpoint.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]
        headed = (version % 2) * (parts - 1)
        for number, name in enumerate(names):
            self.plant(name, checkpoint_parquet([*rest[number::parts], *(heads if number == headed else ())]))
        return names

    def v2_checkpoint(self, version: int, *, form: str = "json", sidecars: int = 1) -> list[str]:
        """Write a manifest with sidecars, which contain the files. `form`: `json` or `parquet`."""
        identifier, actions = self.s.attempt(), reconciled(self.actions, version)
        in_sidecars = [action for action in actions if "add" in action or "remove" in action]
        manifest: list[Action] = [{"checkpointMetadata": {"version": version}}]
        names = []
        for number in range(sidecars):
            content = checkpoint_parquet(in_sidecars[number::sidecars])
            name = f"{self.s.attempt()}.parquet"
            body = {"path": name, "sizeInBytes": len(content), "modificationTime": proposals.BASE_TIME}
            manifest.append({"sidecar": body})
            names.append(f"_sidecars/{name}")
            self.plant(names[-1], content)
        manifest += [action for action in actions if action not in in_sidecars]
        name = f"{version:020}.checkpoint.{identifier}.{form}"
        self.plant(name, _lines(manifest) if form == "json" else checkpoint_parquet(manifest))
        return [name, *names]

    def hint(self, version: int, **more: Any) -> str:
        """`_last_checkpoint`."""
        self.plant("_last_checkpoint", json.dumps({"version": version, "size": 1, **more}).encode())
        return "_last_checkpoint"

    def compaction(self, start: int, end: int) -> str:
        name = compacted_file(start, end)
        self.plant(name, _lines(reconciled(self.actions, end, start)))
        return name

    def checksum(self, version: int, *, of: int | None = None, **changed: Any) -> str:
        """Write `<version>.crc`. `of`: another version to describe; `changed`: fields with other values."""
        actions = reconciled(self.actions, version if of is None else of)
        adds = [action["add"] for action in actions if "add" in action]
        body = {
            "tableSizeBytes": sum(add["size"] for add in adds),
            "numFiles": len(adds),
            "numMetadata": 1,
            "numProtocol": 1,
            "inCommitTimestampOpt": replay(self.actions, version).timestamp,
            "setTransactions": [action["txn"] for action in actions if "txn" in action],
            "domainMetadata": [action["domainMetadata"] for action in actions if "domainMetadata" in action],
            "metadata": next(action["metaData"] for action in actions if "metaData" in action),
            "protocol": next(action["protocol"] for action in actions if "protocol" in action),
        }
        name = checksum_file(version)
        self.plant(name, json.dumps({**body, **changed}).encode())
        return name

    def _put(self, path: Path, content: bytes, modified: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.s.folder / f".{path.name}.planted"
        temporary.write_bytes(content)
        os.utime(temporary, ns=(modified * 1_000_000, modified * 1_000_000))
        temporary.replace(path)

    def _remember(self, path: Path) -> None:
        if path not in self._before:
            self._before[path] = (path.read_bytes(), path.stat().st_mtime_ns) if path.exists() else None


def _lines(actions: Sequence[Action]) -> bytes:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()


# Actions, as lines of a commit


def table_actions(
    feature: str | None,
    attempt: str,
    timestamp: int,
    *,
    partitioned: bool = False,
    reader_features: Sequence[str] = (),
    writer_features: Sequence[str] = ("domainMetadata",),
    properties: dict[str, str] | None = None,
    readers_only: Sequence[str] = (),
    schema: str = proposals.SCHEMA,
) -> tuple[str, ...]:
    """The actions of version 0. Reader features are writer features too, except for `readers_only`."""
    protocol = proposals.with_features(feature, *writer_features, *reader_features)
    if reader_features or readers_only:
        protocol["minReaderVersion"] = 3
        protocol["readerFeatures"] = sorted({*protocol.get("readerFeatures", ()), *reader_features, *readers_only})
    info, _, metadata = proposals.version_0(
        feature, attempt, attempt, timestamp=timestamp, properties=properties, schema=schema,
        partition_columns=("part",) if partitioned else (),
    )  # fmt: skip
    return info, proposals.line("protocol", protocol), metadata


def file(path: str, partition: str | None = None, *, partitioned: bool = False, **more: Any) -> str:
    """An `add` action; `path` is encoded, as in the log."""
    body = {**json.loads(proposals.add(path, proposals.BASE_TIME, partition, partitioned=partitioned))["add"], **more}
    return proposals.line("add", body)


def gone(path: str, **more: Any) -> str:
    """`remove`."""
    return proposals.line("remove", {**json.loads(proposals.remove(path, proposals.BASE_TIME))["remove"], **more})


def domain(name: str, configuration: str, *, removed: bool = False) -> str:
    return proposals.line("domainMetadata", {"domain": name, "configuration": configuration, "removed": removed})


def application(name: str, version: int) -> str:
    return proposals.line("txn", {"appId": name, "version": version})


def vector(identifier: str) -> Action:
    """A deletion vector of one row, inline."""
    return {"storageType": "i", "pathOrInlineDv": identifier, "sizeInBytes": 40, "cardinality": 1}
