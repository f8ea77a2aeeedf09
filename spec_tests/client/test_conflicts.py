"""The checks between a transaction and the commits that landed first: DELTA.md#transactions."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import refimpl
from refimpl.client.conflicts import (
    IsolationLevel,
    ReadBasis,
    ReadPredicate,
    Reads,
    TransactionSummary,
    Winner,
    check,
    effective_isolation,
)
from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import optimize
from refimpl.client.table import Table
from refimpl.client.transaction import CommitLoop
from refimpl.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Remove,
    Txn,
    decode,
)
from refimpl.protocol.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentModificationError,
    ConcurrentTransactionError,
    DeltaError,
    MetadataChangedError,
    ProtocolChangedError,
    UnsupportedFeatureError,
)
from refimpl.schema.schema import Field, Primitive, Struct
from refimpl.storage.environment import Environment
from spec_tests.support.builders import commit, redefine
from spec_tests.support.written_log import SCHEMA, add, remove


def protocol(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=(*features, "domainMetadata"))


PARTITIONED = Metadata(id="t", schema_string=SCHEMA, partition_columns=("month",), configuration={"delta.x": "1"})
UNPARTITIONED = replace(PARTITIONED, partition_columns=())
OTHER_COMMENT = replace(PARTITIONED, description="hello")
OTHER_ID = replace(OTHER_COMMENT, id="another")
OTHER_FORMAT = replace(OTHER_COMMENT, format=Format(provider="orc"))
OTHER_SCHEMA = replace(PARTITIONED, schema_string=SCHEMA.replace('"id"', '"identity"'))
OTHER_USER_PROPERTY = replace(PARTITIONED, configuration={"delta.x": "1", "team": "a"})
OTHER_PROPERTY = replace(PARTITIONED, configuration={"delta.x": "2"})
ADDED_PROPERTY = replace(PARTITIONED, configuration={"delta.x": "1", "delta.y": "1"})
NO_PROPERTY = replace(PARTITIONED, configuration={})
PROTOCOL, DROPPED = protocol("appendOnly"), protocol()
EXTENDED = protocol("appendOnly", "inCommitTimestamp")
FOREIGN = protocol("appendOnly", "icebergCompatV2")
OWNED = protocol("appendOnly", "managedCommit")

SERIALIZABLE = IsolationLevel.SERIALIZABLE
WRITE_SERIALIZABLE = IsolationLevel.WRITE_SERIALIZABLE
SNAPSHOT_ISOLATION = IsolationLevel.SNAPSHOT_ISOLATION


def adding(path: str, month: str = "01", **fields: Any) -> Add:
    return add(path, month, **fields)


def removing(path: str, **fields: Any) -> Remove:
    return remove(path, **fields)


def info(*, blind: bool) -> CommitInfo:
    return CommitInfo({"operation": "WRITE", "isBlindAppend": blind})


BLIND = info(blind=True)
VECTORS = [
    DeletionVector(storage_type="i", path_or_inline_dv=f"rows{n}", size_in_bytes=40, cardinality=1) for n in range(3)
]
JANUARY = ReadPredicate(text="month = '01'", may_match=lambda add: add.partition_values["month"] == "01")
FEBRUARY = ReadPredicate(text="month = '02'", may_match=lambda add: add.partition_values["month"] == "02")
NOTHING = Reads()
WHOLE = Reads(whole_table=True)
SOME = Reads(predicates=(JANUARY,), files=frozenset({("a", None)}))
OVERWRITE = (removing("a"), adding("new"))


@dataclass(frozen=True)
class Row:
    """One row of the table of rules: the commit `winner` raises the error `kind`; `twin` differs in one thing and
    raises none.
    """

    title: str
    kind: type[DeltaError]
    winner: Sequence[Action]
    twin: Sequence[Action]
    reads: Reads = NOTHING
    actions: Sequence[Action] = (adding("new"),)
    isolation: IsolationLevel = SERIALIZABLE
    metadata: Metadata = PARTITIONED


def appended(title: str, winner: Sequence[Action], twin: Sequence[Action], **more: Any) -> Row:
    """A row of step 5: an overwrite of one partition races a winner that adds files."""
    return Row(title, ConcurrentAppendError, winner, twin, **{"reads": SOME, "actions": OVERWRITE, **more})


OTHER_TXN = [Txn(app_id="other", version=7)]
MINE, SAME, OTHER = (DomainMetadata(domain=name, configuration="1", removed=False) for name in "dde")
ROWS = [
    Row("1: an unsupported winner", UnsupportedFeatureError, [FOREIGN], [EXTENDED]),
    Row("1: both change the protocol", ProtocolChangedError, [EXTENDED], [OTHER_COMMENT], actions=(EXTENDED,)),
    Row("1: the winner drops a feature", ProtocolChangedError, [DROPPED], [EXTENDED]),
    Row("1: the winner gives the table to an owner", ProtocolChangedError, [OWNED], [EXTENDED]),
    Row("2: both change the metadata", MetadataChangedError, [OTHER_COMMENT], [EXTENDED], actions=(OTHER_COMMENT,)),
    Row("2: the winner changes the schema", MetadataChangedError, [OTHER_SCHEMA], [OTHER_COMMENT]),
    Row("2: the winner changes the partitioning", MetadataChangedError, [UNPARTITIONED], [OTHER_COMMENT]),
    Row("2: the winner replaces the table", MetadataChangedError, [OTHER_ID], [OTHER_COMMENT]),
    Row("2: the winner changes the file format", MetadataChangedError, [OTHER_FORMAT], [OTHER_COMMENT]),
    Row("2: the winner changes a property of Delta's", MetadataChangedError, [OTHER_PROPERTY], [OTHER_USER_PROPERTY]),
    Row("2: the winner adds a property of Delta's", MetadataChangedError, [ADDED_PROPERTY], [OTHER_USER_PROPERTY]),
    Row("2: the winner removes a property of Delta's", MetadataChangedError, [NO_PROPERTY], [OTHER_USER_PROPERTY]),
    Row("3: the same domain", ConcurrentTransactionError, [SAME], [OTHER], actions=(MINE,)),
    Row(
        "3: the same domain, which the loser removes",
        ConcurrentTransactionError,
        [SAME],
        [OTHER],
        actions=(replace(MINE, removed=True),),
    ),
    Row(
        "4: an application that was read",
        ConcurrentTransactionError,
        [Txn(app_id="stream", version=7)],
        OTHER_TXN,
        reads=Reads(app_ids=frozenset({"stream"})),
    ),
    appended("5: an added file after a whole-table read", [adding("b", "02")], OTHER_TXN, reads=WHOLE),
    appended("5: an added file in a partition that was read", [adding("b", "01")], [adding("b", "02")]),
    appended(
        "5: an added file in the second of the partitions that were read",
        [adding("b", "01")],
        [adding("b", "03")],
        reads=Reads(predicates=(FEBRUARY, JANUARY)),
    ),
    appended(
        "5: an added file that changes no data",
        [adding("b", "01", data_change=False)],
        [adding("b", "02", data_change=False)],
    ),
    appended(
        "5: any added file in an unpartitioned table", [adding("b", "02")], [removing("b")], metadata=UNPARTITIONED
    ),
    Row("6: a removed file that was read", ConcurrentDeleteReadError, [removing("a")], [removing("b")], reads=SOME),
    Row("6: any removal after a whole-table read", ConcurrentDeleteReadError, [removing("b")], OTHER_TXN, reads=WHOLE),
    Row("7: a file that both remove", ConcurrentDeleteDeleteError, [removing("a")], [removing("b")], actions=OVERWRITE),
    Row(
        "7: a file that both rewrite",
        ConcurrentDeleteDeleteError,
        [removing("a", data_change=False)],
        [removing("b", data_change=False)],
        actions=(removing("a", data_change=False), adding("new", data_change=False)),
    ),
    Row(
        "7: a file whose deletion vector both replace",
        ConcurrentDeleteDeleteError,
        [removing("a", deletion_vector=VECTORS[0]), adding("a", deletion_vector=VECTORS[1])],
        [removing("a"), adding("a", deletion_vector=VECTORS[1])],
        actions=(removing("a", deletion_vector=VECTORS[0]), adding("a", deletion_vector=VECTORS[2])),
    ),
    appended("isolation: Serializable sees a blind append", [BLIND, adding("b")], [BLIND, adding("b", "02")]),
    appended(
        "isolation: WriteSerializable sees an append that is not blind",
        [info(blind=False), adding("b")],
        [BLIND, adding("b")],
        isolation=WRITE_SERIALIZABLE,
    ),
    appended(
        "isolation: WriteSerializable sees an append that does not say whether it is blind",
        [CommitInfo({"operation": "WRITE"}), adding("b")],
        [BLIND, adding("b")],
        isolation=WRITE_SERIALIZABLE,
    ),
    *(
        appended(
            f"isolation: {level.value} with a change of metadata sees blind appends too",
            [BLIND, adding("b")],
            [BLIND, adding("b", "02")],
            actions=(*OVERWRITE, OTHER_COMMENT),
            isolation=level,
        )
        for level in (WRITE_SERIALIZABLE, SNAPSHOT_ISOLATION)
    ),
    Row(
        "isolation: SnapshotIsolation sees a change of the partitioning",
        MetadataChangedError,
        [UNPARTITIONED],
        [OTHER_COMMENT],
        isolation=SNAPSHOT_ISOLATION,
    ),
    Row(
        "isolation: SnapshotIsolation still sees removals",
        ConcurrentDeleteReadError,
        [removing("a")],
        [adding("b")],
        reads=SOME,
        isolation=SNAPSHOT_ISOLATION,
    ),
]


def outcome(row: Row, winner: Sequence[Action]) -> ReadBasis:
    work = TransactionSummary.of(row.actions, row.reads, row.isolation)
    basis = ReadBasis(protocol=PROTOCOL, metadata=row.metadata)
    return check(work, Winner(version=5, actions=winner), basis)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_each_rule_rejects_its_winner_and_accepts_the_twin(row: Row) -> None:
    """DELTA.md#order-of-checks, DELTA.md#isolation, DELTA.md#pruning."""
    with pytest.raises(row.kind) as caught:
        outcome(row, row.winner)
    assert type(caught.value) is row.kind
    if issubclass(row.kind, ConcurrentModificationError):
        assert caught.value.version == 5
    expected = ReadBasis(protocol=PROTOCOL, metadata=row.metadata).after(Winner(version=5, actions=row.twin))
    assert outcome(row, row.twin) == expected


