"""Options and arguments that several commands share, and the parsers of their values: policies, times, SQL columns,
files of rows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typer import Argument, Option

from refimpl.protocol.errors import DeltaError, InvalidRequestError, OutcomeUnknown
from refimpl.protocol.table_feature import CATALOG_MANAGED, TABLE_FEATURES, CommitMode, TableFeature

if TYPE_CHECKING:
    from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
    from refimpl.schema.schema import DataType, Field, Struct
    from refimpl.warehouse import AnyWarehouse, Warehouse

WAREHOUSE_VARIABLE: Final = "COMMIT_OWNER_WAREHOUSE"
_WAREHOUSE: Final = "warehouse folder (default: the current folder)"
_SERVER: Final = ", or a server: https://host:port?catalog=C&schema=S, whose token is in COMMIT_OWNER_TOKEN"


def _option(names: str, metavar: str, text: str, **more: Any) -> Any:
    return Option(*names.split(), metavar=metavar, help=text, **more)


def _flag(names: str, text: str) -> Any:
    return Option(*names.split(), help=text)


def _argument(metavar: str, text: str) -> Any:
    return Argument(metavar=metavar, help=text)


PARAMETERS: Final[dict[str, Any]] = {
    "folder": _option("--warehouse -w", "FOLDER", "new folder, kept afterwards (default: a temporary one)"),
    "json": _flag("--json", "print one JSON document to stdout"),
    "directory": _argument("FOLDER", "folder of the warehouse (default: the current folder)"),
    "root": _option("--root", "FOLDER", "folder outside the warehouse whose tables may be taken over (repeatable)"),
    "store": _option("--store", "NAME=URL", "S3-compatible store for tables below NAME.store (repeatable)"),
    "init name": _option("--name", "NAME", "the owner's name in its tables (default: refimpl)"),
    "conf": _option("--conf", "KEY=VALUE", "configuration for clients that new tables get (repeatable)"),
    "create name": _argument("NAME", "table name: one to three identifiers joined by dots"),
    "create columns": _option("--columns -c", "SQL", "columns with Spark SQL types: 'id BIGINT NOT NULL, name STRING'"),
    "create partition_by": _option("--partition-by -p", "COLUMN", "partition column (repeatable, or joined by commas)"),
    "feature": _option("--feature", "FEATURE", f"table feature: {', '.join(TABLE_FEATURES)}"),
    "commit_mode": _option("--commit-mode", "MODE", "commit mode: staged (default), inline or direct"),
    "backfill_every": _option("--backfill-every", "N", "publish after every N commits, or: never"),
    "backlog_limit": _option("--backlog-limit", "N", "maximum unpublished commits; further ones are rejected"),
    "allow": _option("--allow", "JOB", "job to allow: metadata-cleanup, vacuum, optimize or reorg (repeatable)"),
    "forbid": _option(
        "--forbid", "JOB", "job to forbid: checkpoint, log-compaction, checksum, or one of --allow (repeatable)"
    ),
    "properties": _option("--property", "KEY=VALUE", "table property to set (repeatable)"),
    "location": _option("--location", "FOLDER", "new or empty folder inside the warehouse (default: by the name)"),
    "show table": _argument("TABLE", "name, id, or path (with a /) of the table (default: list all tables)"),
    "version": _option("--version -v", "N", "snapshot at this version (default: latest)"),
    "timestamp": _option(
        "--timestamp", "TIMESTAMP", "snapshot at this time: ISO 8601 (default zone: UTC) or epoch milliseconds"
    ),
    "address": _option("--warehouse -w", "FOLDER|URL", _WAREHOUSE + _SERVER, envvar=WAREHOUSE_VARIABLE),
    **{
        f"{command} address": _option("--warehouse -w", "FOLDER", _WAREHOUSE, envvar=WAREHOUSE_VARIABLE)
        for command in ("folder", "serve")
    },
    "table": _argument("TABLE", "name, id, or path (with a /) of the table"),
    "removals": _option("--remove-property", "KEY", "table property to remove (repeatable)"),
    "types": _option("--type", "COLUMN=TYPE", "column and its new, wider Spark SQL type (repeatable)"),
    "yes": _flag("--yes -y", "skip the confirmation"),
    "path": _argument("PATH", "path of a filesystem table inside the warehouse or a root"),
    "take-over name": _argument("NAME", "new name of the table"),
    "ingest table": _argument("TABLE", "name of the table"),
    "files": _argument("FILE", "CSV files with a header"),
    "mode": _option("--mode", "MODE", "write mode: append or overwrite"),
    "null": _option("--null", "TEXT", "text that, not quoted, means null in a CSV file (default: empty)"),
    "delimiter": _option("--delimiter", "CHARACTER", "column delimiter of a CSV file"),
    "fill_missing": _flag("--fill-missing", "write null to columns that the files do not have"),
    "where": _option("--where", "SQL", "only rows for which this condition is true"),
    "rows columns": _option("--columns -c", "NAME", "only these columns (repeatable, or joined by commas)"),
    "limit": _option("--limit -n", "N", "at most N rows (default: all; 100 in a table)", min=0),
    "kind": _option("--format", "FORMAT", "table (default on a terminal), csv (default in a pipe) or jsonl"),
    "log limit": _option("--limit -n", "N", "show only the newest N versions", min=1),
    "start": _option("--start", "N", "first version (default: the first one stored)"),
    "end": _option("--end", "N", "last version, inclusive (default: the latest)"),
    "attempt": _argument("ATTEMPT", "attempt id: the uuid in the name of the staged file"),
    "to": _option("--to", "N", "last version to publish (default: the latest)"),
    "checkpoint version": _option("--version -v", "N", "version to write it for (default: the latest)"),
    "checksum": _flag("--checksum", "write a version checksum instead"),
    "cleanup older_than": _option(
        "--older-than", "AGE", "minimum age, for example 30d (default: the table's log retention)"
    ),
    "delete": _flag("--delete", "delete the files (default: only list them)"),
    "vacuum older_than": _option(
        "--older-than", "AGE", "minimum age, for example 30d (default: the table's retention)"
    ),
    "force": _flag("--force", "allow an age below the table's retention, if no other process uses the table"),
    "hand_back": _flag("--hand-back/--no-hand-back", "accept or reject a hand-back of the table to the filesystem"),
    "data": _flag("--data", "also read all data files of the newest versions"),
    "repair older_than": _option("--older-than", "AGE", "minimum age of the orphaned staged files to remove"),
    "adopt_published": _flag(
        "--adopt-published", "record published files above the ledger's latest version (after a restore)"
    ),
    "target": _argument("FILE", "path of the copy; must not exist"),
    "host": _option("--host", "ADDRESS", "listen address; one that other machines can reach requires a token"),
    "port": _option("--port", "N", "port; 0: any free port", min=0, max=65535),
    "catalog": _option("--catalog", "NAME", "name of the catalog for clients"),
    "schema": _option("--schema", "NAME", "additional empty schema (repeatable)"),
    "serve backfill_every": _option(
        "--backfill-every", "N", "for tables created over HTTP: publish after every N commits, or: never"
    ),
    "workers": _option(
        "--workers", "N", "server processes on one address; 2 are faster for clients of several tables", min=1, max=64
    ),
    "log_level": _option("--log-level", "LEVEL", "log level: debug, info, warning or error"),
    "name": _argument("NAME", "name of the token: letters, digits, - and _"),
    "scope": _option("--scope", "SCOPE", "read, or write (includes read)"),
    "expires_in": _option("--expires-in", "TIME", "lifetime, for example 30d (default: no limit)"),
    "undrop table": _argument("TABLE", "name or id of a dropped table"),
    "partitions": _option("--where", "SQL", "condition on partition columns (default: all partitions)"),
}
"""The arguments and options of all commands, by the name of the parameter. `show table`: of the command `show` only;
`folder address`: of a command that does not work with a server."""


def open_folder(warehouse: str | None) -> Warehouse:
    """The warehouse that the option, the environment variable or the current folder names.

    Raises `InvalidRequestError` for a server, and if there is no warehouse: only `init` creates one.
    """
    import refimpl
    from refimpl.storage.locations import OWNER_FOLDER
    from refimpl.warehouse import is_url

    if warehouse is not None and is_url(warehouse):
        from refimpl.remote_owner.connection import without_secrets

        raise InvalidRequestError(
            f"this command works on a warehouse's folder, and {without_secrets(warehouse)} is a server; "
            "run it on the server's host with -w FOLDER"
        )
    if warehouse is None:
        here = Path.cwd()
        if not (here / OWNER_FOLDER).is_dir():
            raise InvalidRequestError(
                f"no warehouse given, and {here} is not a warehouse; pass -w FOLDER, set {WAREHOUSE_VARIABLE}, "
                f"or create one: commit-owner init FOLDER"
            )
        return refimpl.open(here)
    return refimpl.open(warehouse)


def open_warehouse(warehouse: str | None) -> AnyWarehouse:
    """The same, but a server is allowed."""
    import refimpl
    from refimpl.warehouse import is_url

    if warehouse is not None and is_url(warehouse):
        return refimpl.open(warehouse, token=None)
    return open_folder(warehouse)


@contextlib.contextmanager
def after_landing(what: str) -> Iterator[None]:
    """For the steps after a change: their error must not say that nothing was changed. `what` was done."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise OutcomeUnknown(f"{what}; then an error occurred: {error}", landed=True) from error


