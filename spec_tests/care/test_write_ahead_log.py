"""The ledger's write-ahead log: no client removes it under a running owner; damage before the last transaction is
rejected; an incomplete last transaction is ignored."""

import errno
import fcntl
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count, pairwise
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

import refimpl
from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Effect, Hook, Kind, Moment, unobserved
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from refimpl.care import watched_ledger
from refimpl.owner.ledger import FILE_NAME, connect
from refimpl.protocol.commits import Ratified
from refimpl.protocol.errors import CorruptLedgerError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.storage.environment import Environment
from refimpl.storage.files import Files, PosixFiles, lock_description
from spec_tests.support.builders import START, append, create, owned
from spec_tests.support.faults import Faults, FaultyConnection, opened

LOOKS = {Kind.STAT, Kind.LIST, Kind.READ}
HEADER, FRAME = 32, 24 + 4096


def log_of(warehouse: refimpl.Warehouse) -> Path:
    return warehouse.owner.ledger.path.with_name(f"{FILE_NAME}-wal")


# Other SQLite clients


def visited_by_another_client(ledger: Path) -> None:
    """Another SQLite client opens and closes the ledger. The last client that closes a database removes its log."""
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM commits').fetchall()"
    subprocess.run([sys.executable, "-c", f"{look}; c.close()", str(ledger)], check=True)


def looked_at_by_python(ledger: Path) -> None:
    database = sqlite3.connect(ledger)  # another SQLite library than the owner's, in the owner's process
    database.execute("SELECT count(*) FROM commits").fetchall()
    database.close()


LOOKS_IN_PROCESS: dict[str, Callable[[Path], object]] = {
    "another SQLite library": looked_at_by_python,
    "the database as a file": Path.read_bytes,
    "the shared memory as a file": lambda ledger: ledger.with_name(f"{FILE_NAME}-shm").read_bytes(),
}


@pytest.mark.parametrize("look", LOOKS_IN_PROCESS.values(), ids=LOOKS_IN_PROCESS.keys())
def test_reading_the_ledger_in_the_process_drops_no_lock(tmp_path: Path, look: Callable[[Path], object]) -> None:
    """STORAGE.md#second-library: without the lock, another process would empty the shared memory of the owner."""
    empties = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)"
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        ledger, before = warehouse.owner.ledger.path, log_of(warehouse).stat().st_ino
        look(ledger)
        memory = str(ledger.with_name(f"{FILE_NAME}-shm"))
        tried = subprocess.run([sys.executable, "-c", empties, memory], capture_output=True, text=True, check=False)
        assert "BlockingIOError" in tried.stderr
        visited_by_another_client(ledger)
        assert log_of(warehouse).stat().st_ino == before
        assert isinstance(table.commit(2), Ratified)
    visited_by_another_client(ledger)
    assert not Path(memory).exists(), "after the owner has closed, the last client removes the memory"


def test_lock_is_kept_while_a_second_connection_uses_it(tmp_path: Path) -> None:
    """A thread ends, with its connection, while another thread opens the same ledger. Closing the descriptor of the
    first lock would drop the locks that SQLite holds for the second connection."""
    files, path = PosixFiles(), tmp_path / "file"
    path.write_bytes(bytes(10))

    def is_locked() -> bool:
        with path.open("r+b") as other:
            try:
                lock_description(other.fileno(), fcntl.F_WRLCK, 3, 1)
            except BlockingIOError:
                return True
            return False

    with files.opening():
        first = files.hold_shared(str(path), 3, 1)
    with files.opening():
        del first
        assert is_locked()
        second = files.hold_shared(str(path), 3, 1)
    assert is_locked()
    with files.opening():
        del second
    assert not is_locked()


def test_closing_waits_while_another_thread_opens_the_ledger(tmp_path: Path) -> None:
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    ready, close = threading.Event(), threading.Event()
    waited: list[bool] = []

    def open_and_close() -> None:
        with opened(tmp_path / "w"):
            ready.set()
            assert close.wait(120)

    closing = threading.Thread(target=open_and_close)

    def connect_slowly(path: Path) -> apsw.Connection:
        database = connect(path)
        close.set()
        closing.join(0.1)
        waited.append(closing.is_alive())
        return database

    closing.start()
    assert ready.wait(120)
    with refimpl.open(tmp_path / "w", environment=Environment(connect=connect_slowly)):
        closing.join()
    assert waited == [True]


