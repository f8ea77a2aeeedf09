"""Every request and every answer, as types. The JSON Schema of the wire is made from them.

A request is an object with `op`, the fields of its type, and around it an envelope: `id` (echoed in the
answer) and `client` (which of the simulated clients asks). An answer is an object with `outcome`.
A late answer or a broken connection is `Unknown`, never a failure.

The kit never compares message texts, and never sends the expected answer to the subject. Versions are JSON
integers; `latest` is null (or, with some owners, -1) if nothing was ever ratified. Times are ms since the epoch.
"""

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

INTERFACE_VERSION: Final = 1

Version = int
AttemptId = str
TableRef = str
"""The subject's reference to a table, as returned by `create_table` or `load_table`. Opaque to the kit."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message between the kit and a subject."""


class _Request(Message, frozen=True, kw_only=True, tag_field="op", tag=_snake):
    pass


class Hello(_Request, frozen=True, kw_only=True):
    """Asks the subject for its identity and its promises. The first request of every connection."""

    interface_version: int = INTERFACE_VERSION
    owner_url: str | None = None
    """For a client under test in another process: the HTTP address at which the kit's own owner answers."""


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
    """The commit mode of later commits: `staged`, `inline` or `direct`."""
    attempt: AttemptId
    actions: tuple[str, ...]
    """One JSON document each, commitInfo first. They contain the features and properties of the table feature; the
    subject may add only its own properties: its name as owner, its configuration and the location."""
    path: str | None = None
    """The folder to create it in, below the `storage` of the subject's identity, to which others may write too. Only
    for subjects with `version-0-by-filesystem` and `storage-access`; otherwise the subject chooses the folder."""
    backfill: str = "on-request"
    """`on-request`, or `subject` to leave it to the subject."""
    backlog_limit: int | None = None
    """With the profile `backlog-limit`: the maximum number of unbackfilled commits."""


class Commit(_Request, frozen=True, kw_only=True):
    """Propose `version`. Exactly one of `actions` and `staged_file`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...] | None = None
    staged_file: str | None = None
    """The name of a file in the staging folder that the kit wrote (profile `storage-access`)."""


class GroupMember(Message, frozen=True, kw_only=True):
    """A proposal in a group. The fields are those of `commit`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...] | None = None
    staged_file: str | None = None


class CommitGroup(_Request, frozen=True, kw_only=True):
    """Propose versions of several tables, one of each: all are ratified, or none. Profile `transaction-group`."""

    members: tuple[GroupMember, ...]


class LoadTables(_Request, frozen=True, kw_only=True):
    """The tables with these names, all in one consistent state. Profile `transaction-group`."""

    names: tuple[str, ...]


class AttemptOutcome(_Request, frozen=True, kw_only=True):
    """Look up the final outcome of an attempt. Profile `attempt-outcome`."""

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
    """Take ownership of the filesystem table at `path`: `actions` is the ownership change, for `version`. The subject
    may add its name as owner and its configuration to the metadata. The answer `ratified` names the table.

    Sent to a client, `actions` is empty, `version` is free as far as the kit knows, and `attempt` is the required
    `txnId` of the commit: the client makes the ownership change itself, for the version that it finds free.
    """

    path: str
    """The name of the folder, not encoded: `a%20b` is not `a b`."""
    name: str
    feature: str
    commit_mode: str
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class HandBack(_Request, frozen=True, kw_only=True):
    """Hand a table back to the filesystem with `version`. Sent to a client: as `take_over`."""

    table: TableRef
    version: Version
    attempt: AttemptId
    actions: tuple[str, ...]


class MaintenancePolicy(_Request, frozen=True, kw_only=True):
    """Which maintenance clients may run on the table."""

    table: TableRef


class CallApi(_Request, frozen=True, kw_only=True):
    """Send one request of Unity Catalog's Delta API to the server, unchanged. Profile `uc-delta-api`. The kit's catalog
    shows the kit's owner the requests of a client so, and ignores the answer."""

    method: str
    path: str
    """The path and the query below the root of the API, as in `/v1/config?catalog={catalog}`. The subject replaces
    `{catalog}` and `{schema}` by those in which the kit may create tables."""
    body: str | None = None
    """The JSON document of the request; null: none."""


class Observe(_Request, frozen=True, kw_only=True):
    """The table's log as an external observer lists it."""

    table: TableRef
    contents: bool = True
    """Whether the answer includes the bytes of published commits and staged files."""