def feature_named(name: str) -> TableFeature:
    """The table feature of this name, ignoring case."""
    for feature in TABLE_FEATURES.values():
        if feature.name.lower() == name.lower():
            return feature
    raise InvalidRequestError(f"unknown table feature {name!r}; expected one of {', '.join(TABLE_FEATURES)}")


def commit_mode_named(name: str | None) -> CommitMode | None:
    if name is None:
        return None
    try:
        return CommitMode(name)
    except ValueError:
        known = ", ".join(commit_mode.value for commit_mode in CommitMode)
        raise InvalidRequestError(f"unknown commit mode {name!r}; expected one of {known}") from None


def policy_of(
    backfill_every: str, backlog_limit: int, allow: list[str] | None, forbid: list[str] | None, *, hand_back: bool
) -> MaintenancePolicy:
    """The owner's policy for a new table; the owner checks its limits."""
    from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT, MaintenancePolicy

    return MaintenancePolicy(
        allowed=changed_jobs(allow, forbid)(ALLOWED_BY_DEFAULT),
        backfill_every=backfill_number(backfill_every),
        backlog_limit=backlog_limit,
        hand_back=hand_back,
    )


def changed_jobs(
    allow: list[str] | None, forbid: list[str] | None
) -> Callable[[frozenset[Maintenance]], frozenset[Maintenance]]:
    """The change of the allowed jobs by --allow and --forbid, which are checked now."""
    permitted, forbidden = jobs_named(allow), jobs_named(forbid)
    if both := sorted(job.value for job in permitted & forbidden):
        raise InvalidRequestError(f"--allow and --forbid both name {', '.join(both)}; pass each job to one of them")
    return lambda before: (before | permitted) - forbidden


