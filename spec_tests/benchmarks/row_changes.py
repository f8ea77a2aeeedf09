"""DELETE, UPDATE and MERGE by copy on write, against delta-rs.

    python -m spec_tests.benchmarks.row_changes

The table is a filesystem table of sorted rows in many files. Each operation changes half of the rows of 1% of the
files. Every round changes a new copy through a new handle, so the snapshot, the search and the commit are included. Our
client makes its files and its commit durable; delta-rs syncs nothing. Processor time depends less on other load.
"""

import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.storage.environment import Environment
from spec_tests.benchmarks import measure

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("price", pa.float64()), ("name", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    ids = pa.arange(first, first + count)
    columns = [ids, pc.cast(pc.bit_wise_and(ids, 7), pa.int32()), pc.divide(pc.cast(ids, pa.float64()), 7.0)]
    return pa.table([*columns, pc.binary_join_element_wise("name", pc.cast(ids, pa.string()), "-")], schema=SCHEMA)


def build(location: Path, files: int, rows_per_file: int) -> None:
    table = create_filesystem_table(location, Environment(), SCHEMA)
    for number in range(files):
        table.append(rows(number * rows_per_file, rows_per_file))


def ours(location: Path, operation: str, where: str, news: pa.Table) -> None:
    table = Table.by_path(location)
    if operation == "DELETE":
        table.delete(where)
    elif operation == "UPDATE":
        table.update({"price": "price + 1"}, where)
    else:
        merge = table.merge(news, "target.id = source.id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute()


def theirs(location: Path, operation: str, where: str, news: pa.Table) -> None:
    table = deltalake.DeltaTable(str(location))
    if operation == "DELETE":
        table.delete(where)
    elif operation == "UPDATE":
        table.update(updates={"price": "price + 1"}, predicate=where)
    else:
        merge = table.merge(news, "target.id = source.id", source_alias="source", target_alias="target")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


def main() -> int:
    options = measure.arguments("row-level changes", rounds=7, files=100, rows=1_000_000)
    per_file = options.rows // options.files
    touched = max(1, options.files // 100)
    first = options.files // 2 * per_file
    last = first + touched * per_file
    where = f"id >= {first} AND id < {last} AND month < 4"
    news = rows(first, touched * per_file).filter(pc.less(pc.field("month"), 4))
    remaining = {"DELETE": options.rows - news.num_rows, "UPDATE": options.rows, "MERGE": options.rows}
    report = measure.Report(f"changes in {touched} of {options.files} files, {options.rows:,} rows")
    with tempfile.TemporaryDirectory() as name:
        base, copy = Path(name) / "base", Path(name) / "copy"
        measure.progress("building the table")
        build(base, options.files, per_file)
        used: defaultdict[str, list[float]] = defaultdict(list)
        for operation, expected in remaining.items():

            def work(
                act: Callable[[Path, str, str, pa.Table], None], operation: str = operation, expected: int = expected
            ) -> float:
                shutil.copytree(base, copy)
                os.sync()
                start, processor = time.perf_counter(), time.process_time()
                act(copy, operation, where, news)
                took = time.perf_counter() - start
                used[act.__name__].append(time.process_time() - processor)
                assert Table.by_path(copy).snapshot().to_arrow(columns=["id"]).num_rows == expected
                shutil.rmtree(copy)
                return took

            work(ours), work(theirs)  # imports
            used.clear()
            figures = measure.interleaved(
                options.rounds, {"ours": lambda: work(ours), "delta-rs": lambda: work(theirs)}
            )
            report.add_all(figures, "s", f"{operation}, {{}}")
            report.add_ratio(f"{operation}, ours / delta-rs", figures["ours"], figures["delta-rs"], at_most=1.0)
            label = f"{operation}, processor time, ours / delta-rs"
            report.add_ratio(label, used["ours"], used["theirs"], at_most=1.0)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
