"""The migrations that create the ledger's tables, and the reads and writes inside one transaction.

A ledger has its schema version in `user_version`. Opening an older one runs the missing migrations in one transaction;
a newer one is rejected. Each statement is a named constant that says what it decides; each method loads or stores
values of `records`. No method makes decisions.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from typing import Protocol as Interface

import msgspec

from refimpl.owner.records import AttemptRecord, Examined, Promise, PromiseKind, TableRecord, unknown_attempt
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.commits import AttemptId, RatifiedCommit
from refimpl.protocol.errors import CorruptLedgerError
from refimpl.protocol.log_path import MAX_VERSION, Version, staged_commit
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode

APPLICATION_ID: Final = 0x44434F31  # "DCO1", so that `file` and other programs recognize it

MIGRATIONS: Final = (
    """
    CREATE TABLE owner(only INTEGER PRIMARY KEY CHECK (only = 1), roots TEXT NOT NULL);
    INSERT INTO owner(only, roots) VALUES (1, '[]');

    CREATE TABLE tables(
        key INTEGER PRIMARY KEY,
        table_id TEXT NOT NULL UNIQUE,
        name TEXT,
        location TEXT NOT NULL,          -- relative to the warehouse, or absolute below a root
        feature TEXT NOT NULL,
        commit_mode TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('staging', 'taking-over', 'active', 'handed-back', 'dropped')),
        backfilled INTEGER,              -- every version up to here is published, durably
        protocol TEXT,                   -- the latest protocol action
        metadata TEXT,                   -- the latest metaData action
        policy TEXT NOT NULL,
        halted TEXT,                     -- why commits are rejected
        created_at INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX live_name ON tables(name) WHERE state IN ('taking-over', 'active');
    CREATE UNIQUE INDEX live_location ON tables(location) WHERE state IN ('staging', 'taking-over', 'active');

    -- Every ratified commit, permanently: so a replay is recognized at any age, and the last row of a table is
    -- its latest version.
    CREATE TABLE commits(
        table_key INTEGER NOT NULL REFERENCES tables,
        version INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        commit_mode TEXT NOT NULL,
        digest BLOB NOT NULL,            -- SHA-256 of the commit's bytes
        size INTEGER NOT NULL,
        in_commit_timestamp INTEGER NOT NULL,
        ratified_at INTEGER NOT NULL,
        published_at INTEGER,
        content BLOB,                    -- of an inline commit, until it is published
        PRIMARY KEY (table_key, version)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX attempt_landed ON commits(table_key, attempt);

    -- Attempts that were resolved as not landed, permanently.
    CREATE TABLE tombstones(
        table_id TEXT NOT NULL,
        attempt TEXT NOT NULL,
        resolved_at INTEGER NOT NULL,
        PRIMARY KEY (table_id, attempt)
    ) WITHOUT ROWID;

    CREATE TABLE promises(
        table_key INTEGER PRIMARY KEY REFERENCES tables,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        content BLOB NOT NULL,
        digest BLOB NOT NULL,
        in_commit_timestamp INTEGER NOT NULL,
        promised_at INTEGER NOT NULL
    );
    """,
    """
    -- Attempts that lost a race, for `explain`.
    CREATE TABLE lost(
        table_key INTEGER NOT NULL REFERENCES tables,
        version INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        lost_at INTEGER NOT NULL,
        PRIMARY KEY (table_key, version, attempt)
    ) WITHOUT ROWID;
    """,
    """
    -- Catalog properties that are not in the log: a JSON map of strings. Everything else that a catalog shows of a
    -- table is in its protocol and metadata above.
    ALTER TABLE tables ADD COLUMN catalog_properties TEXT;
    """,
    """
    -- When a table was dropped, and when the deletion of its files began.
    ALTER TABLE tables ADD COLUMN dropped_at INTEGER;
    ALTER TABLE tables ADD COLUMN purged_at INTEGER;
    """,
    """
    -- The owner's name in the metadata of its tables, and the JSON map of strings that new tables get with it.
    ALTER TABLE owner ADD COLUMN name TEXT;
    ALTER TABLE owner ADD COLUMN conf TEXT;
    """,
)

SCHEMA_VERSION: Final = len(MIGRATIONS)


_TABLE = """
    SELECT key, table_id, name, location, feature, commit_mode, state,
           (SELECT max(version) FROM commits WHERE table_key = key), backfilled,
           (SELECT in_commit_timestamp FROM commits WHERE table_key = key ORDER BY version DESC LIMIT 1),
           policy, halted, created_at, EXISTS (SELECT 1 FROM promises WHERE table_key = key),
           dropped_at, purged_at
    FROM tables
"""
_LIVE = "state IN ('taking-over', 'active')"
TABLE_BY_KEY: Final = _TABLE + "WHERE key = ?"
TABLE_BY_ID: Final = _TABLE + "WHERE table_id = ?"
TABLE_BY_NAME: Final = _TABLE + f"WHERE name = ? AND {_LIVE}"
TABLE_BY_LOCATION: Final = (
    _TABLE + "WHERE location = ? AND state <> 'dropped' ORDER BY state = 'handed-back', key DESC LIMIT 1"
)
TABLES_ALL: Final = _TABLE + "ORDER BY name, key"
TABLES_STAGING: Final = _TABLE + "WHERE state = 'staging' ORDER BY key"
TABLES_DROPPED: Final = _TABLE + "WHERE state = 'dropped' ORDER BY dropped_at DESC, key DESC"
TABLES_HANDED_BACK: Final = _TABLE + "WHERE location = ? AND state = 'handed-back' ORDER BY key"
TABLES_OVERLAPPING: Final = (
    _TABLE
    + """WHERE state IN ('staging', 'taking-over', 'active') AND (
        location IN (SELECT value FROM json_each(:around))
        OR (location > :place || '/' AND location < :place || '0')
        OR (:everything AND location NOT LIKE '/%')
    ) ORDER BY key
"""
)  # around it, or in it: '0' is the character after '/'
TABLE_CREATED_BY: Final = (
    _TABLE + "WHERE name = ? AND EXISTS (SELECT 1 FROM commits WHERE table_key = key AND version = 0 AND attempt = ?)"
)  # also if it was dropped or renamed since
NAMES_ACTIVE: Final = "SELECT name FROM tables WHERE state = 'active' AND name IS NOT NULL ORDER BY name LIMIT ?"

_COMMIT = """
    SELECT version, attempt, commit_mode, digest, size, in_commit_timestamp, ratified_at, published_at, content
    FROM commits WHERE table_key = ?
"""
ATTEMPT: Final = (
    _COMMIT
    + """ AND attempt = ?
    UNION ALL SELECT NULL, attempt, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM tombstones WHERE table_id = ? AND attempt = ?
"""
)  # a commit: it landed; a row of NULLs: it was resolved as not landed; no row: it is new
COMMITS_BETWEEN: Final = _COMMIT + " AND version BETWEEN ? AND ? ORDER BY version LIMIT ?"
PROMISE: Final = """
    SELECT kind, version, attempt, content, digest, in_commit_timestamp, promised_at
    FROM promises WHERE table_key = ?
"""

FORGET_PROMISES: Final = """
    DELETE FROM promises;
    DELETE FROM tables WHERE state = 'taking-over';
"""  # a table that is taken over was recorded together with its promise

RATIFY: Final = """
    INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # the primary key ratifies each version at most once, even after a wrong decision
MARK_PUBLISHED: Final = """
    UPDATE commits SET published_at = ?, content = NULL
    WHERE table_key = ? AND version BETWEEN ? AND ? AND published_at IS NULL
"""

_LOST_ATTEMPTS: Final = ""
"""Replaces the attempt id in the tombstone that `attempts_are_lost` reads; not a valid attempt id."""


class Cursor(Interface):
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Interface):
    """The used methods of an SQLite connection."""

    def execute(self, statement: str, values: Any = None, /) -> Cursor: ...
    def last_insert_rowid(self) -> int: ...


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _reads(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates a method that reads rows: a value that cannot have been stored is reported as damage."""

    @wraps(method)
    def reading(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(*values, **named)
        except UnicodeEncodeError:  # the caller's value is not text
            raise
        except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as error:
            raise CorruptLedgerError(
                f"the ledger contains an invalid value ({error}); restore it from a backup, then run verify"
            ) from error

    return reading


class View:
    """The reads inside one transaction. Raises `CorruptLedgerError` for a value that cannot have been stored."""

    def __init__(self, database: Connection, warehouse: Path) -> None:
        self._db = database
        self._warehouse = warehouse

    def table(self, table_id: str) -> TableRecord | None:
        return self._table(TABLE_BY_ID, table_id)

    def table_by_key(self, key: int) -> TableRecord | None:
        return self._table(TABLE_BY_KEY, key)

    def table_named(self, name: str) -> TableRecord | None:
        """The live table of this name."""
        return self._table(TABLE_BY_NAME, name)

    def table_at(self, location: Path) -> TableRecord | None:
        """The newest table at this location that was not dropped; an owned table comes before one that was handed
        back."""
        return self._table(TABLE_BY_LOCATION, self.stored_location(location))

    def handed_back_from(self, location: Path) -> list[TableRecord]:
        """All tables that were handed back at this location, oldest first."""
        return self._tables(TABLES_HANDED_BACK, (self.stored_location(location),))

    def overlapping(self, location: Path) -> list[TableRecord]:
        """The tables at, around or inside this location, including tables in creation."""
        around = [self.stored_location(path) for path in (location, *location.parents)]
        values = {
            "around": msgspec.json.encode(around).decode(),
            "place": self.stored_location(location),
            "everything": self._warehouse.is_relative_to(location),
        }
        return self._tables(TABLES_OVERLAPPING, values)

    @_reads
    def names(self, limit: int) -> list[str]:
        """The first names of active tables."""
        return [row[0] for row in self._db.execute(NAMES_ACTIVE, (limit,))]

    def created_by(self, name: str, attempt: AttemptId) -> TableRecord | None:
        """The table of this name, live or not, whose version 0 was this attempt."""
        return self._table(TABLE_CREATED_BY, name, attempt)

    def tables(self) -> list[TableRecord]:
        """Every table ever recorded, by name."""
        return self._tables(TABLES_ALL)

    def dropped(self) -> list[TableRecord]:
        """The dropped tables, the most recently dropped first."""
        return self._tables(TABLES_DROPPED)

    def announced(self) -> list[TableRecord]:
        """The tables that an engine may have created or converted since it announced them."""
        return [table for table in self._tables(TABLES_STAGING) if table.feature.engines_create]

    @_reads
    def _table(self, query: str, *values: str | int) -> TableRecord | None:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else self._table_record(row)

    @_reads
    def _tables(self, query: str, values: object = None) -> list[TableRecord]:
        return [self._table_record(row) for row in self._db.execute(query, values)]

    def _table_record(self, row: Any) -> TableRecord:
        return TableRecord(
            key=row[0],
            table_id=row[1],
            name=row[2],
            location=_location(self._warehouse, row[3]),
            feature=TABLE_FEATURES[row[4]],
            commit_mode=CommitMode(row[5]),
            state=TableState(row[6]),
            latest=row[7],
            backfilled=row[8],
            in_commit_timestamp=row[9],
            policy=_policy(row[10]),
            halted=row[11],
            created_at=row[12],
            promised=bool(row[13]),
            dropped_at=row[14],
            purged_at=row[15],
        )

    def stored_location(self, location: Path) -> str:
        """The path as stored: relative inside the warehouse, so that the whole directory can be moved."""
        if location.is_relative_to(self._warehouse):
            return location.relative_to(self._warehouse).as_posix()
        return location.as_posix()

    @_reads
    def protocol_and_metadata(self, key: int) -> tuple[Protocol, Metadata] | None:
        row = self._db.execute("SELECT protocol, metadata FROM tables WHERE key = ?", (key,)).fetchone()
        if row is None or row[0] is None or row[1] is None:
            return None
        return _current(row[0], row[1])

    @_reads
    def catalog_properties(self, key: int) -> dict[str, str]:
        """The properties that were set in the catalog and are not in the table's log."""
        row = self._db.execute("SELECT catalog_properties FROM tables WHERE key = ?", (key,)).fetchone()
        return {} if row is None or row[0] is None else msgspec.json.decode(row[0], type=dict[str, str])

    def attempt_at(self, table: TableRecord, version: Version, attempt: AttemptId) -> AttemptRecord | None:
        """The outcome of an attempt; else the commit of its version, if that commit has an unknown attempt id."""
        known = self.attempt(table, attempt)
        if known is not None or version >= table.next:
            return known
        return self.attempt(table, unknown_attempt(table.table_id, version))

    @_reads
    def attempt(self, table: TableRecord, attempt: AttemptId) -> AttemptRecord | None:
        """The outcome of an attempt, or None for one that is not decided."""
        row = self._db.execute(ATTEMPT, (table.key, attempt, table.table_id, attempt)).fetchone()
        if row is None:
            return None
        return AttemptRecord(landed=None if row[0] is None else _ratified(row), digest=row[3])

    def attempts_are_lost(self, table: TableRecord) -> bool:
        """Whether the table has commits with unknown attempt ids."""
        return self.attempt(table, _LOST_ATTEMPTS) is not None

    @_reads
    def commits(
        self, table: TableRecord, start: Version, end: Version, *, limit: int = -1
    ) -> tuple[RatifiedCommit, ...]:
        """Ratified commits with start <= version <= end, ascending."""
        return tuple(_ratified(row) for row in self._db.execute(COMMITS_BETWEEN, (table.key, start, end, limit)))

    @_reads
    def commit_details(self, table: TableRecord, version: Version) -> tuple[RatifiedCommit, bytes, int | None] | None:
        """A ratified commit, the SHA-256 of its bytes, and when it was published."""
        row = self._db.execute(COMMITS_BETWEEN, (table.key, version, version, 1)).fetchone()
        return None if row is None else (_stored(row), row[3], row[7])

    @_reads
    def lost_attempts(self, table: TableRecord, version: Version) -> list[tuple[AttemptId, int]]:
        query = "SELECT attempt, lost_at FROM lost WHERE table_key = ? AND version = ? ORDER BY lost_at, attempt"
        return [(row[0], row[1]) for row in self._db.execute(query, (table.key, version))]

    @_reads
    def digests(self, table: TableRecord) -> list[tuple[RatifiedCommit, bytes, int | None]]:
        """Every recorded commit with the SHA-256 of its bytes and its time of publication, ascending."""
        return [
            (_stored(row), row[3], row[7]) for row in self._db.execute(COMMITS_BETWEEN, (table.key, 0, MAX_VERSION, -1))
        ]

    @_reads
    def promise(self, key: int) -> Promise | None:
        row = self._db.execute(PROMISE, (key,)).fetchone()
        if row is None:
            return None
        return Promise(
            kind=PromiseKind(row[0]),
            version=row[1],
            attempt=row[2],
            content=row[3],
            digest=row[4],
            in_commit_timestamp=row[5],
            promised_at=row[6],
        )

    @_reads
    def roots(self) -> tuple[Path, ...]:
        """Directories outside the warehouse below which tables may be taken over."""
        row = self._db.execute("SELECT roots FROM owner").fetchone()
        assert row is not None
        return tuple(Path(root) for root in msgspec.json.decode(row[0], type=list[str]))

    @_reads
    def identity(self) -> tuple[str | None, dict[str, str]]:
        """The owner's name (None: never set) and its configuration."""
        row = self._db.execute("SELECT name, conf FROM owner").fetchone()
        return row[0], {} if row[1] is None else msgspec.json.decode(row[1], type=dict[str, str])


class Writer(View):
    """The writes inside one write transaction, under the owner's lock."""

    def add_table(self, table: TableRecord) -> TableRecord:
        """Store a new table; assigns its `key`."""
        self._db.execute(
            "INSERT INTO tables(table_id, name, location, feature, commit_mode, state, policy, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                table.table_id,
                table.name,
                self.stored_location(table.location),
                table.feature.name,
                table.commit_mode.value,
                table.state.value,
                _policy_text(table.policy),
                table.created_at,
            ),
        )
        return msgspec.structs.replace(table, key=self._db.last_insert_rowid())

    def _set(self, table: TableRecord, column: str, value: str | int | None) -> None:
        self._db.execute(f"UPDATE tables SET {column} = ? WHERE key = ?", (value, table.key))

    def set_state(self, table: TableRecord, state: TableState) -> None:
        self._set(table, "state", state.value)

    def set_dropped(self, table: TableRecord, at: int | None) -> None:
        """Drop the table, or (None) make it active again."""
        self.set_state(table, TableState.ACTIVE if at is None else TableState.DROPPED)
        self._set(table, "dropped_at", at)

    def set_purged(self, table: TableRecord, at: int) -> None:
        self._set(table, "purged_at", at)

    def set_name(self, table: TableRecord, name: str) -> None:
        self._set(table, "name", name)

    def set_policy(self, table: TableRecord, policy: MaintenancePolicy) -> None:
        self._set(table, "policy", _policy_text(policy))

    def set_catalog_properties(self, table: TableRecord, properties: Mapping[str, str]) -> None:
        self._set(table, "catalog_properties", msgspec.json.encode(properties).decode() if properties else None)

    def halt(self, table: TableRecord, why: str | None) -> None:
        """Reject commits from now on, or (None) accept them again."""
        self._set(table, "halted", why)

    def forget_table(self, table: TableRecord) -> None:
        """Delete all rows of a table that was never created."""
        self._db.execute("DELETE FROM promises WHERE table_key = ?", (table.key,))
        self._db.execute("DELETE FROM tables WHERE key = ?", (table.key,))

    def ratify(
        self, table: TableRecord, examined: Examined, commit_mode: CommitMode, now: int, *, published: bool
    ) -> RatifiedCommit:
        """Make the proposal the version. The end of the transaction is the commit point."""
        version, proposal = examined.version, examined.proposal
        protocol, metadata = examined.protocol, examined.metadata
        inline = commit_mode is CommitMode.INLINE and not published
        assert version == table.next or table.latest is None, f"{version} of {table.label} follows {table.latest}"
        self._db.execute(
            RATIFY,
            (
                table.key,
                version,
                proposal.attempt,
                commit_mode.value,
                examined.digest,
                len(examined.content),
                examined.in_commit_timestamp,
                now,
                now if published else None,
                examined.content if inline else None,
            ),
        )
        if protocol is not None:
            self._set(table, "protocol", msgspec.json.encode(protocol).decode())
        if metadata is not None:
            self._set(table, "metadata", msgspec.json.encode(metadata).decode())
        if published:
            self._set(table, "backfilled", version)
        return RatifiedCommit(
            version=version,
            attempt=proposal.attempt,
            commit_mode=commit_mode,
            in_commit_timestamp=examined.in_commit_timestamp,
            size=len(examined.content),
            ratified_at=now,
            file_name=staged_commit(version, proposal.attempt)
            if commit_mode is CommitMode.STAGED and not published
            else None,
            content=examined.content if inline else None,
        )

    def mark_published(self, table: TableRecord, through: Version, now: int) -> None:
        """Forget the bytes of every version up to `through`: they are published, durably."""
        start = table.first_unbackfilled
        self._db.execute(MARK_PUBLISHED, (now, table.key, start, through))
        self._set(table, "backfilled", through)

    def add_tombstone(self, table_id: str, attempt: AttemptId, now: int) -> None:
        self._db.execute("INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)", (table_id, attempt, now))

    def set_attempts_lost(self, table: TableRecord) -> None:
        """Remember that a commit with an unknown attempt id was recorded: no attempt can be called "not landed" any
        more."""
        self.add_tombstone(table.table_id, _LOST_ATTEMPTS, 0)

    def add_lost(self, key: int, version: Version, attempt: AttemptId, now: int) -> None:
        self._db.execute("INSERT OR IGNORE INTO lost VALUES (?, ?, ?, ?)", (key, version, attempt, now))

    def add_promise(self, table: TableRecord, promise: Promise) -> None:
        self._db.execute(
            "INSERT INTO promises VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                table.key,
                promise.kind.value,
                promise.version,
                promise.attempt,
                promise.content,
                promise.digest,
                promise.in_commit_timestamp,
                promise.promised_at,
            ),
        )

    def forget_promise(self, table: TableRecord) -> None:
        self._db.execute("DELETE FROM promises WHERE table_key = ?", (table.key,))

    def set_identity(self, name: str, conf: Mapping[str, str]) -> None:
        self._db.execute("UPDATE owner SET name = ?, conf = ?", (name, msgspec.json.encode(conf).decode()))

    def set_roots(self, roots: tuple[Path, ...]) -> None:
        self._db.execute("UPDATE owner SET roots = ?", (msgspec.json.encode([str(r) for r in roots]).decode(),))


