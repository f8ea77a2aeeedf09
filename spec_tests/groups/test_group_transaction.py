"""Groups of tables in one transaction, of a client and at the owner: all members land at one time, or none."""

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import refimpl
from refimpl.client.group_transaction import GroupTransaction, MemberTable
from refimpl.client.proposing import MAX_LOOKS
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import groups
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import (
    Conflict,
    InlineProposal,
    Landed,
    NotLanded,
    Ratified,
    Rejected,
    RejectionReason,
    StagedProposal,
    VersionGap,
)
from refimpl.protocol.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    InvalidRequestError,
    LostRaceError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.groups import MAX_MEMBERS, GroupRatified, GroupRefused, Member
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.storage.environment import Environment
from spec_tests.support.builders import ON_REQUEST, START, OwnedTable, append, create, new_attempt, owned
from spec_tests.support.faults import Faults, crashed, disk_is_full, opened

SCHEMA = {"id": "long", "left": "long"}


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [v[0] for v in values], "left": [v[1] for v in values]})


@pytest.fixture
def warehouse(tmp_path: Path) -> refimpl.Warehouse:
    made = refimpl.open(tmp_path / "warehouse", create=True, environment=Environment(pause=lambda _: None))
    made.create_table("orders", SCHEMA)
    made.create_table("stock", SCHEMA, commit_mode=CommitMode.INLINE).append(rows((1, 10), (2, 20)))
    return made


def content(warehouse: refimpl.Warehouse) -> tuple[list[int], ...]:
    return tuple(sorted(s.to_arrow()["left"].to_pylist()) for s in warehouse.snapshots("orders", "stock"))


def files(warehouse: refimpl.Warehouse) -> set[Path]:
    """Data files and staged files."""
    return {p for p in warehouse.directory.rglob("*") if p.suffix == ".parquet" or "_staged_commits/" in str(p)}


def order(tx: GroupTransaction) -> None:
    tx.table("orders").append(rows((7, 1)))
    tx.table("stock").update({"left": "left - 1"}, where="id = 1")


BEFORE: tuple[list[int], ...] = ([], [10, 20])
AFTER = ([1], [9, 20])


def test_all_tables_change_at_once(warehouse: refimpl.Warehouse) -> None:
    with warehouse.transaction("orders", "stock") as tx:
        order(tx)
        assert content(warehouse) == BEFORE
        assert tx.table("stock").snapshot().version == 1
    assert content(warehouse) == AFTER
    assert {name: c.version for name, c in tx.committed.items()} == {"orders": 1, "stock": 2}
    for name, committed in tx.committed.items():
        history = warehouse.table(name).history(limit=1)
        assert (history[0].version, committed.tries) == (committed.version, 1)
    with pytest.raises(InvalidRequestError, match="has ended"):
        tx.table("orders")
    with pytest.raises(InvalidRequestError, match="ended already"), tx:
        pass


def test_group_is_rebased_over_other_commits(warehouse: refimpl.Warehouse) -> None:
    """A table of the group loses a race without a conflict, then both lose."""
    with warehouse.transaction("orders", "stock") as tx:
        order(tx)
        warehouse.table("orders").append(rows((8, 2)))
    assert tx.committed["orders"].rebased_over == 1
    with warehouse.transaction() as again:
        again.table("orders").append(rows((9, 3)))
        again.table("stock").append(rows((3, 30)))
        warehouse.table("orders").append(rows((8, 4)))
        warehouse.table("stock").append(rows((4, 40)))
    assert {c.rebased_over for c in again.committed.values()} == {1}
    assert {c.tries for c in again.committed.values()} == {2}
    assert content(warehouse) == ([1, 2, 3, 4], [9, 20, 30, 40])
    staged = [path for path in files(warehouse) if path.suffix == ".json"]
    assert len(staged) == 4, "one for each version; those of refused groups are deleted"


