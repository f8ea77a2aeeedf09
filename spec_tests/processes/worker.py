"""What a worker process does: it takes orders line by line, notes everything that it is about to do, and may die.

A note is one `write` of less than a pipe's atomic size, so that it is read even if its writer is killed
right after it.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

import refimpl
from refimpl import log_path
from refimpl.commit_owner import NameTaken, Registered
from refimpl.commits import Conflict, DirectProposal, Landed, Outcome, Ratified, Rejected, VersionGap
from refimpl.errors import DeltaError, NameTakenError, OutcomeUnknown
from refimpl.log_store import LogStore
from refimpl.owner.local import LocalOwner
from refimpl.table_feature import TABLE_FEATURES, Way
from spec_tests.support.builders import (
    ON_REQUEST,
    START,
    OwnedTable,
    append,
    first_version,
    hand_back_commit,
    new_attempt,
    owned,
    ownership_change,
)
from spec_tests.support.faults import Faults


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a round. `die_after`: so many effects, then it kills itself."""

    role: str
    """One of `ROLES`."""
    table: str
    """The table's id; for those who race to make it, its name."""
    feature: str
    way: str
    count: int
    seed: int
    die_after: int | None = None
    torn: bool = False
    others: tuple[str, ...] = ()
    """Attempts of others that a resolver asks about."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker tells. `what`: try, ratified, refused, unknown, resolved, registered, lost, dying, done, bug."""

    what: str
    attempt: str = ""
    version: int = -1
    digest: str = ""
    text: str = ""
    landed: bool = False


STRANGER = "without-owner-"
"""How the attempts begin that no owner knows of."""


