"""Third act: what a reader sees that does not ask the owner. It depends on the table feature.

A managedCommit table with delayed backfill shows the published part only, and says so. The catalog-managed
one cannot be read by path at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refimpl.client.create import create_table
from refimpl.client.schema import Field, Primitive, Struct
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.demo.stage import Stage, counted
from refimpl.errors import PathAccessError
from refimpl.table_feature import MANAGED_COMMIT, CommitMode

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot

TOTALS: Final = "totals"
_COLUMNS: Final = Struct(
    fields=(Field(name="part", type=Primitive(name="string")), Field(name="rows", type=Primitive(name="long")))
)


def path_access(stage: Stage) -> None:
    stage.display.chapter("the same table by its path and through its owner")
    table, every = _written(stage)
    by_path = Table.by_path(table.location, stage.warehouse.environment)
    stale, fresh = by_path.snapshot(), table.snapshot()
    parts = list(stage.source.parts.values())
    stage.check(
        "stale by path, fresh through the owner",
        f"'{TOTALS}' (managedCommit, published after every {every}): version {stale.version} with {_rows(stale):,} "
        f"rows by path, version {fresh.version} with {_rows(fresh):,} rows through the owner",
        ok=stale.stale
        and not fresh.stale
        and (stale.version, fresh.version) == (every, len(parts))
        and (_rows(stale), _rows(fresh)) == (sum(part.rows for part in parts[:every]), stage.source.rows),
        stale_version=stale.version,
        fresh_version=fresh.version,
    )
    published = stage.warehouse.owner.backfill_to_version(table.table_id or TOTALS)
    after = by_path.snapshot()
    stage.check(
        "backfill on request",
        f"{counted(published.published, 'commit')} published; by path it is version {after.version} now "
        f"({_rows(after):,} rows)",
        ok=after.version == fresh.version and _rows(after) == stage.source.rows,
    )
    _refused(stage)


def _written(stage: Stage) -> tuple[Table, int]:
    """One staged commit for each part, with its number of rows; published after a good half of them."""
    import pyarrow as pa

    warehouse, parts = stage.warehouse, stage.source.parts
    every = len(parts) // 2 + 1
    table = create_table(
        warehouse.owner,
        warehouse.environment,
        TOTALS,
        _COLUMNS,
        feature=MANAGED_COMMIT,
        commit_mode=CommitMode.STAGED,
        policy=MaintenancePolicy(backfill_every=every),
    )
    for part, totals in parts.items():
        committed = table.append(pa.Table.from_pylist([{"part": part, "rows": totals.rows}]))
        stage.propose_here(None if committed is None else committed.attempt)
    return table, every


def _rows(snapshot: Snapshot) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(snapshot.to_arrow(columns=["rows"])["rows"]).as_py() or 0)


def _refused(stage: Stage) -> None:
    location = stage.warehouse.owner.resolve(stage.table).location
    try:
        found = Table.by_path(location, stage.warehouse.environment).snapshot()
        refusal = None
    except PathAccessError as error:
        found, refusal = None, error
    stage.check(
        "no way around the catalog",
        f"'{stage.table}' (catalogManaged) by path: "
        + (f"refused, {type(refusal).__name__}" if refusal else f"version {found.version if found else None} was read"),
        ok=refusal is not None,
    )