def test_file_system_without_open_file_locks_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(fcntl, "fcntl", lacking)
    with opened(tmp_path / "w") as warehouse:
        assert create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1).latest == 1


FORK_WHILE_OPENING = """
import os, sys, threading
import refimpl
from refimpl.storage.files import PosixFiles

opening, done = threading.Event(), threading.Event()

def open_slowly():
    with PosixFiles().opening():
        opening.set()
        done.wait()

threading.Thread(target=open_slowly).start()
opening.wait()
child = os.fork()
if not child:
    with refimpl.open(sys.argv[1]) as warehouse:
        os._exit(len(warehouse.owner.tables()))
done.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "one table"
"""


@pytest.mark.processes
def test_forked_child_opens_a_ledger(tmp_path: Path) -> None:
    """The process forks while another of its threads opens a database."""
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    subprocess.run([sys.executable, "-c", FORK_WHILE_OPENING, str(tmp_path / "w")], check=True, timeout=120)


@pytest.mark.parametrize("replaced", [False, True])
def test_an_owner_whose_log_was_removed_commits_nothing(tmp_path: Path, replaced: bool) -> None:
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=2)
        with warehouse.owner.lock():
            warehouse.owner.ledger.fold()
        log = log_of(warehouse)
        content = log.read_bytes()
        log.unlink()
        if replaced:
            log.write_bytes(content)
        with pytest.raises(OwnerUnavailableError, match="removed or replaced"):
            table.commit(3)
        with pytest.raises(OwnerUnavailableError, match="removed or replaced"):
            table.owner.get_commits(table.table_id)
    with opened(tmp_path / "w") as again:
        assert owned(again, "orders").latest == 2
        owned(again, "orders").land()


def test_commit_during_a_removal_of_the_log_is_unknown(tmp_path: Path) -> None:
    class Robbed(apsw.Connection):
        armed = False

        def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
            if statement == "COMMIT" and Robbed.armed:
                Path(self.filename_wal).unlink()
            return super().execute(statement, *values, **more)

    with refimpl.open(
        tmp_path / "w", environment=Environment(connect=lambda path: Robbed(str(path))), create=True
    ) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        proposal = table.propose(1, append(START + 1))
        Robbed.armed = True
        with pytest.raises(OutcomeUnknown) as unknown:
            warehouse.owner.commit(table.table_id, 1, proposal)
        assert unknown.value.attempt == proposal.attempt


# A sync that failed


def simulated(disk: Disk, sqlite: SimulatedSqlite, hook: Hook = unobserved) -> Environment:
    """The environment of one start on a simulated host."""
    return Environment(
        files=cast(Files, SimulatedFiles(disk, hook=hook)),
        connect=sqlite.mounted(disk, hook=hook),
        host_lock=lambda _path: nullcontext,
        host_queue=lambda _path: lambda: nullcontext(False),
    )


def test_a_restart_rewrites_the_last_transaction_first() -> None:
    """After a failed sync, the next sync does nothing: only bytes that are written again become durable."""
    disk, folder, seen = Disk(), Path("/warehouse"), list[str]()

    def hook(effect: Effect) -> None:
        if effect.moment is Moment.AFTER and effect.kind not in LOOKS:
            seen.append(f"{effect.kind.value} {Path(effect.target).name}")

    with SimulatedSqlite() as sqlite:
        warehouse = refimpl.open(folder, environment=simulated(disk, sqlite), create=True)
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        proposal = table.propose(1, append(START + 1))
        disk.failing_sync = disk.syncs + 1
        with pytest.raises(OutcomeUnknown):
            warehouse.owner.commit(table.table_id, 1, proposal)
        number = disk.find(log_of(warehouse))
        assert number is not None
        log = disk.numbered(number)
        assert log.durable != bytes(log.content)
        warehouse.close()
        again = refimpl.open(folder, environment=simulated(disk, sqlite, hook))
        assert log.durable == bytes(log.content)
        assert seen == [f"write {FILE_NAME}-wal", f"fsync {FILE_NAME}-wal", "fsync-directory _owner"]
        assert owned(again, "orders").latest == 1
        again.close()


