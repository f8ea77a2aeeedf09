"""Every line of a history, as types. The JSON Schema is made from them.

Times are integers in the header's unit, and never go back from line to line: a history of several clocks is sorted
before it is written. A request is in flight from the time of its `invoke` to that of its `ok`, `fail` or `info`;
one without any stays in flight. Two requests are ordered only if one ended strictly before the other began.

What a request and an answer are called agrees with `conformance.interface.messages`. A history holds less:
digests stand for contents, and the many operations that say nothing of the log are one `other`.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION: Final = 1

Version = Annotated[int, Meta(ge=0, le=2**53)]
Latest = Annotated[int, Meta(ge=-1, le=2**53)]
"""A latest ratified version as a subject tells it; -1, which some prefer to null: there is none."""
Time = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""In the unit of the header's clock."""
Number = Annotated[int, Meta(ge=0, le=2**53)]
"""Of an operation. They increase from line to line, by any steps."""
AttemptId = Annotated[str, Meta(min_length=1)]
"""One try to make one version; of a staged file, the uuid in its name."""
TableName = Annotated[str, Meta(min_length=1)]
"""The recorder's name for one log. A table that is dropped and created again gets another name here."""
Digest = Annotated[str, Meta(min_length=1)]


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    pass


class Content(_Record, frozen=True, kw_only=True):
    """What a commit says, as digests (see `digests`). Two of one commit are compared where both have the same field."""

    bytes: Digest | None = None
    """Of the file. Of a staged or direct commit it never changes."""
    actions: Digest | None = None
    """Of the actions. All that holds for an inline commit, which its owner may store in any format."""


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
    """Propose a version. The same attempt may be sent several times; each one is a request of its own."""

    version: Version


class CreateTable(_Proposal, frozen=True, kw_only=True, tag="create_table"):
    """Propose version 0. Creators of one name race for one log, wherever their files are. It is invoked before anything
    of the table is written."""


class TakeOver(_Proposal, frozen=True, kw_only=True, tag="take_over"):
    """Propose the ownership change of a filesystem table as a version."""

    version: Version


class HandBack(_Proposal, frozen=True, kw_only=True, tag="hand_back"):
    """Propose the version that gives the table back to the filesystem."""

    version: Version


class Transact(_Proposal, frozen=True, kw_only=True, tag="transact"):
    """A client, as subject, commits at whatever version it can. The attempt is the marker by which the recorder knows
    the transaction again in the log, whatever attempts the client made of it."""


class AttemptOutcome(_Request, frozen=True, kw_only=True, tag="attempt_outcome"):
    """What became of an attempt, finally."""

    attempt: AttemptId


class GetCommits(_Request, frozen=True, kw_only=True, tag="get_commits"):
    """The commits that the owner stores, start <= version <= end, and the latest version."""

    start: Version | None = None
    end: Version | None = None


class LoadTable(_Request, frozen=True, kw_only=True, tag="load_table"):
    """Resolve the table, and with it, perhaps, its commits."""


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
    """Metadata cleanup, or any other removal of published commits. From its invoke on, a file that is not
    there proves nothing."""


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


class NotLanded(_Answer, frozen=True, kw_only=True, tag="not_landed"):
    """And it never will."""


class Commits(_Answer, frozen=True, kw_only=True, tag="commits"):
    latest: Latest | None
    commits: tuple[Entry, ...] = ()


class Table(_Answer, frozen=True, kw_only=True, tag="table"):
    latest: Latest | None
    commits: tuple[Entry, ...] | None = None
    """None: this owner does not list them here."""


class SnapshotRead(_Answer, frozen=True, kw_only=True, tag="snapshot_read"):
    version: Version
    stale: bool = False
    """Whether the client said that newer versions may exist, or did not ask the owner."""


class Done(_Answer, frozen=True, kw_only=True, tag="done"):
    pass


class Conflict(_Answer, frozen=True, kw_only=True, tag="conflict"):
    """The version was taken, or a client's transaction lost to another. What it tells is optional."""

    latest: Latest | None = None
    winners: tuple[Entry, ...] = ()


class Gap(_Answer, frozen=True, kw_only=True, tag="gap"):
    """The version before the proposed one is not ratified."""

    latest: Latest | None = None


class Rejected(_Answer, frozen=True, kw_only=True, tag="rejected"):
    reason: str = ""


class NotFound(_Answer, frozen=True, kw_only=True, tag="not_found"):
    pass


class Unsupported(_Answer, frozen=True, kw_only=True, tag="unsupported"):
    reason: str = ""


class Unknown(_Answer, frozen=True, kw_only=True, tag="unknown"):
    """A timeout, a broken connection: it may have happened, or may still happen."""

    reason: str = ""


Success = Ratified | Committed | Landed | NotLanded | Commits | Table | SnapshotRead | Done
Refusal = Conflict | Gap | Rejected | NotFound | Unsupported
Answer = Success | Refusal | Unknown


# Lines


