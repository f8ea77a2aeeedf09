"""delta-rs, the `deltalake` wheel, as a client of plain tables: it opens a table by its path, and asks no owner.

What it does by itself (`crates/core/src/kernel/transaction`, `protocol/checkpoints.rs` of delta-rs):

- A commit proposes the version after the version that it read, and tries at most 15 times more. First it
checks all versions that other writers committed meanwhile.
- Handles share no cache. A handle of `DeltaTable` keeps its snapshot until its user asks for an update.
- `cleanup_metadata` deletes files older than `delta.logRetentionDuration`, 30 days. It has no parameter for the time,
so the adapter changes the modification times of the log's files during the call.

The kit's requests become these calls: `create_write_transaction` with the kit's file names, in the mode `overwrite` if
the transaction replaces all files; `RemoveAction`; `alter` for properties and features; `create_checkpoint`,
`compact_logs`, `cleanup_metadata`; `vacuum` with `full`. The adapter does
not write a batch again that the table has recorded, because delta-rs leaves that to its user. Everything else is
`unsupported`.
"""

import datetime as dt
import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from conformance.adapters.engines.engine import WheelClient
from conformance.adapters.in_process import answering
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, LOG, version_of
from conformance.interface.subject import Ask
from conformance.models import proposals

RETENTION: Final = 30 * 86_400_000
"""The default of `delta.logRetentionDuration`, in ms."""
STRETCH: Final = 1_000
"""The times between commits are multiplied by this factor, so that the duration of a cleanup does not matter."""


class Unable(Exception):  # noqa: N818  # it is an answer
    """delta-rs cannot do what the request asks for."""


