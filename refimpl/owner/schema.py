"""The ledger's tables, as the list of migrations that make them.

A ledger says its version in `user_version`. Opening an older one runs what is missing, in one
transaction; a newer one is refused.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x44434F31  # "DCO1", so that `file` and strangers can tell what it is

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
        halted TEXT,                     -- why commits are refused
        created_at INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX live_name ON tables(name) WHERE state IN ('taking-over', 'active');
    CREATE UNIQUE INDEX live_location ON tables(location) WHERE state IN ('staging', 'taking-over', 'active');

    -- Every ratified commit, for ever: a replay is recognised however old it is, and the last
    -- row of a table is its latest version.
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

    -- Attempts that were resolved as not landed, for ever.
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
    -- Attempts that lost a race, for people who ask why a version is what it is.
    CREATE TABLE lost(
        table_key INTEGER NOT NULL REFERENCES tables,
        version INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        lost_at INTEGER NOT NULL,
        PRIMARY KEY (table_key, version, attempt)
    ) WITHOUT ROWID;
    """,
    """
    -- Properties that a catalog was told and the log does not have: a JSON map of strings. Whatever else a catalog
    -- tells of a table is in its protocol and metadata above.
    ALTER TABLE tables ADD COLUMN catalog_properties TEXT;
    """,
)

SCHEMA_VERSION: Final = len(MIGRATIONS)