class Clock(_Record, frozen=True, kw_only=True):
    """Whose times these are."""

    unit: Literal["ns", "us", "ms", "tick"]
    """`tick`: the recorder counts events; there is no time."""
    skew: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """In the same unit: how far two of the clocks may be apart at most. 0: there is one clock, and it is monotonic."""
    description: str = ""


class Subject(_Record, frozen=True, kw_only=True):
    name: str
    version: str = ""


class Promise(Enum):
    """What a subject may be held to beyond its profiles, because it said so."""

    FRESH_REFUSALS = "fresh-refusals"
    """The latest version that a conflict or a gap tells is the latest at that moment, not one from a cache."""
    FRESH_DIRECT = "fresh-direct"
    """The owner knows of a commit by put-if-absent as soon as it is visible."""
    FRESH_SNAPSHOTS = "fresh-snapshots"
    """A client asks the owner for every new snapshot, also of a managedCommit table, where it need not: there a reader
    may do without its owner. Of a catalogManaged table every client does."""
    TOMBSTONE_FIRST = "tombstone-first"
    """An attempt that was resolved as not landed is refused as such, before any look at versions: it gets no conflict
    and no gap any more."""
    UC_DELTA_API = "uc-delta-api"
    """The subject implements Unity Catalog's Delta API, whose contract then is cited for what it demands."""


class _Line(_Record, frozen=True, kw_only=True, tag_field="event"):
    pass


class Header(_Line, frozen=True, kw_only=True, tag="header"):
    """The first line."""

    schema: int
    clock: Clock
    subject: Subject
    feature: Literal["managedCommit", "catalogManaged", "filesystem"]
    profiles: tuple[str, ...] = ()
    """As the subject declared them. `idempotent-retry` changes what a conflict may mean."""
    promises: tuple[Promise, ...] = ()
    seed: int | None = None
    open_world: bool = False
    """Whether writers whose requests are not here may have committed too."""
    cleanup: bool = False
    """Whether published commits may have been removed by a program whose requests are not here."""
    note: str = ""


class Invoke(_Line, frozen=True, kw_only=True, tag="invoke"):
    at: Time
    id: Number
    client: str
    table: TableName
    request: Request


class Ok(_Line, frozen=True, kw_only=True, tag="ok"):
    """The subject did what was asked."""

    at: Time
    id: Number
    answer: Success


class Fail(_Line, frozen=True, kw_only=True, tag="fail"):
    """The subject refused, for certain: nothing changed."""

    at: Time
    id: Number
    answer: Refusal


class Info(_Line, frozen=True, kw_only=True, tag="info"):
    """The outcome is unknown."""

    at: Time
    id: Number
    answer: Unknown


class Fault(_Line, frozen=True, kw_only=True, tag="fault"):
    """Something that was done to the subject: a crash, a lost answer, a power cut. For the reader; no rule uses it."""

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
    """Versions that were looked for one by one and were not there. Missing from a listing is not enough: a listing is
    not one moment."""


class Witness(_Line, frozen=True, kw_only=True, tag="witness"):
    """One version of a table's final log. All versions of a table, ascending; the first may be later than 0 only if it
    was there before the history, and then everything up to it was."""

    table: TableName
    version: Version
    attempt: AttemptId | None = None
    """Null only for a version from before the history."""
    before: bool = False
    """Whether it existed before the history began."""
    commit_mode: Literal["staged", "inline", "direct", "ownership"] | None = None
    """`direct` and `ownership`: it became a commit by becoming visible as `<version>.json`. Null: not known, and taken
    for a commit that the owner recorded."""
    content: Content | None = None
    """Taken when it was first seen: cleanup may have removed the file since."""


class Unseen(_Line, frozen=True, kw_only=True, tag="unseen"):
    """In the place of a table's witnesses: its final log could not be read. The table is judged by what the other lines
    show alone: a violation that depends on the missing log is not reported, and the history is never conformant."""

    table: TableName
    reason: str = ""
    before: Version = 0
    """So many versions, from 0 on, were there before the history."""
    commit_mode: Literal["staged", "inline"] | None = None
    """Of all its commits. Null: not known, so that any of them may have become a commit by becoming visible."""


class Counts(_Record, frozen=True, kw_only=True):
    """How many lines of each kind there are."""

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
    """Of every table that the history names: how many lines its final log has."""
    complete: bool
    """False: the recorder knows that something is missing."""


Event = Header | Invoke | Ok | Fail | Info | Fault | FileLook | Witness | Unseen | Footer
Ended = Ok | Fail | Info


class InvalidHistoryError(Exception):
    """The history cannot be judged. `line` is where it stopped to make sense, counted from 1; None: it is about
    the whole."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"


SCHEMA_FILE: Final = Path(__file__).with_name("history.schema.json")


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a line. What lines mean together is in `operations`."""
    found = msgspec.json.schema(Event)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of a history, schema {SCHEMA_VERSION}",
        **found,
    }


def schema_text() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=1) + "\n"
