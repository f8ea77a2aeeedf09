"""Durable commits by one process, against the raw limit of the same storage.

    python -m spec_tests.benchmarks.commit

Inline: against one SQLite FULL transaction with the same bytes under the same file lock.
Staged: against the same plus writing a file, fsync of the file and fsync of its directory.
The ratio to the bare transaction, without any lock, is shown too.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw

import refimpl
from refimpl.commits import InlineProposal, Ratified, StagedProposal
from refimpl.environment import host_lock
from refimpl.log_store import LogStore
from refimpl.owner.local import LOCK_FILE, OWNER_FOLDER
from refimpl.table_feature import Way
from spec_tests.benchmarks import measure, table


def per_second(contents: list[bytes], one: Callable[[bytes], None]) -> float:
    """The bytes are made before the clock starts: making them is the writer's work, not the owner's."""
    start = time.perf_counter()
    for content in contents:
        one(content)
    return len(contents) / (time.perf_counter() - start)


def raw_database(folder: Path) -> apsw.Connection:
    database = apsw.Connection(str(folder / "raw.sqlite"))
    database.execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=2000;"
        "CREATE TABLE raw(version INTEGER PRIMARY KEY, content BLOB)"
    ).fetchall()
    return database


def transaction(database: apsw.Connection, content: bytes) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO raw(content) VALUES (?)", (content,))
    database.execute("COMMIT")


def write_durably(folder: Path, content: bytes) -> None:
    fd = os.open(folder / table.new_id(), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, content)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def main() -> int:
    options = measure.arguments("durable commits against the raw limit", rounds=9, commits=400)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warehouse = refimpl.open(folder / "warehouse")
        owner = warehouse.owner
        inline, staged = table.create(warehouse, "inline", Way.INLINE), table.create(warehouse, "staged", Way.STAGED)
        log = LogStore(owner.resolve("staged").location, warehouse.environment)
        versions = {inline: itertools.count(1), staged: itertools.count(1)}
        database, lock = raw_database(folder), host_lock(folder / "warehouse" / OWNER_FOLDER / LOCK_FILE)
        (folder / "files").mkdir()

        def raw(content: bytes) -> None:
            with lock():
                transaction(database, content)

        def raw_staged(content: bytes) -> None:
            write_durably(folder / "files", content)
            raw(content)

        def commit_inline(content: bytes) -> None:
            proposal = InlineProposal(attempt=table.new_id(), content=content)
            assert isinstance(owner.commit(inline, next(versions[inline]), proposal), Ratified)

        def commit_staged(content: bytes) -> None:
            version, attempt = next(versions[staged]), table.new_id()
            file_name = log.stage(table.FEATURE.staging_folder, version, attempt, content)
            outcome = owner.commit(staged, version, StagedProposal(attempt=attempt, file_name=file_name))
            assert isinstance(outcome, Ratified)

        works: dict[str, Callable[[bytes], None]] = {
            "bare transaction": lambda content: transaction(database, content),
            "raw inline": raw,
            "inline": commit_inline,
            "raw staged": raw_staged,
            "staged": commit_staged,
        }
        numbers = itertools.count(1)

        def measured(work: Callable[[bytes], None]) -> Callable[[], float]:
            return lambda: per_second([table.one_add(next(numbers)) for _ in range(options.commits)], work)

        found = measure.interleaved(options.rounds, {name: measured(work) for name, work in works.items()})
        warehouse.close()
    report = measure.Report("durable commits by one process, commits/s")
    for work, values in found.items():
        report.add(work, values, "commits/s")
    ratio = {
        (a, b): [x / y for x, y in zip(found[a], found[b], strict=True)]
        for a, b in (("inline", "raw inline"), ("staged", "raw staged"), ("inline", "bare transaction"))
    }
    report.add("inline / raw limit", ratio["inline", "raw inline"], "x", at_least=0.7)
    report.add("staged / raw limit", ratio["staged", "raw staged"], "x", at_least=0.7)
    report.add("inline / bare transaction (no lock)", ratio["inline", "bare transaction"], "x")
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
