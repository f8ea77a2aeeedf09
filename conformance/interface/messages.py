"""Every request and every answer, as types. The JSON Schema of the wire is made from them.

A request is an object with `op`, the fields of its type, and around it an envelope: `id` (echoed in the
answer) and `client` (which of the simulated clients asks). An answer is an object with `outcome`.
An answer that does not come in time, or a broken connection, is `Unknown`: never a failure.

The kit never compares message texts, and never tells the subject what it expects. Versions are JSON
integers; `latest` is null where nothing was ever ratified (or -1, which some owners prefer).
Times are ms since the epoch.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

INTERFACE_VERSION: Final = 1

Version = int
AttemptId = str
TableRef = str
"""What a subject calls a table: whatever `create_table` or `load_table` answered. Opaque to the kit."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whatever travels between the kit and a subject."""


class _Request(Message, frozen=True, kw_only=True, tag_field="op", tag=_snake):
    pass


class Hello(_Request, frozen=True, kw_only=True):
    """Asks the subject for its identity and its promises. The first request of every connection."""

    interface_version: int = INTERFACE_VERSION
    owner_url: str | None = None
    """For a client under test in another process: where the kit's own owner answers this interface over HTTP."""


class LoadTable(_Request, frozen=True, kw_only=True):
    """Table discovery, before the protocol is known. Exactly one of `name` and `path`."""

    name: str | None = None
    path: str | None = None


class CreateTable(_Request, frozen=True, kw_only=True):
    """Propose version 0 of a new table. Creators of one name race."""

    name: str
    feature: str
    """`managedCommit` or `catalogManaged`; the kit itself creates plain tables, for clients: `filesystem`."""
    commit_mode: str
    """How later commits will be proposed: `staged`, `inline` or `direct`."""
    attempt: AttemptId
    actions: tuple[str, ...]
    """One JSON document each, commitInfo first. They carry the features and properties of the table feature; the
    subject may add what is its own (its name as owner and its configuration, the location), and nothing else."""
    path: str | None = None
    """Where its folder shall be, below the `storage` of the subject's identity: a place that others may write to, too.
    Only asked of subjects with `version-0-by-filesystem` and `storage-access`; otherwise the subject finds a place."""
    backfill: str = "on-request"
    """`on-request`, or `subject` to leave it to the subject."""
    backlog_limit: int | None = None
    """With the profile `backlog-limit`: at most so many unbackfilled commits."""


class Commit(_Request, frozen=True, kw_only=True):
    """Propose `version`. Exactly one of `actions` and `staged_file`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...] | None = None
    staged_file: str | None = None
    """The name of a file in the staging folder, which the kit has written (profile `storage-access`)."""


class AttemptOutcome(_Request, frozen=True, kw_only=True):
    """What became of an attempt, finally. Profile `attempt-outcome`."""

    table: TableRef
    attempt: AttemptId


class GetCommits(_Request, frozen=True, kw_only=True):
    """The commits that the owner stores, start <= version <= end, and the latest ratified version."""

    table: TableRef
    start: Version | None = None
    end: Version | None = None


class BackfillToVersion(_Request, frozen=True, kw_only=True):
    """Publish all commits up to `version`."""

    table: TableRef
    version: Version


class DropTable(_Request, frozen=True, kw_only=True):
    table: TableRef


class TakeOver(_Request, frozen=True, kw_only=True):
    """Own the filesystem table at `path`: `actions` is the ownership change, for `version`. The subject may add its
    name as owner and its configuration to the metadata. The answer `ratified` names the table.

    Asked of a client, `actions` is empty, `version` the one that the kit has seen free, and `attempt` the `txnId` that
    the commit shall have: the client makes the ownership change itself, for the version that it finds free.
    """

    path: str
    name: str
    feature: str
    commit_mode: str
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class HandBack(_Request, frozen=True, kw_only=True):
    """Give a table back to the filesystem with `version`. Asked of a client: as `take_over`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class MaintenancePolicy(_Request, frozen=True, kw_only=True):
    """Which maintenance clients may run on the table."""

    table: TableRef


