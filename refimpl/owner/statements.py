"""The schema of the ledger, and the reads and writes inside one transaction.

A ledger has its schema's version in `user_version`; one with another version is rejected. Each statement is a named
constant that says what it decides; each method loads or stores values of `records`. No method makes decisions.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from typing import Protocol as Interface

import msgspec

from refimpl.owner.records import AttemptRecord, Examined, Promise, TableRecord, unknown_attempt
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import MaintenancePolicy, TableState
from refimpl.protocol.commits import AttemptId, RatifiedCommit
from refimpl.protocol.errors import CorruptLedgerError
from refimpl.protocol.log_path import MAX_VERSION, Version, staged_commit
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode

APPLICATION_ID: Final = 0x44434F31  # "DCO1", so that `file` and other programs recognize it

SCHEMA: Final = """
    CREATE TABLE owner(
        only INTEGER PRIMARY KEY CHECK (only = 1),
        roots TEXT NOT NULL,
        name TEXT,                       -- in the metadata of its tables
        conf TEXT                        -- a JSON map of strings, which new tables get with it
    );
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
        created_at INTEGER NOT NULL,
        catalog_properties TEXT,         -- those that are not in the log: a JSON map of strings
        dropped_at INTEGER
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
"""
SCHEMA_VERSION: Final = 7


_TABLE = """
    SELECT key, table_id, name, location, feature, commit_mode, state,
           (SELECT max(version) FROM commits WHERE table_key = key), backfilled,
           (SELECT in_commit_timestamp FROM commits WHERE table_key = key ORDER BY version DESC LIMIT 1),
           policy, halted, created_at, EXISTS (SELECT 1 FROM promises WHERE table_key = key),
           dropped_at
    FROM tables
"""
_LIVE = "state IN ('taking-over', 'active')"
TABLE_BY_KEY: Final = _TABLE + "WHERE key = ?"
TABLE_BY_ID: Final = _TABLE + "WHERE table_id = ?"
TABLE_BY_NAME: Final = _TABLE + f"WHERE name = ? AND {_LIVE}"
TABLE_BY_LOCATION: Final = (
    _TABLE + "WHERE location = ? AND state <> 'dropped' ORDER BY state = 'handed-back', key DESC LIMIT 1"
)
TABLES: Final = _TABLE + "WHERE state = ifnull(?, state) AND location = ifnull(?, location) ORDER BY name, key"
_PLACED: Final = "SELECT key FROM tables WHERE state IN ('staging', 'taking-over', 'active') AND"
TABLES_OVERLAPPING: Final = f"""{_TABLE} WHERE key IN (
    {_PLACED} location IN (SELECT value FROM json_each(:around))
    UNION {_PLACED} location > :place || '/' AND location < :place || '0'
    UNION {_PLACED} :everything AND location NOT LIKE '/%'
) ORDER BY key
"""  # around it, or in it: '0' is the character after '/'; each SELECT can use the index `live_location`
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
PROMISE: Final = f"SELECT {', '.join(Promise.__struct_fields__)} FROM promises WHERE table_key = ?"

PROTOCOL_AND_METADATA: Final = """
    SELECT protocol, metadata FROM tables WHERE key = ? AND protocol IS NOT NULL AND metadata IS NOT NULL
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


class Connection(Interface):
    """The used methods of an SQLite connection."""

    def execute(self, statement: str, values: Any = None, /) -> Iterable[Any]: ...
    def last_insert_rowid(self) -> int: ...


Loaded = TypeVar("Loaded")
Value = TableState | MaintenancePolicy | Mapping[str, str] | str | int | None


