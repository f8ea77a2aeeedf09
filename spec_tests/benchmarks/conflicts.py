"""The conflict check of a transaction that lost to 1,000 commits of 100 files.

    python -m spec_tests.benchmarks.conflicts

The transaction read one partition of 100 by a condition, and removes files of it.

- `other partitions`: every winner added files that the transaction did not read. Each of the 100,000 files is compared
  with the condition.
- `removals`: every winner also removed files, none of which the transaction read or removes.
- `blind appends`: the transaction may ignore the winners at WriteSerializable.

The actions are decoded before the clock starts. The figures are milliseconds of processor time for all winners.
"""

import sys
import time
from collections.abc import Sequence
from functools import partial

from refimpl.client.conflicts import ReadBasis, ReadPredicate, Reads, TransactionSummary, Winner, check
from refimpl.protocol.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove
from refimpl.rows import predicate
from refimpl.schema import schema
from refimpl.schema.features import IsolationLevel
from spec_tests.benchmarks import measure

PARTITIONS = 100
SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"part","type":"integer","nullable":true,"metadata":{}}]}'
)
BASIS = ReadBasis(
    protocol=Protocol(min_reader_version=1, min_writer_version=2),
    metadata=Metadata(id="0", schema_string=SCHEMA, partition_columns=("part",)),
)


def add(part: int, name: str) -> Add:
    return Add(
        path=f"part={part}/{name}.parquet",
        partition_values={"part": str(part)},
        size=1,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
    )


def remove(part: int, name: str) -> Remove:
    return Remove(path=f"part={part}/{name}.parquet", deletion_timestamp=1, data_change=True)


def transaction() -> TransactionSummary:
    test = predicate.file_test("part = 0 AND id > 5", schema.parse(SCHEMA), ("part",))
    removed = [remove(0, f"read-{number}") for number in range(10)]
    reads = Reads(
        predicates=(ReadPredicate(text=test.text, may_match=test.may_match_partition),),
        files=frozenset(action.key for action in removed),
    )
    return TransactionSummary.of(removed, reads, IsolationLevel.WRITE_SERIALIZABLE)


def commits_of(commits: int, files: int, *, blind: bool, removals: bool) -> list[list[Action]]:
    made = []
    for version in range(1, commits + 1):
        info = CommitInfo({"inCommitTimestamp": version, "operation": "WRITE", "isBlindAppend": blind})
        actions: list[Action] = [info]
        for number in range(files):
            part = 1 + (version + number) % (PARTITIONS - 1)
            removes = removals and number % 2 == 0
            actions.append((remove if removes else add)(part, f"{version}-{number}"))
        made.append(actions)
    return made


def milliseconds(summary: TransactionSummary, commits: Sequence[Sequence[Action]]) -> float:
    start = time.process_time()
    basis = BASIS
    for version, actions in enumerate(commits, 1):
        basis = check(summary, Winner(version=version, actions=actions), basis)
    return (time.process_time() - start) * 1000


def main() -> int:
    options = measure.arguments("conflict check", rounds=9, winners=1000, files=100)
    summary = transaction()
    kinds = {
        "other partitions": commits_of(options.winners, options.files, blind=False, removals=False),
        "other partitions and removals": commits_of(options.winners, options.files, blind=False, removals=True),
        "blind appends": commits_of(options.winners, options.files, blind=True, removals=False),
    }
    works = {name: partial(milliseconds, summary, commits) for name, commits in kinds.items()}
    report = measure.Report(f"conflict check against {options.winners} winners of {options.files} files")
    report.add_all(measure.interleaved(options.rounds, works), "ms", at_most=100)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
