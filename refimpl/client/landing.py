"""The commit loop: propose, and after a lost race check the winners and propose the next version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from refimpl import log_path
from refimpl.client.commit_bytes import CommitBytes
from refimpl.client.conflicts import Basis, Winner, Work, check
from refimpl.client.in_commit_timestamp import after_lost_race, next_timestamp
from refimpl.client.owner_proposer import OwnerProposer
from refimpl.client.patience import Patience
from refimpl.client.proposing import FilesystemProposer, Lost, Proposer, Won
from refimpl.commits import AttemptId
from refimpl.errors import CorruptLogError
from refimpl.log_path import Version
from refimpl.table_feature import in_commit_timestamps_enabled

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot
    from refimpl.client.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction that landed."""

    version: Version
    in_commit_timestamp: int | None
    """ms since the epoch; None where the table has no such time."""
    txn_id: str
    attempt: AttemptId | None
    """The one that landed; None on the file system."""
    tries: int
    """Proposals, the one that landed included."""
    rebased_over: int
    """Commits of others that landed after the snapshot and were no conflict."""


class Landing:
    """One transaction on its way into the log. `land` is called once."""

    def __init__(
        self,
        *,
        table: Table,
        snapshot: Snapshot,
        txn_id: str,
        work: Work,
        content: CommitBytes,
        enables_timestamps: bool,
        max_tries: int,
    ) -> None:
        self._table = table
        self._snapshot = snapshot
        self._txn_id = txn_id
        self._work = work
        self._content = content
        self._enables_timestamps = enables_timestamps
        self._patience = Patience(table.environment, max_tries=max_tries, label=f"a commit to {table.label}")
        self._stamp: int | None = None

    def land(self) -> Committed:
        """The commit, or the error that ended it. Nothing happens after the commit point: no later trouble
        can make a failure of a commit that landed."""
        proposer = self._proposer()
        with proposer.turn() as waited:
            return self._loop(proposer, look_first=waited)

    def _loop(self, proposer: Proposer, *, look_first: bool) -> Committed:
        basis = Basis(protocol=self._snapshot.protocol, metadata=self._snapshot.metadata)
        first = version = self._snapshot.version + 1
        races = 0
        self._stamp = self._first_stamp()
        seen = proposer.ahead(version) if look_first else None
        while True:
            result = seen or self._propose(proposer, version)
            if isinstance(result, Won):
                return self._committed(result, first)
            winners = proposer.winners(result)
            if isinstance(winners, Won):
                return self._committed(winners, first)
            mine = next((winner for winner in winners if self._is_mine(winner)), None)
            if mine is not None:
                return self._committed(Won(version=mine.version, attempt=result.attempt), first)
            proposer.discard(result)
            for winner in winners:
                basis = check(self._work, winner, basis)
            self._restamp(winners[-1])
            version = winners[-1].version + 1
            if seen is None:
                self._patience.pause(races)
                races += 1
            seen = None

    def _propose(self, proposer: Proposer, version: Version) -> Won | Lost:
        self._patience.next_try(version)
        return proposer.propose(version, self._content.stamped(version, self._stamp))

    def _proposer(self) -> Proposer:
        table = self._table
        if table.owner is None:
            return FilesystemProposer(table.reader)
        assert table.table_id is not None
        assert table.commit_mode is not None
        return OwnerProposer(
            owner=table.owner,
            table_id=table.table_id,
            commit_mode=table.commit_mode,
            reader=table.reader,
            environment=table.environment,
            patience=self._patience,
            label=table.label,
        )

    def _is_mine(self, winner: Winner) -> bool:
        """A landed attempt that was answered as a conflict: some owners do not recognise a replay."""
        return winner.info is not None and winner.info.txn_id == self._txn_id

    def _committed(self, won: Won, first: Version) -> Committed:
        return Committed(
            version=won.version,
            in_commit_timestamp=self._stamp,
            txn_id=self._txn_id,
            attempt=won.attempt,
            tries=self._patience.tries,
            rebased_over=won.version - first,
        )

    def _first_stamp(self) -> int | None:
        """in-commit timestamps, rules 2 and 3."""
        snapshot = self._snapshot
        if self._enables_timestamps or in_commit_timestamps_enabled(snapshot.protocol, snapshot.metadata):
            return next_timestamp(self._table.environment.now(), snapshot.timestamp)
        return None

    def _restamp(self, winner: Winner) -> None:
        """in-commit timestamps, rule 4. A commit that enables them counts from the winner's modification time."""
        if self._stamp is None:
            return
        time = self._modified(winner.version) if self._enables_timestamps else winner.in_commit_timestamp
        if time is None:
            raise CorruptLogError(
                f"version {winner.version} of {self._table.label} has no inCommitTimestamp although the table has them "
                f"enabled; whoever wrote it must repair it",
                path=str(self._table.log.folder / log_path.commit(winner.version)),
            )
        self._stamp = after_lost_race(self._stamp, time)

    def _modified(self, version: Version) -> int:
        return self._table.log.modified(log_path.commit(version)) or 0
