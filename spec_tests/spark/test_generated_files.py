"""Files of each kind, read by the client and by Spark's tasks: see `spec_tests.spark.generated_files`."""

from pathlib import Path
from typing import TYPE_CHECKING

from spec_tests.spark import generated_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_both_routes_read_generated_files_alike(spark: "SparkSession", tmp_path: Path) -> None:
    assert generated_files.run(spark, tmp_path, 200, seed=1) == []