class Plant(_Request, frozen=True, kw_only=True):
    """Create or overwrite a file below the table's log folder. Profile `storage-access`.

    In `observe`, `plant` and `remove`, `table` may also be the path of a filesystem table, below the `storage` of the
    subject's identity: the kit makes such tables by planting their files.
    """

    table: TableRef
    file: str
    """The path of the file below the log folder, with `/` between folders."""
    content: str
    if_absent: bool = False
    """If the file exists, answer `conflict` and leave it unchanged, like any filesystem writer."""
    modified: int | None = None
    """The modification time to give to the file."""


class Remove(_Request, frozen=True, kw_only=True):
    """Remove a file below the table's log folder. Profile `storage-access`."""

    table: TableRef
    file: str


class Crash(_Request, frozen=True, kw_only=True):
    """Crash at once, without cleaning up, or when the subject next reaches the crash point `point`. A later request
    replaces the point, and a restart cancels it. Profile `harness-control`."""

    point: str | None = None


class Restart(_Request, frozen=True, kw_only=True):
    """Restart from the durable state. Profile `harness-control`, or `durable-restart`."""


# Requests to a client: a reader, a writer or a maintenance job under test. `table` is a name for `load_table`, or the
# path of a table without an owner; a client may also get `create_table`, `take_over` and `hand_back`, and then does its
# part and sends the request to the owner.


class Snapshot(_Request, frozen=True, kw_only=True):
    """Client side: read the newest version of the table, `version`, or the one at `timestamp`. A client that gets
    `path` instead of `table` knows only the location of the files."""

    table: TableRef | None = None
    """The name of the table, for `load_table`; the same in all requests to a client."""
    path: str | None = None
    version: Version | None = None
    timestamp: int | None = None


class DataFile(Message, frozen=True, kw_only=True):
    """A file of the table, as the actions name it. Nothing reads its data. A client may write it (below the table's
    folder, before it proposes the commit) and choose another path; if the commit lands, the file must not be
    deleted."""

    path: str
    """Not encoded: the action encodes it."""
    partition: str | None = None
    """The value of the kit's only partition column, `part`, if the table has it."""
    rows: int | None = None
    """The number of rows; always present for tables with row tracking (profile `row-tracking`)."""


class Isolation(Enum):
    """Isolation levels of transactions, by Delta's names."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


class Transact(_Request, frozen=True, kw_only=True):
    """Client side: one transaction, based on the snapshot of `read_version`, committed at the next free version.

    Other writers may have committed in between: the client checks their commits for conflicts with this transaction.
    """

    table: TableRef
    marker: str
    """The `txnId` of its commit, by which the kit finds it in the log."""
    read_version: Version | None = None
    """null: the newest version."""
    reads: str | None = None
    """What it read: null for nothing (with adds alone a blind append), `*` for everything, or one partition value."""
    adds: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    """Paths, not encoded."""
    changes: tuple[DataFile, ...] = ()
    """The change data files, for `cdc` actions of the same commit; only with the profile `change-data`."""
    data_change: bool = True
    """False: the transaction only rearranges data."""
    isolation: Isolation = Isolation.SERIALIZABLE
    application: tuple[str, int] | None = None
    """A batch: the application's id and version. A batch that the table has recorded is not written again."""
    set_properties: dict[str, str] = msgspec.field(default_factory=dict)
    unset_properties: tuple[str, ...] = ()
    replace_table: bool = False
    """REPLACE TABLE: removes all files, and replaces the metadata."""
    partition_by: tuple[str, ...] | None = None
    """The new partition columns of the table; all files of the snapshot are among `removes`."""
    add_feature: str | None = None
    """A table feature to add to the protocol."""
    domain: tuple[str, str] | None = None
    """A metadata domain and its configuration."""
    if_needed: bool = False
    """Skip the commit if there is nothing to commit."""


class TransactGroup(_Request, frozen=True, kw_only=True):
    """Client side: one transaction over several tables: all of its changes are committed, or none. Profile
    `transaction-group`."""

    members: tuple[Transact, ...]
    """One `transact` for each table, without `read_version`."""


class Snapshots(_Request, frozen=True, kw_only=True):
    """Client side: read the newest versions of these tables, in one state: each transaction over several tables is
    shown whole, or not at all. Profile `transaction-group`."""

    tables: tuple[TableRef, ...]


