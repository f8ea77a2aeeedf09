"""Every request and every answer, as types. The JSON Schema of the wire is made from them.

A request is an object with `op`, the fields of its type, and around it an envelope: `id` (echoed in the
answer) and `client` (which of the simulated clients asks). An answer is an object with `outcome`.
An answer that does not come in time, or a broken connection, is `Unknown`: never a failure.

The kit never compares message texts, and never tells the subject what it expects. Versions are JSON
integers; `latest` is null where nothing was ever ratified (or -1, which some owners prefer).
Times are ms since the epoch.
"""

from __future__ import annotations

from conformance.interface.outcomes import (
    Answer,
    CommitEntry,
    Commits,
    Committed,
    Conflict,
    Done,
    Gap,
    Identity,
    Landed,
    LogFile,
    NotFound,
    NotLanded,
    Observation,
    Policy,
    Ratified,
    Rejected,
    SnapshotRead,
    Table,
    Unknown,
    Unsupported,
)
from conformance.interface.requests import (
    INTERFACE_VERSION,
    AttemptId,
    AttemptOutcome,
    BackfillToVersion,
    Checkpoint,
    Checksum,
    Cleanup,
    Commit,
    Compact,
    Crash,
    CreateTable,
    DataFile,
    DropTable,
    GetCommits,
    HandBack,
    Hello,
    Isolation,
    LoadTable,
    Maintain,
    MaintenancePolicy,
    Observe,
    Plant,
    Remove,
    Request,
    Restart,
    Snapshot,
    TableRef,
    TakeOver,
    Transact,
    Version,
    _Message,
)

__all__ = [
    "INTERFACE_VERSION",
    "Answer",
    "AttemptId",
    "AttemptOutcome",
    "BackfillToVersion",
    "Call",
    "Checkpoint",
    "Checksum",
    "Cleanup",
    "Commit",
    "CommitEntry",
    "Commits",
    "Committed",
    "Compact",
    "Conflict",
    "Crash",
    "CreateTable",
    "DataFile",
    "Done",
    "DropTable",
    "Gap",
    "GetCommits",
    "HandBack",
    "Hello",
    "Identity",
    "Isolation",
    "Landed",
    "LoadTable",
    "LogFile",
    "Maintain",
    "MaintenancePolicy",
    "NotFound",
    "NotLanded",
    "Observation",
    "Observe",
    "Plant",
    "Policy",
    "Ratified",
    "Rejected",
    "Remove",
    "Reply",
    "Request",
    "Restart",
    "Snapshot",
    "SnapshotRead",
    "Table",
    "TableRef",
    "TakeOver",
    "Transact",
    "Unknown",
    "Unsupported",
    "Version",
    "_Message",
]


class Call(_Message, frozen=True, kw_only=True):
    """A request on the wire."""

    id: int
    client: str
    request: Request


class Reply(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer on the wire; `id` is the request's."""

    id: int
    answer: Answer
