"""The steps of programs for clients: the kit builds a table's log, its owner uses its freedoms during the client's
operation, other writers win races, and the client reads, writes and maintains.

Each step is valid after any others, so that any step can be removed. Tables are numbers, and made by the first step
that needs them; `behind` counts from the newest version, modulo the number of versions. Every step says which
requirements it puts at stake: a violation names those of the steps that are left after shrinking.
"""

from enum import StrEnum

import msgspec

from conformance.interface.messages import Isolation
from conformance.programs.program import Program

FEATURES: tuple[str, ...] = ("deletionVectors", "rowTracking", "changeDataFeed", "v2Checkpoint")


class _Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag=str.lower):
    table: int = 0

    def stakes(self) -> tuple[str, ...]:
        return ()


# The layout


class Columns(StrEnum):
    """How a table describes its columns, beside the plain way."""

    PLAIN = "plain"
    VOID = "void"
    """One more column has the type void, in which all rows are null."""
    STALE = "stale names"
    """Column mapping was turned off: the columns still have physical names, which do not count."""
    READERS_ONLY = "mapping of readers"
    """Columns are mapped by name, and the protocol lists the feature for readers only. The kit does not write it."""
    MAPPED = "mapping"
    """Columns are mapped by name."""

    @property
    def has_physical_names(self) -> bool:
        """Whether partition values use the physical names of columns."""
        return self in (Columns.READERS_ONLY, Columns.MAPPED)


class Make(_Step, frozen=True, kw_only=True):
    """Create the table, if it does not exist, with these features; other steps create a plain one."""

    partitioned: bool = False
    features: tuple[str, ...] = ()
    limit: int = 0
    """The maximum number of unbackfilled commits; 0 for no limit."""
    imported: bool = False
    """Whether it was a filesystem table before its owner took it over, and has in-commit timestamps since then."""
    old: bool = False
    """Whether its commits are of 2001."""
    columns: Columns = Columns.PLAIN
    codec: bool = False
    """Whether a property names the codec of its data files."""
    append_only: bool = False
    """Whether its commits may not change or remove data."""
    domains: bool = True
    """Whether it may have metadata domains, which some engines do not write."""

    def stakes(self) -> tuple[str, ...]:
        names = () if self.columns in (Columns.PLAIN, Columns.VOID) else ("LOG-51",)
        vectors = ("LOG-30",) if "deletionVectors" in self.features else ()
        times = ("ICT-17", "ICT-18", "ICT-19", "ICT-20") if self.imported else ()
        return (
            *names,
            *times,
            *vectors,
            *(("LOG-33",) if self.partitioned else ()),
            *(("PROFILE-BACKLOG-03",) if self.limit else ()),
        )


class Change(StrEnum):
    """What a commit of another writer does."""

    APPEND = "append"
    REMOVE = "remove"
    REPLACE = "replace"
    REARRANGE = "rearrange"
    """Replace a file by another one with the same rows, as OPTIMIZE does."""
    AGAIN = "again"
    """Add a file again that was added before, with another size."""
    RESTORE = "restore"
    """Add a file again that was removed."""
    APPLICATION = "application"
    EARLIER = "earlier application"
    """Record an earlier batch of an application than before."""
    DOMAIN = "domain"
    NO_DOMAIN = "no domain"
    PROPERTIES = "properties"
    SCHEMA = "schema"
    PARTITIONING = "partitioning"
    FEATURE = "feature"
    UNKNOWN_WRITER = "unknown writer feature"
    UNKNOWN_READER = "unknown reader feature"
    UNKNOWN_ACTION = "unknown action"
    VECTOR = "vector"
    """Replace the deletion vector of a file."""
    NOTHING = "nothing"
    MANY = "many files"
    """Add more files than a reader reads at a time, then set a metadata domain."""


