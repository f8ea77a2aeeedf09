"""The columns of a new table, as people write them: SQL types, or a file that has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.cli.file_formats import PARQUET, format_of
from refimpl.errors import InvalidRequestError

if TYPE_CHECKING:
    from refimpl.client.schema import DataType, Field, Struct

_PRIMITIVES = {
    "BIGINT": "long",
    "INT": "integer",
    "SMALLINT": "short",
    "TINYINT": "byte",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}
"""sqlglot's names of Spark's types, and Delta's."""

_WORDS = (
    "BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC STRING BINARY "
    "DATE TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ ARRAY MAP STRUCT"
)
"""What Spark calls its types. sqlglot knows the words of other systems, too: to it BLOB is a type, INT8 a byte."""


def of_sql(columns: str) -> Struct:
    """`id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>`: Spark's spelling.

    Raises `InvalidRequestError` for anything that is not a list of columns with types.
    """
    import sqlglot
    from sqlglot import expressions as sql
    from sqlglot.errors import SqlglotError

    from refimpl.client.schema import Struct

    wrong = f"invalid column list {columns!r}; expected for example: id BIGINT NOT NULL, name STRING"
    try:
        statement = sqlglot.parse_one(f"CREATE TABLE t ({columns})", dialect="spark")
    except SqlglotError:
        raise InvalidRequestError(wrong) from None
    definitions = statement.this.expressions if isinstance(statement.this, sql.Schema) else []
    fields: list[Field] = []
    for definition in definitions:
        if not isinstance(definition, sql.ColumnDef) or definition.args.get("kind") is None:
            raise InvalidRequestError(wrong)
        fields.append(_field(definition))
    if not fields or columns.rstrip().endswith(","):
        raise InvalidRequestError(wrong)
    _check_words(columns)
    return Struct(fields=tuple(fields))


def _check_words(columns: str) -> None:
    """Refuse types that Spark's SQL does not have. A type is a word that no other word and no colon follows."""
    import sqlglot
    from sqlglot.tokens import TokenType

    tokens = sqlglot.tokenize(columns, dialect="spark")
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type is TokenType.L_BRACKET:
            raise InvalidRequestError("brackets are not supported in types; write ARRAY<INT>")
        if token.token_type is TokenType.IDENTIFIER or not token.text[0].isalpha():
            continue
        named = following is not None and (
            following.token_type in (TokenType.COLON, TokenType.IDENTIFIER) or following.text[0].isalpha()
        )
        closing = following is not None and following.text.upper() in ("NOT", "NULL")
        word = token.text.upper()
        if (not named or closing) and word not in ("NOT", "NULL") and word not in _WORDS.split():
            raise InvalidRequestError(
                f"unknown type {token.text!r}; expected a Spark SQL type: {', '.join(_WORDS.split())}"
            )


def _field(definition: Any) -> Field:
    """A column, or a member of a struct."""
    from sqlglot import expressions as sql

    from refimpl.client.schema import Field

    demands = [constraint.kind for constraint in definition.args.get("constraints") or ()]
    unknown = [kind for kind in demands if not isinstance(kind, sql.NotNullColumnConstraint)]
    if unknown:
        raise InvalidRequestError(f"column {definition.name}: {unknown[0].sql()} is not supported; only NOT NULL is")
    nullable = all(kind.args.get("allow_null") for kind in demands)
    return Field(name=definition.name, type=_type(definition.args["kind"]), nullable=nullable)


def _type(kind: Any) -> DataType:
    from sqlglot import expressions as sql

    from refimpl.client.schema import Array, Decimal, Map, Primitive, Struct

    name, arguments = kind.this.name, kind.expressions
    if name in _PRIMITIVES and not arguments:
        return Primitive(name=_PRIMITIVES[name])
    if name == "DECIMAL":
        numbers = [int(argument.name) for argument in arguments]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 0 <= scale <= precision <= 38 or precision == 0:
            raise InvalidRequestError(
                f"invalid {kind.sql(dialect='spark')}; expected a precision of 1 to 38, a scale of at most that"
            )
        return Decimal(precision=precision, scale=scale)
    if name == "ARRAY" and len(arguments) == 1:
        return Array(element=_type(arguments[0]))
    if name == "MAP" and len(arguments) == 2:
        return Map(key=_type(arguments[0]), value=_type(arguments[1]))
    if name == "STRUCT" and all(isinstance(member, sql.ColumnDef) for member in arguments):
        return Struct(fields=tuple(_field(member) for member in arguments))
    raise InvalidRequestError(f"unsupported type {kind.sql(dialect='spark')}; Delta columns cannot have it")


def of_file(path: Path) -> Struct:
    """The columns of a Parquet file, or of a CSV file with a header, its types guessed from the rows."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    from refimpl.client.schema import from_arrow

    try:
        if format_of(path) == PARQUET:
            return from_arrow(parquet.read_schema(path))
        return from_arrow(csv.read_csv(path).schema)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"cannot read the columns of {path}: {error}") from None
