"""A commit owner on PostgreSQL to start from: staged commits, both table features, any number of processes.

    initdb -D data && pg_ctl -D data -w -o "-k /tmp -c listen_addresses=''" start
    DATABASE="host=/tmp dbname=postgres" delta-commit-conformance run "stdio:python postgres_owner.py"

It needs `pip install 'psycopg[binary]'`. The commit point is PostgreSQL's COMMIT, which returns when the transaction is
on the disk; with `synchronous_commit = off` a crash of the database would lose commits that the owner acknowledged.

Isolation: READ COMMITTED, PostgreSQL's default, and one row lock. Every decision about a table depends on that table
alone, and each transaction that decides first locks the table's row with FOR UPDATE. So decisions about one table come
one after the other, and decisions about two tables do not wait for each other. A statement of READ COMMITTED sees what
was committed before the statement began, so all that follows the lock sees the decisions before it. With REPEATABLE
READ or SERIALIZABLE the snapshot is older than the wait for the lock: the loser of a race fails with error 40001, and
the owner must run the transaction again. A creation has no row to lock: there the unique index on the names decides,
and the number of inserted rows says who won.
"""

import hashlib
import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

HOME = Path(os.environ.get("CONFORMANCE_DIRECTORY") or tempfile.mkdtemp())
SCHEMA = "owner_" + hashlib.sha256(str(HOME.resolve()).encode()).hexdigest()[:16]  # one for each folder of tables
STAGING = {"managedCommit": "_commits", "catalogManaged": "_staged_commits"}
Message = dict[str, Any]

# Two first processes may create the schema at the same time, which IF NOT EXISTS does not prevent: hence the lock.
TABLES = f"""
    SELECT pg_advisory_xact_lock(hashtext('{SCHEMA}'));
    CREATE SCHEMA IF NOT EXISTS {SCHEMA};
    SET search_path TO {SCHEMA};
    CREATE TABLE IF NOT EXISTS tables (id text PRIMARY KEY, name text NOT NULL, feature text NOT NULL,
        latest bigint NOT NULL DEFAULT 0, backfilled bigint NOT NULL DEFAULT 0, dropped boolean NOT NULL DEFAULT false);
    CREATE UNIQUE INDEX IF NOT EXISTS one_table_of_a_name ON tables (name) WHERE NOT dropped;
    CREATE TABLE IF NOT EXISTS commits (id text REFERENCES tables, version bigint, attempt text NOT NULL,
        PRIMARY KEY (id, version), UNIQUE (id, attempt));
    CREATE TABLE IF NOT EXISTS never (id text REFERENCES tables, attempt text, PRIMARY KEY (id, attempt));
"""
LOOK = "SELECT * FROM tables WHERE id = %s AND NOT dropped"
LOCK = LOOK + " FOR UPDATE"
CREATE = "INSERT INTO tables (id, name, feature) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
HOLDER = "SELECT * FROM tables WHERE name = %s AND NOT dropped"
LANDED = "SELECT version FROM commits WHERE id = %s AND attempt = %s"
NEVER = "SELECT FROM never WHERE id = %s AND attempt = %s"
RATIFY = "INSERT INTO commits (id, version, attempt) VALUES (%s, %s, %s)"
MOVE = "UPDATE tables SET latest = %s, backfilled = %s WHERE id = %s"
RESOLVE = "INSERT INTO never (id, attempt) VALUES (%s, %s) ON CONFLICT DO NOTHING"
LIST = "SELECT version, attempt FROM commits WHERE id = %s AND version BETWEEN %s AND %s ORDER BY version"
DROP = "UPDATE tables SET dropped = true WHERE id = %s"


