"""A worker process: it receives orders, sends a note before each action, and may die.

A worker opens the warehouse several times, and each step uses a random one of these owners. A worker with the role
`foreign` opens no warehouse: it reads the ledger with another SQLite client.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import apsw
import msgspec

import refimpl
from refimpl.client.maintenance import clean_up, write_checkpoint, write_checksum
from refimpl.owner.ledger import FILE_NAME
from refimpl.owner.local import LocalOwner
from refimpl.protocol import actions, errors, log_path
from refimpl.protocol.actions import Add
from refimpl.protocol.commit_owner import NameTaken, Registered, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Landed, Outcome, Proposal, Ratified, Rejected, VersionGap
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.log_store import LogStore
from spec_tests.support.builders import (
    ON_REQUEST,
    START,
    OwnedTable,
    addition,
    first_version,
    hand_back_commit,
    info,
    new_attempt,
    owned,
    ownership_change,
)
from spec_tests.support.faults import Faults, disk_is_broken, disk_is_full


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a round. `die_after`: the number of effects after which the worker kills itself.

    `fail_after`: the number of effects after which `fail_count` effects fail, on a full or a broken disk.
    """

    role: str
    """One of `ROLES`."""
    table: str
    """The table's id. In a race to create the table: its name; in a race to take it over: its location."""
    name: str
    feature: str
    commit_mode: str
    count: int
    seed: int
    die_after: int | None = None
    torn: bool = False
    fail_after: int | None = None
    fail_count: int = 1
    broken: bool = False
    trouble: bool = False
    """Whether a disk fails in this round, of any worker."""
    owners: int = 1
    """The number of warehouses that the process should have open. Each step opens or closes one."""
    others: tuple[str, ...] = ()
    """Attempts of other workers that a resolver asks about."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report of a worker."""

    what: str
    """try, ratified, refused, unknown, resolved, registered, lost, did, dying, done, bug"""
    attempt: str = ""
    version: int = -1
    digest: str = ""
    text: str = ""
    landed: bool = False


EXTERNAL = "without-owner-"
"""The prefix of attempts that no owner knows."""


def attempts_of(seed: int) -> Iterator[str]:
    """The attempt ids of a writer with this seed, so that other workers know them in advance."""
    numbers = random.Random(f"attempts of {seed}")
    while True:
        yield str(uuid.UUID(int=numbers.getrandbits(128), version=4))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_of(attempt: str, number: int) -> Add:
    """A data file with the attempt that adds it in its name."""
    return addition(f"{attempt}.{number}.parquet")


def attempt_of(path: str) -> str:
    return path.partition(".")[0]


def append_by(attempt: str, timestamp: int, *, lines: int = 1) -> bytes:
    return actions.encode([info(timestamp), *(file_of(attempt, number) for number in range(lines))])


