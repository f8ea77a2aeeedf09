"""Commands about tables: `init`, `create`, `show`, `alter`, `drop`, `undrop`, `take-over`, `hand-back`."""

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refimpl.cli import options, output
from refimpl.cli.commands import command
from refimpl.cli.output import ExitCode, Facts, Result, TextTable
from refimpl.protocol.commit_owner import ResolvedTable, TableSummary
from refimpl.protocol.errors import InvalidRequestError
from refimpl.storage.object_store import SUFFIX

if TYPE_CHECKING:
    from refimpl.client import table as delta_table
    from refimpl.client.snapshot import Snapshot
    from refimpl.warehouse import AnyWarehouse, Warehouse

_PANEL = "Tables"
_OWNERSHIP = "Ownership"


@command(
    _PANEL,
    "init /data/warehouse --root /data/lake",
    "init /data/warehouse --store s3=s3://bucket/prefix",
    "init /data/other --name lake-2 --conf warehouse=/data/other",
)
def init(
    directory: Path | None = None,
    root: list[Path] | None = None,
    store: list[str] | None = None,
    name: str | None = None,
    conf: list[str] | None = None,
) -> Result:
    """Create a warehouse with a commit owner in a folder.

    An existing warehouse keeps its content; new roots and stores are added to it. The name cannot change once the owner
    has tables.
    """
    import refimpl
    from refimpl.storage.locations import OWNER_FOLDER

    if directory is not None and re.match(r"[a-z0-9]+:/", str(directory)):
        raise InvalidRequestError(
            f"invalid folder {str(directory)!r}; expected a path. For a server, pass -w URL to other commands; for a "
            "store, pass --store NAME=URL"
        )
    target = directory or options.default_root()
    existed = (target / OWNER_FOLDER).is_dir()
    stores: dict[str, str] = {}
    for store_name, url in map(_named_store, store or ()):
        if stores.setdefault(store_name, url) != url:
            raise InvalidRequestError(
                f"--store {store_name} is given twice, for {stores[store_name]} and {url}; choose another name"
            )
    wanted = options.properties_of(conf, "configuration") if conf else None
    with refimpl.open(target, roots=root or (), stores=stores, create=True, name=name, conf=wanted) as warehouse:
        with warehouse.owner.ledger.read() as view:
            roots = [str(path) for path in view.roots()]
        facts = {"warehouse": str(warehouse.directory), "created": not existed, "roots": roots}
        facts |= {"name": warehouse.owner.name, "conf": dict(warehouse.owner.conf)}
    return Result(
        facts,
        f"{facts['warehouse']} {'is already a warehouse' if existed else 'is now a warehouse'}",
        *(f"tables below {path} may be taken over" for path in roots),
        *(f"tables below {facts['warehouse']}/{kept}{SUFFIX} are in {url}" for kept, url in stores.items()),
        f"next: commit-owner create NAME --columns 'id BIGINT, name STRING' -w {facts['warehouse']}",
    )


