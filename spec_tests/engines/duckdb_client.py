"""DuckDB as a client of the Delta API, with a server's tables as `unity.default.NAME`."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

EXTENSIONS: Final = ("httpfs", "delta", "unity_catalog")
"""The extensions in the order in which they are loaded, from the packages `duckdb-extension-...` of PyPI."""
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