class Checkpoint(_Request, frozen=True, kw_only=True):
    """Client side: write a checkpoint of `version`."""

    table: TableRef
    version: Version
    any_version: bool = False
    """A checkpoint of any other version is valid too, for clients that choose the version themselves."""


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
    Hello | LoadTable | CreateTable | Commit | CommitGroup | LoadTables | AttemptOutcome | GetCommits
    | BackfillToVersion | DropTable | TakeOver | HandBack | MaintenancePolicy | CallApi | Observe | Plant | Remove
    | Crash | Restart | Snapshot | Transact | TransactGroup | Snapshots | Checkpoint | Compact | Checksum | Cleanup
    | Maintain
)  # fmt: skip
"""Every request to a subject."""


# Answers


class _Answer(Message, frozen=True, kw_only=True, tag_field="outcome", tag=_snake, forbid_unknown_fields=True):
    """An unknown field is an error, because it is usually a misspelt optional one."""


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
    """The commit modes that the subject offers, by table feature."""
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    shared_state: bool = False
    """Whether several processes of the subject share one state; otherwise all clients use one process."""
    storage: str | None = None
    """With `storage-access`: the folder, in the subject's spelling, below which the kit may create filesystem
    tables."""
    promises: tuple[str, ...] = ()
    """Promises beyond the profiles: values of `conformance.history.events.Promise`."""
    crash_points: tuple[str, ...] = ()
    """With `harness-control`: the crash points that `crash` may name."""


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
    """The latest protocol action, as JSON, if the owner returns it."""
    metadata: str | None = None
    """The latest metaData action, as JSON, if the owner returns it."""


class NotFound(_Answer, frozen=True, kw_only=True):
    pass


class Ratified(_Answer, frozen=True, kw_only=True):
    """The attempt is ratified as `version`; for `create_table`, of `table`."""

    version: Version
    table: TableRef | None = None


class Conflict(_Answer, frozen=True, kw_only=True):
    """The version was taken. All fields are optional, and may be stale."""

    latest: Version | None = None
    winners: tuple[CommitEntry, ...] | None = None
    winner_table: TableRef | None = None
    """For `create_table`: the existing table of that name."""


class Gap(_Answer, frozen=True, kw_only=True):
    """The previous version is not ratified."""

    latest: Version | None = None


class Rejected(_Answer, frozen=True, kw_only=True):
    """Rejected for another reason; nothing changed."""

    reason: str = ""
    retryable: bool = False


class GroupRatified(_Answer, frozen=True, kw_only=True):
    """Every member is ratified, as the version that it proposed."""


class GroupRefused(_Answer, frozen=True, kw_only=True):
    """No member is ratified; nothing changed."""

    decided_by: int
    """The index of a member that cannot be ratified."""
    answer: Conflict | Gap | Rejected
    """The answer that this member gets alone."""
    lost: tuple[int, ...] = ()
    """The indices of all members that cannot be ratified; empty if the owner does not name them."""


class Tables(_Answer, frozen=True, kw_only=True):
    """The tables of `load_tables`, in the order of the names, in one state: a group is shown whole, or not at all."""

    tables: tuple[Table, ...]


class Unknown(_Answer, frozen=True, kw_only=True):
    """The outcome is unknown: the request may or may not have taken effect."""

    reason: str = ""


class Unsupported(_Answer, frozen=True, kw_only=True):
    """The subject does not support this operation, or not for this table."""

    reason: str = ""


class Landed(_Answer, frozen=True, kw_only=True):
    version: Version


class NotLanded(_Answer, frozen=True, kw_only=True):
    """The attempt has not landed, and never lands."""


class Commits(_Answer, frozen=True, kw_only=True):
    commits: tuple[CommitEntry, ...]
    latest: Version | None


class Done(_Answer, frozen=True, kw_only=True):
    """It is so."""


class Policy(_Answer, frozen=True, kw_only=True):
    """Any of `checkpoint`, `log-compaction`, `checksum`, `metadata-cleanup`, `vacuum`, `optimize`, `reorg`. Any
    other name permits nothing."""

    allowed: tuple[str, ...]


class ApiAnswer(_Answer, frozen=True, kw_only=True):
    """The server's answer, unchanged."""

    status: int
    body: str = ""


