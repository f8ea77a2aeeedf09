"""Third act: reads by path, which depend on the table feature. Last act: Spark reads the table back.

By path, a managedCommit table with delayed backfill shows only its published versions, with a warning. A
catalog-managed table cannot be read by path at all. Every total that Spark computes must equal Arrow's total of the
input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.demo.processes import ENDED, GO, ReadBack, Worker
from refimpl.demo.source import Totals
from refimpl.demo.stage import Stage, counted
from refimpl.errors import PathAccessError
from refimpl.table_feature import MANAGED_COMMIT, CommitMode

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot

TOTALS: Final = "totals"


def path_access(stage: Stage) -> None:
    stage.display.chapter("the same table by its path and through its owner")
    table, every = _write_totals(stage)
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
    try:
        location = stage.warehouse.owner.resolve(stage.table).location
        answer = f"version {Table.by_path(location, stage.warehouse.environment).snapshot().version} was read"
        rejected = False
    except PathAccessError as error:
        answer, rejected = f"rejected, {type(error).__name__}", True
    stage.check(
        "catalog-managed tables reject path access", f"'{stage.table}' (catalogManaged) by path: {answer}", ok=rejected
    )


def _write_totals(stage: Stage) -> tuple[Table, int]:
    """Commit the number of rows of each part, one staged commit for each; backfill runs after just over half of
    them."""
    import pyarrow as pa

    every = len(stage.source.parts) // 2 + 1
    schema = pa.schema([("part", pa.string()), ("rows", pa.int64())])
    policy = MaintenancePolicy(backfill_every=every)
    table = stage.warehouse.create_table(
        TOTALS, schema, feature=MANAGED_COMMIT, commit_mode=CommitMode.STAGED, policy=policy
    )
    for part, totals in stage.source.parts.items():
        table.append(pa.Table.from_pylist([{"part": part, "rows": totals.rows}]))
    return table, every


def _rows(snapshot: Snapshot) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(snapshot.to_arrow(columns=["rows"])["rows"]).as_py() or 0)


def start_spark(stage: Stage) -> Worker:
    """Start the process that reads the table back. It waits for its command."""
    any_part = next(iter(stage.source.parts.values()))
    counts, sums = list(any_part.counts), list(any_part.sums)
    earlier = len(stage.source.parts) // 2
    return stage.start("Spark reader", ReadBack, counted=counts, summed=sums, earlier_version=earlier)


def read_back(stage: Stage, worker: Worker, added: dict[int, str]) -> None:
    """`added`: the part that each version added."""
    stage.display.chapter("Spark reads the table back")
    stage.display.status("Spark computes the totals of each part")
    results: dict[str, dict[str, Any]] = {}
    worker.send(GO)
    for sender, event in stage.pool.events():
        if sender is worker:
            results[event.kind] = event.facts
            if event.kind == ENDED:
                break
    _check_totals(stage, results["totals"])
    earlier = results["earlier"]
    expected = sum(stage.source.parts[part].rows for version, part in added.items() if version <= earlier["version"])
    stage.check(
        "time travel",
        f"version {earlier['version']} has {earlier['rows']:,} rows; the parts of versions up to it have {expected:,}",
        ok=earlier["rows"] == expected,
    )


def _check_totals(stage: Stage, totals: dict[str, Any]) -> None:
    expected, parts = stage.source.parts, totals["parts"]
    faults = list(differences(expected, parts))
    any_part = next(iter(expected.values()))
    waiting = len(stage.warehouse.owner.resolve(stage.table).commits.commits)
    stage.check(
        "row counts equal the input's",
        f"{sum(row['rows'] for row in parts.values()):,} rows in {len(parts)} parts of version {totals['version']}, "
        f"the newest {counted(waiting, 'commit')} not yet published; the input has {stage.source.rows:,}",
        ok={part: row["rows"] for part, row in parts.items()}
        == {part: wanted.rows for part, wanted in expected.items()},
    )
    stage.check(
        "sums equal the input's",
        f"{counted(len(any_part.sums), 'sum')} and {counted(len(any_part.counts), 'count')} of values for each of "
        f"{len(parts)} parts: "
        + (f"{counted(len(faults), 'difference')}, first: {faults[0]}" if faults else "no difference"),
        ok=not faults,
        compared=len(expected) * (len(any_part.sums) + len(any_part.counts) + 1),
        differences=faults[:20],
    )


def differences(expected: Mapping[str, Totals], computed: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """One message for each difference between Spark's totals (`rows`, `counts`, `sums`) and the input's."""
    for part in sorted(expected.keys() ^ computed.keys()):
        yield f"part {part} is on one side only"
    for part in expected.keys() & computed.keys():
        yield from _differences(part, expected[part], computed[part])


def _differences(part: str, expected: Totals, computed: dict[str, Any]) -> Iterator[str]:
    if computed["rows"] != expected.rows:
        yield f"part {part} has {computed['rows']} rows, the input {expected.rows}"
    for column, count in expected.counts.items():
        if computed["counts"][column] != count:
            yield f"part {part} has {computed['counts'][column]} values of {column}, the input {count}"
    for column, total in expected.sums.items():
        summed = computed["sums"][column] or 0
        same = summed == total if isinstance(total, int) else math.isclose(summed, total, rel_tol=1e-9, abs_tol=1e-9)
        if not same:
            yield f"the sum of {column} in part {part} is {summed}, the input's {total}"