@pytest.mark.parametrize("kib", [60, 130, 1000])
def test_a_ledger_whose_last_transaction_is_large_is_opened(tmp_path: Path, kib: int) -> None:
    """SQLite cannot write 128 KiB at once: the owner reported a full disk at every start."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        assert isinstance(table.commit(1, append(START + 1, lines=kib * 1024 // 150)), Ratified)
        log, before = log_of(warehouse), log_of(warehouse).read_bytes()
        assert len(before) > kib * 1024
    with refimpl.open(tmp_path / "w") as again:
        assert log.read_bytes() == before
        table.through(again).backfill()
        assert isinstance(table.through(again).commit(2), Ratified)


def test_opening_syncs_the_log_of_a_writer_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process opens the ledger during a transaction of another process, and its wait for the transaction times
    out."""
    monkeypatch.setattr(FaultyConnection, "set_busy_timeout", lambda *_: None, raising=False)
    late = Faults(below_sqlite=True)
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        with warehouse.owner.ledger.write():
            refimpl.open(tmp_path / "w", environment=late.environment()).close()
    assert late.seen == [f"fsync {FILE_NAME}-wal", "fsync _owner/"]


# Damage


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def frames(content: bytes | bytearray) -> list[int]:
    return list(range(HEADER, len(content), FRAME))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a page in the middle": lambda content: flipped(content, frames(content)[len(frames(content)) // 2] + 100),
    "the first page": lambda content: flipped(content, HEADER + 1000),
    "the salt of a frame": lambda content: flipped(content, frames(content)[3] + 9),
    "the checksum of a frame": lambda content: flipped(content, frames(content)[3] + 17),
    "the magic number": lambda content: flipped(content, 0),
    "the salt of the header": lambda content: flipped(content, 17),
    "a sector that was never written": lambda content: content[:8192] + bytes(512) + content[8704:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_log_is_rejected_and_not_changed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """SQLite would take the first invalid frame for the end of the log, and continue from there."""
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=5)
        log = log_of(warehouse)
    content = log.read_bytes()
    damaged = damage(content)
    log.write_bytes(damaged)
    with pytest.raises(CorruptLedgerError, match="damaged after frame"):
        opened(tmp_path / "w")
    assert log.read_bytes() == damaged
    log.write_bytes(content)
    with opened(tmp_path / "w") as warehouse:
        assert owned(warehouse, "orders").latest == 5


@pytest.mark.parametrize("first", [0, 1], ids=["its first frame", "a later one"])
def test_a_torn_header_without_commits_is_no_damage(tmp_path: Path, first: int) -> None:
    """After a failed sync, a transaction stays behind the end of the log. The next writer overwrites it, and dies after
    the header of a frame: this header marks a commit in the middle of the older transaction."""
    with opened(tmp_path / "w") as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=5)
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="second")
        log = log_of(warehouse)
    content = bytearray(log.read_bytes())
    ends = [at for at in frames(content) if content[at + 4 : at + 8] != bytes(4)]
    begins, end = [(last + FRAME, end) for last, end in pairwise(ends) if end - last >= 3 * FRAME][-1]
    cut = begins + first * FRAME
    content[cut + 4 : cut + 8] = content[end + 4 : end + 8]
    log.write_bytes(content[: end + FRAME])
    with opened(tmp_path / "w") as warehouse:
        assert [table.name for table in warehouse.owner.tables()] == ["orders"]
        assert owned(warehouse, "orders").latest == 5


def test_a_log_that_restarts_while_it_is_opened_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends to the log while this one looks at it for the first time, and restarts the log before the
    second look. The frames of the older log were compared with its old header, and taken for lost transactions."""
    real, looks = watched_ledger._frames, count(1)

    def meanwhile(database: Any) -> int:
        look, frames = next(looks), real(database)
        if look == 1:
            table.land(2)
        if look != 2:
            return frames
        with warehouse.owner.lock():
            warehouse.owner.ledger.fold()
        table.land(1)
        return real(database)

    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=8)
        monkeypatch.setattr(watched_ledger, "_frames", meanwhile)
        with opened(tmp_path / "w") as second:
            assert owned(second, "orders").latest == 11
    assert next(looks) == 3


def test_a_log_restarted_in_shared_memory_only_is_no_damage(tmp_path: Path) -> None:
    """A process that restarts the log first tells the other processes. Then it dies, or fails to write the new
    header."""
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=3)
        with warehouse.owner.lock():
            warehouse.owner.ledger.fold()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(OutcomeUnknown):
                table.commit(4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with opened(tmp_path / "w") as second:
            assert owned(second, "orders").latest == 3
            owned(second, "orders").land()
        assert table.latest == 4