AT_STAKE: dict[Change, tuple[str, ...]] = {
    Change.APPLICATION: ("LOG-31",), Change.EARLIER: ("LOG-31",), Change.DOMAIN: ("LOG-31",),
    Change.NO_DOMAIN: ("LOG-31",), Change.PROPERTIES: ("LOG-31", "CM-CATALOG-06"), Change.VECTOR: ("LOG-30",),
    Change.UNKNOWN_ACTION: ("LOG-29",), Change.UNKNOWN_READER: ("LOG-46",), Change.UNKNOWN_WRITER: ("LOG-47",),
}  # fmt: skip


class Land(_Step, frozen=True, kw_only=True):
    """Another writer commits the next version."""

    change: Change = Change.APPEND
    path: int = 0
    """Which kind of name its file has: see `PATHS`."""
    partition: int = 0
    which: int = 0
    """The file that it removes or replaces, the application or the domain."""
    blind: bool = False
    times: int = 1

    def stakes(self) -> tuple[str, ...]:
        path = ("LOG-32", "CONFLICT-ORDER-10", "CONFLICT-FILES-05") if self.path else ()
        return (*AT_STAKE.get(self.change, ()), *path, *(("LOG-33",) if self.partition else ()))


class Backfill(_Step, frozen=True, kw_only=True):
    behind: int = 0


class Form(StrEnum):
    CLASSIC = "classic"
    PARTS = "parts"
    JSON = "json"
    PARQUET = "parquet"


class Harm(StrEnum):
    NONE = "none"
    HALF = "half"
    """A part or the sidecar is missing; the figures of a checksum are wrong."""
    TRUNCATED = "truncated"
    EMPTY = "empty"


class Checkpoint(_Step, frozen=True, kw_only=True):
    """Another client publishes the version, and writes a checkpoint of it."""

    behind: int = 0
    form: Form = Form.CLASSIC
    parts: int = 2
    hint: bool = False
    harm: Harm = Harm.NONE
    first: bool = False
    """Whether the first part is missing instead of the last one."""

    def stakes(self) -> tuple[str, ...]:
        ids: tuple[str, ...] = ("LOG-18", "MC-CHECKPOINT-02", "LOG-15")
        if self.form is Form.PARTS:
            ids = (*ids, "LOG-19", "LOG-20", "FIELD-02")
        if self.harm is not Harm.NONE:
            ids = (*ids, "FIELD-03", "LOG-36", "LOG-39")
        return (*ids, "LOG-21") if self.hint else ids

    def simpler(self) -> tuple[Backfill, ...]:
        """The publication without the file."""
        return (Backfill(table=self.table, behind=self.behind),)


class Hint(_Step, frozen=True, kw_only=True):
    """`_last_checkpoint` names a version without checkpoint, or cannot be read."""

    behind: int = 0
    truncated: bool = False

    def stakes(self) -> tuple[str, ...]:
        return ("LOG-21", "LOG-18")


class Compaction(_Step, frozen=True, kw_only=True):
    behind: int = 0
    width: int = 2

    def stakes(self) -> tuple[str, ...]:
        return ("LOG-22", "LOG-15", "LOG-18")

    def simpler(self) -> tuple[Backfill, ...]:
        """The publication without the file."""
        return (Backfill(table=self.table, behind=self.behind),)


class Checksum(_Step, frozen=True, kw_only=True):
    behind: int = 0
    harm: Harm = Harm.NONE

    def stakes(self) -> tuple[str, ...]:
        return ("LOG-24",) if self.harm is Harm.NONE else ("LOG-24", "LOG-25", "LOG-26")


class Leftover(_Step, frozen=True, kw_only=True):
    """The staged file of a writer that lost, or did not propose yet."""

    behind: int = -1

    def stakes(self) -> tuple[str, ...]:
        return ("LOG-16", "LOG-17", "CM-LOG-08", "MC-FILES-05", "CM-FILES-04", "CM-READ-09")


