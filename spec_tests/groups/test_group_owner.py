"""The owner of groups: all members of a transaction over several tables are ratified, or none is."""

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

import refimpl
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
from refimpl.protocol.errors import InvalidRequestError, OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.groups import MAX_MEMBERS, GroupRatified, GroupRefused, Member
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from spec_tests.support.builders import ON_REQUEST, START, OwnedTable, append, create, new_attempt, owned
from spec_tests.support.faults import Faults, crashed, disk_is_full, opened

NAMES = ("orders", "stock")
Tables = list[OwnedTable]
Work = list[Member]


@pytest.fixture
def warehouse(tmp_path: Path) -> refimpl.Warehouse:
    return opened(tmp_path / "warehouse")


@pytest.fixture
def tables(warehouse: refimpl.Warehouse) -> Tables:
    """A staged and an inline table, each with version 0."""
    return [
        create(warehouse, CATALOG_MANAGED, mode, name=name)
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


def test_members_land_together_and_every_replay_is_answered_alike(warehouse: refimpl.Warehouse, tables: Tables) -> None:
    owner, work = warehouse.owner, [member(table) for table in tables]
    first = owner.commit_group(work)
    assert isinstance(first, GroupRatified)
    assert [commit.attempt for commit in first.commits] == [m.proposal.attempt for m in work]
    assert not first.replayed
    assert [table.latest for table in tables] == [1, 1]
    for table in tables:
        table.land()
        table.backfill()
    warehouse.owner.drop_table(tables[1].table_id)
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


def _resolve(warehouse: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    outcome = warehouse.owner.attempt_outcome(tables[1].table_id, work[1].proposal.attempt)
    assert outcome == NotLanded()


def _alone(warehouse: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    assert isinstance(warehouse.owner.commit(tables[1].table_id, 1, work[1].proposal), Ratified)


def _unstage(_: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    assert isinstance(work[0].proposal, StagedProposal)
    tables[0].log.delete(f"{tables[0].feature.staging_folder}/{work[0].proposal.file_name}")


def _replace(index: int, **fields: object) -> Change:
    return lambda _, __, work: work.__setitem__(index, msgspec.structs.replace(work[index], **fields))


def _garbage(_: refimpl.Warehouse, __: Tables, work: Work) -> None:
    work[1] = msgspec.structs.replace(work[1], proposal=InlineProposal(attempt=new_attempt(), content=b"{"))


def _mixed(warehouse: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    tables[1] = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, name="old")
    work[1] = member(tables[1])


def _direct(warehouse: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    tables[1] = create(warehouse, CATALOG_MANAGED, CommitMode.DIRECT, name="visible")
    work[1] = member(tables[1])


def _full(warehouse: refimpl.Warehouse, tables: Tables, work: Work) -> None:
    policy = MaintenancePolicy(backfill_every=None, backlog_limit=1)
    warehouse.owner.set_policy(tables[1].table_id, policy)
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
def test_one_member_that_cannot_land_stops_all(warehouse: refimpl.Warehouse, tables: Tables, name: str) -> None:
    change, decided_by, lost, kind = REFUSALS[name]
    work = [member(table) for table in tables]
    change(warehouse, tables, work)
    live = [table for table in tables if name != "dropped" or table is not tables[0]]
    before = state(live)
    outcome = warehouse.owner.commit_group(work)
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
def test_invalid_group_changes_nothing(warehouse: refimpl.Warehouse, tables: Tables, name: str) -> None:
    change, error, message = INVALID[name]
    work = [member(table) for table in tables]
    change(warehouse, tables, work)
    before = state(tables)
    with pytest.raises(error, match=message):
        warehouse.owner.commit_group(work)
    assert state(tables) == before


@pytest.mark.longer
def test_interrupted_group_lands_completely_or_not_at_all(tmp_path: Path) -> None:
    """Every effect of the owner, from the request to the end of both publications, is the last one, or the first that
    fails. Afterwards all answers agree, and both tables accept commits."""
    numbers, landings = iter(range(10_000)), []

    def run(plan: Callable[[], Faults]) -> bool:
        folder = tmp_path / str(next(numbers))
        policy = MaintenancePolicy(backfill_every=1)
        with opened(folder) as warehouse:
            tables = [create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name=n, policy=policy) for n in NAMES]
            work = [member(table) for table in tables]
        before, faults, answer, error = state(tables), plan(), None, None
        try:
            answer = crashed(folder, faults, lambda failing: failing.owner.commit_group(work))
        except (OwnerUnavailableError, OutcomeUnknown) as raised:
            error = raised
        with opened(folder) as warehouse:
            after = [owned(warehouse, name) for name in NAMES]
            seen = warehouse.owner.resolve_together(NAMES)
            assert len({table.commits.latest_ratified_version for table in seen}) == 1, "half of a group is visible"
            (all_landed,) = landed(after, work)
            landings.append(all_landed)
            assert all_landed or not isinstance(answer, GroupRatified)
            assert not (all_landed and isinstance(error, OwnerUnavailableError))
            assert [list(history) for history in state(after)] == [[0, 1] if all_landed else [0]] * 2
            assert all_landed or state(after) == before
            again = warehouse.owner.commit_group(work)
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


def test_reader_of_two_tables_never_sees_half(warehouse: refimpl.Warehouse, tables: Tables) -> None:
    """A group lands and is published between the reader's transaction and its look at the logs."""
    owner = warehouse.owner
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


def test_overlapping_groups_and_single_commits_all_end(warehouse: refimpl.Warehouse, tables: Tables) -> None:
    """Two threads commit groups of the same tables in opposite orders, two commit single versions: no deadlock, and
    every version belongs to one winner."""
    tables.append(create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="third", policy=ON_REQUEST))
    won = [0] * 4

    def group(number: int, chosen: Tables) -> None:
        while won[number] < 5:
            work = [member(table, (table.latest or 0) + 1) for table in chosen]
            won[number] += isinstance(warehouse.owner.commit_group(work), GroupRatified)

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
