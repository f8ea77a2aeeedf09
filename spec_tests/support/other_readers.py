"""Other implementations: the rows of a table as DuckDB and delta-rs read them, and DuckDB as a client of the Delta
API, with a server's tables as `unity.default.NAME`.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import pyarrow as pa

from refimpl.protocol.commits import RatifiedCommit
from refimpl.protocol.log_path import LOG_FOLDER

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


Rows = list[tuple[Any, ...]]


def by_delta_rs(location: Path, columns: Sequence[str] = ("id", "month"), version: int | None = None) -> Rows:
    """All rows, sorted, of the newest published version, or of `version`. Uses SQL, because the pyarrow reader supports
    fewer features."""
    query = f"SELECT {', '.join(columns)} FROM found"
    table = deltalake.DeltaTable(str(location), version=version)
    rows = pa.table(deltalake.QueryBuilder().register("found", table).execute(query))
    return _in_order(rows)


def by_duckdb(
    location: Path,
    columns: Sequence[str] = ("id", "month"),
    *,
    staging_folder: str | None = None,
    version: int | None = None,
    latest: int | None = None,
    commits: Sequence[RatifiedCommit] = (),
) -> Rows:
    """All rows, sorted, of the newest version or of `version`. `latest` and `commits`: the answer of the owner of a
    catalog-managed table, without inline commits."""
    package = importlib.util.find_spec("duckdb_extension_delta")
    assert package is not None
    assert package.origin is not None
    (extension,) = Path(package.origin).parent.rglob("delta.duckdb_extension")
    options = ["TYPE delta"] if version is None else ["TYPE delta", f"VERSION {version}"]
    if latest is not None:
        options.append(f"max_catalog_version {latest}")
    if commits:
        tail = ", ".join(_tail_entry(location, staging_folder or "", commit) for commit in reversed(commits))
        options.append(f"log_tail [{tail}]")
    with duckdb.connect(
        config={
            "allow_unsigned_extensions": "true",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    ) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '{location}' AS found ({', '.join(options)})")
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM found").to_arrow_table()
        return _in_order(rows)


def _in_order(unsorted: pa.Table) -> Rows:
    rows = [tuple(row.values()) for row in unsorted.to_pylist()]
    try:
        return sorted(rows)
    except TypeError:  # nulls and structs have no order
        return sorted(rows, key=repr)


def _tail_entry(location: Path, staging_folder: str, commit: RatifiedCommit) -> str:
    path = location / LOG_FOLDER / staging_folder / str(commit.file_name)
    return (
        f"{{file_name: 'file://{path}', timestamp: {commit.in_commit_timestamp}::BIGINT, "
        f"file_size: {commit.size}::UBIGINT}}"
    )
