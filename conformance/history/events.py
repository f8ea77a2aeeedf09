"""Every line of a history, as types. The JSON Schema is made from them.

Times are integers in the header's unit, and never decrease from line to line: a history of several clocks is sorted
before it is written. A request is in flight from the time of its `invoke` to that of its `ok`, `fail` or `info`;
one without any stays in flight. Two requests are ordered only if one ended strictly before the other began.

Requests and answers have the names of `conformance.interface.messages`. A history has less detail: digests instead of
contents, and one type `other` for all operations that do not concern the log.
"""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from conformance.interface.messages import Done as Done
from conformance.interface.messages import NotFound as NotFound
from conformance.interface.messages import NotLanded as NotLanded
from conformance.interface.messages import Unknown as Unknown
from conformance.interface.messages import Unsupported as Unsupported

SCHEMA_VERSION: Final = 1

Version = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Latest = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
"""The latest ratified version as a subject returns it; none is null or, with some subjects, -1."""
Time = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""In the unit of the header's clock."""
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of an operation. Numbers increase from line to line, by any steps."""
AttemptId = Annotated[str, Meta(min_length=1)]
"""An attempt at one version; for a staged file, the UUID in its name."""
TableName = Annotated[str, Meta(min_length=1)]
"""The recorder's name for one log. A table that is dropped and created again gets another name here."""
Digest = Annotated[str, Meta(min_length=1)]


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    pass


class Content(_Record, frozen=True, kw_only=True):
    """The content of a commit, as digests (see `digests`). Two contents of one commit are compared by the fields that
    both have."""

    bytes: Digest | None = None
    """The digest of the file, which never changes for a staged or direct commit."""
    actions: Digest | None = None
    """The digest of the actions: the only one for an inline commit, which its owner may store in any format."""


class Entry(_Record, frozen=True, kw_only=True):
    """A commit that a subject named in an answer."""

    version: Version
    attempt: AttemptId | None = None
    content: Content | None = None


# Requests


class _Request(_Record, frozen=True, kw_only=True, tag_field="op"):
    pass


class _Proposal(_Request, frozen=True, kw_only=True):
    attempt: AttemptId
    content: Content | None = None


class Commit(_Proposal, frozen=True, kw_only=True, tag="commit"):
    """Propose a version. The same attempt may be sent several times; each is a separate request."""

    version: Version


class CreateTable(_Proposal, frozen=True, kw_only=True, tag="create_table"):
    """Propose version 0. Creators of one name race for one log, even in different folders. It is invoked before any
    file of the table is written."""


class TakeOver(_Proposal, frozen=True, kw_only=True, tag="take_over"):
    """Propose the ownership change of a filesystem table as a version."""

    version: Version


class HandBack(_Proposal, frozen=True, kw_only=True, tag="hand_back"):
    """Propose the version that hands the table back to the filesystem."""

    version: Version


class Transact(_Proposal, frozen=True, kw_only=True, tag="transact"):
    """A client, as subject, commits at the next free version. The attempt is the marker by which the recorder finds the
    transaction in the log, independent of the client's own attempts."""


class AttemptOutcome(_Request, frozen=True, kw_only=True, tag="attempt_outcome"):
    """Look up the final outcome of an attempt."""

    attempt: AttemptId


class GetCommits(_Request, frozen=True, kw_only=True, tag="get_commits"):
    """The commits that the owner stores, start <= version <= end, and the latest version."""

    start: Version | None = None
    end: Version | None = None


class LoadTable(_Request, frozen=True, kw_only=True, tag="load_table"):
    """Resolve the table; the answer may contain its commits."""


class Snapshot(_Request, frozen=True, kw_only=True, tag="snapshot"):
    """A client, as subject, reads the table: the newest version, or a given one."""

    version: Version | None = None
    timestamp: int | None = None
    by_path: bool = False
    """Whether it reads published files only, without asking the owner."""


class BackfillToVersion(_Request, frozen=True, kw_only=True, tag="backfill_to_version"):
    """Publish every commit up to the version."""

    version: Version


class Checkpoint(_Request, frozen=True, kw_only=True, tag="checkpoint"):
    """Write a checkpoint, or a compaction that ends at the version."""

    version: Version


