"""A handle to a table: through its owner, or by its path.

table = Table.resolve("sales", owner, environment)
table.snapshot().to_arrow(where="month = 3")
table.snapshot(version=12)
table.append(rows)
table.update({"price": "price * 2"}, where="month = 3")
table.alter(properties={"delta.enableTypeWidening": "true"}, types={"price": "decimal(12,2)"})
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from refimpl.client.snapshot import Snapshot, at, latest
from refimpl.client.transaction import Committed, Transaction
from refimpl.log.history import HistoryEntry, history
from refimpl.log.log_reading import LogReader
from refimpl.protocol import log_path
from refimpl.protocol.actions import Protocol
from refimpl.protocol.commit_owner import Backfilled, CommitOwner, ResolvedTable, TableState
from refimpl.protocol.errors import (
    DeltaError,
    InvalidRequestError,
    NotFoundInHistoryError,
    TableNotFoundError,
    check_type,
)
from refimpl.protocol.in_commit_timestamp import Moment, checked
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode, TableFeature
from refimpl.schema.features import has_rules
from refimpl.schema.properties import checkpoint_interval
from refimpl.schema.schema import type_named
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

if TYPE_CHECKING:
    import pyarrow as pa

    from refimpl.client.change_feed import ChangedFile, FeedReader
    from refimpl.client.merging import Merge
    from refimpl.client.row_changes import RowsChanged


class Table:
    """A handle to a table. Cheap to create: nothing is read in advance.

    A handle remembers its newest snapshot, and the next one reads only later commits. A handle from an owner follows
    the table when that owner hands it back or takes it over again. Any number of threads and processes may have handles
    to one table.
    """

    def __init__(
        self,
        location: Path,
        environment: Environment,
        *,
        owner: CommitOwner | None = None,
        resolved: ResolvedTable | None = None,
        name: str | None = None,
    ) -> None:
        """`owner`: resolves the table; None for access by path. `resolved`: the owner's answer."""
        self.location = location
        self.environment = environment
        self.name = name
        self.log = LogStore(location, environment)
        self._reader = LogReader(self.log, catalog=owner, resolved=resolved, name=name)
        self._newest: Snapshot | None = None

    @classmethod
    def resolve(cls, reference: str | Path, owner: CommitOwner, environment: Environment) -> Table:
        """The table of this name, id or absolute path, through its owner, before its protocol is known.

        catalog-managed, "Table Discovery". A table that was handed back is a filesystem table again.
        Raises `TableNotFoundError`.
        """
        check_type("table", reference, (str, Path), "its name, id or path")
        return cls.resolved(owner.resolve(reference), owner, environment)

    @classmethod
    def resolved(cls, answer: ResolvedTable, owner: CommitOwner, environment: Environment) -> Table:
        """The table of an owner's answer."""
        return cls(answer.location, environment, owner=owner, resolved=answer, name=answer.name)

    @classmethod
    def by_path(cls, location: str | Path, environment: Environment | None = None) -> Table:
        """A filesystem table; or the backfilled part of a managedCommit table, whose snapshots say so (`stale`).

        managed-commits, "Reading managed-commit tables", first choice. Snapshots of a catalog-managed table raise
        `PathAccessError`.
        """
        check_type("location", location, (str, Path), "a table's folder")
        if location == "":
            raise InvalidRequestError("invalid location ''; expected a table's folder; the current one is '.'")
        return cls(Path(location).absolute(), environment or Environment())

    @property
    def owner(self) -> CommitOwner | None:
        """None for a filesystem table, and for access by path."""
        return self._reader.owner

    @property
    def table_id(self) -> str | None:
        """The owner's id of the table."""
        return self._reader.table_id

    @property
    def feature(self) -> TableFeature | None:
        """The table feature of the owner; None without an owner."""
        return self._reader.feature

    @property
    def commit_mode(self) -> CommitMode | None:
        """How commits are proposed to the owner; None without an owner."""
        return self._reader.commit_mode

    @property
    def label(self) -> str:
        """The table in messages: its name, else its location."""
        return self._reader.label

    @property
    def reader(self) -> LogReader:
        """Reads single commits instead of snapshots."""
        return self._reader

    def snapshot(self, *, version: Version | None = None, timestamp: Moment | None = None) -> Snapshot:
        """The newest version, or the given one, or the version that was the newest at `timestamp`.

        Raises `NotFoundInHistoryError` for a version or time outside the history, `TableNotFoundError` for a missing
        table, `PathAccessError`, `UnsupportedFeatureError`, and `CorruptLogError` for a log with a gap or an
        unreadable file.
        """
        if version is not None and timestamp is not None:
            raise InvalidRequestError(
                "a version and a timestamp are mutually exclusive; pass one of them",
                version=version,
                timestamp=timestamp,
            )
        moment = None if timestamp is None else checked(timestamp)
        try:
            if moment is not None:
                version = self._latest().commit_times().version_at(moment)
            if version is None:
                return self._latest()
            return self._at(version)
        except (TableNotFoundError, NotADirectoryError) as error:
            problem = "this path leads to a file; expected that of a table" if isinstance(error, OSError) else error
            raise TableNotFoundError(
                f"no Delta table at {self.location}: {problem}", location=str(self.location)
            ) from error

    def _latest(self) -> Snapshot:
        newest = latest(self._reader, self._newest)
        self._reader, self._newest = newest.reader, newest
        return newest

    def _at(self, version: Version) -> Snapshot:
        if self._reader.owner is None:
            with contextlib.suppress(DeltaError):  # `at` needs the newest version, so it is read only once
                self._latest()
        reader = self._reader
        try:
            return at(reader, version, self._newest)
        except NotFoundInHistoryError:
            if reader.catalog is None or self._latest().reader is reader:
                raise
            return at(self._reader, version, self._newest)  # the owner has changed

    def published_snapshot(self) -> Snapshot:
        """The newest version whose `<v>.json` exists; if no version has one, the newest version."""
        newest = self.snapshot()
        if self.log.published(newest.version):
            return newest
        published = [version for version in self.log.published_versions() if version < newest.version]
        return self.snapshot(version=max(published)) if published else newest

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits, newest first, at most `limit` of them; the unpublished ones included."""
        check_type("limit", limit, (int, None), "a number of versions")
        newest = self.snapshot()
        return list(history(newest.reader, newest.version, newest.enablement, limit))

    def transaction(self, *, snapshot: Snapshot | None = None, operation: str = "WRITE", **options: Any) -> Transaction:
        """Start a transaction on `snapshot`, or on the newest version. Options: see `Transaction`."""
        snapshot = snapshot or self.snapshot()
        return Transaction(self._reader, snapshot, operation=operation, **options)

    def append(self, rows: Any, *, app: tuple[str, int] | None = None) -> Committed | None:
        """Append a `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, columns by name, in one transaction.

        `app`: (application id, batch number); a batch that this application has already committed is skipped, and
        None is returned. Raises `InvalidRequestError` for rows that do not fit, and the errors of a commit.
        """
        check_type("app", app, (tuple, list, None), "the application's id and its batch, such as ('stream', 7)")
        transaction = self.transaction(parameters={"mode": "Append"}, landed=self.checkpoint_if_due)
        if app is not None and not transaction.claim(*app):
            return None
        return self._commit_with(transaction, rows)

    def overwrite(self, rows: Any) -> Committed:
        """Replace all rows with `rows`, in one transaction. Any concurrent change is a conflict."""
        transaction = self.transaction(parameters={"mode": "Overwrite"}, landed=self.checkpoint_if_due)
        transaction.keeps_row_ids = True  # it copies no rows
        transaction.remove(*transaction.read_whole_table())
        return self._commit_with(transaction, rows)

    def delete(self, where: str | None = None) -> RowsChanged:
        """Delete the rows for which `where` (SQL) is true, or all rows, in one transaction.

        Only files that hold such a row are rewritten; a row for which `where` is NULL stays. Raises
        `InvalidRequestError` for a condition that does not parse, does not fit or is not deterministic, and for an
        append-only table; a kind of `ConcurrentModificationError` for a concurrent change of the data that was read.
        """
        from refimpl.client import row_changes

        return row_changes.delete(self.transaction(operation="DELETE", landed=self.checkpoint_if_due), where)

    def update(self, set: Mapping[str, Any], where: str | None = None) -> RowsChanged:  # noqa: A002 - Delta's name
        """Set columns of the rows for which `where` (SQL) is true, or of all rows, in one transaction.

        `set`: by column, text is an SQL expression (`"price * 2"`, `"'new'"`: `refimpl.rows.expression`) on the old
        row; other values are literals. Raises the errors of `delete`.
        """
        from refimpl.client import row_changes

        return row_changes.update(self.transaction(operation="UPDATE", landed=self.checkpoint_if_due), set, where)

    def merge(self, source: Any, on: str, *, source_alias: str = "source", target_alias: str = "target") -> Merge:
        """Begin a MERGE of `source`, a `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, on the condition `on`.

        table.merge(rows, on="target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
        """
        from refimpl.client.merging import Merge

        return Merge(
            lambda: self.transaction(operation="MERGE", landed=self.checkpoint_if_due),
            source,
            on,
            source_alias=source_alias,
            target_alias=target_alias,
        )

    def alter(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        types: Mapping[str, str] | None = None,
    ) -> Committed:
        """Change properties and types of columns, in one transaction; data files stay as they are.

        `properties`, `remove`: those to set and to remove. `delta.columnMapping.mode` may change from `none` to
        `name`. `types`: wider types by column, in Delta's names (`{"price": "decimal(12,2)", "tags.element": "long"}`);
        the table must have `delta.enableTypeWidening`, which may be among `properties`.
        Raises the errors of `Transaction.set_properties`, `Transaction.change_type` and of a commit: another change of
        the metadata is a conflict, and so is each write that began before this one.
        """
        for what, value in (("properties", properties), ("types", types)):
            check_type(what, value, (Mapping, None), "a map of texts to texts")
        check_type("properties to remove", remove, (list, tuple, set, frozenset, dict), "a list of names")
        set_properties, removals, wider = dict(properties or {}), tuple(remove), dict(types or {})
        if not (set_properties or removals or wider):
            raise InvalidRequestError(
                "nothing to change; pass --property, --remove-property or --type (Python: properties, remove, types)"
            )
        given = {"properties": set_properties, "removed": removals, "types": wider}
        transaction = self.transaction(
            operation="CHANGE COLUMN" if wider else "SET TBLPROPERTIES" if set_properties else "UNSET TBLPROPERTIES",
            parameters={name: json.dumps(value) for name, value in given.items() if value},
            landed=self.checkpoint_if_due,
        )
        if set_properties or removals:
            transaction.set_properties(set_properties, remove=removals)
        for column, name in wider.items():
            transaction.change_type(column, type_named(name))
        return transaction.commit()

    def changes(
        self,
        from_version: Version | None = None,
        to_version: Version | None = None,
        *,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> pa.RecordBatchReader:
        """The change data feed of a range of commits, both ends included; without an end, up to the newest one.

        The table's columns, as of the last commit that is read, with `_change_type` (insert, delete, update_preimage,
        update_postimage), `_commit_version` and `_commit_timestamp`. Raises
        `NotFoundInHistoryError` for a range outside the history, and `InvalidRequestError` if the feed was off or the
        schema changed.
        """
        reader, files = self.change_files(
            from_version, to_version, from_timestamp=from_timestamp, to_timestamp=to_timestamp
        )
        return reader.all(files)

    def change_files(
        self,
        from_version: Version | None = None,
        to_version: Version | None = None,
        *,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> tuple[FeedReader, list[ChangedFile]]:
        """The files that `changes` reads, in their order, and their reader."""
        from refimpl.client import change_feed

        for version in (from_version, to_version):
            check_type("version", version, (int, None), "a number")
        newest = self.snapshot()
        first, last = change_feed.versions(
            newest.commit_times(),
            from_version=from_version,
            to_version=to_version,
            from_timestamp=None if from_timestamp is None else checked(from_timestamp),
            to_timestamp=None if to_timestamp is None else checked(to_timestamp),
        )
        end = self.snapshot(version=last)
        files = change_feed.changed_files(newest, self.snapshot(version=first), end)
        return change_feed.FeedReader(layout=end.layout), files

    def publish(self, version: Version | None = None) -> Backfilled:
        """Publish the ratified commits up to `version`, by default all of them, as a client; then tell the owner.

        DELTA.md#publish. Order: each `<v>.json` is durable before the next one, all of them before the report. An
        interrupted call can be repeated; any number of clients, and the owner, may publish at the same time. Where the
        owner publishes alone, only a hand-back that it has staged and not published.

        Raises `InvalidRequestError` for a table without an owner, one whose owner publishes alone, and a version that
        is not ratified; `CorruptLogError` if a version is published with other content (then nothing is reported).
        """
        left = self._staged_hand_back()
        if left is not None:
            due = [commit for commit in left.commits.commits if version is None or commit.version <= version]
            self.log.publish_ratified(left.feature.staging_folder, due)
            return Backfilled(through=due[-1].version if due else None, published=len(due))
        owner, table_id, feature = self.owner, self.table_id, self.feature
        if owner is None or table_id is None or feature is None:
            raise InvalidRequestError(f"{self.label} has no owner: each of its commits is published when it lands")
        if not feature.clients_publish:
            raise InvalidRequestError(
                f"{self.label} is a {feature.name} table: its owner publishes; run: commit-owner backfill"
            )
        answer = owner.get_commits(table_id)
        latest = answer.latest_ratified_version
        if version is not None and (latest is None or log_path.checked(version) > latest):
            raise InvalidRequestError(f"version {version} of {self.label} is not ratified; the latest is {latest}")
        due = [commit for commit in answer.commits if version is None or commit.version <= version]
        self.log.publish_ratified(feature.staging_folder, due)
        if due:
            owner.report_published(table_id, due[-1].version)
        rest = answer.commits[len(due) :]  # commits are ordered by version
        return Backfilled(through=rest[0].version - 1 if rest else latest, published=len(due))

    def _staged_hand_back(self) -> ResolvedTable | None:
        """The table, if its owner accepted a hand-back that is not published; otherwise None.

        managed-commits, "Converting a managed-commit table to filesystem table": no client can write the table until
        then, so clients may publish the owner's last commits, by put-if-absent.
        """
        if self._reader.catalog is None:
            return None
        try:
            resolved = self._reader.catalog.resolve(self.location)
        except TableNotFoundError:
            return None
        commits, feature = resolved.commits.commits, resolved.feature
        if not commits or feature.clients_publish:
            return None
        owned = msgspec.structs.replace(resolved, state=TableState.ACTIVE)
        last = LogReader(self.log, catalog=self._reader.catalog, resolved=owned).actions(commits[-1])
        leaves = any(isinstance(action, Protocol) and not feature.mentioned_in(action) for action in last)
        return resolved if leaves or resolved.state is TableState.HANDED_BACK else None

    def checkpoint_if_due(self, committed: Committed) -> None:
        """Write a checkpoint of the newest published version after every `delta.checkpointInterval` commits (default:
        10). `committed` landed; if the checkpoint fails, a later commit tries again."""
        from refimpl.client import checkpoint_writing

        with contextlib.suppress(Exception):  # no later error may make a landed commit fail
            begun = self._newest or self.snapshot()  # its metadata is that of `committed`: a change is a conflict
            if committed.version % checkpoint_interval(begun.metadata) == 0:
                published = self.published_snapshot()
                if published.version and not checkpoint_writing.is_checkpointed(self.log, published.version):
                    checkpoint_writing.write(published)

    def _commit_with(self, transaction: Transaction, rows: Any) -> Committed:
        """Write data files and make them durable; then commit one transaction that names them."""
        from refimpl.rows.data_files import batches_of

        new: Iterable[Any] = batches_of(rows)
        if has_rules(transaction.snapshot.schema, transaction.snapshot.metadata.configuration):
            new = (transaction.rules.completed(part) for part in new)
        adds = transaction.data_file_writer().write_all(new)
        with transaction.deleting_unless_landed(adds):
            transaction.add(*adds)
            return transaction.commit()

    def __repr__(self) -> str:
        through = "by path" if self.owner is None else f"through {self.owner.name!r}"
        return f"<Table {self.name or self.location} {through}>"