def _update(warehouse: refimpl.Warehouse) -> None:
    warehouse.table("stock").update({"left": "0"}, where="id = 1")


def _add(warehouse: refimpl.Warehouse) -> None:
    with warehouse.transaction() as tx:
        tx.table("stock").append(rows((1, 11)))
        tx.table("orders").append(rows((6, 6)))


CONFLICTS: dict[str, tuple[Callable[[refimpl.Warehouse], object], type[Exception]]] = {
    "a commit": (_update, ConcurrentAppendError),
    "another group": (_add, ConcurrentAppendError),
    "a DELETE": (lambda warehouse: warehouse.table("stock").delete(), ConcurrentDeleteReadError),
}


@pytest.mark.parametrize("other", CONFLICTS)
def test_conflict_in_one_table_commits_nothing(warehouse: refimpl.Warehouse, other: str) -> None:
    act, error = CONFLICTS[other]
    before = files(warehouse)
    with (
        pytest.raises(error, match="no table was changed; 'stock': version 2") as caught,
        warehouse.transaction() as tx,
    ):
        order(tx)
        mine = files(warehouse) - before
        act(warehouse)
        after, known = content(warehouse), files(warehouse)
    assert caught.value.table == "'stock'"
    assert content(warehouse) == after
    assert mine
    assert files(warehouse) == known - mine, "the new data files are deleted, and no staged file is left"
    assert not tx.committed


def test_exception_in_the_block_commits_nothing_and_leaves_no_files(warehouse: refimpl.Warehouse) -> None:
    before = files(warehouse)
    with pytest.raises(ZeroDivisionError), warehouse.transaction() as tx:
        order(tx)
        assert len(files(warehouse)) > len(before)
        _ = 1 / 0
    assert files(warehouse) == before
    assert content(warehouse) == BEFORE


@pytest.mark.parametrize("ends", ["conflict", "exception"])
def test_files_that_the_transaction_did_not_write_stay(warehouse: refimpl.Warehouse, ends: str) -> None:
    """It adds the files of an older version again, and so does another transaction, which lands."""
    stock = warehouse.table("stock")
    old = stock.snapshot().files.values()
    stock.delete()

    def restore(transaction: Transaction) -> None:
        transaction.add(*old)
        transaction.commit()

    with pytest.raises((ConcurrentAppendError, ZeroDivisionError)), warehouse.transaction() as tx:
        tx.table("orders").overwrite(rows((7, 1)))
        restore(tx.table("stock").transaction(operation="RESTORE"))
        restore(stock.transaction(operation="RESTORE"))
        warehouse.table("orders").append(rows((8, 2)))
        assert ends == "conflict" or 1 / 0
    assert content(warehouse) == ([2], [10, 20])


def test_appends_to_one_table_are_one_commit(warehouse: refimpl.Warehouse) -> None:
    with warehouse.transaction() as tx:
        for number in (1, 2, 3):
            tx.table("orders").append(rows((number, number)))
        for _ in range(2):  # an operation that changes nothing may be followed by another one
            assert tx.table("stock").update({"left": "0"}, where="id = 99")["numUpdatedRows"] == 0
    assert {name: c.version for name, c in tx.committed.items()} == {"orders": 1}
    assert content(warehouse)[0] == [1, 2, 3]


def test_failed_append_leaves_nothing_in_the_transaction(warehouse: refimpl.Warehouse) -> None:
    """Its batch is not recorded, so the application writes it again; a batch that landed is written once."""
    wrong = pa.table({"other": [1]})
    with warehouse.transaction() as tx:
        orders = tx.table("orders")
        orders.append(rows((1, 1)), app=("first", 1))
        orders.append(rows((1, 1)), app=("first", 1))
        for batch in (("second", 1), ("first", 2)):
            with pytest.raises(InvalidRequestError, match="no column"):
                orders.append(wrong, app=batch)
        orders.append(rows((2, 2)))
        with pytest.raises(InvalidRequestError, match="no column"):
            orders.append(wrong, app=("third", 1))
    table = warehouse.table("orders")
    assert content(warehouse)[0] == [1, 2]
    assert table.append(rows((1, 1)), app=("first", 1)) is None
    for number, batch in enumerate((("second", 1), ("first", 2), ("third", 1)), start=3):
        assert table.append(rows((number, number)), app=batch) is not None


