"""The demonstration from its first act to its last, and its result."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import refimpl
from refimpl.demo import source
from refimpl.demo.acts import JOURNAL, TOTALS, Ingestion, path_access, race, read_back
from refimpl.demo.processes import WorkerPool
from refimpl.demo.stage import Display, Result, Stage, Timeline, counted
from refimpl.errors import InvalidRequestError
from refimpl.owner.verify import Severity, verify
from refimpl.spark import find_java

FLIGHTS: Final = "flights"
OTHER_INPUT: Final = "ingested"
TIMEOUT_SECONDS: Final = 180.0
"""Maximum time without an event of any process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`warehouse`: a new or empty directory, which is kept; None: a temporary one."""

    input: Path | None = None
    partition_by: str = "month"
    warehouse: Path | None = None


def run(options: DemoOptions, display: Display) -> Result:
    """Run the demonstration. A failed check raises nothing; the result has it.

    Raises `InvalidRequestError` for invalid options, `OwnerUnavailableError` if a process fails.
    """
    started = time.perf_counter()
    _check_spark()
    with _places(options.warehouse) as (directory, scratch):
        loaded = source.load(options.input, options.partition_by, scratch)
        display.line(
            f"input: {loaded.title}, {loaded.rows:,} rows, {len(loaded.parts)} parts by {loaded.partition_column}"
        )
        display.line(f"warehouse: {directory}")
        with refimpl.open(directory, create=True) as warehouse, WorkerPool(scratch, timeout=TIMEOUT_SECONDS) as pool:
            table = FLIGHTS if options.input is None else OTHER_INPUT
            stage = Stage(pool=pool, warehouse=warehouse, source=loaded, table=table, display=display)
            timelines = _play(stage)
        return Result(
            ok=all(check.ok for check in stage.checks),
            seconds=round(time.perf_counter() - started, 1),
            warehouse=str(directory),
            kept=options.warehouse is not None,
            input=loaded.title,
            rows=loaded.rows,
            parts=len(loaded.parts),
            checks=stage.checks,
            timelines=timelines,
        )


def _play(stage: Stage) -> list[Timeline]:
    race(stage)
    ingestion = Ingestion(stage)
    ingestion.run()
    path_access(stage)
    assert ingestion.spark_reader is not None
    read_back(stage, ingestion.spark_reader, ingestion.added)
    _check_invariants(stage)
    column, parts = stage.source.partition_column, stage.source.parts
    return [
        stage.timeline(stage.table, {version: f"{column} {part}" for version, part in ingestion.added.items()}),
        stage.timeline(JOURNAL, {}),
        stage.timeline(TOTALS, {version: f"{column} {part}" for version, part in enumerate(parts, start=1)}),
    ]


def _check_invariants(stage: Stage) -> None:
    findings = verify(stage.warehouse.owner)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    stage.check(
        "no invariant is violated",
        f"{counted(len(stage.warehouse.owner.tables()), 'table')} against every invariant: "
        f"{counted(len(errors), 'error')}, {counted(len(findings) - len(errors), 'note')}"
        + (f", first error: {errors[0].message}" if errors else ""),
        ok=not errors,
        findings=[f"{finding.table}: {finding.code}: {finding.message}" for finding in findings],
    )


def _check_spark() -> None:
    """Raise `InvalidRequestError` if PySpark or Java is missing, before anything starts."""
    if find_spec("pyspark") is None:
        raise InvalidRequestError("the demo writes through Spark: pip install 'delta-commit-owner[demo]'")
    find_java()


@contextmanager
def _places(wanted: Path | None) -> Iterator[tuple[Path, Path]]:
    """The warehouse's directory, and a scratch directory, which is always deleted."""
    if wanted is not None and wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise InvalidRequestError(f"{wanted} is not an empty folder; the demo needs a new or an empty one")
    scratch = Path(tempfile.mkdtemp(prefix="commit-owner-demo-"))
    try:
        yield (scratch / "warehouse" if wanted is None else wanted.absolute()), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