@dataclass
class Worker:
    """One process, with its own owners and its own random choices."""

    connection: Connection
    directory: Path
    durable: bool
    order: Order = field(init=False)
    random: random.Random = field(init=False)
    attempts: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.faults = Faults(durable=self.durable, below_sqlite=True, die=self._die)
        self._warehouses: list[refimpl.Warehouse] = []

    @property
    def warehouse(self) -> refimpl.Warehouse:
        """A random one of the open warehouses."""
        if not self._warehouses:
            self._open()
        return self.random.choice(self._warehouses)

    @property
    def owner(self) -> LocalOwner:
        return self.warehouse.owner

    def _open(self) -> None:
        """The client's clock stands still, so that its timestamps fit those of the other commits."""
        environment = self.faults.environment(now=lambda: START)
        self._warehouses.append(refimpl.open(self.directory, environment=environment, create=True))
        self.note("did", text="open")

    def _open_or_close(self) -> None:
        if len(self._warehouses) < self.order.owners:
            self._open()
        elif len(self._warehouses) > self.order.owners:
            self._warehouses.pop(self.random.randrange(len(self._warehouses))).close()

    def note(self, what: str, **facts: object) -> None:
        self.connection.send(Note(what=what, **facts))  # type: ignore[arg-type]

    def _die(self, effect: str) -> None:
        self.note("dying", text=effect)
        os.kill(os.getpid(), signal.SIGKILL)

    def serve(self) -> None:
        while True:
            order = self.order = self.connection.recv()
            self.random = random.Random(order.seed)
            self.attempts = attempts_of(order.seed)
            self.faults.seen.clear()
            self.faults.arm(order.die_after, torn=order.torn)
            error = disk_is_broken if order.broken else disk_is_full
            self.faults.fail(order.fail_after, count=order.fail_count, error=error)
            try:
                if order.role != "foreign":
                    self._open_or_close()
                ROLES[order.role](self)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                expected = order.trouble and isinstance(error, errors.DeltaError | OSError)
                text = f"{order.role}: {type(error).__name__}: {error}"[:2000]
                self.note("did" if expected else "bug", text="fail by the disk" if expected else text)
            self.faults.arm(None)
            self.faults.fail(None)
            self.note("done", text=str(self.faults.failed))
            self.faults.failed = 0

    # Roles

    def create(self) -> None:
        """Race for the table's name. Each creator stages its own table."""
        feature = TABLE_FEATURES[self.order.feature]
        content, attempt = first_version(feature), new_attempt()
        try:
            staged = self.owner.stage_table(
                self.order.table, feature, commit_mode=CommitMode(self.order.commit_mode), policy=ON_REQUEST
            )
        except errors.NameTakenError as error:
            self.note("lost", text=error.winner.table_id)
            return
        self.note("try", attempt=attempt, version=0, digest=digest_of(content), text=staged.table_id)
        proposal = DirectProposal(attempt=attempt, content=content)
        match self._sent(attempt, lambda: self.owner.register_table(staged.table_id, proposal)):
            case Registered():
                self.note("registered", attempt=attempt, text=staged.table_id)
            case NameTaken(winner=winner):
                self.note("refused", attempt=attempt)
                self.note("lost", text=winner.table_id)

    def take_over(self) -> None:
        """Race with other workers to take over a filesystem table."""
        feature = TABLE_FEATURES[self.order.feature]
        log = LogStore(Path(self.order.table), self.warehouse.environment)
        version = self._next_in(log)
        content, attempt = ownership_change(feature, START + version), new_attempt()
        self.note("try", attempt=attempt, version=version, digest=digest_of(content))
        proposal = DirectProposal(attempt=attempt, content=content)

        def send() -> Outcome:
            try:
                return self.owner.take_over(
                    log.location,
                    self.order.name,
                    feature,
                    version,
                    proposal,
                    commit_mode=CommitMode(self.order.commit_mode),
                    policy=ON_REQUEST,
                )
            except errors.NameTakenError:
                return Conflict(latest_ratified_version=version)

        self._judge(attempt, self._sent(attempt, send))

    def write_to_filesystem(self) -> None:
        """Race against take-overs: commit without an owner, until the table has one."""
        log = LogStore(Path(self.order.table), self.warehouse.environment)
        for _ in range(self.order.count):
            version = self._next_in(log)
            if any(name.encode() in log.read(log_path.commit(version - 1)) for name in TABLE_FEATURES):
                return  # a physical conflict, then the protocol change: managed-commits says to stop here
            attempt = f"{EXTERNAL}{new_attempt()}"
            content = append_by(attempt, START + version)
            self.note("try", attempt=attempt, version=version, digest=digest_of(content))
            try:
                landed = log.put_if_absent(log_path.commit(version), content)
            except OSError:
                self.note("unknown", attempt=attempt)
                raise
            self.note("ratified" if landed else "refused", attempt=attempt)

    def _next_in(self, log: LogStore) -> int:
        return max(log.published_versions()) + 1

    def write(self) -> None:
        table = self._table()
        for _ in range(self.order.count):
            latest = table.latest
            if latest is None:
                return
            self._commit(table, latest + self.random.choice((1, 1, 1, 1, 1, 1, 1, 0, 2)))

    def _commit(self, table: OwnedTable, version: int) -> None:
        attempt = next(self.attempts)
        content = append_by(attempt, START + version, lines=self.random.randint(1, 3))
        self.note("try", attempt=attempt, version=version, digest=digest_of(content))
        proposal = self._proposal(table, version, content, attempt)
        outcome = self._sent(attempt, lambda: self.owner.commit(table.table_id, version, proposal))
        self._judge(attempt, outcome)
        if not isinstance(outcome, Ratified):
            return
        latest = self.owner.get_commits(table.table_id).latest_ratified_version
        assert latest is not None and latest >= version, f"version {version} is ratified, and the latest is {latest}"
        if self.random.random() < 0.1:
            again = self.owner.commit(table.table_id, version, proposal)
            assert isinstance(again, Ratified), f"a replay of {attempt} is answered {again}"
            assert again.replayed

    def _proposal(self, table: OwnedTable, version: int, content: bytes, attempt: str) -> Proposal:
        try:
            return table.propose(version, content, attempt=attempt)
        except OSError:  # the proposal was never sent
            self.note("refused", attempt=attempt)
            raise

    def _sent(self, attempt: str, send: Callable[[], object]) -> object:
        try:
            return send()
        except errors.OutcomeUnknown:
            self.note("unknown", attempt=attempt)
            return None
        except (errors.OwnerUnavailableError, errors.InvalidRequestError):
            if self.order.trouble:
                self.note("refused", attempt=attempt)
            raise

    def _judge(self, attempt: str, outcome: object) -> None:
        match outcome:
            case Ratified():
                self.note("ratified", attempt=attempt)
            case Conflict() | VersionGap() | Rejected():
                self.note("refused", attempt=attempt)

    def transact(self) -> None:
        """Append through the client, which rebases and resolves itself. One attempt id here stands for all its
        proposals."""
        table = self.warehouse.table(self.order.table)
        for _ in range(self.order.count):
            attempt = next(self.attempts)
            self.note("try", attempt=attempt)
            try:
                transaction = table.transaction(operation="WRITE")
                transaction.add(file_of(attempt, 0))
                version = transaction.commit().version
            except errors.OutcomeUnknown as error:
                self.note("unknown", attempt=attempt, text=error.facts.get("attempt") or "")
                continue
            except errors.CERTAINLY_NOT_COMMITTED as error:
                self.note("refused", attempt=attempt)
                lost = isinstance(
                    error, errors.LostRaceError | errors.ConcurrentModificationError | errors.CommitRejectedError
                )
                if not lost and not self._handed_back():
                    raise
                continue
            self.note("ratified", attempt=attempt, version=version)

    def backfill(self) -> None:
        table = self._table()
        for _ in range(self.order.count):
            latest = table.latest
            if latest is not None:
                self.owner.backfill_to_version(table.table_id, self.random.choice((None, latest, latest // 2)))
                self.note("did", text="backfill")

    def checkpoint(self) -> None:
        """Backfill, then write checkpoints and checksums of published versions, through the client."""
        self.owner.backfill_to_version(self.order.table)
        table = self.warehouse.table(self.order.table)
        for _ in range(self.order.count):
            try:
                write_checkpoint(table)
            except errors.MaintenanceRefusedError:
                if not self._handed_back():
                    raise
                return
            self.note("did", text="checkpoint")
            write_checksum(table)

    def _handed_back(self) -> bool:
        return self.owner.resolve(self.order.table).state is TableState.HANDED_BACK

    def clean_up(self) -> None:
        self.checkpoint()
        deleted = clean_up(self.warehouse.table(self.order.table), older_than=-1_000_000).deleted
        self.note("did", text="cleanup" if deleted else "cleanup of nothing")

    def look(self) -> None:
        """Open, read and close the ledger, as another SQLite client that does not know of the owner."""
        ledger = self.directory / OWNER_FOLDER / FILE_NAME
        for _ in range(self.order.count):
            database = apsw.Connection(str(ledger)) if self.random.random() < 0.5 else sqlite3.connect(ledger)
            try:
                for _ in range(self.random.randint(1, 5)):
                    database.execute("SELECT count(*), max(version) FROM commits").fetchall()
                if self.random.random() < 0.1:
                    flaws = database.execute("PRAGMA integrity_check").fetchall()
                    assert [tuple(row) for row in flaws] == [("ok",)], flaws
            except (apsw.BusyError, sqlite3.OperationalError) as error:
                assert "locked" in str(error) or "busy" in str(error).lower(), error
            finally:
                database.close()
            self.note("did", text="foreign visit")

    def read(self) -> None:
        """Read: versions never go back and have no gap, and every listed commit can be read."""
        table, newest = self._table(), -1
        for _ in range(self.order.count):
            history = table.history()
            first, latest = min(history), max(history)
            assert sorted(history) == list(range(first, latest + 1)), f"a gap in {sorted(history)}"
            assert latest >= newest, f"the latest version went from {newest} to {latest}"
            newest = latest

    def resolve(self) -> None:
        """Ask about attempts of other workers, some of which are in flight."""
        table = self._table()
        for attempt in self.order.others:
            outcome = self.owner.attempt_outcome(table.table_id, attempt)
            self.note("resolved", attempt=attempt, landed=isinstance(outcome, Landed))

    def hand_back(self) -> None:
        """Hand the table back while other workers still commit to it."""
        table = self._table()
        latest = table.latest
        if latest is None:
            return
        content, attempt = hand_back_commit(START + latest + 1), new_attempt()
        self.note("try", attempt=attempt, version=latest + 1, digest=digest_of(content))
        proposal = DirectProposal(attempt=attempt, content=content)
        self._judge(attempt, self._sent(attempt, lambda: self.owner.hand_back(table.table_id, latest + 1, proposal)))

    def _table(self) -> OwnedTable:
        return owned(self.warehouse, self.order.table)


ROLES: dict[str, Callable[[Worker], None]] = {
    "create": Worker.create,
    "take-over": Worker.take_over,
    "filesystem": Worker.write_to_filesystem,
    "write": Worker.write,
    "transact": Worker.transact,
    "backfill": Worker.backfill,
    "checkpoint": Worker.checkpoint,
    "clean-up": Worker.clean_up,
    "read": Worker.read,
    "resolve": Worker.resolve,
    "hand-back": Worker.hand_back,
    "foreign": Worker.look,
}


def main(connection: Connection, directory: Path, durable: bool) -> None:
    Worker(connection, directory, durable).serve()