class Clean(_Step, frozen=True, kw_only=True):
    """A cleanup deleted the commits before the newest usable checkpoint."""

    def stakes(self) -> tuple[str, ...]:
        return ("LOG-18", "CM-READ-02", "MC-CHECKPOINT-02", "LOG-14")


class Touch(_Step, frozen=True, kw_only=True):
    """The published files get other modification times, as in a copy of the table: equal, reversed, in the future or
    in the past."""

    order: int = 0

    def stakes(self) -> tuple[str, ...]:
        return ("ICT-16", "ICT-20", "ICT-08", "ICT-19")


# The owner's freedoms, and other writers, during the client's next operation


class Freedom(StrEnum):
    PUBLISH = "publish"
    """Publish all commits."""
    PUBLISH_AND_DELETE = "publish and delete"
    """Publish all commits, and delete their staged files."""
    LAND = "land"
    """Another writer commits."""
    LAND_AND_PUBLISH = "land and publish"
    LOSE_REQUEST = "lose the request"
    LOSE_ANSWER = "lose the answer"
    BUSY = "busy"
    """Reject the request for now."""
    BARE_CONFLICT = "conflict without details"
    OLD_CONFLICT = "conflict out of date"
    NO_LATEST = "no latest version"
    LATEST_BEHIND = "latest version behind"
    """The owner has not noticed the newest direct commits."""
    LIST_PUBLISHED = "list published commits"
    LIST_EARLIER = "list earlier commits"
    """List published commits, but not the newest one."""
    CHECKPOINT = "land and checkpoint"
    """Publish all commits before the request; after it other writers commit twice, the first with a checkpoint."""
    REFUSE = "refuse"
    """Reject the request for good."""
    UNAVAILABLE = "answer 503"
    """The commit is carried out and answered 503, and a conflict answers its repetition."""
    SILENT = "silent"
    """From the client's commit on, no request is answered."""
    REFUSE_AFTER = "refuse after a lost answer"
    """The commit is carried out and not answered; then every request is refused."""
    REPEAT = "repeat"
    """The answer to the commit is lost, and a conflict answers its repetition; `after`: once a cleanup deleted it."""
    DELAY = "delay"
    """The request arrives only when the client sends the next one."""
    NEVER = "never"
    """Every commit is answered with a conflict."""
    TRUNCATED_COPY = "truncated copy"
    """A published file of a commit that the catalog lists is cut off, as during its write."""
    FOREIGN_COPY = "foreign copy"
    """Its published file has other actions."""
    MISSING_STAGED = "missing staged file"
    """While a client publishes, the staged file of the first commit to publish is missing."""
    LAND_GROUP = "land a group"
    """During an operation on several tables: another writer commits to all of them at once."""
    DROP = "drop the table"
    """During an operation on several tables, one of them is dropped just before the client's proposal."""


FREE_STAKES: dict[Freedom, tuple[str, ...]] = {
    Freedom.PUBLISH: ("MC-GET-03", "CM-READ-01", "LOG-04"),
    Freedom.PUBLISH_AND_DELETE: ("LOG-13",),
    Freedom.LAND: ("CM-READ-04",),
    Freedom.LAND_AND_PUBLISH: ("CM-READ-04", "LOG-15", "FIELD-04"),
    Freedom.NO_LATEST: ("LOG-10", "CONFLICT-RETRY-05"),
    Freedom.LATEST_BEHIND: ("MC-FILES-09",),
    Freedom.LIST_EARLIER: ("LOG-08", "LOG-18"),
    Freedom.CHECKPOINT: ("CM-READ-04", "LOG-15"),
    Freedom.LIST_PUBLISHED: ("LOG-08", "LOG-18", "CM-READ-03", "RULING-CLEANUP-01"),
    Freedom.TRUNCATED_COPY: ("CM-READ-03", "FIELD-05"),
    Freedom.FOREIGN_COPY: ("CM-READ-03", "FIELD-05"),
    Freedom.BARE_CONFLICT: ("FIELD-04",),
    Freedom.BUSY: ("PROFILE-BACKLOG-03",),
    Freedom.NEVER: ("CONFLICT-RETRY-06",),
}


