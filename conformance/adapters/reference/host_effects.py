"""The effects of one owner process: what its files and its connections to the ledger pass before anything happens."""

from __future__ import annotations

from typing import Any


class LedgerConnection:
    """A connection to the ledger. Everything that a subclass does not change is that of `database`."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.killed = False

    @property
    def in_transaction(self) -> bool:
        """Can be asked after `kill` too: the real process lives on, and asks before it forks."""
        return not self.killed and bool(self.database.in_transaction)

    def kill(self) -> None:
        """As the kernel ends the connections of a dead process: an open transaction is rolled back. Idempotent."""
        self.killed = True
        self.database.close(True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)