def jobs_named(names: list[str] | None) -> frozenset[Maintenance]:
    """Maintenance jobs by their names, repeated or joined by commas."""
    from refimpl.protocol.commit_owner import Maintenance

    known = {job.value: job for job in Maintenance}
    wanted = names_of(names)
    for name in wanted:
        if name not in known:
            raise InvalidRequestError(f"unknown maintenance job {name!r}; expected one of {', '.join(known)}")
    return frozenset(known[name] for name in wanted)


def backfill_number(given: str) -> int | None:
    """A number such as `10`; None for `never`."""
    if given == "never":
        return None
    if not given.isascii() or not given.isdigit():
        raise InvalidRequestError(f"invalid --backfill-every {given!r}; expected a number >= 1, or never")
    return int(given)


def properties_of(pairs: list[str] | None, what: str = "property", form: str = "KEY=VALUE") -> dict[str, str]:
    """`KEY=VALUE` pairs as a map."""
    properties: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidRequestError(f"invalid {what} {pair!r}; expected {form}")
        if key.strip() in properties:
            raise InvalidRequestError(f"{what} {key.strip()!r} is given twice; expected one value")
        properties[key.strip()] = value.strip() if what == "type" else value
    return properties


def names_of(listed: list[str] | None) -> list[str]:
    """Names from repeated options, and from lists joined by commas. Raises `InvalidRequestError` for an empty one."""
    names = [name.strip() for item in listed or () for name in item.split(",")]
    if not all(names):
        raise InvalidRequestError(f"empty name in {','.join(listed or ())!r}; expected names joined by commas")
    return names


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def duration_ms(given: str) -> int:
    """A duration such as `90s`, `24h` or `7d`, in ms."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d|w)", given.strip(), re.ASCII)
    if match is None:
        raise InvalidRequestError(f"invalid duration {given!r}; expected for example 90s, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def moment_of(version: int | None, timestamp: str | None) -> int | None:
    """The value of `--timestamp` in ms since the epoch. Raises `InvalidRequestError` if there is a version, too."""
    from refimpl.protocol.in_commit_timestamp import checked

    if version is not None and timestamp is not None:
        raise InvalidRequestError("--version and --timestamp are mutually exclusive; pass one of them")
    return None if timestamp is None else checked(timestamp)


def default_root() -> Path:
    """The default folder of `init`: the environment variable's, otherwise the current one."""
    from refimpl.warehouse import is_url

    named = os.environ.get(WAREHOUSE_VARIABLE) or "."
    if is_url(named):
        raise InvalidRequestError(
            f"{WAREHOUSE_VARIABLE} is the URL of a server; pass a folder: commit-owner init FOLDER"
        )
    return Path(named)