class View:
    """The reads inside one transaction. Raises `CorruptLedgerError` for a value that cannot have been stored."""

    def __init__(self, database: Connection, warehouse: Path) -> None:
        self._db = database
        self._warehouse = warehouse

    def rows(self, load: Callable[[Any], Loaded], query: str, values: Any = ()) -> list[Loaded]:
        """A value for each row of a query: packages around the core bring their own queries."""
        try:
            return [load(row) for row in self._db.execute(query, values)]
        except UnicodeEncodeError:  # the caller's value is not text
            raise
        except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as error:
            raise CorruptLedgerError(
                f"the ledger contains an invalid value ({error}); restore it from a backup, then run verify"
            ) from error

    def first(self, load: Callable[[Any], Loaded], query: str, values: Any = ()) -> Loaded | None:
        """The same for the first row."""
        loaded = self.rows(load, query, values)
        return loaded[0] if loaded else None

    def table(self, table_id: str) -> TableRecord | None:
        return self.first(self._table_record, TABLE_BY_ID, (table_id,))

    def table_by_key(self, key: int) -> TableRecord | None:
        return self.first(self._table_record, TABLE_BY_KEY, (key,))

    def table_named(self, name: str) -> TableRecord | None:
        """The live table of this name."""
        return self.first(self._table_record, TABLE_BY_NAME, (name,))

    def table_at(self, location: Path) -> TableRecord | None:
        """The newest table at this location that was not dropped; an owned table comes before one that was handed
        back."""
        return self.first(self._table_record, TABLE_BY_LOCATION, (self.stored_location(location),))

    def tables(self, *, state: TableState | None = None, location: Path | None = None) -> list[TableRecord]:
        """Every table ever recorded, or those in a state, or at a location; by name, then from the oldest on."""
        values = state and state.value, location and self.stored_location(location)
        return self.rows(self._table_record, TABLES, values)

    def overlapping(self, location: Path) -> list[TableRecord]:
        """The tables at, around or inside this location, including tables in creation."""
        around = [self.stored_location(path) for path in (location, *location.parents)]
        values = {
            "around": msgspec.json.encode(around).decode(),
            "place": self.stored_location(location),
            "everything": self._warehouse.is_relative_to(location),
        }
        return self.rows(self._table_record, TABLES_OVERLAPPING, values)

    def names(self, limit: int) -> list[str]:
        """The first names of active tables."""
        return self.rows(lambda row: row[0], NAMES_ACTIVE, (limit,))

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
        )

    def stored_location(self, location: Path) -> str:
        """The path as stored: relative inside the warehouse, so that the whole directory can be moved."""
        if location.is_relative_to(self._warehouse):
            return location.relative_to(self._warehouse).as_posix()
        return location.as_posix()

    def protocol_and_metadata(self, key: int) -> tuple[Protocol, Metadata] | None:
        return self.first(_current, PROTOCOL_AND_METADATA, (key,))

    def attempt_at(self, table: TableRecord, version: Version, attempt: AttemptId) -> AttemptRecord | None:
        """The outcome of an attempt; else the commit of its version, if that commit has an unknown attempt id."""
        known = self.attempt(table, attempt)
        if known is not None or version >= table.next:
            return known
        return self.attempt(table, unknown_attempt(table.table_id, version))

    def attempt(self, table: TableRecord, attempt: AttemptId) -> AttemptRecord | None:
        """The outcome of an attempt, or None for one that is not decided."""
        return self.first(_attempt, ATTEMPT, (table.key, attempt, table.table_id, attempt))

    def attempts_are_lost(self, table: TableRecord) -> bool:
        """Whether the table has commits with unknown attempt ids."""
        return self.attempt(table, _LOST_ATTEMPTS) is not None

    def commits(
        self, table: TableRecord, start: Version, end: Version, *, limit: int = -1
    ) -> tuple[RatifiedCommit, ...]:
        """Ratified commits with start <= version <= end, ascending."""
        return tuple(self.rows(_ratified, COMMITS_BETWEEN, (table.key, start, end, limit)))

    def commit_details(self, table: TableRecord, version: Version) -> tuple[RatifiedCommit, bytes, int | None] | None:
        """A ratified commit, the SHA-256 of its bytes, and when it was published."""
        return self.first(_details, COMMITS_BETWEEN, (table.key, version, version, 1))

    def digests(self, table: TableRecord) -> list[tuple[RatifiedCommit, bytes, int | None]]:
        """Every recorded commit with the SHA-256 of its bytes and its time of publication, ascending."""
        return self.rows(_details, COMMITS_BETWEEN, (table.key, 0, MAX_VERSION, -1))

    def promise(self, key: int) -> Promise | None:
        return self.first(_promise, PROMISE, (key,))

    def roots(self) -> tuple[Path, ...]:
        """Directories outside the warehouse below which tables may be taken over."""
        (stored,) = self.rows(lambda row: msgspec.json.decode(row[0], type=list[str]), "SELECT roots FROM owner")
        return tuple(map(Path, stored))


