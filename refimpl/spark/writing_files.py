"""Rows of a frame as data files of a table: through tasks, or where they are on the driver already, there.

Rows that the driver holds (`createDataFrame` of local data, results of commands) are few, and starting
Python workers for them costs more than the write. `python -m spec_tests.benchmarks.spark_write` measures both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.actions import Add
from refimpl.client import data_files, file_statistics
from refimpl.client.schema import Struct
from refimpl.spark import commit_protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_files(
    frame: DataFrame,
    location: Path,
    schema: Struct,
    partition_columns: tuple[str, ...],
    properties: Mapping[str, str],
    *,
    on_driver: bool = False,
) -> tuple[Add, ...]:
    """Add actions of durable files that hold the rows of `frame`, a frame that `frames.matched` the schema.

    `properties` are the table's; `on_driver` says that the rows are there already. No log names the files yet:
    commit them, or `data_files.delete` them.
    """
    indexed = file_statistics.indexed(schema.without(partition_columns), properties)
    if on_driver:
        return tuple(data_files.write(location, schema, partition_columns, frame.toArrow(), indexed=indexed))
    return commit_protocol.write(frame, location, schema, partition_columns, indexed=indexed).added