def test_the_first_violated_rule_is_reported() -> None:
    """DELTA.md#conflict-order: the error is that of the first rule, even if the winner violates several."""
    reads = Reads(whole_table=True, files=frozenset({("a", None)}), app_ids=frozenset({"stream"}))
    domain = DomainMetadata(domain="d", configuration="", removed=False)
    work = TransactionSummary.of((EXTENDED, OTHER_COMMENT, domain, removing("a")), reads, SERIALIZABLE)
    offences: list[tuple[Action, type[ConcurrentModificationError]]] = [
        (EXTENDED, ProtocolChangedError),
        (OTHER_COMMENT, MetadataChangedError),
        (domain, ConcurrentTransactionError),
        (Txn(app_id="stream", version=1), ConcurrentTransactionError),
        (adding("b"), ConcurrentAppendError),
        (removing("a"), ConcurrentDeleteReadError),
    ]
    for first in range(len(offences)):
        actions = [action for action, _ in reversed(offences[first:])]
        with pytest.raises(offences[first][1]):
            check(work, Winner(version=1, actions=actions), ReadBasis(protocol=PROTOCOL, metadata=PARTITIONED))


@pytest.mark.parametrize(
    ("requested", "actions", "runs_at"),
    [
        (SERIALIZABLE, (adding("a", data_change=False), removing("b", data_change=False)), SNAPSHOT_ISOLATION),
        (SERIALIZABLE, (adding("a", data_change=False), removing("b")), SERIALIZABLE),
        (SERIALIZABLE, (adding("a", data_change=False), Txn(app_id="s", version=1)), SERIALIZABLE),
        (SERIALIZABLE, (), SNAPSHOT_ISOLATION),
        (WRITE_SERIALIZABLE, (adding("a", data_change=False),), SNAPSHOT_ISOLATION),
        (WRITE_SERIALIZABLE, (), WRITE_SERIALIZABLE),
        (SNAPSHOT_ISOLATION, (adding("a"),), SNAPSHOT_ISOLATION),
    ],
)
def test_a_transaction_that_changes_no_data_is_downgraded(
    requested: IsolationLevel, actions: tuple[Action, ...], runs_at: IsolationLevel
) -> None:
    """DELTA.md#downgrade, DELTA.md#empty-commits."""
    assert effective_isolation(requested, actions) is runs_at


