"""A process that writes rows with one INSERT each: `python -m spec_tests.engines.duckdb.writer URL TABLE FIRST COUNT`.

It starts when a line comes, and prints how often an INSERT failed and the row was not there (`refused`), and how often
it was there all the same (`landed`). An INSERT that failed is looked for before it is tried again: thus a client
without transactions of its own writes every row once.
"""

from __future__ import annotations

import json
import sys

import duckdb

from spec_tests.engines.duckdb.attached import attached

TRIES = 200


def write(url: str, table: str, numbers: list[int]) -> tuple[int, int]:
    """How many INSERTs were refused, and how many landed although they failed."""
    refused = landed = 0
    while numbers:
        with attached(url) as connection:
            if refused + landed and _there(connection, table, numbers[0]):
                refused, landed, numbers = refused - 1, landed + 1, numbers[1:]
            try:
                while numbers:
                    connection.execute(f"INSERT INTO unity.default.{table} VALUES ({numbers[0]}, 'duckdb')")
                    numbers = numbers[1:]
            except duckdb.TransactionException:
                refused += 1
        if refused > TRIES:
            raise TimeoutError(f"row {numbers[0]}: {refused} INSERTs were refused")
    return refused, landed


def _there(connection: duckdb.DuckDBPyConnection, table: str, number: int) -> bool:
    found = connection.execute(f"SELECT count(*) FROM unity.default.{table} WHERE id = {number}")
    return found.fetchall() != [(0,)]


def main() -> None:
    url, table, first, count = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    refused, landed = write(url, table, [int(first) + number for number in range(int(count))])
    print(json.dumps({"refused": refused, "landed": landed}), flush=True)


if __name__ == "__main__":
    main()