def _named_store(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise InvalidRequestError(f"invalid --store {text!r}; expected NAME=URL, such as s3=s3://bucket/prefix")
    return name, url


@command(
    _PANEL,
    "create sales --columns 'id BIGINT, month INT, price DECIMAL(10,2)' --partition-by month",
    "create visits --columns 'id BIGINT NOT NULL' --property 'delta.constraints.positive=id > 0'",
    "create people --columns 'id BIGINT, name STRING' --property delta.columnMapping.mode=name",
    "create events --columns 'id BIGINT' --feature managedCommit",
    "create sales --columns 'id BIGINT' -w 'https://catalog.example.org:8443?catalog=unity&schema=default'",
    server=True,
)
def create(
    warehouse: "AnyWarehouse",
    name: str,
    columns: str,
    partition_by: list[str] | None = None,
    feature: str = options.DEFAULT_FEATURE,
    commit_mode: str | None = None,
    properties: list[str] | None = None,
    location: Path | None = None,
) -> Result:
    """Create an empty table.

    If several processes create the same name, exactly one succeeds; the others exit with code 1. The command policy
    changes what the owner allows, and when it publishes.
    """
    table = warehouse.create_table(
        name,
        options.columns_of_sql(columns),
        partition_columns=options.names_of(partition_by),
        feature=options.feature_named(feature),
        commit_mode=options.commit_mode_named(commit_mode),
        location=None if location is None else location.absolute(),
        properties=options.properties_of(properties),
    )
    with options.after_landing(f"{name} was created at {table.location}"):
        created = warehouse.owner.resolve(table.table_id or name)
    return Result(_of_owner(created), f"created {created.name} at {created.location} (version 0)")


@command(_PANEL, "show", "show sales --timestamp 2026-11-21T12:00:00")
def show(
    table: str | None = None, version: int | None = None, timestamp: str | None = None, address: str | None = None
) -> Result:
    """List all tables, or describe one table.

    The description has the owner's state, the columns, properties, files and the number of rows.
    """
    moment = options.moment_of(version, timestamp)
    if table is None and (version is not None or moment is not None):
        raise InvalidRequestError("--version and --timestamp need a TABLE")
    with options.open_warehouse(address) as warehouse:
        if table is None:
            return _listed(warehouse)
        handle = warehouse.table(table)
        snapshot = _snapshot(handle, version, moment)
        return _described(warehouse.owner.resolve(handle.table_id or table), snapshot)


def _snapshot(table: "delta_table.Table", version: int | None, moment: int | None) -> "Snapshot":
    """The snapshot. Its warnings are in the output, so they are not logged, too."""
    logger = logging.getLogger("refimpl.log.loading")
    logger.setLevel(logging.ERROR)
    try:
        return table.snapshot(version=version, timestamp=moment)
    finally:
        logger.setLevel(logging.NOTSET)


def _listed(warehouse: "AnyWarehouse") -> Result:
    tables = warehouse.owner.tables()
    if not tables:
        return Result([], f"{warehouse.label} has no tables; create one: commit-owner create NAME --columns SQL")
    columns = ("name", "feature", "mode", "state", "version", "unpublished", "location")
    rows = [
        (
            table.name,
            table.feature.name,
            table.commit_mode.value,
            "halted" if table.halted else table.state.value,
            output.plain(table.latest),
            table.backlog,
            _short(table.location, warehouse.label),
        )
        for table in tables
    ]
    return Result(list(map(_of_owner, tables)), TextTable(columns=columns, rows=rows, right=("version", "unpublished")))


def _short(location: Path, directory: str) -> str:
    return str(location.relative_to(directory)) if location.is_relative_to(directory) else str(location)


def _of_owner(table: ResolvedTable | TableSummary) -> dict[str, Any]:
    """The owner's facts about a table, for a script."""
    if isinstance(table, ResolvedTable):
        latest, unbackfilled = table.commits.latest_ratified_version, len(table.commits.commits)
    else:
        latest, unbackfilled = table.latest, table.backlog
    return {
        "name": table.name,
        "table_id": table.table_id,
        "location": str(table.location),
        "feature": table.feature.name,
        "commit_mode": table.commit_mode.value,
        "state": table.state.value,
        "latest_version": latest,
        "unbackfilled": unbackfilled,
        "halted": table.halted,
        "policy": {
            "allowed": sorted(job.value for job in table.policy.allowed),
            "backfill_every": table.policy.backfill_every,
            "backlog_limit": table.policy.backlog_limit,
            "hand_back": table.policy.hand_back,
        },
    }


def _described(table: ResolvedTable, snapshot: "Snapshot") -> Result:
    facts = _of_snapshot(snapshot)
    shown = Facts(_snapshot_facts(snapshot, facts), f"version {snapshot.version}")
    owner = Facts(_owner_facts(table), table.name or table.table_id)
    return Result({"owner": _of_owner(table), "snapshot": facts}, owner, "", shown)


def _owner_facts(table: ResolvedTable) -> dict[str, Any]:
    return {
        "id": table.table_id,
        "location": table.location,
        "feature": table.feature_name,
        "state": table.state.value,
        "commits": f"{table.commit_mode.value}, published {table.policy.backfills}",
        "latest version": output.plain(table.commits.latest_ratified_version),
        "unpublished": f"{len(table.commits.commits)} (limit {table.policy.backlog_limit})",
        "allowed": ", ".join(sorted(job.value for job in table.policy.allowed)),
        "halted": table.halted,
    }


def _of_snapshot(snapshot: "Snapshot") -> dict[str, Any]:
    from refimpl.rows.file_statistics import row_count

    known = [records for add in snapshot.files.values() if (records := row_count(add)) is not None]
    return {
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "in_commit_timestamp": snapshot.in_commit_timestamp,
        "stale": snapshot.stale,
        "staleness": snapshot.staleness,
        "warnings": list(snapshot.warnings),
        "files": len(snapshot.files),
        "bytes": snapshot.size_in_bytes,
        "rows": sum(known) if len(known) == len(snapshot.files) else None,
        "columns": [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in snapshot.schema.fields],
        "partition_columns": list(snapshot.partition_columns),
        "properties": dict(snapshot.metadata.configuration),
        "protocol": snapshot.protocol,
    }


def _snapshot_facts(snapshot: "Snapshot", facts: dict[str, Any]) -> dict[str, Any]:
    protocol = snapshot.protocol
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    return {
        "committed": output.moment(snapshot.timestamp),
        "rows": facts["rows"] if facts["rows"] is not None else "unknown: a file has no statistics",
        "files": f"{facts['files']:,} ({output.size(facts['bytes'])})",
        "columns": [f"{c['name']} {c['type']}{'' if c['nullable'] else ' not null'}" for c in facts["columns"]],
        "partitioned by": ", ".join(facts["partition_columns"]) or None,
        "protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "features": ", ".join(features) or None,
        "properties": [f"{key} = {value}" for key, value in sorted(facts["properties"].items())] or None,
        "stale": snapshot.staleness,
        "warnings": list(snapshot.warnings) or None,
    }


@command(
    _PANEL,
    "alter sales --property delta.enableTypeWidening=true --type 'price=DECIMAL(12,2)'",
    "alter sales --property delta.columnMapping.mode=name",
    "alter sales --remove-property delta.constraints.positive",
    server=True,
)
def alter(
    warehouse: "AnyWarehouse",
    table: str,
    properties: list[str] | None = None,
    removals: list[str] | None = None,
    types: list[str] | None = None,
) -> Result:
    """Change properties, or types of columns, in one commit.

    Data files stay as they are. A new type must hold every value of the old one, and needs the property
    delta.enableTypeWidening. The column mapping mode can change from none to name.
    """
    wider = {name: _type(kind) for name, kind in options.properties_of(types, "type", "COLUMN=TYPE").items()}
    changes: dict[str, Any] = {
        "properties": options.properties_of(properties),
        "remove": options.names_of(removals),
        "types": wider,
    }
    version = warehouse.table(table).alter(**changes).version
    return Result({"table": table, "version": version}, f"committed version {version} of {table}")


def _type(text: str) -> str:
    """Delta's name of a Spark SQL type."""
    wrong = f"invalid type {text!r}; expected one Spark SQL type, such as BIGINT or DECIMAL(12,2)"
    columns = options.columns_of_sql(f"changed {text}", wrong=wrong).fields
    if len(columns) != 1 or not columns[0].nullable:
        raise InvalidRequestError(wrong)
    return str(columns[0].type)


@command(_PANEL, "drop sales --yes", server=True)
def drop(warehouse: "AnyWarehouse", table: str, yes: bool = False) -> Result:
    """Remove a table from the warehouse, and keep its files.

    The name becomes free. The table's files and its history stay in place. While they do, undrop restores
    the table.
    """
    resolved = warehouse.owner.resolve(table)
    if not yes:
        _ask(f"drop {resolved.name}", resolved.location)
    warehouse.owner.drop_table(resolved.table_id)
    return Result(
        {"name": resolved.name, "table_id": resolved.table_id, "location": str(resolved.location)},
        f"dropped {resolved.name or resolved.table_id}; its files stay at {resolved.location}",
    )


@command(_PANEL, "undrop sales")
def undrop(warehouse: "Warehouse", table: str) -> Result:
    """Restore a dropped table, with its id and history.

    Its files must still exist, and no other table may have its name. If several dropped tables had this name, the
    command restores the one that was dropped last.
    """
    from refimpl.care import dropping

    restored = dropping.undrop_table(warehouse.owner, table)
    return Result(
        {"name": restored.name, "table_id": restored.table_id, "location": str(restored.location)},
        f"restored {restored.name}, at version {restored.commits.latest_ratified_version}",
    )


def _ask(doing: str, location: Path) -> None:
    if not sys.stdin.isatty():
        raise InvalidRequestError("stdin is not a terminal; pass --yes to confirm")
    if not typer.confirm(f"{doing} at {location}?", err=True):
        output.show_error("nothing was changed")
        raise typer.Exit(ExitCode.REFUSED)


@command(_OWNERSHIP, "take-over /data/lake/sales sales --feature managedCommit")
def take_over(
    warehouse: "Warehouse",
    path: Path,
    name: str,
    feature: str = options.DEFAULT_FEATURE,
    commit_mode: str | None = None,
) -> Result:
    """Give a filesystem table to the owner.

    The change is one commit: if another writer commits the same version at the same time, only one of the two succeeds.
    A table outside the warehouse must be below a root (`commit-owner init --root`).
    """
    from refimpl.client.ownership import take_over as taken_over
    from refimpl.client.table import Table

    new_feature, chosen = options.feature_named(feature), options.commit_mode_named(commit_mode)
    table = Table.by_path(path.absolute(), warehouse.environment)
    owned = taken_over(table, warehouse.owner, name, new_feature, commit_mode=chosen)
    with options.after_landing(f"{owned.location} was taken over as {name}"):
        version = owned.snapshot().version
    facts = {"name": name, "table_id": owned.table_id, "location": str(owned.location), "version": version}
    return Result(
        facts | {"feature": new_feature.name},
        f"{owned.location} is now {name}, a {new_feature.name} table from version {version} on",
    )


@command(_OWNERSHIP, "hand-back sales")
def hand_back(warehouse: "Warehouse", table: str) -> Result:
    """Return a table to the filesystem.

    All commits are published first; then one commit removes the feature, and the owner rejects further commits.
    """
    from refimpl.client.ownership import hand_back as handed_back

    free = handed_back(warehouse.table(table))
    with options.after_landing(f"{free.location} was handed back"):
        version = free.snapshot().version
    return Result(
        {"location": str(free.location), "version": version},
        f"{free.location} is a filesystem table from version {version} on; use it by its path",
    )