# Properties over arbitrary transactions and winners.

PATHS = st.sampled_from(["a", "b", "c", "d"])
MONTHS = st.sampled_from(["01", "02"])
FILES = st.one_of(
    st.builds(adding, PATHS, MONTHS, data_change=st.booleans()), st.builds(removing, PATHS, data_change=st.booleans())
)
OTHERS: st.SearchStrategy[Action] = st.one_of(
    st.builds(lambda name: Txn(app_id=name, version=1), st.sampled_from(["s", "t"])),
    st.builds(lambda name: DomainMetadata(domain=name, configuration="", removed=False), st.sampled_from(["d", "e"])),
    st.sampled_from([PROTOCOL, EXTENDED, DROPPED]),
    st.sampled_from([PARTITIONED, OTHER_COMMENT, OTHER_SCHEMA]),
)
ACTIONS = st.lists(st.one_of(FILES, OTHERS), max_size=6)
READS = st.builds(
    Reads,
    whole_table=st.booleans(),
    predicates=st.sampled_from([(), (JANUARY,), (FEBRUARY,)]),
    files=st.frozensets(st.tuples(PATHS, st.none())),
    app_ids=st.frozensets(st.sampled_from(["s", "t"])),
)
BASIS = ReadBasis(protocol=PROTOCOL, metadata=PARTITIONED)


