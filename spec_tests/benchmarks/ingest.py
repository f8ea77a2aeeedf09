"""Ingestion of CSV files in this process, against DuckDB's COPY to Parquet.

    python -m spec_tests.benchmarks.ingest

DuckDB reads the same file and writes a Parquet file, which it does not sync; both run in this process. Our part is the
command without the start of Python: it checks each byte, writes a data file with statistics, makes it durable, and
commits. The processor time of the second part is that of the whole command, with the start of Python.
"""

import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
from typer.testing import CliRunner

import refimpl
from refimpl.cli.application import application
from spec_tests.benchmarks import measure

COLUMNS = "id BIGINT, month INT, price DOUBLE, name STRING, day DATE"
HEADER = "id,month,price,name,day\n"


def lines(count: int) -> str:
    draw = random.Random(1)
    rows = (
        f"{number},{number % 12},{draw.random() * 1000:.4f},customer {draw.randrange(10**9):09d},"
        f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}\n"
        for number in range(count)
    )
    return HEADER + "".join(rows)


def main() -> int:
    options = measure.arguments("ingestion of a CSV file", rounds=7, rows=1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "big.csv").write_text(lines(options.rows))
        (root / "two.csv").write_text(lines(2))
        refimpl.open(root / "lake", create=True).close()
        warehouse = ["-w", str(root / "lake")]
        database = duckdb.connect()

        def call(*words: str) -> None:
            done = CliRunner().invoke(application, [*words, *warehouse])
            assert done.exit_code == 0, done.output

        def command() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = "from refimpl.cli import main; main()"
            words = [sys.executable, "-c", start, "ingest", "orders", str(root / "two.csv"), *warehouse]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

        copy = f"COPY (SELECT * FROM read_csv('{root / 'big.csv'}')) TO '{root / 'big.parquet'}'"
        call("create", "orders", "--columns", COLUMNS)
        figures = measure.interleaved(
            options.rounds,
            {
                "ours": lambda: measure.seconds(lambda: call("ingest", "orders", str(root / "big.csv"))),
                "DuckDB": lambda: measure.seconds(lambda: database.execute(copy)),
                "two rows": command,
            },
        )
    report = measure.Report(f"ingestion of a CSV file with {options.rows:,} rows")
    report.add("ours", figures["ours"], "s")
    report.add("DuckDB's COPY to Parquet", figures["DuckDB"], "s")
    report.add_ratio("ours, divided by DuckDB", figures["ours"], figures["DuckDB"], at_most=2.0)
    report.add("two rows: processor time of the command", figures["two rows"], "s", at_most=1.5)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