class LogFile(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file below the log folder, by its path relative to it."""

    name: str
    size: int
    content: str | None = None
    modified: int | None = None


class Observation(_Answer, frozen=True, kw_only=True):
    files: tuple[LogFile, ...]


class SnapshotRead(_Answer, frozen=True, kw_only=True):
    """What a client read. It omits fields that it does not know."""

    version: Version
    files: tuple[str, ...]
    """Paths of the active files, decoded."""
    stale: bool = False
    """Whether the client declares that newer versions may exist."""
    timestamp: int | None = None
    """The time of the version's commit."""
    properties: dict[str, str] | None = None
    """The table's properties."""
    partitions: dict[str, str | None] | None = None
    """The value of the column `part`, by file."""
    applications: dict[str, int] | None = None
    """The latest transaction version, by application."""
    domains: dict[str, str] | None = None
    warnings: tuple[str, ...] = ()
    """Problems that the client reports without failing."""


class Committed(_Answer, frozen=True, kw_only=True):
    """A client's transaction landed as `version`; null if there was nothing to commit."""

    version: Version | None


class GroupCommitted(_Answer, frozen=True, kw_only=True):
    """A client's transaction over several tables landed, as one version of each table."""

    versions: tuple[Version, ...]


class SnapshotsRead(_Answer, frozen=True, kw_only=True):
    """What a client read, in the order of the tables."""

    snapshots: tuple[SnapshotRead, ...]


Answer = (
    Identity | Table | NotFound | Ratified | Conflict | Gap | Rejected | GroupRatified | GroupRefused | Tables | Unknown
    | Unsupported | Landed | NotLanded | Commits | Done | Policy | ApiAnswer | Observation | SnapshotRead
    | Committed | GroupCommitted | SnapshotsRead
)  # fmt: skip


REFUSALS: Final[tuple[type[Answer], ...]] = (Rejected, NotFound, Unsupported, Unknown)
"""Valid answers to every request."""

_PROPOSAL: Final = (Ratified, Conflict, Gap)

ANSWERS: Final[Mapping[type[Request], tuple[type[Answer], ...]]] = {
    Hello: (Identity,),
    LoadTable: (Table,),
    CreateTable: (Ratified, Conflict),
    Commit: _PROPOSAL,
    CommitGroup: (GroupRatified, GroupRefused),
    LoadTables: (Tables,),
    AttemptOutcome: (Landed, NotLanded),
    GetCommits: (Commits,),
    BackfillToVersion: (Done,),
    DropTable: (Done,),
    TakeOver: _PROPOSAL,
    HandBack: _PROPOSAL,
    MaintenancePolicy: (Policy,),
    CallApi: (ApiAnswer,),
    Observe: (Observation,),
    Plant: (Done, Conflict),
    Remove: (Done,),
    Crash: (Done,),
    Restart: (Done,),
    Snapshot: (SnapshotRead,),
    Transact: (Committed, Conflict),
    TransactGroup: (GroupCommitted, Conflict),
    Snapshots: (SnapshotsRead,),
    Checkpoint: (Done,),
    Compact: (Done,),
    Checksum: (Done,),
    Cleanup: (Done,),
    Maintain: (Done,),
}
"""Valid answers by request, in addition to the rejections."""


def name_of(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The `op` of a request, the `outcome` of an answer, or the `event` of an event."""
    return str(message.__struct_config__.tag)


def answers_to(request: type[Request]) -> tuple[type[Answer], ...]:
    """All valid answers to a request, rejections last."""
    return (*ANSWERS[request], *REFUSALS)


def belongs(request: Request, answer: Answer) -> bool:
    """Whether an answer of this type is valid for the request."""
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


def _field_texts() -> dict[str, dict[str, str]]:
    """The description of each field, by class and field: the string below it, which Python keeps only in the source."""
    texts: dict[str, dict[str, str]] = {}
    for struct in ast.parse(inspect.getsource(sys.modules[__name__])).body:
        if isinstance(struct, ast.ClassDef):
            for line, below in pairwise(struct.body):
                match line, below:
                    case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts.setdefault(struct.name, {})[field] = inspect.cleandoc(text)
    return texts


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a message; `#/$defs/Call` and `#/$defs/Reply` are those of each direction."""
    messages, components = msgspec.json.schema_components([Call, Reply], ref_template="#/$defs/{name}")
    texts = _field_texts()
    for name, component in components.items():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
        for field, text in texts.get(name, {}).items():
            component["properties"][field]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A message of the commit owners' shared interface, version {INTERFACE_VERSION}",
        "anyOf": list(messages),
        "x-interface-version": INTERFACE_VERSION,
        "x-answers": {name_of(request): [name_of(answer) for answer in answers_to(request)] for request in ANSWERS},
        "$defs": components,
    }


def schema_text() -> str:
    """The text of the schema file."""
    return json.dumps(schema(), indent=1) + "\n"