class Owner:
    def __init__(self) -> None:
        self.database = psycopg.connect(os.environ.get("DATABASE", ""), autocommit=True, row_factory=dict_row)
        with self.database.transaction():
            self.database.execute(TABLES)

    def answer(self, request: Message) -> Message:
        operation = getattr(self, f"do_{request['op']}", None)
        if operation is None:
            return {"outcome": "unsupported", "reason": request["op"]}
        try:
            if self.database.closed:
                self.__init__()  # type: ignore[misc]
            with self.database.transaction():  # COMMIT comes before the answer; an exception rolls it back
                if "table" not in request:
                    return operation(request)  # type: ignore[no-any-return]
                reading = request["op"] in ("get_commits", "observe")
                table = self.sql(LOOK if reading else LOCK, request["table"]).fetchone()
                return operation(request, table) if table else {"outcome": "not_found"}
        except FileExistsError as error:
            return {"outcome": "rejected", "reason": str(error)}
        except psycopg.OperationalError as error:  # also during COMMIT: then the transaction may have landed
            self.database.close()
            return {"outcome": "unknown", "reason": str(error)}

    def sql(self, statement: str, *values: object) -> "psycopg.Cursor[DictRow]":
        return self.database.execute(statement, values)

    def do_hello(self, request: Message) -> Message:
        return {
            "outcome": "identity", "name": "example-postgres", "version": "1", "interface_version": 1, "side": "owner",
            "profiles": ["core", "version-0-by-owner", "staged", "idempotent-retry", "attempt-outcome", "discovery",
                         "durable-restart"],
            "commit_modes": {"managedCommit": ["staged"], "catalogManaged": ["staged"]}, "shared_state": True,
        }  # fmt: skip

    def do_create_table(self, request: Message) -> Message:
        table, name, feature = request["attempt"], request["name"], request["feature"]
        if feature not in STAGING or request["commit_mode"] != "staged":
            return {"outcome": "unsupported", "reason": "staged commits only"}
        if self.sql(CREATE, table, name, feature).rowcount == 1:  # ON CONFLICT waited for other creators of the name
            actions = [with_owner(json.loads(action)) for action in request["actions"]]
            put_if_absent(log_of(table) / f"{0:020}.json", "".join(json.dumps(action) + "\n" for action in actions))
            self.sql(RATIFY, table, 0, table)
        elif not self.sql(LANDED, table, table).fetchone():  # otherwise the answer was lost, and the client asks again
            if not (holder := self.sql(HOLDER, name).fetchone()):  # it was dropped between the two statements
                return {"outcome": "rejected", "reason": f"the table {name} was just dropped; ask again"}
            return {"outcome": "conflict", "latest": holder["latest"], "winner_table": holder["id"]}
        return {"outcome": "ratified", "version": 0, "table": table}

    def do_commit(self, request: Message, table: DictRow) -> Message:
        version, attempt, latest = request["version"], request["attempt"], table["latest"]
        landed = self.sql(LANDED, table["id"], attempt).fetchone()
        if landed is not None:
            same = landed["version"] == version
            return {"outcome": "ratified", "version": version} if same else {"outcome": "rejected"}
        if "actions" not in request or self.sql(NEVER, table["id"], attempt).fetchone() is not None:
            return {"outcome": "rejected", "reason": "without actions, or resolved as not landed"}
        if version > latest + 1:
            return {"outcome": "gap", "latest": latest}
        if version <= latest:
            return {"outcome": "conflict", "latest": latest, "winners": self.entries(table, version, latest)}
        put_if_absent(file_of(table, version, attempt), "".join(f"{action}\n" for action in request["actions"]))
        self.sql(RATIFY, table["id"], version, attempt)
        self.sql(MOVE, version, table["backfilled"], table["id"])
        return {"outcome": "ratified", "version": version}

    def do_attempt_outcome(self, request: Message, table: DictRow) -> Message:
        landed = self.sql(LANDED, table["id"], request["attempt"]).fetchone()
        if landed is not None:
            return {"outcome": "landed", "version": landed["version"]}
        self.sql(RESOLVE, table["id"], request["attempt"])
        return {"outcome": "not_landed"}

    def do_get_commits(self, request: Message, table: DictRow) -> Message:
        first, last, latest = request.get("start"), request.get("end"), table["latest"]  # commits never change: no lock
        commits = self.entries(table, first or 0, latest if last is None else min(last, latest))
        return {"outcome": "commits", "commits": commits, "latest": latest}

    def entries(self, table: DictRow, first: int, last: int) -> list[Message]:
        rows = self.sql(LIST, table["id"], max(first, table["backfilled"] + 1), last)
        return [{"version": row["version"], "file_name": file_of(table, **row).name} for row in rows]

    def do_backfill_to_version(self, request: Message, table: DictRow) -> Message:
        last = min(request["version"], table["latest"])
        for row in self.sql(LIST, table["id"], table["backfilled"] + 1, last):
            put_if_absent(log_of(table["id"]) / f"{row['version']:020}.json", file_of(table, **row).read_text())
        self.sql(MOVE, table["latest"], max(last, table["backfilled"]), table["id"])
        return {"outcome": "done"}

    def do_load_table(self, request: Message) -> Message:
        path, name = request.get("path"), request.get("name")
        table = self.sql(LOOK, Path(path).name).fetchone() if path else self.sql(HOLDER, name).fetchone()
        location = str(log_of(table["id"]).parent) if table else ""
        if table is None or path not in (None, location):
            return {"outcome": "not_found"}
        return {"outcome": "table", "table": table["id"], "feature": table["feature"], "commit_mode": "staged",
                "latest": table["latest"], "location": location, "commits": self.entries(table, 0, table["latest"]),
                "protocol": self.newest(table, "protocol"), "metadata": self.newest(table, "metaData")}  # fmt: skip

    def newest(self, table: DictRow, kind: str) -> str | None:
        """The latest action of a kind. Searches from the newest version back."""
        rows = self.sql(LIST, table["id"], 0, table["latest"]).fetchall()[::-1]
        actions = (action for row in rows for action in file_of(table, **row).read_text().strip().split("\n"))
        return next((action for action in actions if kind in json.loads(action)), None)

    def do_drop_table(self, request: Message, table: DictRow) -> Message:
        self.sql(DROP, table["id"])
        return {"outcome": "done"}

    def do_observe(self, request: Message, table: DictRow) -> Message:
        files, log = [], log_of(table["id"])
        for path in sorted(path for path in log.rglob("*.json") if path.is_file()):
            text, status = path.read_text(), path.stat()
            files.append({"name": path.relative_to(log).as_posix(), "size": status.st_size, "content": text,
                          "modified": status.st_mtime_ns // 1_000_000})  # fmt: skip
        return {"outcome": "observation", "files": files}


def log_of(table: str) -> Path:
    return HOME / "tables" / table / "_delta_log"


def file_of(table: DictRow, version: int, attempt: str) -> Path:
    """The file of an unpublished commit. Version 0 is published at once."""
    staged = log_of(table["id"]) / STAGING[table["feature"]] / f"{version:020}.{attempt}.json"
    return staged if version else log_of(table["id"]) / f"{0:020}.json"


def with_owner(action: Message) -> Message:
    """Write the owner's name into the table's properties, as managed-commits requires."""
    if "metaData" in action:
        action["metaData"]["configuration"]["delta.managedCommit.commitOwner"] = "example-postgres"
    return action


def put_if_absent(path: Path, text: str) -> None:
    """Write a durable file atomically. Raises `FileExistsError` if the file exists with another content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{uuid.uuid4()}.tmp")  # another process may write the same file
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)  # fails if the file exists
    except FileExistsError:
        if path.read_text() != text:
            raise FileExistsError(f"{path.name} exists with another content") from None
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    owner = Owner()
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps({"id": call["id"], "answer": owner.answer(call["request"])}), flush=True)