class Writer(View):
    """The writes inside one write transaction, under the owner's lock."""

    def execute(self, statement: str, values: Any) -> None:
        self._db.execute(statement, values)

    def add_table(self, table: TableRecord) -> TableRecord:
        """Store a new table; assigns its `key`."""
        row = {
            "table_id": table.table_id,
            "name": table.name,
            "location": self.stored_location(table.location),
            "feature": table.feature.name,
            "commit_mode": table.commit_mode.value,
            "state": table.state.value,
            "policy": _column(table.policy),
            "created_at": table.created_at,
        }
        places = ", ".join("?" for _ in row)
        self.execute(f"INSERT INTO tables({', '.join(row)}) VALUES ({places})", (*row.values(),))
        return msgspec.structs.replace(table, key=self._db.last_insert_rowid())

    def set(self, table: TableRecord, **values: Value) -> None:
        """Change columns of the table's row."""
        columns = ", ".join(f"{column} = ?" for column in values)
        self.execute(f"UPDATE tables SET {columns} WHERE key = ?", (*map(_column, values.values()), table.key))

    def forget_table(self, table: TableRecord) -> None:
        """Delete all rows of a table that was never created."""
        self.execute("DELETE FROM promises WHERE table_key = ?", (table.key,))
        self.execute("DELETE FROM tables WHERE key = ?", (table.key,))

    def ratify(
        self, table: TableRecord, examined: Examined, commit_mode: CommitMode, now: int, *, published: bool
    ) -> RatifiedCommit:
        """Make the proposal the version. The end of the transaction is the commit point."""
        version, attempt = examined.version, examined.proposal.attempt
        assert version == table.next or table.latest is None, f"{version} of {table.label} follows {table.latest}"
        commit = RatifiedCommit(
            version=version,
            attempt=attempt,
            commit_mode=commit_mode,
            in_commit_timestamp=examined.in_commit_timestamp,
            size=len(examined.content),
            ratified_at=now,
            file_name=None if published or commit_mode is not CommitMode.STAGED else staged_commit(version, attempt),
            content=None if published or commit_mode is not CommitMode.INLINE else examined.content,
        )
        proposed = (version, attempt, commit_mode.value, examined.digest, commit.size, commit.in_commit_timestamp)
        self.execute(RATIFY, (table.key, *proposed, now, now if published else None, commit.content))
        if examined.protocol is not None:
            self.set(table, protocol=msgspec.json.encode(examined.protocol).decode())
        if examined.metadata is not None:
            self.set(table, metadata=msgspec.json.encode(examined.metadata).decode())
        if published:
            self.set(table, backfilled=version)
        return commit

    def mark_published(self, table: TableRecord, through: Version, now: int) -> None:
        """Forget the bytes of every version up to `through`: they are published, durably."""
        self.execute(MARK_PUBLISHED, (now, table.key, table.first_unbackfilled, through))
        self.set(table, backfilled=through)

    def add_tombstone(self, table_id: str, attempt: AttemptId, now: int) -> None:
        self.execute("INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)", (table_id, attempt, now))

    def set_attempts_lost(self, table: TableRecord) -> None:
        """Remember that a commit with an unknown attempt id was recorded: no attempt can be called "not landed" any
        more."""
        self.add_tombstone(table.table_id, _LOST_ATTEMPTS, 0)

    def add_promise(self, table: TableRecord, promise: Promise) -> None:
        values = (table.key, promise.kind.value, *msgspec.structs.astuple(promise)[1:])
        self.execute("INSERT INTO promises VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def forget_promise(self, table: TableRecord) -> None:
        self.execute("DELETE FROM promises WHERE table_key = ?", (table.key,))


@lru_cache(maxsize=1024)
def _location(warehouse: Path, stored: str) -> Path:
    return warehouse / stored


@lru_cache(maxsize=1024)
def _policy(text: str) -> MaintenancePolicy:
    return msgspec.json.decode(text, type=MaintenancePolicy)


def _column(value: Value) -> str | int | None:
    """The value as it is stored in a row of a table."""
    if isinstance(value, TableState):
        return value.value
    if isinstance(value, MaintenancePolicy):
        fields = msgspec.to_builtins(value)
        return msgspec.json.encode({**fields, "allowed": sorted(fields["allowed"])}).decode()
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode() if value else None
    return value


@lru_cache(maxsize=64)
def _current(row: tuple[str, str]) -> tuple[Protocol, Metadata]:
    return msgspec.json.decode(row[0], type=Protocol), msgspec.json.decode(row[1], type=Metadata)


def _attempt(row: Any) -> AttemptRecord:
    return AttemptRecord(landed=None if row[0] is None else _ratified(row), digest=row[3])


def _promise(row: Any) -> Promise:
    return msgspec.convert(dict(zip(Promise.__struct_fields__, row, strict=True)), Promise)


def _details(row: Any) -> tuple[RatifiedCommit, bytes, int | None]:
    return _stored(row), row[3], row[7]


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
