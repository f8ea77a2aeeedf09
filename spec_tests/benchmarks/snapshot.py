"""Loading a snapshot from JSON commits against delta-rs, refreshing one, and checkpoints of many files.

    python -m spec_tests.benchmarks.snapshot

- Load: a filesystem table of many one-add commits without a checkpoint, by a new handle each time, until the list of
  its files is complete.
- Refresh: an owned table with a published history. Another client adds a commit; the figure is the time in which an
  existing snapshot becomes the newest one.
- Checkpoint written: by a handle that has the snapshot, as the handle of delta-rs has, which syncs nothing.
- Checkpoint loaded: the snapshot of a new handle, against reading the Parquet file into Arrow; and the same with all
  files listed, against making Python objects of the file's rows.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sized
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

import refimpl
from refimpl.client import checkpoint_writing
from refimpl.client.table import Table
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Add, CommitInfo, FileKey, Metadata, Protocol
from refimpl.protocol.commits import InlineProposal, Ratified
from refimpl.protocol.table_feature import CommitMode
from spec_tests.benchmarks import measure, table


def filesystem_table(location: Path, commits: int, files: int = 1) -> None:
    """A table with so many commits; each commit after the first adds so many files."""
    log = location / log_path.LOG_FOLDER
    log.mkdir(parents=True)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    first = [protocol, Metadata(id=table.new_id(), schema_string=table.SCHEMA)]
    for version in range(commits):
        operation = "WRITE" if version else "CREATE TABLE"
        info = CommitInfo({"timestamp": 1_700_000_000_000 + version, "operation": operation})
        rest = [table.add() for _ in range(files)] if version else first
        (log / log_path.commit(version)).write_bytes(actions.encode([info, *rest]))


class Checkpointed:
    """A filesystem table whose files were added in ten commits."""

    def __init__(self, location: Path, files: int) -> None:
        filesystem_table(location, 11, files // 10)
        self.log = location / log_path.LOG_FOLDER
        self.location = location
        self.snapshot = Table.by_path(location).snapshot()
        self.peer = deltalake.DeltaTable(str(location))

    def forget(self) -> None:
        """Delete the checkpoint: delta-rs writes no second checkpoint of a version."""
        for name in (log_path.classic_checkpoint(10), log_path.LAST_CHECKPOINT):
            (self.log / name).unlink(missing_ok=True)

    def works(self) -> dict[str, Callable[[], float]]:
        def read() -> pa.Table:
            return pq.read_table(self.log / log_path.classic_checkpoint(10))

        def load() -> Mapping[FileKey, Add]:
            files = Table.by_path(self.location).snapshot().files
            assert len(files) == len(self.snapshot.files)
            return files

        return {
            "write delta-rs": lambda: measure.seconds(self.peer.create_checkpoint, before=self.forget),
            "write ours": lambda: measure.seconds(lambda: checkpoint_writing.write(self.snapshot)),
            "load": lambda: measure.seconds(load),
            "list": lambda: measure.seconds(lambda: list(load().values())),
            "Parquet": lambda: measure.seconds(read),
            "objects": lambda: measure.seconds(lambda: read().to_pylist()),
        }


class Owned:
    """An owned table with published commits, and a handle that has its snapshot."""

    def __init__(self, directory: Path, commits: int) -> None:
        self.owner = refimpl.open(directory, create=True).owner
        self.table_id = table.create(refimpl.open(directory, create=True), "history", CommitMode.INLINE)
        self.version = 0
        for _ in range(commits - 1):
            self.commit()
        self.owner.backfill_to_version(self.table_id)
        self.handle = refimpl.open(directory, create=True).table("history")
        self.handle.snapshot()

    def commit(self) -> None:
        self.version += 1
        proposal = InlineProposal(attempt=table.new_id(), content=table.one_add(self.version + 1))
        assert isinstance(self.owner.commit(self.table_id, self.version, proposal), Ratified)

    def refresh_ms(self) -> float:
        self.commit()
        start = time.perf_counter()
        snapshot = self.handle.snapshot()
        took = time.perf_counter() - start
        assert snapshot.version == self.version
        return took * 1000


def main() -> int:
    options = measure.arguments(
        "loading and refreshing snapshots", rounds=7, commits=10_000, refreshes=50, files=1_000_000
    )
    with tempfile.TemporaryDirectory() as name:
        location = Path(name) / "filesystem"
        filesystem_table(location, options.commits)
        loads: dict[str, Callable[[], Sized]] = {
            "ours": lambda: Table.by_path(location).snapshot().files,
            "delta-rs": lambda: deltalake.DeltaTable(str(location)).file_uris(),
        }
        assert [len(load()) for load in loads.values()] == [options.commits - 1] * 2
        figures = measure.interleaved(
            options.rounds,
            {name: lambda load=load: measure.seconds(lambda: len(load())) for name, load in loads.items()},  # type: ignore[misc]
        )
        measure.progress("building two owned tables")
        tables = {n: Owned(Path(name) / str(n), n) for n in (100, options.commits)}
        refreshes = {n: [owned.refresh_ms() for _ in range(options.refreshes)] for n, owned in tables.items()}
        measure.progress(f"building a table of {options.files} files")
        many = measure.interleaved(options.rounds, Checkpointed(Path(name) / "many", options.files).works())
    report = measure.Report(f"snapshots of {options.commits} JSON commits, checkpoints of {options.files} files")
    report.add_all(figures, "s", "load, {}")
    report.add_ratio("load, delta-rs / ours", figures["delta-rs"], figures["ours"], at_least=1.0)
    report.add_all(refreshes, "ms", "refresh by one commit, after {} commits")
    label = f"refresh, {options.commits} / 100 commits"
    report.add_ratio(label, refreshes[options.commits], refreshes[100], at_most=1.5)
    report.add_all(many, "s", "checkpoint, {}")
    written = many["write delta-rs"], many["write ours"]
    report.add_ratio("checkpoint written, delta-rs / ours", *written, at_least=1.0)
    report.add_ratio("checkpoint, load, ours / pyarrow's Parquet", many["load"], many["Parquet"], at_most=1.5)
    report.add_ratio("checkpoint, list, ours / pyarrow's objects", many["list"], many["objects"])
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
