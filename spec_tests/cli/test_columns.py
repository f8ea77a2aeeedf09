"""Columns in Spark's SQL become a Delta schema, or a clear refusal."""

from __future__ import annotations

import pytest

from refimpl.cli.options import columns_of_sql
from refimpl.client.schema import Struct
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
        ("boolean", "boolean"),
        ("REAL", "float"),
        ("NUMERIC(4, 2)", "decimal(4,2)"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("STRUCT<text: INT, blob: ARRAY<STRING>>", "struct<text:integer,blob:array<string>>"),
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
    (column,) = columns_of_sql(f"c {sql}").fields
    assert (column.name, str(column.type), column.nullable) == ("c", kind, True)


def test_not_null_and_quoted_names_are_kept() -> None:
    schema = columns_of_sql("`a b` INT NOT NULL, c INT NULL")
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
        "c STRUCT<a: INT COMMENT 'x'>",
        "(",
    ],
)
def test_an_invalid_list_of_columns_is_rejected(columns: str) -> None:
    with pytest.raises(InvalidRequestError):
        columns_of_sql(columns)


def test_not_null_of_the_members_of_a_struct_is_kept() -> None:
    (column,) = columns_of_sql("s STRUCT<a: INT NOT NULL, b: STRING, c: STRUCT<`d e`: DATE NOT NULL>>").fields
    assert isinstance(column.type, Struct)
    first, second, third = column.type.fields
    assert (column.nullable, first.nullable, second.nullable, third.nullable) == (True, False, True, True)
    assert isinstance(third.type, Struct)
    assert not third.type["d e"].nullable


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("BLOB", "BLOB"),
        ("text NOT NULL", "text"),
        ("BYTEA", "BYTEA"),
        ("VARCHAR", "VARCHAR"),
        ("INT8", "INT8"),
        ("BOOL", "BOOL"),
        ("LIST<INT>", "LIST"),
        ("INT[]", "ARRAY<INT>"),
        ("DOUBLE PRECISION", "PRECISION"),
        ("TIMESTAMP WITH TIME ZONE", "ZONE"),
        ("MAP<TEXT, INT>", "TEXT"),
        ("STRUCT<a: BLOB>", "BLOB"),
    ],
)
def test_a_type_that_only_other_systems_have_is_refused_by_its_name(kind: str, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        columns_of_sql(f"`first` INT, blob {kind}, text STRING")
    assert columns_of_sql("`first` INT, blob BINARY, text STRING").names == ("first", "blob", "text")