class Observe(_Request, frozen=True, kw_only=True):
    """The table's log as an external observer lists it."""

    table: TableRef
    contents: bool = True
    """Whether the bytes of published commits and staged files are wanted too."""


class Plant(_Request, frozen=True, kw_only=True):
    """Create or overwrite a file below the table's log folder. Profile `storage-access`.

    In `observe`, `plant` and `remove`, `table` may also be the path of a filesystem table, below the `storage` of the
    subject's identity: the kit makes such tables by planting their files.
    """

    table: TableRef
    file: str
    """Its path below the log folder, `/` between folders."""
    content: str
    if_absent: bool = False
    """Answer `conflict`, and leave the file alone, where there is one: what any filesystem writer does."""
    modified: int | None = None
    """The modification time that it shall have."""


class Remove(_Request, frozen=True, kw_only=True):
    """Remove a file below the table's log folder. Profile `storage-access`."""

    table: TableRef
    file: str


class Crash(_Request, frozen=True, kw_only=True):
    """Die at once, without cleaning up, or (`point`) when the named crash point is reached next: of two points that are
    named the later one counts, and after a restart none. Profile `harness-control`."""

    point: str | None = None


class Restart(_Request, frozen=True, kw_only=True):
    """Start again from what is durable. Profile `harness-control`, or `durable-restart`."""


# Requests to a client: a reader, a writer or a maintenance job under test. `table` is a name that its owner knows, or
# the path of a table, for a client that knows no more; `create_table`, `take_over` and `hand_back` may be asked of a
# client too, which then does its part and asks the owner.


class Snapshot(_Request, frozen=True, kw_only=True):
    """Client side: read the table: the newest version, `version`, or the one at `timestamp`. A client that is given
    `path` instead of `table` knows no more than where the files are."""

    table: TableRef | None = None
    path: str | None = None
    version: Version | None = None
    timestamp: int | None = None


class DataFile(Message, frozen=True, kw_only=True):
    """A file of the table, as the actions name it. Its data is never read. A client may write it (below the table's
    folder, before it proposes the commit) and choose another path; the file of a commit that lands must then stay."""

    path: str
    partition: str | None = None
    """Its value of the kit's one partition column, `part`, if the table has that."""
    rows: int | None = None
    """How many rows it has; always given for tables with row tracking (profile `row-tracking`)."""


class Isolation(Enum):
    """What a transaction is checked against; Delta's names."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


class Transact(_Request, frozen=True, kw_only=True):
    """Client side: one transaction, based on the snapshot of `read_version`, committed at whatever version it can.

    Others may have committed since: the client checks what they did against what this transaction read and does.
    """

    table: TableRef
    marker: str
    """Becomes the `txnId` of its commit: thus the kit finds it in the log."""
    read_version: Version | None = None
    """None: the newest."""
    reads: str | None = None
    """What it read: None nothing (with adds alone a blind append), `*` all, otherwise all of one partition value."""
    adds: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    """Paths."""
    changes: tuple[DataFile, ...] = ()
    """Its change data, for the `cdc` actions of the same commit; only with the profile `change-data`."""
    data_change: bool = True
    """False: it only rearranges data."""
    isolation: Isolation = Isolation.SERIALIZABLE
    application: tuple[str, int] | None = None
    """A batch: the application's id and its version. A batch that the table has is not written again."""
    set_properties: dict[str, str] = msgspec.field(default_factory=dict)
    unset_properties: tuple[str, ...] = ()
    replace_table: bool = False
    """REPLACE TABLE: removes all files, and puts new metadata in the place of the old."""
    partition_by: tuple[str, ...] | None = None
    """The new partition columns of the table; all files of the snapshot are among `removes`."""
    add_feature: str | None = None
    """A table feature that the protocol gets."""
    domain: tuple[str, str] | None = None
    """A metadata domain and its configuration."""
    if_needed: bool = False
    """Leave no commit if there is nothing to commit."""


class Checkpoint(_Request, frozen=True, kw_only=True):
    """Client side: write a checkpoint of `version`."""

    table: TableRef
    version: Version
    any_version: bool = False
    """A checkpoint of any other version does too: for a client that chooses the version itself."""