def test_second_transaction_of_a_table_is_refused_and_none_is_lost(warehouse: refimpl.Warehouse) -> None:
    def writes(member: MemberTable, number: int) -> Transaction:
        transaction = member.transaction(parameters={"mode": "Append"})
        transaction.add(*transaction.data_file_writer().write_all(rows((number, number)).to_batches()))
        return transaction

    with warehouse.transaction() as tx:
        member = tx.table("orders")
        first, second, late = (writes(member, number) for number in (1, 2, 3))
        first.commit()
        with pytest.raises(InvalidRequestError, match="'orders' already has an operation"):
            second.commit()
        unused = writes(tx.table("stock"), 4)
    for transaction in (late, unused):
        with pytest.raises(InvalidRequestError, match="has ended"):
            transaction.commit()
    assert content(warehouse) == ([1], [10, 20])


def test_append_after_a_change_of_metadata_is_refused(warehouse: refimpl.Warehouse) -> None:
    """It would start from the metadata that was read, and so undo the change."""
    with pytest.raises(InvalidRequestError, match="'orders' already has an operation"), warehouse.transaction() as tx:
        changed = tx.table("orders").transaction(parameters={"mode": "Append"})
        changed.set_properties({"delta.checkpointInterval": "5"})
        changed.commit()
        tx.table("orders").append(rows((1, 1)))
    assert content(warehouse) == BEFORE


Second = Callable[[MemberTable], Any]
SECOND: dict[str, Second] = {
    "UPDATE": lambda table: table.update({"left": "0"}),
    "DELETE": lambda table: table.delete(),
    "WRITE": lambda table: table.overwrite(rows((1, 1))),
    "MERGE": lambda table: table.merge(rows((1, 1)), "target.id = source.id").when_matched_update_all().execute(),
}


@pytest.mark.parametrize("operation", SECOND)
def test_second_operation_on_one_table_is_refused_by_name(warehouse: refimpl.Warehouse, operation: str) -> None:
    before = files(warehouse)
    table_id = warehouse.table("stock").table_id
    assert table_id is not None
    with (
        pytest.raises(InvalidRequestError, match=rf"'stock' already has an operation \(WRITE, Append\).*\({operation}"),
        warehouse.transaction() as tx,
    ):
        tx.table("stock").append(rows((5, 5)))
        SECOND[operation](tx.table(table_id))
    assert content(warehouse) == BEFORE
    assert files(warehouse) == before


def _refused(warehouse: refimpl.Warehouse, name: str) -> None:
    with warehouse.transaction("orders") as tx:
        tx.table("orders").append(rows((1, 1)))
        tx.table(name)


def test_table_that_cannot_be_in_the_group_is_refused_by_name(warehouse: refimpl.Warehouse) -> None:
    warehouse.create_table("visible", SCHEMA, commit_mode=CommitMode.DIRECT)
    warehouse.create_table("old", SCHEMA, feature=MANAGED_COMMIT)
    before = files(warehouse)
    for name, error, message in (
        ("visible", InvalidRequestError, "'visible' has direct commits"),
        ("old", InvalidRequestError, "'old' is a managedCommit table and 'orders' a catalogManaged table"),
        ("missing", TableNotFoundError, "unknown table 'missing'"),
    ):
        with pytest.raises(error, match=message):
            _refused(warehouse, name)
    with pytest.raises(InvalidRequestError, match="invalid table 7"), warehouse.transaction(7):  # type: ignore[arg-type]
        pass
    assert files(warehouse) == before
    assert content(warehouse) == BEFORE