@lru_cache(maxsize=1024)
def _location(warehouse: Path, stored: str) -> Path:
    return warehouse / stored


@lru_cache(maxsize=1024)
def _policy(text: str) -> MaintenancePolicy:
    return msgspec.json.decode(text, type=MaintenancePolicy)


def _policy_text(policy: MaintenancePolicy) -> str:
    fields = msgspec.to_builtins(policy)
    fields["allowed"] = sorted(fields["allowed"])
    return msgspec.json.encode(fields).decode()


@lru_cache(maxsize=64)
def _current(protocol: str, metadata: str) -> tuple[Protocol, Metadata]:
    return msgspec.json.decode(protocol, type=Protocol), msgspec.json.decode(metadata, type=Metadata)


def _ratified(row: Any) -> RatifiedCommit:
    """A commit for an answer. Raises `ValueError` if its bytes are not those that were ratified."""
    if row[8] is None:
        return _without_bytes(row)
    commit = _stored(row)
    if commit.content is not None and hashlib.sha256(commit.content).digest() != row[3]:
        raise ValueError(f"the bytes of version {commit.version} are not those that were ratified")
    return commit


@lru_cache(maxsize=10_000)
def _without_bytes(row: Any) -> RatifiedCommit:
    """`_stored` for a commit whose bytes are not in the ledger. Cached, as every answer has the unpublished ones."""
    return _stored(row)


def _stored(row: Any) -> RatifiedCommit:
    version, attempt, commit_mode, _, size, timestamp, ratified_at, published_at, content = row
    if content is not None and type(content) is not bytes:
        raise TypeError(f"the bytes of version {version} are {type(content).__name__}")
    stored = published_at is None
    return RatifiedCommit(
        version=version,
        attempt=attempt,
        commit_mode=CommitMode(commit_mode),
        in_commit_timestamp=timestamp,
        size=size,
        ratified_at=ratified_at,
        file_name=staged_commit(version, attempt) if stored and commit_mode == CommitMode.STAGED.value else None,
        content=content if stored else None,
    )