class Compact(_Request, frozen=True, kw_only=True):
    """Client side: write a log compaction of `start` to `end`."""

    table: TableRef
    start: Version
    end: Version


class Checksum(_Request, frozen=True, kw_only=True):
    """Client side: write the checksum of `version`."""

    table: TableRef
    version: Version


class Cleanup(_Request, frozen=True, kw_only=True):
    """Client side: metadata cleanup of everything older than `older_than`: the cut-off commit is the newest one whose
    time is not later."""

    table: TableRef
    older_than: int


class Maintain(_Request, frozen=True, kw_only=True):
    """Client side: run `vacuum`, `optimize` or `reorg`, if the owner allows it."""

    table: TableRef
    job: str


Request = (
    Hello | LoadTable | CreateTable | Commit | AttemptOutcome | GetCommits | BackfillToVersion | DropTable | TakeOver
    | HandBack | MaintenancePolicy | Observe | Plant | Remove | Crash | Restart | Snapshot | Transact | Checkpoint
    | Compact | Checksum | Cleanup | Maintain
)  # fmt: skip
"""What a subject is asked."""


# Answers


class _Answer(Message, frozen=True, kw_only=True, tag_field="outcome", tag=_snake, forbid_unknown_fields=True):
    """A field that an answer does not have is an error: mostly it is an optional one, misspelt."""