class Faulty:
    """Faults at `commit_group`, in front of the real owner."""

    def __init__(self, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real, self.plan = warehouse.owner.commit_group, list[Callable[..., Any]]()
        monkeypatch.setattr(warehouse.owner, "commit_group", self)

    def __call__(self, members: Any) -> Any:
        return self.plan.pop(0)(members) if self.plan else self.real(members)


def test_lost_answer_is_resolved_by_one_attempt(warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = Faulty(warehouse, monkeypatch)
    late: list[Any] = []

    def lose_answer(members: Any) -> None:
        faulty.real(members)
        raise OutcomeUnknown("the answer is lost")

    def lose_request(members: Any) -> None:
        late.append(members)
        raise OutcomeUnknown("the request is late")

    faulty.plan = [lose_answer]
    with warehouse.transaction() as tx:
        order(tx)
    assert (tx.committed["stock"].tries, content(warehouse)) == (1, AFTER)
    faulty.plan = [lose_request]
    with warehouse.transaction() as tx:
        order(tx)
    assert (tx.committed["stock"].tries, content(warehouse)) == (2, ([1, 1], [8, 20]))
    assert isinstance(faulty.real(late[0]), GroupRefused), "the late request must not land"
    outcome = warehouse.owner.attempt_outcome(late[0][0].table_id, late[0][0].proposal.attempt)
    assert outcome == NotLanded()


def test_unknown_outcome_keeps_the_files_and_a_failure_deletes_them(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty, before = Faulty(warehouse, monkeypatch), files(warehouse)

    def fail(error: Exception) -> Callable[..., Any]:
        def act(*_: Any) -> None:
            raise error

        return act

    faulty.plan = [fail(OwnerUnavailableError("the disk is full"))]
    with pytest.raises(OwnerUnavailableError), warehouse.transaction() as tx:
        order(tx)
    assert {p for p in files(warehouse) if p.suffix == ".parquet"} == before
    faulty.plan = [lambda _: GroupRefused(decided_by=1, outcome=Conflict(latest_ratified_version=2), lost=(1,))]
    with pytest.raises(LostRaceError, match="reports version 2 as taken"), warehouse.transaction() as tx:
        order(tx)
    assert {p for p in files(warehouse) if p.suffix == ".parquet"} == before
    monkeypatch.setattr(warehouse.owner, "attempt_outcome", fail(OwnerUnavailableError("no answer")))
    faulty.plan = [fail(OutcomeUnknown("lost"))]
    with pytest.raises(OutcomeUnknown), warehouse.transaction() as tx:
        order(tx)
    assert len(files(warehouse)) > len(before)
    assert content(warehouse) == BEFORE


def test_full_backlogs_of_many_tables_are_published(warehouse: refimpl.Warehouse) -> None:
    names = [f"t{number}" for number in range(MAX_LOOKS + 1)]
    for name in names:
        policy = MaintenancePolicy(backfill_every=None, backlog_limit=1)
        warehouse.owner.set_policy(str(warehouse.create_table(name, SCHEMA).table_id), policy)
    for _ in range(2):
        with warehouse.transaction() as tx:
            for name in names:
                tx.table(name).append(rows((1, 1)))
    assert {committed.version for committed in tx.committed.values()} == {2}


def test_owner_without_groups_is_refused_by_name(warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(warehouse.owner), "commit_group", None)
    with pytest.raises(InvalidRequestError, match="the owner 'refimpl' has no transactions over several tables"):
        warehouse.transaction("orders")
    with pytest.raises(InvalidRequestError, match="'refimpl' has no transactions"):
        warehouse.snapshots("orders")


def test_snapshots_are_of_one_state(warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group lands after the owner has answered and before the logs are read."""
    read, pending = Table.snapshot, [order]

    def snapshot(table: Table, **options: Any) -> Any:
        if pending:
            with warehouse.transaction() as tx:
                pending.pop()(tx)
        return read(table, **options)

    monkeypatch.setattr(Table, "snapshot", snapshot)
    assert content(warehouse) == BEFORE
    assert content(warehouse) == AFTER


NAMES = ("orders", "stock")
Tables = list[OwnedTable]
Work = list[Member]


@pytest.fixture
def lake(tmp_path: Path) -> refimpl.Warehouse:
    return opened(tmp_path / "warehouse")


@pytest.fixture
def tables(lake: refimpl.Warehouse) -> Tables:
    """A staged and an inline table, each with version 0."""
    return [
        create(lake, CATALOG_MANAGED, mode, name=name)
        for name, mode in zip(NAMES, (CommitMode.STAGED, CommitMode.INLINE), strict=True)
    ]


def member(table: OwnedTable, version: int = 1, **options: object) -> Member:
    proposal = table.propose(version, append(START + version), **options)  # type: ignore[arg-type]
    return Member(table_id=table.table_id, version=version, proposal=proposal)


def state(tables: Sequence[OwnedTable]) -> list[dict[int, bytes]]:
    return [table.history() for table in tables]


def landed(tables: Sequence[OwnedTable], work: Sequence[Member]) -> set[bool]:
    """Whether each member's attempt landed: one answer, if the group is whole."""
    outcomes = [
        table.owner.attempt_outcome(table.table_id, member.proposal.attempt)
        for table, member in zip(tables, work, strict=True)
    ]
    return {isinstance(outcome, Landed) for outcome in outcomes}


def test_members_land_together_and_every_replay_is_answered_alike(lake: refimpl.Warehouse, tables: Tables) -> None:
    owner, work = lake.owner, [member(table) for table in tables]
    first = owner.commit_group(work)
    assert isinstance(first, GroupRatified)
    assert [commit.attempt for commit in first.commits] == [m.proposal.attempt for m in work]
    assert not first.replayed
    assert [table.latest for table in tables] == [1, 1]
    for table in tables:
        table.land()
        table.backfill()
    lake.owner.drop_table(tables[1].table_id)
    for replay in (work, work[::-1], work[:1]):
        again = owner.commit_group(replay)
        assert isinstance(again, GroupRatified)
        assert again.replayed
        assert {commit.version for commit in again.commits} == {1}
    alone = owner.commit(work[1].table_id, 1, work[1].proposal)
    assert isinstance(alone, Ratified)
    assert alone.replayed
    assert landed(tables, work) == {True}


Change = Callable[[refimpl.Warehouse, Tables, Work], object]


def _resolve(lake: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    outcome = lake.owner.attempt_outcome(tables[1].table_id, work[1].proposal.attempt)
    assert outcome == NotLanded()


def _alone(lake: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    assert isinstance(lake.owner.commit(tables[1].table_id, 1, work[1].proposal), Ratified)


def _unstage(_: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    assert isinstance(work[0].proposal, StagedProposal)
    tables[0].log.delete(f"{tables[0].feature.staging_folder}/{work[0].proposal.file_name}")


def _replace(index: int, **fields: object) -> Change:
    return lambda _, __, work: work.__setitem__(index, msgspec.structs.replace(work[index], **fields))


def _garbage(_: refimpl.Warehouse, __: Tables, work: Work) -> None:
    work[1] = msgspec.structs.replace(work[1], proposal=InlineProposal(attempt=new_attempt(), content=b"{"))


def _mixed(lake: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    tables[1] = create(lake, MANAGED_COMMIT, CommitMode.STAGED, name="old")
    work[1] = member(tables[1])


def _direct(lake: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    tables[1] = create(lake, CATALOG_MANAGED, CommitMode.DIRECT, name="visible")
    work[1] = member(tables[1])


def _full(lake: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    policy = MaintenancePolicy(backfill_every=None, backlog_limit=1)
    lake.owner.set_policy(tables[1].table_id, policy)
    tables[1].land()
    work[1] = member(tables[1], 2)


def _both_lose(_: refimpl.Warehouse, tables: Tables, __: Work) -> None:
    for table in tables:
        table.land()


REFUSALS: dict[str, tuple[Change, int, tuple[int, ...], type | RejectionReason]] = {
    "the second lost a race": (lambda _, tables, __: tables[1].land(), 1, (1,), Conflict),
    "both lost a race": (_both_lose, 0, (0, 1), Conflict),
    "a gap": (lambda _, tables, work: work.__setitem__(1, member(tables[1], 5)), 1, (1,), VersionGap),
    "resolved as not landed": (_resolve, 1, (1,), RejectionReason.ATTEMPT_RESOLVED),
    "landed alone": (_alone, 1, (1,), RejectionReason.ATTEMPT_REUSED),
    "staged file missing": (_unstage, 0, (0,), RejectionReason.STAGED_FILE_MISSING),
    "malformed": (_garbage, 1, (1,), RejectionReason.MALFORMED_ACTIONS),
    "mixed features": (_mixed, 1, (1,), RejectionReason.OWNER_REFUSES),
    "direct": (_direct, 1, (1,), RejectionReason.COMMIT_MODE_NOT_ALLOWED),
    "backlog full": (_full, 1, (1,), RejectionReason.BACKLOG_FULL),
    "dropped": (lambda w, tables, _: w.owner.drop_table(tables[0].table_id), 0, (0,), RejectionReason.NOT_ACTIVE),
    "bad file name": (
        _replace(0, proposal=StagedProposal(attempt=new_attempt(), file_name="x.json")),
        0, (0,), RejectionReason.BAD_FILE_NAME,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_one_member_that_cannot_land_stops_all(lake: refimpl.Warehouse, tables: Tables, name: str) -> None:
    change, decided_by, lost, kind = REFUSALS[name]
    work = [member(table) for table in tables]
    change(lake, tables, work)
    live = [table for table in tables if name != "dropped" or table is not tables[0]]
    before = state(live)
    outcome = lake.owner.commit_group(work)
    assert isinstance(outcome, GroupRefused)
    assert (outcome.decided_by, outcome.lost) == (decided_by, lost)
    if isinstance(kind, RejectionReason):
        assert isinstance(outcome.outcome, Rejected)
        assert outcome.outcome.reason is kind
    else:
        assert type(outcome.outcome) is kind
    assert state(live) == before


INVALID: dict[str, tuple[Change, type[InvalidRequestError], str]] = {
    "empty": (lambda _, __, work: work.clear(), InvalidRequestError, "without members"),
    "one table twice": (
        lambda _, tables, work: work.append(member(tables[0])), InvalidRequestError, "members 0 and 2",
    ),
    "another owner's table": (_replace(1, table_id=str(uuid.uuid4())), TableNotFoundError, "member 1 of the group"),
    "1,000 members": (
        lambda _, __, work: work.extend(
            msgspec.structs.replace(work[0], table_id=str(uuid.uuid4())) for _ in range(998)
        ),
        InvalidRequestError, f"1000 members; expected at most {MAX_MEMBERS}",
    ),
    "no version": (_replace(1, version=-1), InvalidRequestError, "-1"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_invalid_group_changes_nothing(lake: refimpl.Warehouse, tables: Tables, name: str) -> None:
    change, error, message = INVALID[name]
    work = [member(table) for table in tables]
    change(lake, tables, work)
    before = state(tables)
    with pytest.raises(error, match=message):
        lake.owner.commit_group(work)
    assert state(tables) == before


@pytest.mark.longer
def test_interrupted_group_lands_completely_or_not_at_all(tmp_path: Path) -> None:
    """Every effect of the owner, from the request to the end of both publications, is the last one, or the first that
    fails. Afterwards all answers agree, and both tables accept commits."""
    numbers, landings = iter(range(10_000)), []

    def run(plan: Callable[[], Faults]) -> bool:
        folder = tmp_path / str(next(numbers))
        policy = MaintenancePolicy(backfill_every=1)
        with opened(folder) as lake:
            tables = [create(lake, CATALOG_MANAGED, CommitMode.STAGED, name=n, policy=policy) for n in NAMES]
            work = [member(table) for table in tables]
        before, faults, answer, error = state(tables), plan(), None, None
        try:
            answer = crashed(folder, faults, lambda failing: failing.owner.commit_group(work))
        except (OwnerUnavailableError, OutcomeUnknown) as raised:
            error = raised
        with opened(folder) as lake:
            after = [owned(lake, name) for name in NAMES]
            seen = lake.owner.resolve_together(NAMES)
            assert len({table.commits.latest_ratified_version for table in seen}) == 1, "half of a group is visible"
            (all_landed,) = landed(after, work)
            landings.append(all_landed)
            assert all_landed or not isinstance(answer, GroupRatified)
            assert not (all_landed and isinstance(error, OwnerUnavailableError))
            assert [list(history) for history in state(after)] == [[0, 1] if all_landed else [0]] * 2
            assert all_landed or state(after) == before
            again = lake.owner.commit_group(work)
            assert isinstance(again, GroupRatified if all_landed else GroupRefused)
            for table in after:
                table.land()
                table.backfill()
                assert table.published() == list(range(len(table.history())))
        return isinstance(answer, GroupRatified)

    complete = Faults()
    assert run(lambda: complete)
    assert complete.seen.count("link 1.json") == len(NAMES), "both tables were published"
    for number in range(len(complete.seen)):
        run(lambda n=number: Faults(crash_after=n))  # type: ignore[misc]
        run(lambda n=number: Faults(fail_from=n + 1, error=disk_is_full))  # type: ignore[misc]
    assert {True, False} == set(landings)


def test_reader_of_two_tables_never_sees_half(lake: refimpl.Warehouse, tables: Tables) -> None:
    """A group lands and is published between the reader's transaction and its look at the logs."""
    owner = lake.owner
    resolved, calls = owner.resolved, iter(range(1_000_000))

    def interrupted(*asked: object) -> object:
        if next(calls) == len(tables):  # after `resolve` of each
            assert isinstance(owner.commit_group([member(table) for table in tables]), GroupRatified)
            for table in tables:
                table.backfill()
        return resolved(*asked)  # type: ignore[arg-type]

    owner.resolved = interrupted  # type: ignore[method-assign, assignment]
    seen = owner.resolve_together(NAMES)
    assert next(calls) > len(tables)
    assert [table.commits.latest_ratified_version for table in seen] == [0, 0]
    owner.resolved = resolved  # type: ignore[method-assign]
    assert [table.commits.latest_ratified_version for table in owner.resolve_together(NAMES)] == [1, 1]
    assert groups.commits_groups(owner)


def test_overlapping_groups_and_single_commits_all_end(lake: refimpl.Warehouse, tables: Tables) -> None:
    """Two threads commit groups of the same tables in opposite orders, two commit single versions: no deadlock, and
    every version belongs to one winner."""
    tables.append(create(lake, CATALOG_MANAGED, CommitMode.STAGED, name="third", policy=ON_REQUEST))
    won = [0] * 4

    def group(number: int, chosen: Tables) -> None:
        while won[number] < 5:
            work = [member(table, (table.latest or 0) + 1) for table in chosen]
            won[number] += isinstance(lake.owner.commit_group(work), GroupRatified)

    def single(number: int, table: OwnedTable) -> None:
        while won[number] < 5:
            won[number] += isinstance(table.commit((table.latest or 0) + 1), Ratified)

    acts = (
        lambda: group(0, tables), lambda: group(1, tables[::-1]), lambda: single(2, tables[0]),
        lambda: single(3, tables[2]),
    )  # fmt: skip
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert won == [5] * 4
    assert [table.latest for table in tables] == [15, 10, 15]
