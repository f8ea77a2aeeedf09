"""The oracle for clients: snapshots, outcomes of transactions, and files of maintenance, from a log alone."""

import msgspec
import pytest

from conformance.interface import messages as m
from conformance.oracle import client as oracle
from conformance.oracle.client import Action, Folder, Outcome, Reading, Transacted

Log = dict[int, list[Action]]


def add(path: str, part: str | None = None) -> Action:
    return {"add": {"path": path, "partitionValues": {"part": part}, "size": 1, "dataChange": True}}


def remove(path: str) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 0}}


def info(version: int, **more: bool) -> Action:
    return {"commitInfo": {"inCommitTimestamp": 1_000 * version, **more}}


def log_of(*commits: list[Action], partitioned: bool = False) -> Log:
    """A table whose version 1 added `a` (partition x) and `b` (partition y), and further commits."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}
    columns = ["part"] if partitioned else []
    metadata = {"id": "t", "partitionColumns": columns, "configuration": {"delta.enableInCommitTimestamps": "true"}}
    log = {0: [info(0), {"protocol": protocol}, {"metaData": metadata}], 1: [info(1), add("a", "x"), add("b", "y")]}
    return log | {version: [info(version), *actions] for version, actions in enumerate(commits, 2)}


def transact(**changes: object) -> m.Transact:
    return m.Transact(table="t", marker="m", **changes)  # type: ignore[arg-type]


def test_a_replay_has_the_last_action_of_each_key() -> None:
    log = log_of([remove("a"), add("c%20d", "z"), {"txn": {"appId": "s", "version": 5}}], [add("a")])
    assert oracle.replay(log, 3).files == {"a": None, "b": "y", "c d": "z"}
    assert oracle.replay(log, 2).files == {"b": "y", "c d": "z"}
    assert oracle.replay(log, 3).applications == {"s": 5}


SNAPSHOT, WRITE = m.Isolation.SNAPSHOT, m.Isolation.WRITE_SERIALIZABLE
MINE = (m.DataFile(path="mine"),)


@pytest.mark.parametrize(
    ("winner", "request_", "outcome"),
    [
        ([add("c")], transact(adds=MINE), Outcome.MUST_LAND),
        ([remove("a")], transact(adds=MINE), Outcome.MUST_LAND),
        ([add("c")], transact(adds=MINE, reads="*"), Outcome.MUST_FAIL),
        ([add("c")], transact(adds=MINE, reads="*", isolation=SNAPSHOT), Outcome.EITHER),
        ([add("c")], transact(adds=MINE, reads="*", isolation=WRITE), Outcome.MUST_FAIL),
        ([remove("a")], transact(removes=("a",), isolation=SNAPSHOT), Outcome.MUST_FAIL),
        ([remove("b")], transact(removes=("a",), isolation=SNAPSHOT), Outcome.MUST_LAND),
        ([remove("b")], transact(reads="*", isolation=SNAPSHOT), Outcome.MUST_FAIL),
        ([{"txn": {"appId": "s", "version": 5}}], transact(application=("s", 6)), Outcome.MUST_FAIL),
        ([{"txn": {"appId": "o", "version": 5}}], transact(application=("s", 6)), Outcome.MUST_LAND),
    ],
)
def test_a_winner_decides_the_outcome(winner: list[Action], request_: m.Transact, outcome: Outcome) -> None:
    assert oracle.outcomes(request_, log_of(winner), 1, 2).outcome is outcome


def test_an_append_only_table_is_only_rearranged() -> None:
    log = log_of()
    log[0][1]["protocol"]["writerFeatures"].append("appendOnly")
    log[0][2]["metaData"]["configuration"]["delta.appendOnly"] = "true"
    for changes in ({"adds": MINE}, {"removes": ("a",), "data_change": False}):
        assert oracle.outcomes(transact(**changes), log, 1, 1).outcome is Outcome.MUST_LAND
    expected = oracle.outcomes(transact(removes=("a",)), log, 1, 1)
    assert expected.outcome is Outcome.MUST_FAIL
    assert expected.requirements == ("LOG-53",)


def test_a_partition_read_conflicts_only_with_its_partition() -> None:
    mine = transact(adds=MINE, reads="x")
    for part, outcome in (("x", Outcome.MUST_FAIL), ("y", Outcome.MUST_LAND)):
        assert oracle.outcomes(mine, log_of([add("c", part)], partitioned=True), 1, 2).outcome is outcome


def test_the_oldest_of_several_winners_decides() -> None:
    log = log_of([remove("a")], [add("c")], [add("d")])
    expected = oracle.outcomes(transact(removes=("a",), isolation=SNAPSHOT), log, 1, 4)
    assert expected.outcome is Outcome.MUST_FAIL
    assert expected.version == 2
    assert "CONFLICT-ORDER-10" in expected.requirements


def done(log: Log, request: m.Transact, answer: m.Answer, *landed: int, lost: bool = False) -> Transacted:
    return Transacted(
        request=request, answer=answer, log=log, base=1, before=1, landed=landed, lost=lost, excused=lost,
        rejected=False, proposals=0, by_path=False, feature="catalogManaged",
    )  # fmt: skip


def test_an_outcome_is_reported_as_it_ended() -> None:
    log, mine = log_of([add("mine")]), transact(adds=MINE)
    assert oracle.transaction(done(log, mine, m.Committed(version=2), 2)) is None
    failed = oracle.transaction(done(log, mine, m.Conflict(), 2, lost=True))
    assert failed is not None and "PROFILE-UNKNOWN-01" in failed.requirements
    invented = oracle.transaction(done(log_of(), mine, m.Committed(version=2)))
    assert invented is not None and "PROFILE-CLIENT-02" in invented.requirements
    assert oracle.transaction(done(log_of(), mine, m.Unknown(), lost=True)) is None


def test_a_commit_has_exactly_the_requested_changes() -> None:
    log, mine = log_of([add("mine"), remove("a")]), transact(adds=MINE, removes=("a",))
    assert [wrong.requirements for wrong in oracle.commit(log, mine, 2, {})] == [("ICT-09",)]  # its times are of 1970
    _, wrong = oracle.commit(log_of([add("mine"), add("more"), remove("a")]), mine, 2, {})
    assert "DELAYED-10" in wrong.requirements
    _, wrong = oracle.commit(log_of([add("mine")]), mine, 2, {})
    assert "LOG-30" in wrong.requirements


def read_of(log: Log, request: m.Snapshot, answer: m.Answer, **more: object) -> oracle.Wrong | None:
    reading = Reading(
        request=request, log=log, before=max(log), published=max(log), published_after=max(log), returned=max(log),
        remembered=max(log), readable=set(log), feature="catalogManaged", location="/t", promises_fresh=True,
        asked=True, may_refuse=False,
    )  # fmt: skip
    return oracle.read(reading._replace(**more), answer)  # type: ignore[arg-type]


def test_a_read_is_the_replay_of_a_fresh_version() -> None:
    log = log_of([remove("a")])
    right, old = m.SnapshotRead(version=2, files=("b",)), m.SnapshotRead(version=1, files=("a", "b"))
    newest = m.Snapshot(table="t")
    assert read_of(log, newest, right) is None
    stale = read_of(log, newest, old)
    assert stale is not None and stale.requirements[0] == "MC-READ-07"
    assert read_of(log, m.Snapshot(table="t", version=1), old) is None
    assert read_of(log, m.Snapshot(table="t", timestamp=1_999), old) is None
    for request, requirement in ((m.Snapshot(table="t", timestamp=2_000), "ICT-20"), (m.Snapshot(version=2), "LOG-09")):
        wrong = read_of(log, request, old)
        assert wrong is not None and requirement in wrong.requirements
    assert read_of(log, newest, m.SnapshotRead(version=2, files=("a", "b"))) is not None
    assert read_of(log, newest, m.Rejected()) is not None
    assert read_of(log, newest, m.Rejected(), readable={0, 1}) is None


def test_an_empty_partition_value_that_is_read_as_text_has_its_own_requirement() -> None:
    log = log_of([add("c", "")], partitioned=True)
    parts: dict[str, str | None] = {"a": "x", "b": "y", "c": ""}
    read = m.SnapshotRead(version=2, files=("a", "b", "c"), partitions=parts)
    wrong = read_of(log, m.Snapshot(table="t"), read)
    assert wrong is not None and (wrong.requirements, wrong.alone) == (("LOG-33",), True)
    wrong = read_of(log, m.Snapshot(table="t"), msgspec.structs.replace(read, partitions={**parts, "a": "y"}))
    assert wrong is not None and "LOG-18" in wrong.requirements
    assert read_of(log, m.Snapshot(table="t"), msgspec.structs.replace(read, partitions={**parts, "c": None})) is None


def test_an_answer_has_the_requested_names_of_the_clients_files() -> None:
    log = log_of([add("part-0001.parquet")])
    read = m.SnapshotRead(version=2, files=("a", "b", "mine", "other"))
    assert read_of(log, m.Snapshot(table="t"), read, names={"part-0001.parquet": ("mine", "other")}) is None
    assert read_of(log, m.Snapshot(table="t"), read, names={"part-0001.parquet": ("mine",)}) is not None


def test_a_missing_commit_is_an_error() -> None:
    log = log_of([remove("a")])
    read = m.SnapshotRead(version=2, files=("a", "b"))
    wrong = read_of(log, m.Snapshot(table="t"), read, harmed=("LOG-27",), readable={0, 1})
    assert wrong is not None and wrong.requirements == ("LOG-27",)


def test_maintenance_is_compared_with_the_replay() -> None:
    log = log_of([remove("a"), add("c")])
    right = oracle.reconciled(log, 2)
    assert oracle.checkpoint(log, 2, right) is None
    assert oracle.checkpoint(log, 2, [*right, add("c")]) is not None
    assert oracle.compaction(log, 1, 2, oracle.reconciled(log, 2, 1)) is None
    assert oracle.compaction(log, 1, 2, [action for action in right if "remove" not in action]) is not None
    assert oracle.vacuum(log, {"a"}) is None
    assert oracle.vacuum(log, {"c"}) is not None


@pytest.mark.parametrize(
    ("gone", "requirement"),
    [({"2.json"}, "LOG-36"), ({"cp2"}, "MC-CLEANUP-01"), ({"0.json", "1.json"}, None), (set(), None)],
)
def test_a_cleanup_keeps_what_the_cut_off_checkpoint_needs(gone: set[str], requirement: str | None) -> None:
    folder = Folder(
        commits={0, 1, 2}, checkpoints={2: ["cp2"]}, incomplete={}, compactions={}, checksums={}, staged={}, listed=()
    )
    names = {f"{version}.json": version for version in range(3)}
    found = [
        name for w in oracle.cleanup(log_of([]), folder, 2_500, gone, "managedCommit", names) for name in w.requirements
    ]
    assert requirement in found if requirement else not found


def test_only_a_cleanup_needs_a_checkpoint_to_delete_a_staged_file() -> None:
    empty = Folder(commits={0}, checkpoints={}, incomplete={}, compactions={}, checksums={}, staged={"s": 1}, listed=())
    for whole, requirement in ((True, "MC-CLEANUP-03"), (False, "MC-CLEANUP-08")):
        [wrong] = oracle.cleanup(log_of([]), empty, 2_500, {"s"}, "managedCommit", {}, whole=whole)
        assert wrong.requirements[0] == requirement