class Cleanup(_Request, frozen=True, kw_only=True, tag="cleanup"):
    """Metadata cleanup, or any other removal of published commits. From its invoke on, a missing file
    proves nothing."""


class Other(_Request, frozen=True, kw_only=True, tag="other"):
    """Any other operation, for the reader of the history."""

    name: str


Request = (
    Commit | CreateTable | TakeOver | HandBack | Transact | AttemptOutcome | GetCommits | LoadTable | Snapshot
    | BackfillToVersion | Checkpoint | Cleanup | Other
)  # fmt: skip


# Answers


class _Answer(_Record, frozen=True, kw_only=True, tag_field="outcome"):
    pass


class Ratified(_Answer, frozen=True, kw_only=True, tag="ratified"):
    version: Version


class Committed(_Answer, frozen=True, kw_only=True, tag="committed"):
    """A client's transaction is this version."""

    version: Version


class Landed(_Answer, frozen=True, kw_only=True, tag="landed"):
    version: Version


class Commits(_Answer, frozen=True, kw_only=True, tag="commits"):
    latest: Latest | None
    commits: tuple[Entry, ...] = ()


class Table(_Answer, frozen=True, kw_only=True, tag="table"):
    latest: Latest | None
    commits: tuple[Entry, ...] | None = None
    """None: this owner does not return commits in resolutions."""


class SnapshotRead(_Answer, frozen=True, kw_only=True, tag="snapshot_read"):
    version: Version
    stale: bool = False
    """Whether the client said that newer versions may exist, or did not ask the owner."""


class Conflict(_Answer, frozen=True, kw_only=True, tag="conflict"):
    """The version was taken, or a client's transaction lost to another. All fields are optional."""

    latest: Latest | None = None
    winners: tuple[Entry, ...] = ()


class Gap(_Answer, frozen=True, kw_only=True, tag="gap"):
    """The previous version is not ratified."""

    latest: Latest | None = None


class Rejected(_Answer, frozen=True, kw_only=True, tag="rejected"):
    reason: str = ""


# The other answers are the interface's own: they have no detail that a history leaves out

Success = Ratified | Committed | Landed | NotLanded | Commits | Table | SnapshotRead | Done
Refusal = Conflict | Gap | Rejected | NotFound | Unsupported
Answer = Success | Refusal | Unknown


# Lines


class Clock(_Record, frozen=True, kw_only=True):
    """The clock of the times in this history."""

    unit: Literal["ns", "us", "ms", "tick"]
    """`tick`: the recorder counts events instead of time."""
    skew: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """The maximum difference between two of the clocks, in the same unit. 0: a single, monotonic clock."""
    description: str = ""


class Subject(_Record, frozen=True, kw_only=True):
    name: str
    version: str = ""


class Promise(Enum):
    """A requirement beyond the profiles that a subject declares to meet."""

    FRESH_REFUSALS = "fresh-refusals"
    """The latest version in a conflict or a gap is current, not cached."""
    FRESH_DIRECT = "fresh-direct"
    """The owner knows of a commit by put-if-absent as soon as it is visible."""
    FRESH_SNAPSHOTS = "fresh-snapshots"
    """A client asks the owner for every new snapshot, even of a managedCommit table, where that is optional. For a
    catalogManaged table every client does."""
    TOMBSTONE_FIRST = "tombstone-first"
    """An attempt that was resolved as not landed is rejected before versions are compared: it no longer gets a conflict
    or a gap."""
    UC_DELTA_API = "uc-delta-api"
    """The subject implements Unity Catalog's Delta API, so that reports cite its contract."""


class _Line(_Record, frozen=True, kw_only=True, tag_field="event"):
    pass


class Header(_Line, frozen=True, kw_only=True, tag="header"):
    """The first line."""

    schema: int
    clock: Clock
    subject: Subject
    feature: Literal["managedCommit", "catalogManaged", "filesystem"]
    profiles: tuple[str, ...] = ()
    """The profiles that the subject declares. `idempotent-retry` changes the meaning of a conflict."""
    promises: tuple[Promise, ...] = ()
    seed: int | None = None
    open_world: bool = False
    """Whether writers that this history does not record may have committed too."""
    cleanup: bool = False
    """Whether a program that this history does not record may have removed published commits."""
    note: str = ""


