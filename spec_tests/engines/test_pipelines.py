"""Generated pipelines: our pipeline agrees with Delta Spark, and a fault is found and shrunk."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spec_tests.engines.pipelines import Laboratory, Program, Side, Step, drawn, shrunk
from spec_tests.support.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = {"partitions": ["p"], "properties": {}, "rows": [[0, 0, 0], [1, 1, 1]]}
PROGRAM: Program = {"columns": [["id", "bigint"], ["p", "string"]], "tables": [TABLE, TABLE], "zone": "UTC"}
KEEP: Step = {"step": "keep", "table": 0, "how": "plain", "route": "pipeline", "where": None}
OTHER: Step = {"step": "other", "table": 0, "rows": [[2, 0, 1]]}
DELETE: Step = {"step": "delete", "table": 0, "where": [[0, "=", 0]], "client": 0}
OVERWRITE: Step = {"step": "write", "table": 0, "mode": "static", "route": "pipeline", "source": {"kept": 0}}


@pytest.fixture
def lab(delta_spark: "SparkSession", tmp_path: Path) -> Iterator[Laboratory]:
    yield Laboratory(delta_spark, tmp_path)
    delta_spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.longer
def test_an_overwrite_keeps_the_rows_of_another_writer(lab: Laboratory) -> None:
    assert lab.run(PROGRAM | {"steps": [KEEP, OTHER, OVERWRITE]}) is None
    assert lab.outcomes["write: ours ConcurrentAppendError, theirs applied"] == 1


@pytest.mark.longer
def test_a_planted_fault_is_found_and_shrunk(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = Side.delete
    monkeypatch.setattr(Side, "delete", lambda side, step: None if side.ours else correct(side, step))
    program = PROGRAM | {"steps": [OTHER, DELETE]}
    difference = lab.run(program)
    assert difference is not None
    assert (difference.kind, difference.step) == ("rows", 1)
    assert shrunk(program, "rows", lab.run, tries=2)["steps"] == [DELETE]


@pytest.mark.parametrize("seed", sampled(range(3), 3))
def test_generated_programs_have_no_difference(lab: Laboratory, seed: int) -> None:
    assert lab.run(drawn(seed)) is None
    assert lab.steps > 0
