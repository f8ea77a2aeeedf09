"""The demonstration from its first act to its last, and what it found."""

from __future__ import annotations

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
from refimpl.demo import read_back, source
from refimpl.demo.crew import Crew, Worker
from refimpl.demo.ingestion import Ingestion
from refimpl.demo.path_access import TOTALS, path_access
from refimpl.demo.race import JOURNAL, race
from refimpl.demo.results import Result, Timeline
from refimpl.demo.stage import Display, Stage, counted
from refimpl.demo.timeline import timeline
from refimpl.errors import InvalidRequestError
from refimpl.owner.verify import Severity, verify
from refimpl.spark import find_java

FLIGHTS: Final = "flights"
OTHER_INPUT: Final = "ingested"
PATIENCE_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller wants. `warehouse`: a new or empty directory, which is kept; None: a temporary one."""

    input: Path | None = None
    partition_by: str = "month"
    warehouse: Path | None = None


def run(wishes: Wishes, display: Display) -> Result:
    """Raises `InvalidRequestError` for wishes that cannot be had, `OwnerUnavailableError` for a process that failed.

    A check that fails raises nothing: the result says so.
    """
    started = time.perf_counter()
    _check_spark()
    with _places(wishes.warehouse) as (directory, scratch):
        loaded = source.load(wishes.input, wishes.partition_by, scratch)
        display.line(
            f"input: {loaded.title}, {loaded.rows:,} rows, {len(loaded.parts)} parts by {loaded.partition_column}"
        )
        display.line(f"warehouse: {directory}")
        with refimpl.open(directory, create=True) as warehouse, Crew(scratch, patience=PATIENCE_SECONDS) as crew:
            table = FLIGHTS if wishes.input is None else OTHER_INPUT
            stage = Stage(crew=crew, warehouse=warehouse, source=loaded, table=table, display=display)
            timelines = _play(stage)
        return Result(
            ok=all(check.ok for check in stage.checks),
            seconds=round(time.perf_counter() - started, 1),
            warehouse=str(directory),
            kept=wishes.warehouse is not None,
            input=loaded.title,
            rows=loaded.rows,
            parts=len(loaded.parts),
            checks=stage.checks,
            timelines=timelines,
        )


def _play(stage: Stage) -> list[Timeline]:
    race(stage)
    spark_readers: list[Worker] = []
    ingestion = Ingestion(stage, when_one_is_gone=lambda: spark_readers.append(read_back.start(stage)))
    ingestion.run()
    path_access(stage)
    read_back.read_back(stage, spark_readers[0], ingestion.added)
    _check_invariants(stage)
    column, parts = stage.source.partition_column, stage.source.parts
    return [
        timeline(stage, stage.table, {v: f"{column} {part}" for v, part in ingestion.added.items()}),
        timeline(stage, JOURNAL, {}),
        timeline(stage, TOTALS, {v: f"{column} {part}" for v, part in enumerate(parts, start=1)}),
    ]


def _check_invariants(stage: Stage) -> None:
    findings = verify(stage.warehouse.owner)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    stage.check(
        "verify",
        f"{counted(len(stage.warehouse.owner.tables()), 'table')} against every invariant: "
        f"{counted(len(errors), 'error')}, {counted(len(findings) - len(errors), 'note')}"
        + (f", first error: {errors[0].message}" if errors else ""),
        ok=not errors,
        findings=[f"{finding.table}: {finding.code}: {finding.message}" for finding in findings],
    )


def _check_spark() -> None:
    """Before anything is started: `InvalidRequestError` where PySpark or Java is missing."""
    if find_spec("pyspark") is None:
        raise InvalidRequestError("the demo writes through Spark: pip install 'delta-commit-owner[demo]'")
    find_java()


@contextmanager
def _places(wanted: Path | None) -> Iterator[tuple[Path, Path]]:
    """The warehouse's directory, and a scratch one that goes away in any case."""
    if wanted is not None and wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise InvalidRequestError(f"{wanted} is not an empty directory; the demo needs a new one, or an empty one")
    scratch = Path(tempfile.mkdtemp(prefix="commit-owner-demo-"))
    try:
        yield (scratch / "warehouse" if wanted is None else wanted.absolute()), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
