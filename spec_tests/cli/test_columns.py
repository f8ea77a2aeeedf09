"""Columns in Spark's SQL become a Delta schema, or a clear refusal."""

from __future__ import annotations

import pytest

from refimpl.cli.columns import of_sql
from refimpl.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("BIGINT", "long"),
        ("LONG", "long"),
        ("INT", "integer"),
        ("INTEGER", "integer"),
        ("SMALLINT", "short"),
        ("TINYINT", "byte"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("STRING", "string"),
        ("BINARY", "binary"),
        ("BOOLEAN", "boolean"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("DECIMAL", "decimal(10,0)"),
        ("DECIMAL(12)", "decimal(12,0)"),
        ("DECIMAL(38, 18)", "decimal(38,18)"),
        ("ARRAY<INT>", "array<integer>"),
        ("MAP<STRING, ARRAY<DATE>>", "map<string,array<date>>"),
        ("STRUCT<a: INT, b: STRUCT<c: STRING>>", "struct<a:integer,b:struct<c:string>>"),
    ],
)
def test_each_type_of_spark_is_the_type_of_delta(sql: str, kind: str) -> None:
    (column,) = of_sql(f"c {sql}").fields
    assert (column.name, str(column.type), column.nullable) == ("c", kind, True)


def test_not_null_and_quoted_names_are_kept() -> None:
    schema = of_sql("`a b` INT NOT NULL, c INT NULL")
    assert [(column.name, column.nullable) for column in schema.fields] == [("a b", False), ("c", True)]


@pytest.mark.parametrize(
    "columns",
    [
        "",
        "id",
        "id INT,",
        "id INT PRIMARY KEY",
        "id INT); DROP TABLE t; --",
        "id SOMETHING",
        "id VARCHAR(10)",
        "id DECIMAL(99,1)",
        "c INTERVAL",
        "(",
    ],
)
def test_what_is_no_list_of_columns_is_refused(columns: str) -> None:
    with pytest.raises(InvalidRequestError):
        of_sql(columns)
