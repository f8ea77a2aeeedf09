"""`engine:duckdb`: DuckDB with its extensions `httpfs`, `delta` and `unity_catalog`, from wheels.

Through a catalog it can SELECT from the newest version, INSERT, and write a checkpoint of the newest version. A
simulated client that writes keeps one connection for each table, and reads over it too. Other snapshots are read over a
new connection, because a connection keeps reading the same version. DuckDB does not tell which file holds a row, which
name it gives to a new file, or which version it has read. So:

- Each data file of the kit has one row, whose `id` comes from the file's name. A snapshot lists the files of its rows.
- A transaction is one INSERT of such rows, and becomes one data file with all of them.
- The version of a snapshot is the latest version in the owner's last answer to this connection's request for the table.

DuckDB creates no table: its extension answers CREATE TABLE in a Unity Catalog with `Not implemented Error:
UCTableSet::CreateTable`.

What DuckDB 1.5.5 does by itself, as seen on the wire (source of the extension `unity_catalog`:
https://github.com/duckdb/unity_catalog):

- A connection lists the tables of a schema once. It loads a table once, and again only after a commit of its own.
- It sends a request without an answer up to four times, and does not retry after a 409.
- Before a commit it publishes the commits that the owner listed, and reports them in the request.
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from conformance.adapters.engines.engine import WheelClient, unsupported
from conformance.adapters.in_process import answering
from conformance.adapters.uc.server import CATALOG, SCHEMA
from conformance.interface import messages as m
from conformance.interface.subject import Ask

EXTENSIONS: Final = ("httpfs", "delta", "unity_catalog")
"""The extensions, in the order in which they are loaded."""
_OFFLINE: Final = {
    "allow_unsigned_extensions": "true",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class DuckDb(WheelClient):
    engine: ClassVar[str] = "duckdb"
    title: ClassVar[str] = "DuckDB"
    wheels: ClassVar[tuple[str, ...]] = (
        "duckdb", "duckdb-extension-httpfs", "duckdb-extension-delta", "duckdb-extension-unity-catalog"
    )  # fmt: skip
    """From 1.5.5: earlier extensions speak a preview of the Delta API (1.5.4), or read no commits of a catalog."""
    limits: ClassVar[dict[str, int]] = {"proposals": 1}
    reads_data: ClassVar[bool] = True
    profiles: ClassVar[tuple[str, ...]] = ("core", "staged", "backlog-limit", "discovery", "uc-delta-api")

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        self._writers: set[tuple[str, str]] = set()

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """DuckDB's error as an answer. Only the text of the error contains the status of the server's answer."""
        import duckdb

        try:
            return ask()
        except duckdb.Error as error:
            text = re.sub(r"http://127\.0\.0\.1:\d+", "OWNER", str(error))
            if "(HTTP 409)" in text:
                return m.Conflict()
            if "(HTTP 404)" in text or "does not exist" in text:
                return m.NotFound()
            if "(HTTP 4" in text:
                return m.Rejected(reason=_first_line(text), retryable="(HTTP 429)" in text)
            if "Request to" in text or "HTTP" in text:
                return m.Unknown(reason=_first_line(text))
            return m.Rejected(reason=f"{type(error).__name__}: {_first_line(text)}")

    @answering
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        if request.version is not None or request.timestamp is not None:
            return m.Unsupported(reason="DuckDB reads only the newest version of a catalog's table")
        if request.path is not None:
            return self._by_path(client, request.path)
        return self._by_name(client, request.table or "")

    def _by_name(self, client: str, table: str) -> m.Answer:
        files = self._rows(client, table, _quoted(table))
        version = self.newest_named(client, table)
        if version is None:
            return m.Unsupported(reason="neither the owner nor DuckDB names the version that was read")
        return m.SnapshotRead(version=version, files=files)

    def _by_path(self, client: str, path: str) -> m.Answer:
        """The snapshot of a table that DuckDB reads without a catalog. Its version is the newest published one."""
        self.files.write_missing(Path(path))
        quoted = path.replace("'", "''")
        files = self._rows(client, "", f"delta_scan('{quoted}')")
        return m.SnapshotRead(version=self.files.newest_published(Path(path)), files=files)

    @answering
    def transact(self, client: str, request: m.Transact) -> m.Answer:
        refused = unsupported(request, "adds", "isolation")
        if refused is not None or not request.adds:
            return refused or m.Unsupported(reason="DuckDB can only commit rows")
        values = [value for add in request.adds for value in (self.files.number(add.path), add.partition)]
        rows = ", ".join(["(?, ?)"] * len(request.adds))
        self.begin()
        sql = f"INSERT INTO {_quoted(request.table)} VALUES {rows}"
        self._connection(client, request.table).execute(sql, values)
        if self.landed is None:
            return m.Unknown(reason="DuckDB reported success, but the owner ratified no commit")
        return m.Committed(version=self.landed)

    @answering
    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        if not request.any_version:
            return m.Unsupported(reason="DuckDB writes checkpoints only of the newest version")
        call = "CALL unity_catalog_checkpoint_table(?)"
        self._connection(client, request.table).execute(call, [_quoted(request.table)])
        return m.Done()

    def _connection(self, client: str, table: str) -> Any:
        """The connection of this client for this table."""
        self.server.api.show(table)
        self._writers.add((client, table))
        return self.connection(f"{client}\n{table}")

    def _rows(self, client: str, table: str, source: str) -> tuple[str, ...]:
        """The files whose rows the source holds."""
        self.server.api.show(table)
        kept = (client, table) in self._writers
        connection = self._connection(client, table) if kept else self.connect(client)
        try:
            rows = connection.execute(f"SELECT id FROM {source}").fetchall()
        finally:
            if not kept:
                connection.close()
        return self.files.names(number for (number,) in rows)

    def connect(self, client: str) -> Any:
        import duckdb

        connection = duckdb.connect(config=_OFFLINE)
        for name in EXTENSIONS:
            connection.execute(f"LOAD '{_extension(name)}'")
        token = client.partition("\n")[0].replace("'", "''")
        connection.execute(
            f"CREATE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{self.url}', AWS_REGION 'unused')"
        )
        connection.execute(f"ATTACH '{CATALOG}' AS {CATALOG} (TYPE unity_catalog, DEFAULT_SCHEMA '{SCHEMA}')")
        return connection


def _first_line(text: str) -> str:
    """The first line of the message, without the stack of an internal error."""
    return text.partition("\n")[0]


def _quoted(table: str) -> str:
    name = table.replace('"', '""')
    return f'{CATALOG}.{SCHEMA}."{name}"'


def _extension(name: str) -> Path:
    package = find_spec(f"duckdb_extension_{name}")
    assert package is not None
    assert package.origin is not None
    (extension,) = Path(package.origin).parent.rglob(f"{name}.duckdb_extension")
    return extension