def conflict_of(
    actions: list[Action], reads: Reads, level: IsolationLevel, winner: list[Action], basis: ReadBasis = BASIS
) -> type | None:
    try:
        check(TransactionSummary.of(actions, reads, level), Winner(version=1, actions=winner), basis)
    except (ConcurrentModificationError, UnsupportedFeatureError) as error:
        return type(error)
    return None


@given(actions=ACTIONS.filter(bool), reads=READS, winner=ACTIONS, blind=st.booleans())
def test_a_weaker_isolation_level_never_finds_more(
    actions: list[Action], reads: Reads, winner: list[Action], blind: bool
) -> None:
    """DELTA.md#isolation: the levels differ in step 5 only. A transaction without actions is excluded:
    DELTA.md#downgrade.
    """
    winner = [info(blind=blind), *winner]
    strict, middle, weak = (conflict_of(actions, reads, level, winner) for level in IsolationLevel)
    if strict is None:
        assert middle is None
    if middle is None:
        assert weak is None
    if strict is not ConcurrentAppendError:
        assert strict == middle == weak


@given(winner=st.lists(FILES, max_size=6), new=st.lists(st.builds(adding, PATHS, MONTHS), max_size=3))
def test_a_blind_append_never_conflicts_with_files(winner: list[Action], new: list[Action]) -> None:
    """DELTA.md#pruning: a blind append reads nothing."""
    assert conflict_of(new, NOTHING, SERIALIZABLE, winner) is None


@given(actions=ACTIONS, reads=READS, winner=ACTIONS, more=READS)
def test_a_larger_read_keeps_every_conflict(
    actions: list[Action], reads: Reads, winner: list[Action], more: Reads
) -> None:
    both = Reads(
        whole_table=reads.whole_table or more.whole_table,
        predicates=(*more.predicates, *reads.predicates),
        files=reads.files | more.files,
        app_ids=reads.app_ids | more.app_ids,
    )
    if conflict_of(actions, reads, SERIALIZABLE, winner) is not None:
        assert conflict_of(actions, both, SERIALIZABLE, winner) is not None