DEFAULT_FEATURE: Final = CATALOG_MANAGED.name


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
"""Spark's names of its types. sqlglot also accepts names of other systems, such as BLOB, and INT8 for a byte."""


def columns_of_sql(columns: str, *, wrong: str = "") -> Struct:
    """Columns in Spark's SQL, such as `id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>`.

    Raises `InvalidRequestError` for any text that is not a list of columns with types. `wrong`: another message for SQL
    that cannot be parsed, if the user did not give a column list.
    """
    import sqlglot
    from sqlglot import expressions as sql
    from sqlglot.errors import SqlglotError

    from refimpl.schema.schema import Struct

    wrong = wrong or f"invalid column list {columns!r}; expected for example: id BIGINT NOT NULL, name STRING"
    try:
        statement = sqlglot.parse_one(f"CREATE TABLE t ({columns})", dialect="spark")
    except SqlglotError:
        _check_words(columns)
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
    """Reject types that Spark's SQL does not have. A word is a type unless another word or a colon follows it."""
    import sqlglot
    from sqlglot.tokens import TokenType

    tokens = sqlglot.tokenize(columns, dialect="spark")
    column, depth = tokens[0].text if tokens else "", 0
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type is TokenType.L_BRACKET:
            raise InvalidRequestError("brackets are not supported in types; write ARRAY<INT>")
        if token.token_type is TokenType.IDENTIFIER:
            continue
        depth += sum({"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0) for character in token.text)
        if token.token_type is TokenType.COMMA and depth == 0 and following is not None:
            column = following.text
        if token.token_type is TokenType.NEQ:
            raise InvalidRequestError(f"column {column}: a struct needs a member, as in STRUCT<a: INT>; add one")
        if not token.text[0].isalpha():
            continue
        named = following is not None and (
            following.token_type in (TokenType.COLON, TokenType.IDENTIFIER) or following.text[0].isalpha()
        )
        closing = following is not None and following.text.upper() in ("NOT", "NULL")
        word = token.text.upper()
        if (not named or closing) and word not in ("NOT", "NULL") and word not in _WORDS.split():
            raise InvalidRequestError(
                f"column {column}: unknown type {token.text!r}; expected a Spark SQL type: {', '.join(_WORDS.split())}"
            )


def _field(definition: Any) -> Field:
    """A column, or a member of a struct."""
    from sqlglot import expressions as sql

    from refimpl.schema.schema import Field

    demands = [constraint.kind for constraint in definition.args.get("constraints") or ()]
    unknown = [kind for kind in demands if not isinstance(kind, sql.NotNullColumnConstraint)]
    if unknown:
        raise InvalidRequestError(f"column {definition.name}: {unknown[0].sql()} is not supported; only NOT NULL is")
    nullable = all(kind.args.get("allow_null") for kind in demands)
    return Field(name=definition.name, type=_type(definition.args["kind"], definition.name), nullable=nullable)


def _type(kind: Any, column: str) -> DataType:
    from sqlglot import expressions as sql

    from refimpl.schema.schema import Array, Decimal, Map, Primitive, Struct

    name, arguments = kind.this.name, kind.expressions
    if name in _PRIMITIVES and not arguments:
        return Primitive(name=_PRIMITIVES[name])
    if name == "DECIMAL":
        numbers = [int(argument.name) for argument in arguments]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 0 <= scale <= precision <= 38 or precision == 0:
            text = kind.sql(dialect="spark")
            raise InvalidRequestError(
                f"column {column}: invalid {text}; expected a precision from 1 to 38, and a scale from 0 to it"
            )
        return Decimal(precision=precision, scale=scale)
    if name == "ARRAY" and len(arguments) == 1:
        return Array(element=_type(arguments[0], column))
    if name == "MAP" and len(arguments) == 2:
        return Map(key=_type(arguments[0], column), value=_type(arguments[1], column))
    if name == "STRUCT" and all(isinstance(member, sql.ColumnDef) for member in arguments):
        return Struct(fields=tuple(_field(member) for member in arguments))
    wrong = f"column {column}: unsupported type {kind.sql(dialect='spark')}"
    if name in ("CHAR", "VARCHAR"):
        raise InvalidRequestError(
            f"{wrong}; use STRING; to limit its length, add --property 'delta.constraints.NAME=length(COLUMN) <= N'"
        )
    raise InvalidRequestError(f"{wrong}; Delta columns cannot have it")
