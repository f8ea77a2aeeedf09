"""Run one benchmark, and print its figures and targets.

    python -m spec_tests.benchmarks commit [--rounds 9] [--json]

Exit code 1: a target is missed.
"""

import argparse
import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from spec_tests.benchmarks import measure
from spec_tests.benchmarks.measure import Benchmark, Builder, Claim

_CONFLICTS = ("other partitions", "other partitions and removals", "blind appends")
_OPERATIONS = ("DELETE", "UPDATE", "MERGE")
_WHOLE_TABLE = (
    "DELETE in all files",
    "UPDATE in all files",
    "MERGE of 1% of the rows",
    "read all rows",
    "read one row",
)
_PEAK = "DELETE in all files,"
_SCOPES = ("managedCommit,staged", "managedCommit,direct", "catalogManaged,staged", "catalogManaged,inline",
           "catalogManaged,direct")  # fmt: skip

BENCHMARKS: Final = {
    "commit": Benchmark(
        "owner",
        {"rounds": 9, "commits": 200},
        Claim("raw inline (us)", per="inline (us)", at_least=0.7),
        Claim("raw staged (us)", per="staged (us)", at_least=0.7),
        Claim("raw inline, descriptor lock (us)", per="inline (us)"),
        Claim("inline, processor time (us)", per="raw inline, processor time (us)", at_most=1.5),
        Claim("inline, processor time (us)", per="raw inline, descriptor lock, processor time (us)", at_most=1.8),
        Claim("8 threads (commits/s)", per="one thread (commits/s)", at_least=1),
        Claim("group of two (us)", per="inline (us)", at_most=1.3),
        Claim("one inline commit (syncs)", at_most=1),
        Claim("one staged commit (syncs)", at_most=3),
    ),
    "contention": Benchmark(
        "owner",
        {"rounds": 5, "seconds": 6, "writers": 16, "peer-writers": 8},
        Claim("slowest / fastest", at_least=0.5),
        Claim("p99 / fair share", at_most=12),
        Claim("groups, slowest / fastest", at_least=0.5),
        Claim("one-row appends, ours (commits/s)", per="one-row appends, delta-rs (commits/s)", at_least=5),
    ),
    "history": Benchmark(
        "owner",
        {"rounds": 7, "calls": 2000, "longest": 1_000_000},
        Claim("get_commits after 10 commits (us)", per="get_commits after the most commits (us)", at_least=0.8),
        Claim("start-up after the most commits (ms)", at_most=100),
    ),
    "snapshot": Benchmark(
        "client",
        {"rounds": 7, "commits": 10_000, "refreshes": 50, "files": 1_000_000},
        Claim("load, delta-rs (s)", per="load, ours (s)", at_least=1),
        Claim("refresh after many commits (ms)", per="refresh after 100 commits (ms)", at_most=1.5),
        Claim("checkpoint, written by delta-rs (s)", per="checkpoint, written by ours (s)", at_least=1),
        Claim("checkpoint, loaded by ours (s)", per="checkpoint, read by pyarrow (s)", at_most=1.2),
        Claim("checkpoint, all files listed by ours (s)", per="checkpoint, made objects by pyarrow (s)"),
    ),
    "conflicts": Benchmark(
        "client",
        {"rounds": 9, "winners": 1000, "files": 100},
        *(Claim(f"{kind} (ms)", at_most=100) for kind in _CONFLICTS),
    ),
    "row_changes": Benchmark(
        "client",
        {"rounds": 7, "files": 100, "rows": 1_000_000},
        *(
            Claim(f"{operation}, ours{beside} (s)", per=f"{operation}, delta-rs{beside} (s)", at_most=1)
            for operation in _OPERATIONS
            for beside in ("", ", processor time")
        ),
        *(Claim(f"{work}, ours (s)", per=f"{work}, delta-rs (s)", at_most=1) for work in _WHOLE_TABLE),
        *(
            Claim(f"{work}, ours, processor time (s)", per=f"{work}, delta-rs, processor time (s)")
            for work in _WHOLE_TABLE
        ),
        Claim(f"{_PEAK} ours, peak memory (MB)", per=f"{_PEAK} delta-rs, peak memory (MB)", at_most=1.5),
        warm_up=1,
    ),
    "ingest": Benchmark(
        "client",
        {"rounds": 7, "rows": 1_000_000},
        Claim("ours (s)", per="DuckDB (s)", at_most=2),
        Claim("two rows: processor time of the command (s)", at_most=1.5),
    ),
    "spark_write": Benchmark(
        "spark",
        {"rounds": 5, "rows": 10_000_000},
        Claim("20 partitions, plain (s)", per="20 partitions, ours (s)", at_least=1),
        Claim("unpartitioned, plain (s)", per="unpartitioned, ours (s)", at_least=0.6),
        Claim("100 rows, by a job (s)", per="100 rows, on the driver (s)"),
    ),
    "spark_read": Benchmark(
        "spark",
        {"rounds": 7, "rows": 10_000_000},
        Claim("unpartitioned, plain (s)", per="unpartitioned, ours (s)", at_least=0.95),
        Claim("20 partitions, plain (s)", per="20 partitions, ours (s)", at_least=0.95),
        Claim("one partition of 20, plain (s)", per="one partition of 20, ours (s)", at_least=0.95),
        Claim("500 small files, plain (s)", per="500 small files, ours (s)", at_least=0.95),
        Claim("unpartitioned, plain (s)", per="unpartitioned, data source (s)", at_least=0.83),
        warm_up=2,
    ),
    "spark_stream": Benchmark(
        "spark",
        {"rounds": 5, "rows": 100_000, "batches": 8},
        Claim("ours (s)", per="Parquet (s)", at_most=1.3),
        warm_up=1,
    ),
    "spark_row_changes": Benchmark(
        "spark",
        {"rounds": 5, "files": 1000, "rows": 10_000_000},
        *(Claim(f"{operation}, ours (s)", per=f"{operation}, plain (s)", at_most=1.3) for operation in _OPERATIONS),
        warm_up=1,
    ),
    "delta_spark": Benchmark(
        "spark",
        {"rounds": 7, "inserts": 12},
        Claim("our coordinator (ms)", per="plain Delta (ms)", at_most=1.1),
        Claim("our server (ms)", per="plain Delta (ms)", at_most=1.3, optional=True),
        Claim("our server, tracking rows (ms)", per="plain Delta, tracking rows (ms)", at_most=1.3, optional=True),
        warm_up=3,
    ),
    "server": Benchmark(
        "server",
        {"rounds": 3, "seconds": 4},
        Claim("one client, over HTTP (commits/s)", per="one client, in process (commits/s)", at_least=0.5),
        Claim("8 tables, over HTTP (commits/s)", per="8 tables, in process (commits/s)"),
        Claim("one table, over HTTP (commits/s)", at_least=300),
        Claim("8 tables, two workers (commits/s)", per="8 tables, in process (commits/s)", at_least=0.8),
        Claim("one table, slowest / fastest", at_least=0.2),
    ),
    "checker": Benchmark(
        "kit",
        {"rounds": 5, "operations": 1_000_000},
        Claim("check, reading excluded (1000 op/s)", at_least=500),
        Claim("memory per operation, three times as many (bytes)", per="memory per operation (bytes)", at_most=1.1),
        warm_up=1,
    ),
    "simulation": Benchmark(
        "kit",
        {"rounds": 5, "schedules": 200, "profile": 0},
        *(Claim(f"two-writers[{scope}] (1/s)", at_least=200) for scope in _SCOPES),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, benchmark in BENCHMARKS.items():
        command = commands.add_parser(name, help=_title(name, benchmark))
        command.add_argument("--json", action="store_true", help="print JSON")
        for option, default in benchmark.options.items():
            command.add_argument(f"--{option}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args(arguments)
    benchmark = BENCHMARKS[options.name]
    works = _works(options.name, benchmark)
    title = f"{options.name}: {_title(options.name, benchmark)}"
    return measure.show(title, benchmark.run(works, options), as_json=options.json)


def _works(name: str, benchmark: Benchmark) -> Builder:
    works: Builder = getattr(import_module(f"spec_tests.benchmarks.{benchmark.module}"), name)
    return works


def _title(name: str, benchmark: Benchmark) -> str:
    return (inspect.getdoc(_works(name, benchmark)) or "").partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