class Free(_Step, frozen=True, kw_only=True):
    """The owner uses a freedom during the next operation of the client."""

    what: Freedom = Freedom.PUBLISH
    on: str = "get_commits"
    """The kind of request: `get_commits`, `load_table`, `commit`, `attempt_outcome`, `backfill_to_version`, or any."""
    after: bool = False
    """After the request instead of before it."""
    skip: int = 0
    times: int = 1

    def stakes(self) -> tuple[str, ...]:
        return FREE_STAKES.get(self.what, ())


class Win(_Step, frozen=True, kw_only=True):
    """Other writers commit just before the client's next proposals."""

    times: int = 1
    """The number of commits before each of the proposals."""
    races: int = 1
    """The number of proposals that lose."""
    change: Change = Change.APPEND
    last: bool = True
    """Only the last of the commits makes the change, the others append; otherwise only the first one."""
    partition: int = 0
    which: int = 0
    blind: bool = False
    publish: bool = False
    """Whether the winners are published at once."""
    clean: bool = False
    """Whether one more writer commits, and a cleanup then deletes the commits before a checkpoint."""

    def stakes(self) -> tuple[str, ...]:
        published = ("FIELD-04",) if self.publish else ()
        return ("CONFLICT-RETRY-04", "ICT-14", *published, *(("CONFLICT-ORDER-01",) if self.times > 1 else ()))


# The client's operations


class By(StrEnum):
    NEWEST = "newest"
    VERSION = "version"
    TIME = "time"
    PATH = "path"


class Read(_Step, frozen=True, kw_only=True):
    by: By = By.NEWEST
    behind: int = 0
    """The version, or the one whose time it is; -1: the next one."""
    offset: int = 0
    """ms after the time of that version."""
    fresh: bool = False
    """Whether a new reader reads, without a cache."""
    harm: Harm = Harm.NONE
    """The commit of version `at` is harmed while the client reads; `half`: it is missing."""
    at: int = 0

    def stakes(self) -> tuple[str, ...]:
        harmed = {Harm.HALF: ("LOG-27",), Harm.TRUNCATED: ("LOG-28",), Harm.EMPTY: ("LOG-38",)}
        return harmed.get(self.harm, ())


class Transact(_Step, frozen=True, kw_only=True):
    adds: int = 1
    path: int = 0
    partition: int = 0
    removes: int = 0
    which: int = 0
    """The first file that it removes."""
    reads: int = 0
    """0: nothing, 1: everything, 2 and more: one partition."""
    isolation: Isolation = Isolation.SERIALIZABLE
    data_change: bool = True
    application: int = 0
    domain: int = 0
    properties: int = 0
    """1 and 2: set, 3: unset the other writers' property, 4: unset one that the table needs."""
    feature: bool = False
    repartition: bool = False
    replace_table: bool = False
    changes: int = 0
    outside: bool = False
    """Whether it adds a file outside the table's folder, too, which a client may reject."""
    behind: int = 0
    by_path: bool = False
    if_needed: bool = False

    def stakes(self) -> tuple[str, ...]:
        return ("CM-ACCESS-02", "CM-WRITE-01", "MC-WRITE-03", "CM-WRITE-04", "MC-FILES-12") if self.by_path else ()


TABLES: int = 3
"""The number of tables that operations on several tables use."""


class TransactAll(_Step, frozen=True, kw_only=True):
    """A transaction over several tables, of the newest versions."""

    members: tuple[Transact, ...] = (Transact(), Transact(table=1))


class ReadAll(_Step, frozen=True, kw_only=True):
    """A read of the newest versions of several tables."""

    tables: tuple[int, ...] = (0, 1)
    fresh: bool = False


