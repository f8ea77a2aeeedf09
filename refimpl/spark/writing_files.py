"""Rows of a frame as data files of a table, by the fastest of three routes that end in the same.

=======================  ==========================================  ===================================
rows                     route                                       why
=======================  ==========================================  ===================================
on the driver already    the plain client's writer                   no Python worker need start
of a partitioned table,  tasks write through Arrow                   faster than Spark's own writer,
or null checks needed    (`commit_protocol`)                         which sorts; and it sees every value
all others               Spark's writer, private folder              rows stay in the JVM
                         (`staged_files`)
=======================  ==========================================  ===================================

`python -m spec_tests.benchmarks.spark_write` measures them side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.actions import Add
from refimpl.client import data_files, file_statistics
from refimpl.client.schema import Struct
from refimpl.spark import commit_protocol, frames, staged_files

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
    if partition_columns or frames.may_hold_forbidden_nulls(frame, schema):
        return commit_protocol.write(frame, location, schema, partition_columns, indexed=indexed).added
    return staged_files.write(frame, location, schema, indexed=indexed).added
