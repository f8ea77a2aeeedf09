"""DuckDB as a client of the Delta API, with a server's tables as `unity.default.NAME`.

`python -m spec_tests.engines.duckdb_client URL TABLE FIRST COUNT` is a process that writes rows with one INSERT each.
It starts when it reads a line. At the end it prints two counts of failed INSERTs: `refused`, whose row was missing, and
`landed`, whose row was in the table. After a failed INSERT the process looks for the row before it tries again, so it
writes every row once without transactions of its own.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

EXTENSIONS: Final = ("httpfs", "delta", "unity_catalog")
"""The extensions in the order in which they are loaded, from the packages `duckdb-extension-...` of PyPI."""
TRIES: Final = 200
QUIET: Final = {
    "allow_unsigned_extensions": "true",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


@contextmanager
def attached(url: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to the server; load everything else from installed packages.

    A connection reads a table's state once, and again only after a commit of its own. After a rejected commit it
    proposes the same version again and again, reads the old state, and can neither DETACH nor ATTACH. So a client needs
    a new connection after a lost race.
    """
    with duckdb.connect(config=QUIET) as connection:
        for name in EXTENSIONS:
            connection.execute(f"LOAD '{_extension(name)}'")
        connection.execute(f"CREATE SECRET (TYPE unity_catalog, TOKEN 'unused', ENDPOINT '{url}', AWS_REGION 'unused')")
        connection.execute("ATTACH 'unity' AS unity (TYPE unity_catalog, DEFAULT_SCHEMA 'default')")
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, table: str) -> list[tuple[Any, ...]]:
    """All rows, sorted."""
    return sorted(connection.execute(f"SELECT * FROM unity.default.{table}").fetchall())


def _extension(name: str) -> Path:
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert package is not None, f"pip install duckdb-extension-{name.replace('_', '-')}"
    assert package.origin is not None
    (extension,) = Path(package.origin).parent.rglob(f"{name}.duckdb_extension")
    return extension


def write(url: str, table: str, numbers: list[int]) -> tuple[int, int]:
    """Insert each number as a row. Returns the number of INSERTs that were refused, and of those that failed although
    they landed."""
    refused = landed = 0
    while numbers:
        with attached(url) as connection:
            if refused + landed and _there(connection, table, numbers[0]):
                refused, landed, numbers = refused - 1, landed + 1, numbers[1:]
            try:
                while numbers:
                    connection.execute(f"INSERT INTO unity.default.{table} VALUES ({numbers[0]}, 'duckdb')")
                    numbers = numbers[1:]
            except duckdb.TransactionException:
                refused += 1
        if refused > TRIES:
            raise TimeoutError(f"row {numbers[0]}: {refused} INSERTs were refused")
    return refused, landed


def _there(connection: duckdb.DuckDBPyConnection, table: str, number: int) -> bool:
    count = connection.execute(f"SELECT count(*) FROM unity.default.{table} WHERE id = {number}")
    return bool(count.fetchall() != [(0,)])


def main() -> None:
    url, table, first, count = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    refused, landed = write(url, table, [int(first) + number for number in range(int(count))])
    print(json.dumps({"refused": refused, "landed": landed}), flush=True)


if __name__ == "__main__":
    main()