class Job(StrEnum):
    CHECKPOINT = "checkpoint"
    ANY_CHECKPOINT = "any checkpoint"
    COMPACTION = "compaction"
    CHECKSUM = "checksum"
    CLEANUP = "cleanup"
    PUBLISH = "publish"
    VACUUM = "vacuum"
    OPTIMIZE = "optimize"
    REORG = "reorg"


class Maintain(_Step, frozen=True, kw_only=True):
    job: Job = Job.CHECKPOINT
    behind: int = 0
    width: int = 2
    allowed: bool = True
    """Whether the policy allows the job."""
    silent: bool = False
    """The owner does not answer what its policy is: this allows no job."""

    def stakes(self) -> tuple[str, ...]:
        forbidden = () if self.allowed else ("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", "CM-MAINT-05")
        return (*JOB_STAKES.get(self.job, ()), *forbidden)


JOB_STAKES: dict[Job, tuple[str, ...]] = {
    Job.CHECKPOINT: ("LOG-34",), Job.ANY_CHECKPOINT: ("LOG-34",), Job.COMPACTION: ("LOG-35",),
    Job.CHECKSUM: ("LOG-44",), Job.PUBLISH: ("CM-PUBLISH-07", "FIELD-05"),
    Job.CLEANUP: ("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36"),
}  # fmt: skip
"""What a file that the client wrote, or a cleanup, puts at stake for later reads."""


class Create(_Step, frozen=True, kw_only=True):
    """The client creates a table of its own."""

    fate: Freedom | None = None
    """`lose the answer`, `repeat`, `refuse after a lost answer`, or `land`: another creator was faster."""


class Transfer(_Step, frozen=True, kw_only=True):
    """The client requests a take-over of a filesystem table, or the hand-back of its table."""

    back: bool = False
    late: int = 0
    """ms by which the files' modification times are ahead of the clock."""
    rich: bool = False
    """The filesystem table has features implied by its version, and properties."""
    upgrade: bool = False
    """The faster writer changes the protocol and the metadata."""
    fate: Freedom | None = None
    """`lose the answer`, `repeat`, `refuse` or `land`: a filesystem writer is faster."""

    def stakes(self) -> tuple[str, ...]:
        return ("MC-CONVERT-04", "MC-CONVERT-10", "MC-CONVERT-11", "MC-FILES-12", "MC-WRITE-03", "CM-WRITE-04")


class Again(_Step, frozen=True, kw_only=True):
    """The table is dropped, and another one created under its name."""

    empty: bool = False
    """The name stays free."""
    during: str | None = None
    """While the client's transaction makes its first request of that kind; before a `commit`, after any other one."""

    def stakes(self) -> tuple[str, ...]:
        return ("CM-READ-08", "PROFILE-CLIENT-01")

    def simpler(self) -> tuple[Land, ...]:
        """The commit that the new table has too."""
        return (Land(table=self.table),)


Layout = Make | Land | Backfill | Checkpoint | Hint | Compaction | Checksum | Leftover | Clean | Touch
Operation = Read | Transact | TransactAll | ReadAll | Maintain | Create | Transfer
Step = Layout | Free | Win | Operation | Again


class ClientProgram(Program[Step], frozen=True, kw_only=True):
    """A program for a client."""


PATHS: tuple[str, ...] = (
    "part-{}", "A-{}", "a-{}", "with space {}", "100%-{}", "100%25-{}", "p+q-{}", "day=2024-01-01 10%3A00/part-{}",
    "ü-{}", "u\u0308-{}", "folder/url {}",
)  # fmt: skip
"""Names of files, not encoded. Files of one form differ in the number; those of different forms, in a folder, in case,
in an encoding or in the Unicode form. The last one is in the log as a URL."""
PARTITIONS: tuple[str | None, ...] = ("x", "y", "007", "a b%", "", None)