@given(actions=ACTIONS, reads=READS, winners=st.lists(ACTIONS, max_size=4))
def test_the_checks_leave_the_state_after_the_last_winner(
    actions: list[Action], reads: Reads, winners: list[list[Action]]
) -> None:
    basis, expected = BASIS, BASIS
    for version, winner in enumerate(winners, start=1):
        expected = expected.after(Winner(version=version, actions=winner))
        try:
            basis = check(
                TransactionSummary.of(actions, reads, SERIALIZABLE), Winner(version=version, actions=winner), basis
            )
        except ConcurrentModificationError as error:
            assert error.version == version
            return
        assert basis == expected


# The conflict table of the course: each pair of operations at each isolation level


def one_row(number: int, month: int) -> pa.Table:
    return pa.table({"id": [number], "month": pa.array([month], pa.int32())})


def row_changes(number: int, month: int) -> list[Callable[[Table], object]]:
    """Operations that change the row of this number and replace its file."""

    def merge(table: Table) -> object:
        merge = table.merge(one_row(number, month), "target.month = source.month AND target.id = source.id")
        return merge.when_matched_update({"id": "source.id + 10"}).when_not_matched_insert_all().execute()

    return [
        lambda table: table.update({"id": "id + 10"}, f"month = {month}"),
        lambda table: table.delete(f"month = {month} AND id = {number}"),
        merge,
    ]


def add_column(table: Table) -> object:
    fields = (*table.snapshot().schema.fields, Field(name="day", type=Primitive(name="date")))
    return commit(table, lambda t: redefine(t, schema_string=Struct(fields=fields).to_json()))


OPERATIONS: dict[str, list[Callable[[Table], object]]] = {
    "INSERT": [lambda table: table.append(one_row(9, 1))],
    "UPDATE, DELETE or MERGE in month 1": row_changes(1, 1),
    "UPDATE, DELETE or MERGE in month 2": row_changes(5, 2),
    "overwrite of the table": [lambda table: table.overwrite(one_row(9, 1))],
    "OPTIMIZE of month 1": [lambda table: optimize(table, "month = 1")],
    "ADD COLUMN": [add_column],
}


class StoppedError(Exception):
    """Ends an operation just before its commit."""


def prepared(table: Table, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Reads, list[Action]]]]:
    """The reads and the commit of each operation, as the client makes them."""
    loops: list[CommitLoop] = []

    def stop(loop: CommitLoop) -> None:
        loops.append(loop)
        raise StoppedError

    monkeypatch.setattr(CommitLoop, "run", stop)
    commits: dict[str, list[tuple[Reads, list[Action]]]] = {}
    for name, alternatives in OPERATIONS.items():
        for operation in alternatives:
            with pytest.raises(StoppedError):
                operation(table)
            loop = loops.pop()
            commits.setdefault(name, []).append(
                (loop.summary.reads, decode(loop.content.stamped(4, None), source=name))
            )
    return commits


def conflict_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Markdown table with a row for each pair that conflicts at some level."""
    rows = [
        "| this operation | lost to | Serializable | WriteSerializable | SnapshotIsolation |",
        "|---|---|---|---|---|",
    ]
    basis = ReadBasis(protocol=table.snapshot().protocol, metadata=table.snapshot().metadata)
    operations = prepared(table, monkeypatch)
    for (mine, losers), (theirs, winners) in itertools.product(operations.items(), repeat=2):
        (errors,) = {
            tuple(conflict_of(own, reads, level, winner, basis) for level in IsolationLevel)
            for (reads, (_, *own)), (_, winner) in itertools.product(losers, winners)
        }
        if any(errors):
            cells = ["is rebased" if kind is None else kind.__name__.removesuffix("Error") for kind in errors]
            rows.append(f"| {mine} | {theirs} | {' | '.join(cells)} |")
    return "\n".join(rows)


def test_the_course_shows_the_conflicts_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("id", pa.int64()), ("month", pa.int32())])
    table = create_filesystem_table(tmp_path / "t", Environment(), schema, partition_columns=["month"])
    for numbers, month in (((1, 2), 1), ((3,), 1), ((5, 6), 2)):
        table.append(pa.concat_tables([one_row(number, month) for number in numbers]))
    shown = (Path(refimpl.__file__).parent / "LEARN.md").read_text(encoding="utf-8")
    assert f"\n\n{conflict_table(table, monkeypatch)}\n\n" in shown
