"""Make the tables in `fixtures/delta_spark`: Delta Spark writes them through our owner, and tests read them with our
client.

    python -m spec_tests.engines.make_fixtures [NAME ...]

Each folder holds a table as Delta left it, and `expected.json` with what Delta itself read there: the operation, time
and rows of each version. Needs Java and, once, Maven; the catalog-managed table also needs `javac`.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import refimpl
from conformance.adapters.jvm import jars
from refimpl.protocol.table_feature import COORDINATED_COMMITS
from refimpl.spark import coordinator, local_session
from spec_tests.engines.prerequisites import TINY, catalog_session, compile_catalog, delta_settings, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = Path(__file__).resolve().parents[2] / "fixtures" / "delta_spark"
EXPECTED: Final = "expected.json"
COLUMNS: Final = "id BIGINT, name STRING, day DATE"
NO_VECTORS: Final = "'delta.enableDeletionVectors' = 'false'"
OFTEN: Final = "'delta.checkpointInterval' = '4'"

WORK: Final = (
    "INSERT INTO {t} VALUES (1, 'one', DATE'2026-01-01'), (2, 'two', DATE'2026-01-02')",
    "INSERT INTO {t} VALUES (3, NULL, DATE'2026-01-02'), (4, 'vier & ünf/100%', NULL)",
    "UPDATE {t} SET name = 'TWO' WHERE id = 2",
    "DELETE FROM {t} WHERE id = 1",
    "MERGE INTO {t} t USING (SELECT 3 AS id, 'three' AS name UNION ALL SELECT 5, 'five') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name, day) "
    "VALUES (s.id, s.name, DATE'2026-01-03')",
    "ALTER TABLE {t} ADD COLUMN price DOUBLE",
    "INSERT INTO {t} VALUES (6, 'six', DATE'2026-01-03', 0.5)",
)


_NESTED: Final = "s STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>, m MAP<STRING, STRUCT<x: INT>>"
_MAPPED: Final = (
    "INSERT INTO {t} VALUES (1, 'one', DATE'2026-01-01', struct(1, array(struct('x'))), map('k', struct(1))), "
    "(2, NULL, NULL, NULL, NULL)",
    "ALTER TABLE {t} RENAME COLUMN name TO `full name`",
    "ALTER TABLE {t} RENAME COLUMN s.a TO z",
    "ALTER TABLE {t} RENAME COLUMN day TO date",
    "INSERT INTO {t} VALUES (3, 'three', DATE'2026-01-02', struct(3, array(struct('y'))), map('k', struct(3)))",
    "ALTER TABLE {t} DROP COLUMN `full name`",
    "ALTER TABLE {t} ADD COLUMN name STRING",
    "UPDATE {t} SET name = 'zwei' WHERE id = 2",
)
"""A column is renamed, dropped, and added again under its old name."""

_WIDENED: Final = {
    "a": "INT",
    "b": "DOUBLE",
    "c": "DECIMAL(8,4)",
    "d": "TIMESTAMP_NTZ",
    "s.x": "BIGINT",
    "l.element": "BIGINT",
    "n": "DECIMAL(12,2)",
}
FEATURES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    **{
        f"mapping_{mode}": (
            f"id BIGINT, name STRING, day DATE, {_NESTED}",
            f"PARTITIONED BY (day) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', {OFTEN}, {NO_VECTORS})",
            _MAPPED,
        )
        for mode in ("name", "id")
    },
    "mapping_upgraded": (
        "id BIGINT, name STRING, day DATE",
        f"PARTITIONED BY (day) TBLPROPERTIES ({NO_VECTORS})",
        (
            "INSERT INTO {t} VALUES (1, 'one', DATE'2026-01-01')",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
            "'delta.minWriterVersion' = '5')",
            "ALTER TABLE {t} RENAME COLUMN name TO title",
            "ALTER TABLE {t} ADD COLUMN name STRING",
            "INSERT INTO {t} VALUES (2, 'zwei', DATE'2026-01-02', 'two')",
        ),
    ),
    "mapping_vectors": (
        "id BIGINT, name STRING",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')",
        (
            "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, cast(id AS STRING) FROM range(6)",
            "DELETE FROM {t} WHERE id IN (1, 5)",
        ),
    ),
    "type_widening": (
        "id BIGINT, a TINYINT, b FLOAT, c DECIMAL(5,2), d DATE, s STRUCT<x: INT>, l ARRAY<INT>, n INT",
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported', "
        f"{NO_VECTORS})",
        (
            "INSERT INTO {t} VALUES (1, 1, 0.1, 1.25, DATE'2026-01-01', struct(1), array(1, 2), 7)",
            *(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {kind}" for name, kind in _WIDENED.items()),
            "INSERT INTO {t} VALUES (2, 100000, 0.1, 1.2345, TIMESTAMP_NTZ'2026-01-01 12:00:00', "
            "struct(10000000000), array(10000000000), 7.25)",
        ),
    ),
    "row_tracking": (
        "id BIGINT, name STRING",
        f"TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.checkpointInterval' = '3', {NO_VECTORS})",
        (
            "INSERT INTO {t} VALUES (1, 'one'), (2, 'two')",
            "UPDATE {t} SET name = 'zwei' WHERE id = 2",
            "INSERT INTO {t} VALUES (3, 'three')",
            "OPTIMIZE {t}",
        ),
    ),
    "clustered": (
        "id BIGINT, name STRING",
        f"CLUSTER BY (id) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', {NO_VECTORS})",
        ("INSERT INTO {t} VALUES (1, 'one')", "INSERT INTO {t} VALUES (2, 'two')", "OPTIMIZE {t}"),
    ),
    "column_rules": (
        "id BIGINT NOT NULL, number BIGINT GENERATED ALWAYS AS IDENTITY, twice BIGINT GENERATED ALWAYS AS (id * 2), "
        "name STRING DEFAULT 'x'",
        f"TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', {NO_VECTORS})",
        ("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)", "INSERT INTO {t} (id) VALUES (1), (2)"),
    ),
    "v2_checkpoint": (
        "id BIGINT, name STRING",
        "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', "
        "'delta.columnMapping.mode' = 'id', 'delta.checkpoint.writeStatsAsStruct' = 'true', "
        f"'delta.checkpoint.writeStatsAsJson' = 'false', {NO_VECTORS})",
        (
            "INSERT INTO {t} VALUES (1, 'one')",
            "INSERT INTO {t} VALUES (2, 'two')",
            "INSERT INTO {t} VALUES (3, 'three')",
        ),
    ),
}
"""One table without an owner for each feature: its columns, the rest of CREATE TABLE, and statements."""


class Maker:
    """Makes the tables in one warehouse. Spark knows each table by its name."""

    def __init__(self, spark: "SparkSession", warehouse: refimpl.Warehouse, wanted: Sequence[str]) -> None:
        self.spark = spark
        self.warehouse = warehouse
        self.wanted = wanted
        """The names of the tables to make; empty for all."""

    def make(self, name: str, create: str, statements: tuple[str, ...], *, prefix: str = "") -> None:
        if self.wanted and name not in self.wanted:
            return
        table = f"{prefix}{name}"
        for statement in (create, *statements):
            self.spark.sql(statement.replace("{t}", table).replace("{location}", str(self.warehouse.directory / name)))
        self._keep(name, table)

    def _keep(self, name: str, table: str) -> None:
        location = self.warehouse.owner.resolve(name).location if table != name else self.warehouse.directory / name
        target = FOLDER / name
        shutil.rmtree(target, ignore_errors=True)
        # Hadoop's checksums, and staged files that lost, are not part of the table.
        shutil.copytree(location, target, ignore=shutil.ignore_patterns(".*.crc", "_SUCCESS"))
        (target / EXPECTED).write_text(json.dumps(self._read(table), indent=1, ensure_ascii=False) + "\n")

    def _read(self, table: str) -> list[dict[str, Any]]:
        """What Delta reads of every version, oldest first."""
        versions = []
        history = self.spark.sql(f"DESCRIBE HISTORY {table}").collect()
        for entry in sorted(history, key=lambda row: row.version):
            rows = self.spark.sql(f"SELECT * FROM {table} VERSION AS OF {entry.version}").collect()
            versions.append(
                {
                    "version": entry.version,
                    "operation": entry.operation,
                    "timestamp": round(entry.timestamp.timestamp() * 1000),
                    "rows": sorted(({k: _plain(v) for k, v in row.asDict().items()} for row in rows), key=_by_id),
                }
            )
        return versions


def _by_id(row: dict[str, Any]) -> int:
    number: int = row["id"]
    return number


def _plain(value: Any) -> Any:
    """The value as in JSON: text for types that JSON lacks, and lists of pairs for maps."""
    if hasattr(value, "asDict"):  # a struct
        return {key: _plain(member) for key, member in value.asDict().items()}
    if isinstance(value, dict):
        return [[key, _plain(member)] for key, member in value.items()]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a table to make (default: all)")
    wanted = parser.parse_args().names
    jars.fetch()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory, classes = Path(name) / "warehouse", Path(name) / "classes"
        classes.mkdir()
        warehouse = stack.enter_context(refimpl.open(directory, create=True))
        settings = {**delta_settings(classes), **TINY, "spark.sql.session.timeZone": "UTC"}
        spark = local_session(cores=2, shuffle_partitions=1, settings=settings)
        stack.callback(spark.stop)
        properties = coordinator.register(spark, warehouse)
        owned = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        create = (
            f"CREATE TABLE {{t}} ({COLUMNS}) USING delta PARTITIONED BY (day) LOCATION '{{location}}' TBLPROPERTIES "
        )
        maker = Maker(spark, warehouse, wanted)
        maker.make("coordinated", f"{create} ({OFTEN}, {NO_VECTORS}, {owned})", (*WORK, "OPTIMIZE {t}"))
        upgrade = f"ALTER TABLE {{t}} SET TBLPROPERTIES ({owned})"
        back = f"ALTER TABLE {{t}} DROP FEATURE `{COORDINATED_COMMITS.name}`"
        there_and_back = (WORK[0], upgrade, WORK[1], WORK[2], back, WORK[3])
        maker.make("there_and_back", f"{create} ({NO_VECTORS})", there_and_back)
        vectors = f"{create} ('delta.enableDeletionVectors' = 'true', {owned})"
        several = ", ".join(f"({number}, 'x', DATE'2026-01-01')" for number in range(1, 7))  # in one file
        maker.make("deletion_vectors", vectors, (f"INSERT INTO {{t}} VALUES {several}", "DELETE FROM {t} WHERE id = 1"))
        for name, (columns, rest, statements) in FEATURES.items():
            maker.make(name, f"CREATE TABLE {{t}} ({columns}) USING delta {rest} LOCATION '{{location}}'", statements)
        compile_catalog(classes)
        session = catalog_session(spark, stack.enter_context(served(directory)))
        managed = f"CREATE TABLE {{t}} ({COLUMNS}) USING delta PARTITIONED BY (day) TBLPROPERTIES "
        managed += f"('delta.feature.catalogManaged' = 'supported', {NO_VECTORS}, {OFTEN})"
        Maker(session, warehouse, wanted).make("catalog_managed", managed, WORK, prefix="unity.default.")


if __name__ == "__main__":
    main()