class Invoke(_Line, frozen=True, kw_only=True, tag="invoke"):
    at: Time
    id: Number
    client: str
    table: TableName
    request: Request


class Ok(_Line, frozen=True, kw_only=True, tag="ok"):
    """The subject carried out the request."""

    at: Time
    id: Number
    answer: Success


class Fail(_Line, frozen=True, kw_only=True, tag="fail"):
    """The subject rejected the request; nothing changed."""

    at: Time
    id: Number
    answer: Refusal


class Info(_Line, frozen=True, kw_only=True, tag="info"):
    """The outcome is unknown."""

    at: Time
    id: Number
    answer: Unknown


class Fault(_Line, frozen=True, kw_only=True, tag="fault"):
    """A fault of the subject or its network: a crash, a lost answer, a power cut. For the reader; no rule uses it."""

    at: Time
    kind: str
    client: str = ""
    note: str = ""


class PublishedFile(_Record, frozen=True, kw_only=True):
    """`<version>.json`, as an external observer saw it."""

    version: Version
    content: Content | None = None


class FileLook(_Line, frozen=True, kw_only=True, tag="fs"):
    """An external observer listed the table's published commits, some time between `since` and `at`."""

    since: Time
    at: Time
    id: Number
    table: TableName
    published: tuple[PublishedFile, ...] = ()
    absent: tuple[Version, ...] = ()
    """Versions that were looked up one by one and were missing. That a listing lacks a version is not enough, because a
    listing is not atomic."""


class Witness(_Line, frozen=True, kw_only=True, tag="witness"):
    """One version of a table's final log. A history has all versions of a table, ascending. The first may be later than
    0 only if it existed before the history, and then all versions up to it did."""

    table: TableName
    version: Version
    attempt: AttemptId | None = None
    """Null only for a version from before the history."""
    before: bool = False
    """Whether the version existed before the history began."""
    commit_mode: Literal["staged", "inline", "direct", "ownership"] | None = None
    """`direct` and `ownership`: it became a commit by becoming visible as `<version>.json`. Null: unknown, and treated
    as a commit that the owner recorded."""
    content: Content | None = None
    """The content when it was first observed; a cleanup may have removed the file later."""


class Unseen(_Line, frozen=True, kw_only=True, tag="unseen"):
    """Replaces a table's witnesses if its final log could not be read. The verdict then uses the other lines only: a
    violation that depends on the missing log is not reported, and the history is never conformant."""

    table: TableName
    reason: str = ""
    before: Version = 0
    """The number of versions, from 0 on, that existed before the history."""
    commit_mode: Literal["staged", "inline"] | None = None
    """The commit mode of all its commits. Null: unknown, so that each may have become a commit by becoming visible."""


class Counts(_Record, frozen=True, kw_only=True):
    """The number of lines of each kind."""

    invoke: int
    ok: int
    fail: int
    info: int
    fault: int
    fs: int
    witness: int
    unseen: int = 0


class Footer(_Line, frozen=True, kw_only=True, tag="footer"):
    """The last line."""

    counts: Counts
    tables: dict[TableName, int]
    """The number of lines in the final log, for every table that the history names."""
    complete: bool
    """False: the recorder knows that lines are missing."""


Event = Header | Invoke | Ok | Fail | Info | Fault | FileLook | Witness | Unseen | Footer
Ended = Ok | Fail | Info


class InvalidHistoryError(Exception):
    """The history is invalid. `line` is the first invalid line, counted from 1; None if the problem concerns the whole
    history."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"


SCHEMA_FILE: Final = Path(__file__).with_name("history.schema.json")


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a line. `operations` checks the rules that concern several lines."""
    generated = msgspec.json.schema(Event)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a history, schema {SCHEMA_VERSION}",
        **generated,
    }


def schema_text() -> str:
    """The text of the schema file."""
    return json.dumps(schema(), indent=1) + "\n"