class CommitEntry(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit that the owner stores. Exactly one of `file_name` and `actions`, or neither for one that is
    published."""

    version: Version
    file_name: str | None = None
    actions: tuple[str, ...] | None = None
    in_commit_timestamp: int | None = None


class Identity(_Answer, frozen=True, kw_only=True):
    """The answer to `hello`."""

    name: str
    version: str
    interface_version: int
    side: str
    """`owner` or `client`."""
    profiles: tuple[str, ...]
    features: tuple[str, ...] = ("managedCommit", "catalogManaged")
    commit_modes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By table feature: the commit modes that the subject offers."""
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    shared_state: bool = False
    """Whether several processes of the subject share one state; otherwise all clients use one process."""
    storage: str | None = None
    """With `storage-access`: the folder below which the kit may make filesystem tables, as the subject calls it."""
    promises: tuple[str, ...] = ()
    """Beyond the profiles: the values of `conformance.history.events.Promise`."""
    crash_points: tuple[str, ...] = ()
    """With `harness-control`: what `crash` may name."""


class Table(_Answer, frozen=True, kw_only=True):
    """A table that was found or created."""

    table: TableRef
    feature: str
    commit_mode: str
    latest: Version | None
    location: str | None = None
    commits: tuple[CommitEntry, ...] | None = None
    """catalog-managed: part of the resolution."""
    protocol: str | None = None
    """The latest protocol action, as JSON, of an owner that tells it."""
    metadata: str | None = None
    """The latest metaData action, as JSON, of an owner that tells it."""


class NotFound(_Answer, frozen=True, kw_only=True):
    pass


class Ratified(_Answer, frozen=True, kw_only=True):
    """The attempt is `version`; for `create_table`, of `table`."""

    version: Version
    table: TableRef | None = None


class Conflict(_Answer, frozen=True, kw_only=True):
    """The version was taken. What it tells is optional, and may be stale."""

    latest: Version | None = None
    winners: tuple[CommitEntry, ...] | None = None
    winner_table: TableRef | None = None
    """For `create_table`: the table that has the name."""


class Gap(_Answer, frozen=True, kw_only=True):
    """The version before the proposed one is not ratified."""

    latest: Version | None = None


class Rejected(_Answer, frozen=True, kw_only=True):
    """Refused for another reason; nothing changed."""

    reason: str = ""
    retryable: bool = False


class Unknown(_Answer, frozen=True, kw_only=True):
    """It may or may not have happened."""

    reason: str = ""


class Unsupported(_Answer, frozen=True, kw_only=True):
    """The subject has no such operation, or not for this table."""

    reason: str = ""


class Landed(_Answer, frozen=True, kw_only=True):
    version: Version


class NotLanded(_Answer, frozen=True, kw_only=True):
    """And it never will."""


class Commits(_Answer, frozen=True, kw_only=True):
    commits: tuple[CommitEntry, ...]
    latest: Version | None


class Done(_Answer, frozen=True, kw_only=True):
    """It is so."""


class Policy(_Answer, frozen=True, kw_only=True):
    """`checkpoint`, `log-compaction`, `checksum`, `metadata-cleanup`, `vacuum`, `optimize`, `reorg`."""

    allowed: tuple[str, ...]


class LogFile(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file below the log folder, by its path relative to it."""

    name: str
    size: int
    content: str | None = None
    modified: int | None = None


class Observation(_Answer, frozen=True, kw_only=True):
    files: tuple[LogFile, ...]


class SnapshotRead(_Answer, frozen=True, kw_only=True):
    """What a client read. What it cannot tell it leaves out."""

    version: Version
    files: tuple[str, ...]
    """Paths of the active files, decoded."""
    stale: bool = False
    """Whether the client says that there may be newer versions."""
    timestamp: int | None = None
    """The time of the commit that the version is."""
    properties: dict[str, str] | None = None
    """The table's."""
    partitions: dict[str, str | None] | None = None
    """By file: its value of the column `part`."""
    applications: dict[str, int] | None = None
    """By application: its latest transaction version."""
    domains: dict[str, str] | None = None
    warnings: tuple[str, ...] = ()
    """Whatever the client reports without failing."""


class Committed(_Answer, frozen=True, kw_only=True):
    """A client's transaction landed as `version`; null: there was nothing to commit."""

    version: Version | None


Answer = (
    Identity | Table | NotFound | Ratified | Conflict | Gap | Rejected | Unknown | Unsupported | Landed | NotLanded
    | Commits | Done | Policy | Observation | SnapshotRead | Committed
)  # fmt: skip


REFUSALS: Final[tuple[type[Answer], ...]] = (Rejected, NotFound, Unsupported, Unknown)
"""Any request may be answered so."""

_PROPOSAL: Final = (Ratified, Conflict, Gap)

ANSWERS: Final[Mapping[type[Request], tuple[type[Answer], ...]]] = {
    Hello: (Identity,),
    LoadTable: (Table,),
    CreateTable: (Ratified, Conflict),
    Commit: _PROPOSAL,
    AttemptOutcome: (Landed, NotLanded),
    GetCommits: (Commits,),
    BackfillToVersion: (Done,),
    DropTable: (Done,),
    TakeOver: _PROPOSAL,
    HandBack: _PROPOSAL,
    MaintenancePolicy: (Policy,),
    Observe: (Observation,),
    Plant: (Done, Conflict),
    Remove: (Done,),
    Crash: (Done,),
    Restart: (Done,),
    Snapshot: (SnapshotRead,),
    Transact: (Committed, Conflict),
    Checkpoint: (Done,),
    Compact: (Done,),
    Checksum: (Done,),
    Cleanup: (Done,),
    Maintain: (Done,),
}
"""Beside the refusals."""


def name_of(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """Of a request its `op`, of an answer its `outcome`, of an event its `event`."""
    return str(message.__struct_config__.tag)


def answers_to(request: type[Request]) -> tuple[type[Answer], ...]:
    """All that a request can have, refusals last."""
    return (*ANSWERS[request], *REFUSALS)


def belongs(request: Request, answer: Answer) -> bool:
    """Whether such a request can have such an answer."""
    return isinstance(answer, answers_to(type(request)))


class Call(Message, frozen=True, kw_only=True):
    """A request on the wire."""

    id: int
    client: str
    request: Request


class Reply(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer on the wire; `id` is the request's."""

    id: int
    answer: Answer


SCHEMA_FILE: Final = Path(__file__).with_name("interface.schema.json")


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a message; `#/$defs/Call` and `#/$defs/Reply` are those of each direction."""
    messages, components = msgspec.json.schema_components([Call, Reply], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A message of the commit owners' shared interface, version {INTERFACE_VERSION}",
        "anyOf": list(messages),
        "x-interface-version": INTERFACE_VERSION,
        "x-answers": {name_of(request): [name_of(answer) for answer in answers_to(request)] for request in ANSWERS},
        "$defs": components,
    }


def schema_text() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=1) + "\n"