class DeltaRs(WheelClient):
    """Answers the client side of the shared interface, each request with a new handle of its table."""

    engine = "delta-rs"
    title = "delta-rs"
    wheels = ("deltalake",)
    profiles = ("core",)
    features = (FILESYSTEM,)
    commit_modes: ClassVar = {FILESYSTEM: ("direct",)}

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        self.library = importlib.import_module("deltalake")
        self.transactions = importlib.import_module("deltalake.transaction")

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """The answer, or `rejected` with the exception of delta-rs. A panic of its Rust code is a `BaseException`."""
        try:
            return ask()
        except Unable as unable:
            return m.Unsupported(reason=f"delta-rs: {unable}")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # see above
            return m.Rejected(reason=f"{type(error).__name__}: {error}"[:500])

    # Reading

    @answering
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        table = self._table(request.path or request.table or "", request.version)
        if request.timestamp is not None:
            moment = dt.datetime.fromtimestamp(request.timestamp / 1000, dt.UTC)
            table.load_as_version(moment)
        return self._snapshot_read(table, request.path or request.table or "")

    def _snapshot_read(self, table: Any, location: str) -> m.SnapshotRead:
        """The snapshot of the handle's version. delta-rs cannot list its applications or the times of versions."""
        files = tuple(sorted(_relative_path(uri, location) for uri in table.file_uris()))
        return m.SnapshotRead(
            version=table.version(), files=files, properties=dict(table.metadata().configuration),
            partitions=self._partitions(table),
        )  # fmt: skip

    def _partitions(self, table: Any) -> dict[str, str | None] | None:
        """For each file, the value of the column `part`."""
        if "part" not in table.metadata().partition_columns:
            return None
        adds = table.get_add_actions(flatten=True)
        columns = {name: _values(adds, name) for name in ("path", "partition.part")}
        return {unquote(path): value for path, value in zip(*columns.values(), strict=True)}

    # Writing

    @answering
    def transact(self, client: str, request: m.Transact) -> m.Answer:
        table = self._table(request.table, request.read_version)
        if self._recorded(table, request):
            return m.Committed(version=None)
        try:
            self._commit(table, request)
        except Exception as error:
            if type(error).__name__ == "CommitFailedError" and "Unsupported table features" not in str(error):
                return m.Conflict()
            raise
        return m.Committed(version=_version_of(Path(request.table) / LOG, request.marker, table))

    def _recorded(self, table: Any, request: m.Transact) -> bool:
        if request.application is None:
            return False
        name, version = request.application
        known = table.transaction_version(name)
        return known is not None and known >= version

    def _commit(self, table: Any, request: m.Transact) -> None:
        if request.unset_properties or request.replace_table or request.partition_by is not None or request.domain:
            raise Unable("no such change of the metadata")
        if request.set_properties or request.add_feature:
            self._alter(table, request)
            return
        here = {_relative_path(uri, request.table) for uri in table.file_uris()}
        everything = bool(here) and set(request.removes) == here
        if request.reads is not None:
            raise Unable("a transaction cannot say what it read")
        actions = [self._add(request, add, table) for add in request.adds]
        overwrites = everything and bool(actions)
        if request.removes and not overwrites:
            actions += [self._remove(request, path) for path in request.removes]
        if request.if_needed and not actions:
            raise Unable("a transaction without changes is always an empty commit")
        mode, columns = "overwrite" if overwrites else "append", list(table.metadata().partition_columns)
        properties = self._properties(request)
        table.create_write_transaction(
            actions, mode, table.schema(), partition_by=columns, commit_properties=properties
        )

    def _alter(self, table: Any, request: m.Transact) -> None:
        if request.adds or request.removes or request.reads is not None or request.application:
            raise Unable("a change of properties or features is a transaction of its own")
        if request.add_feature is None:
            table.alter.set_table_properties(
                dict(request.set_properties), raise_if_not_exists=False, commit_properties=self._properties(request)
            )
            return
        features = vars(self.library.TableFeatures).values()
        names = {str(feature).rpartition(".")[2]: feature for feature in features}
        name = request.add_feature[0].upper() + request.add_feature[1:]
        if name not in names:
            raise Unable(f"no feature {request.add_feature}")
        properties = self._properties(request)
        table.alter.add_feature(names[name], allow_protocol_versions_increase=True, commit_properties=properties)

    def _properties(self, request: m.Transact) -> Any:
        """The commit's properties. The marker becomes a field of `commitInfo`."""
        more: dict[str, Any] = {}
        if request.application is not None:
            name, version = request.application
            more["app_transactions"] = [self.library.Transaction(name, version)]
        return self.library.CommitProperties(custom_metadata={"txnId": request.marker}, **more)

    def _add(self, request: m.Transact, file: m.DataFile, table: Any) -> Any:
        """The add action. The file exists, but its rows are never read."""
        path = Path(request.table) / file.path
        if not path.resolve().is_relative_to(Path(request.table).resolve()):
            raise Unable("no files outside of the table's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        values = {"part": file.partition} if table.metadata().partition_columns else {}
        return self.transactions.AddAction(file.path, 1, values, proposals.BASE_TIME, request.data_change, "{}")

    def _remove(self, request: m.Transact, path: str) -> Any:
        timestamp = proposals.BASE_TIME
        return self.transactions.RemoveAction(path=path, data_change=request.data_change, deletion_timestamp=timestamp)

    # Maintenance

    @answering
    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        self._table(request.table, request.version).create_checkpoint()
        return m.Done()

    @answering
    def compact(self, client: str, request: m.Compact) -> m.Answer:
        self._table(request.table, None).compact_logs(request.start, request.end)
        return m.Done()

    @answering
    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        with _aged(Path(request.table) / LOG, request.older_than):
            self._table(request.table, None).cleanup_metadata()
        return m.Done()

    @answering
    def maintain(self, client: str, request: m.Maintain) -> m.Answer:
        if request.job != "vacuum":
            raise Unable(f"no {request.job} of files that hold no rows")
        self._table(request.table, None).vacuum(dry_run=False, full=True)
        return m.Done()

    def _table(self, path: str, version: int | None) -> Any:
        if not path.startswith("/"):
            raise Unable("delta-rs opens a table only by its path")
        return self.library.DeltaTable(path, version=version)


def _relative_path(uri: str, location: str) -> str:
    """The path of a file relative to the table's folder. Any other path stays as delta-rs returns it."""
    path = uri.removeprefix("file://").removeprefix(f"{location}/")
    return uri if ":" in path.partition("/")[0] else path


def _values(batch: Any, name: str) -> list[Any]:
    """A column of a batch that comes from pyarrow or from arro3."""
    column = batch.column(name) if hasattr(batch, "column") else batch[name]
    return [value.as_py() if hasattr(value, "as_py") else value for value in column]


def _version_of(log: Path, marker: str, table: Any) -> int:
    """The version whose commit has the marker; if none has it, the handle's version."""
    for path in sorted(log.iterdir(), reverse=True):
        version = version_of(path.name)
        body = None if version is None else proposals.body_of(path.read_text("utf-8", "replace"), "commitInfo")
        if version is not None and (body or {}).get("txnId") == marker:
            return version
    table.update_incremental()
    return int(table.version())


@contextmanager
def _aged(log: Path, older_than: int) -> Iterator[None]:
    """During a cleanup, make the log's files older, so that a file from `older_than` or earlier exceeds the
    retention."""
    before = {path: path.stat().st_mtime_ns for path in log.iterdir() if path.is_file()}
    edge = time.time_ns() // 1_000_000 - RETENTION - STRETCH
    for path, modified in before.items():
        moved = edge + (modified // 1_000_000 - older_than) * STRETCH
        os.utime(path, ns=(moved * 1_000_000, moved * 1_000_000))
    try:
        yield
    finally:
        for path, modified in before.items():
            if path.exists():
                os.utime(path, ns=(modified, modified))