def attempts_of(seed: int) -> Iterator[str]:
    """The attempt ids that a writer with this seed uses, known to others before they are used."""
    numbers = random.Random(f"attempts of {seed}")
    while True:
        yield str(uuid.UUID(int=numbers.getrandbits(128), version=4))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Worker:
    """One process: its own start of the owner, its own random choices."""

    directory: Path
    notes: int
    durable: bool
    order: Order = field(init=False)
    random: random.Random = field(init=False)
    attempts: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.faults = Faults(durable=self.durable, die=self._die)
        self.warehouse = refimpl.open(self.directory, environment=self.faults.environment())

    @property
    def owner(self) -> LocalOwner:
        return self.warehouse.owner

    def note(self, what: str, **facts: object) -> None:
        os.write(self.notes, msgspec.json.encode(Note(what=what, **facts)) + b"\n")  # type: ignore[arg-type]

    def _die(self, effect: str) -> None:
        self.note("dying", text=effect)
        os.kill(os.getpid(), signal.SIGKILL)

    def serve(self, orders: BinaryIO) -> None:
        for line in orders:
            self.order = msgspec.json.decode(line, type=Order)
            self.random = random.Random(self.order.seed)
            self.attempts = attempts_of(self.order.seed)
            self.faults.seen.clear()
            self.faults.arm(self.order.die_after, torn=self.order.torn)
            try:
                ROLES[self.order.role](self)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                self.note("bug", text=f"{self.order.role}: {type(error).__name__}: {error}"[:2000])
            self.faults.arm(None)
            self.note("done")

    # Roles

    def create(self) -> None:
        """Race for the table's name; each creator stages a table of its own."""
        feature = TABLE_FEATURES[self.order.feature]
        content, attempt = first_version(feature), new_attempt()
        try:
            staged = self.owner.stage_table(self.order.table, feature, way=Way(self.order.way), policy=ON_REQUEST)
        except NameTakenError as error:
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
        """Race for a filesystem table with other owners-to-be."""
        feature = TABLE_FEATURES[self.order.feature]
        log = LogStore(self.directory / self.order.table, self.warehouse.environment)
        version = self._next_in(log)
        content, attempt = ownership_change(feature, START + version), new_attempt()
        self.note("try", attempt=attempt, version=version, digest=digest_of(content))
        proposal = DirectProposal(attempt=attempt, content=content)

        def send() -> Outcome:
            try:
                return self.owner.take_over(
                    log.location,
                    self.order.table,
                    feature,
                    version,
                    proposal,
                    way=Way(self.order.way),
                    policy=ON_REQUEST,
                )
            except NameTakenError:
                return Conflict(latest_ratified_version=version)

        self._judge(attempt, self._sent(attempt, send))

    def write_to_filesystem(self) -> None:
        """Race against them: commits of a writer that knows no owner, until it meets one."""
        log = LogStore(self.directory / self.order.table, self.warehouse.environment)
        for _ in range(self.order.count):
            version = self._next_in(log)
            if version and b"writerFeatures" in log.read(log_path.commit(version - 1)) and version > 1:
                return  # a physical conflict, then the protocol change: managed-commits says to stop here
            content, attempt = append(START + version), f"{STRANGER}{new_attempt()}"
            self.note("try", attempt=attempt, version=version, digest=digest_of(content))
            landed = log.put_if_absent(log_path.commit(version), content)
            self.note("ratified" if landed else "refused", attempt=attempt)

    def _next_in(self, log: LogStore) -> int:
        return sum(path.kind is log_path.FileKind.COMMIT for path in log.listing())

    def write(self) -> None:
        table = self._table()
        for _ in range(self.order.count):
            latest = table.latest
            if latest is None:
                return
            self._commit(table, latest + self.random.choice((1, 1, 1, 1, 1, 1, 1, 0, 2)))

    def _commit(self, table: OwnedTable, version: int) -> None:
        content, attempt = append(START + version, lines=self.random.randint(1, 3)), next(self.attempts)
        self.note("try", attempt=attempt, version=version, digest=digest_of(content))
        proposal = table.propose(version, content, attempt=attempt)
        outcome = self._sent(attempt, lambda: self.owner.commit(table.table_id, version, proposal))
        self._judge(attempt, outcome)
        if isinstance(outcome, Ratified) and self.random.random() < 0.1:
            again = self.owner.commit(table.table_id, version, proposal)
            assert isinstance(again, Ratified), f"a replay of {attempt} is answered {again}"
            assert again.replayed

    def _sent(self, attempt: str, send: Callable[[], object]) -> object:
        try:
            return send()
        except OutcomeUnknown:
            self.note("unknown", attempt=attempt)
            return None

    def _judge(self, attempt: str, outcome: object) -> None:
        match outcome:
            case Ratified():
                self.note("ratified", attempt=attempt)
            case Conflict() | VersionGap() | Rejected():
                self.note("refused", attempt=attempt)

    def backfill(self) -> None:
        table = self._table()
        for _ in range(self.order.count):
            latest = table.latest
            if latest is not None:
                self.owner.backfill_to_version(table.table_id, self.random.choice((None, latest, latest // 2)))

    def read(self) -> None:
        """Never backwards, never with a gap; what is told to be stored can be read."""
        table, newest = self._table(), -1
        for _ in range(self.order.count):
            history = table.history()
            assert sorted(history) == list(range(len(history))), f"a gap in {sorted(history)}"
            assert len(history) - 1 >= newest, f"the latest version went from {newest} to {len(history) - 1}"
            newest = len(history) - 1

    def resolve(self) -> None:
        """Ask about attempts of others, some of which are on their way at this moment."""
        table = self._table()
        for attempt in self.order.others:
            outcome = self.owner.attempt_outcome(table.table_id, attempt)
            self.note("resolved", attempt=attempt, landed=isinstance(outcome, Landed))

    def hand_back(self) -> None:
        """Give the table up while others still commit to it."""
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
    "backfill": Worker.backfill,
    "read": Worker.read,
    "resolve": Worker.resolve,
    "hand-back": Worker.hand_back,
}


def main(directory: Path, orders: int, notes: int, durable: bool) -> None:
    try:
        worker = Worker(directory, notes, durable)
    except DeltaError as error:
        os.write(notes, msgspec.json.encode(Note(what="bug", text=f"start: {error}")) + b"\n")
        sys.exit(1)
    with os.fdopen(orders, "rb", buffering=0) as lines:
        worker.serve(lines)
