"""Races, lost answers, full backlogs and failing storage: every transaction lands once or not at all."""

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refimpl
from refimpl.client.maintenance import clean_up, write_checkpoint
from refimpl.client.proposing import INLINE_LIMIT, LONGEST_PAUSE, MAX_LOOKS
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import errors, log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import (
    Conflict,
    DirectProposal,
    InlineProposal,
    Landed,
    Outcome,
    Proposal,
    StagedProposal,
    VersionGap,
)
from refimpl.protocol.log_path import LAST_CHECKPOINT, LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from spec_tests.client.conftest import (
    GENEROUS,
    OWNED_COMMIT_MODES,
    Setting,
    adding,
    appending,
    backfill,
    every_kind,
    failing,
    hide,
    name_of,
    once,
)
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles, ScriptedHost
from spec_tests.support.unreliable_owner import UnreliableOwner

every_owned_mode = pytest.mark.parametrize(("feature", "commit_mode"), OWNED_COMMIT_MODES, ids=name_of)


def staged_versions(table: Table) -> list[int]:
    assert table.feature is not None
    return [path.version for path in table.log.staged_listing(table.feature.staging_folder)]


ROW = pa.table({"id": [1], "month": ["01"]})


def rows_of(setting: Setting, table: Table) -> int:
    """The number of rows, as another process reads them."""
    return int(setting.again(table).snapshot().to_arrow().num_rows)


def compete(setting: Setting, table: Table, times: int) -> None:
    """Another writer wins each of the next `times` races."""
    left = list(range(times))

    def be_first() -> None:
        if left:
            setting.append(table, f"other-{left.pop()}")
            setting.owner.faults.before_proposal.append(be_first)

    setting.owner.faults.before_proposal.append(be_first)


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_transaction_does_not_commit_to_the_next_table_at_its_location(setting: Setting, commits: int) -> None:
    """Neither as its next version, nor after its commits, none of which is a conflict for an append."""
    table = setting.table(None)
    appending(table, "a").commit()
    transaction = appending(table, "b")
    shutil.rmtree(table.location)
    other = setting.table(None)
    for number in range(commits):
        appending(other, f"other-{number}").commit()
    with pytest.raises(errors.MetadataChangedError, match="another table was created"):
        transaction.commit()
    assert other.snapshot().version == commits


# Time


def test_a_missing_time_of_the_previous_commit_is_an_error(setting: Setting) -> None:
    """A checkpoint replaces the commit but does not hold its time. A time by the clock alone might be before the
    previous commit. test_transaction has the same case with the commit.
    """
    table = setting.table(None, in_commit_timestamps=True)
    write_checkpoint(table)
    table.log.delete(log_path.commit(0))
    with pytest.raises(errors.CorruptLogError):
        appending(setting.again(table), "mine").commit()
    assert not table.log.published(1)


# Lost races


@every_owned_mode
def test_a_lost_race_is_retried_with_a_new_attempt(
    setting: Setting, feature: TableFeature, commit_mode: CommitMode
) -> None:
    """DELTA.md#new-staged-file: each try stages a new file; catalog-managed: a staged file is never used for another
    version.
    """
    table = setting.table(feature, commit_mode)
    transaction = appending(table, "mine")
    setting.append(table, "theirs")
    setting.owner.proposals.clear()
    setting.owner.calls.clear()
    committed = transaction.commit()
    assert (committed.version, committed.tries, committed.rebased_over) == (2, 2, 1)
    assert committed.in_commit_timestamp == START + 2  # rule 4: max(mine, winner + 1)
    (first, lost), (second, won) = setting.owner.proposals
    assert (first, second) == (1, 2)
    assert lost.attempt != won.attempt == committed.attempt
    assert "get_commits" not in setting.owner.calls, "the answer held the winners, so no further request is needed"
    assert setting.paths(table) == {"mine", "theirs"}
    if commit_mode is CommitMode.STAGED:
        assert staged_versions(table) == [1, 2], "the loser's file is removed; the winners' files stay"


@every_owned_mode
def test_a_writer_checks_for_winners_before_it_proposes(
    setting: Setting, feature: TableFeature, commit_mode: CommitMode
) -> None:
    """A writer whose race is already lost sends no proposal and stages no file."""
    table = setting.table(feature, commit_mode)
    transaction = appending(table, "mine")
    setting.append(table, "theirs")
    setting.owner.proposals.clear()
    setting.owner.faults.waited = True
    committed = transaction.commit()
    assert (committed.version, committed.tries, committed.rebased_over) == (2, 1, 1)
    assert [version for version, _ in setting.owner.proposals] == [2]
    assert setting.host.pauses == []
    assert appending(table, "next").commit().version == 3
    assert setting.paths(table) == {"mine", "theirs", "next"}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("owned", [True, False])
def test_each_of_several_winners_is_checked(setting: Setting, position: int, owned: bool) -> None:
    """One of three winners conflicts; the others are harmless."""
    table = setting.table() if owned else setting.table(None)
    transaction = table.transaction()
    transaction.read_files("month = '02'")
    transaction.add(adding("mine"))
    for number in range(3):
        setting.append(table, f"theirs-{number}", month="02" if number == position else "03")
    with pytest.raises(errors.ConcurrentAppendError) as caught:
        transaction.commit()
    assert caught.value.version == 1 + position
    assert setting.again(table).snapshot().version == 3


def test_a_winner_missing_from_the_answer_is_checked_too(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer holds only the newer of two winners. The older one may be the one that conflicts."""
    table = setting.table()
    transaction = table.transaction()
    transaction.read_files("month = '02'")
    transaction.add(adding("mine"))
    setting.append(table, "matters", month="02")
    setting.append(table, "harmless", month="03")
    ask = setting.owner.commit

    def last_only(table_id: str, version: int, proposal: Proposal) -> Outcome:
        outcome = ask(table_id, version, proposal)
        if isinstance(outcome, Conflict):
            return msgspec.structs.replace(outcome, winners=outcome.winners[-1:])
        return outcome

    monkeypatch.setattr(setting.owner, "commit", last_only)
    with pytest.raises((errors.ConcurrentAppendError, errors.LostRaceError)):
        transaction.commit()
    assert setting.again(table).snapshot().version == 2


def test_the_timestamp_after_a_lost_race_follows_the_clock(setting: Setting) -> None:
    """in-commit timestamps, rule 4: later than the last winner, and not before the commit was made."""
    table = setting.table()
    transaction = appending(table, "early")
    for number in range(3):
        setting.append(table, f"theirs-{number}")
    assert transaction.commit().in_commit_timestamp == START + 4  # each winner's time was one later
    transaction = appending(table, "late")
    setting.append(table, "theirs")
    setting.host.clock = START + 1_000_000
    assert transaction.commit().in_commit_timestamp == START + 1_000_000


def test_retries_wait_longer_after_each_lost_race(setting: Setting) -> None:
    """DELTA.md#retry: with back-off and jitter."""
    table = setting.table(commit_mode=CommitMode.INLINE)
    transaction = appending(table, "mine")
    compete(setting, table, 30)
    committed = transaction.commit()
    assert committed.rebased_over == 30
    assert committed.tries == 31
    assert setting.host.pauses == sorted(setting.host.pauses)
    assert 0 < setting.host.pauses[0] < setting.host.pauses[-1] <= LONGEST_PAUSE


def test_the_number_of_retries_is_limited(setting: Setting) -> None:
    table = setting.table(commit_mode=CommitMode.STAGED)
    transaction = appending(table, "mine", max_tries=3)

    compete(setting, table, 3)
    with pytest.raises(errors.LostRaceError) as caught:
        transaction.commit()
    assert caught.value.tries == 3
    assert "mine" not in setting.paths(table)
    assert staged_versions(table) == [1, 2, 3], "the loser leaves no file behind"


# Lost answers


def test_a_landed_attempt_keeps_its_file_despite_a_conflict(setting: Setting) -> None:
    """Until the commit is published, its staged file is the commit."""
    table = setting.table()
    transaction = appending(table, "mine")
    setting.owner.faults.twice = setting.owner.faults.conflict_for_replay = True
    setting.owner.faults.conflicts_without_winners = setting.owner.faults.nothing_listed = True
    assert transaction.commit().version == 1
    assert staged_versions(table) == [1]
    setting.owner.faults.nothing_listed = False
    assert setting.paths(table) == {"mine"}


@pytest.mark.parametrize(
    ("fault", "failing", "known"),
    [
        ("conflict_for_replay", ("get_commits",), True),
        ("conflict_for_replay", ("get_commits", "attempt_outcome"), False),
        ("full_for_replay", (), True),
        ("full_for_replay", ("backfill_to_version",), True),
        ("full_for_replay", ("backfill_to_version", "get_commits", "attempt_outcome"), False),
    ],
)
@pytest.mark.parametrize(
    "error", [errors.InvalidRequestError("the token expired"), errors.OwnerUnavailableError("busy")], ids=type
)
def test_a_refusal_may_be_the_answer_to_our_own_commit(
    setting: Setting,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    fault: str,
    failing: tuple[str, ...],
    known: bool,
) -> None:
    """The owner gets the proposal twice, and the client only its second answer: a conflict, or that the backlog is
    full. The requests that would explain it fail, or the backfill makes no room. The data files stay."""
    table = setting.table()

    def refuse() -> None:
        for name in failing:
            monkeypatch.setattr(setting.owner, name, Mock(side_effect=error))

    setting.owner.faults.twice = True
    setattr(setting.owner.faults, fault, True)
    setting.owner.faults.after_proposal = [refuse]
    with contextlib.nullcontext() if known else pytest.raises(errors.OutcomeUnknown):
        table.append(ROW)
    monkeypatch.undo()
    assert rows_of(setting, table) == 1


@pytest.mark.parametrize("fault", ["lose_answers", "lose_requests"])
def test_an_unknown_outcome_is_resolved(setting: Setting, fault: str) -> None:
    table = setting.table()
    setattr(setting.owner.faults, fault, 1)
    assert table.append(ROW).version == 1
    assert rows_of(setting, table) == 1


@pytest.mark.parametrize(
    ("refusal", "raised", "lookups"),
    [
        (errors.OwnerUnavailableError("the owner cannot be reached"), errors.OutcomeUnknown, MAX_LOOKS),
        (errors.TableNotFoundError("dropped"), errors.OutcomeUnknown, MAX_LOOKS),
        (errors.InvalidRequestError("the token expired"), errors.OutcomeUnknown, MAX_LOOKS),
        (errors.CorruptionError("version 7 is published, the latest is 1"), errors.CorruptionError, 1),
    ],
    ids=type,
)
def test_an_outcome_stays_unknown_if_the_lookup_fails(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, refusal: Exception, raised: type[Exception], lookups: int
) -> None:
    """FB40: a rejected lookup proves nothing about the commit. The owner may restore the table, whose log then names
    the data file. An owner that finds damage is not asked again.
    """
    table = setting.table()
    setting.owner.faults.lose_answers = 1
    lookup = Mock(side_effect=refusal)
    with monkeypatch.context() as patched, pytest.raises(raised, match=str(refusal)) as caught:
        patched.setattr(setting.owner, "attempt_outcome", lookup)
        table.append(ROW)
    assert lookup.call_count == lookups
    assert staged_versions(table) == [1]
    if isinstance(caught.value, errors.OutcomeUnknown):
        assert (caught.value.table_id, caught.value.version) == (table.table_id, 1)
        assert isinstance(setting.owner.attempt_outcome(caught.value.table_id, caught.value.attempt), Landed)
    assert rows_of(setting, table) == 1, "the data files stay"


@every_owned_mode
def test_a_writer_recognizes_its_own_commit_in_a_conflict(
    setting: Setting, feature: TableFeature, commit_mode: CommitMode
) -> None:
    """FB09, seen by a client: an owner that does not promise idempotent retry may answer a replay with a conflict."""
    table = setting.table(feature, commit_mode)
    transaction = appending(table, "mine")
    setting.owner.faults.twice = True
    setting.owner.faults.conflict_for_replay = True
    committed = transaction.commit()
    assert (committed.version, committed.tries) == (1, 1)
    assert setting.again(table).snapshot().version == 1
    if commit_mode is CommitMode.STAGED:
        assert staged_versions(table) == [1], "the file of the landed commit must not be deleted"


# Rejections


@pytest.mark.parametrize(
    "error", [OSError("the disk is full"), errors.OwnerUnavailableError("the disk is full")], ids=type
)
def test_a_backlog_that_cannot_be_emptied_is_an_error(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = setting.table(policy=MaintenancePolicy(backfill_every=None, backlog_limit=1))
    setting.append(table, "a")
    with monkeypatch.context() as patched, pytest.raises(errors.BacklogFullError):
        patched.setattr(setting.owner, "backfill_to_version", Mock(side_effect=error))
        appending(table, "b").commit()
    assert setting.again(table).snapshot().version == 1
    backfill = Mock(wraps=setting.owner.backfill_to_version)
    monkeypatch.setattr(setting.owner, "backfill_to_version", backfill)
    assert appending(table, "b").commit().version == 2
    backfill.assert_called_once_with(table.table_id, 1)


def test_a_gap_that_a_second_answer_fills_is_no_error(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer comes from a replica that lags behind. The second one has the missing version."""
    table = setting.table()
    setting.append(table, "a")
    transaction = appending(table, "mine")
    ask, gaps = setting.owner.commit, [VersionGap(latest_ratified_version=0)]
    monkeypatch.setattr(setting.owner, "commit", lambda *proposal: gaps.pop() if gaps else ask(*proposal))
    committed = transaction.commit()
    assert (committed.version, committed.tries) == (2, 2)
    assert setting.paths(table) == {"a", "mine"}


# Failing storage, and slow writers


@pytest.mark.parametrize(
    ("feature", "operation"),
    [
        *((CATALOG_MANAGED, operation) for operation in ("create", "write", "fsync", "fsync_directory")),
        *((None, operation) for operation in ("create", "write", "fsync", "link")),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_commit_whose_file_is_not_durable_did_not_land(
    setting: Setting, storage: FailingFiles, feature: TableFeature | None, operation: str
) -> None:
    """The disk is full: the table does not change, and nothing is proposed. The same commit lands when there is space
    again."""
    table = setting.table(feature)
    transaction = appending(table, "mine")
    setting.owner.proposals.clear()
    with failing(storage, operation), pytest.raises(errors.OwnerUnavailableError):
        transaction.commit()
    assert setting.owner.proposals == []
    assert setting.again(table).snapshot().version == 0
    assert appending(table, "mine").commit().version == 1


def test_a_visible_commit_with_a_failed_fsync_is_unknown(setting: Setting, storage: FailingFiles) -> None:
    """After a failed fsync the outcome is unknown, and the client does not repeat the commit."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    with failing(storage, "fsync_directory", LOG_FOLDER), pytest.raises(errors.OutcomeUnknown) as caught:
        transaction.commit()
    assert caught.value.version == 1
    assert setting.paths(table) == {"mine"}


def test_an_unreadable_new_commit_keeps_its_data_files(setting: Setting, storage: FailingFiles) -> None:
    """The disk fails right after the link. The commit is visible, so its data files must stay."""
    table = setting.table(None)
    table.snapshot()
    storage.fail_when = lambda name, path: (
        ("link", table.log.folder / log_path.commit(1)) in storage.done and (name in ("fsync_directory", "read"))
    )
    with pytest.raises(errors.OutcomeUnknown):
        table.append(ROW)
    storage.fail_when = lambda name, path: False
    assert rows_of(setting, table) == 1


def test_an_unreadable_staged_commit_is_an_error(setting: Setting, storage: FailingFiles) -> None:
    """The client looks for the published file only if the staged file is missing."""
    table = setting.table()
    setting.append(table, "a")
    storage.fail_when = lambda name, path: name == "read" and path.parent.name == CATALOG_MANAGED.staging_folder
    with pytest.raises(OSError, match="injected"):
        setting.again(table).snapshot()


def test_a_filesystem_commit_recognizes_its_own_bytes(setting: Setting, storage: FailingFiles) -> None:
    """FB24: the link succeeded but raised an error. The file at the version is this commit's."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    linked = iter((True,))
    storage.after, storage.error = True, 17
    storage.fail_when = lambda name, path: name == "link" and next(linked, False)
    assert transaction.commit().version == 1
    assert setting.again(table).snapshot().version == 1
    assert ("replace", table.log.folder / log_path.commit(1)) in storage.done, "its fsync may have failed"
    transaction = appending(table, "more")
    with failing(storage, "link replace"), pytest.raises(errors.OutcomeUnknown):
        transaction.commit()


def move_on(setting: Setting, table: Table, *, commits: int = 3) -> int:
    """Other writers commit and clean up everything before the newest version; return that version."""
    for number in range(commits):
        setting.append(table, f"other-{setting.environment.new_id()}-{number}")
    backfill(setting, table)
    newest = setting.again(table).snapshot().version
    write_checkpoint(setting.again(table))
    assert clean_up(setting.again(table), older_than=-(10**15)).cut_off == newest
    return newest


@every_kind
def test_a_writer_whose_base_was_cleaned_up_must_start_again(setting: Setting, feature: TableFeature | None) -> None:
    """The file name of its version is free again. A commit there would be acknowledged and then lost."""
    table = setting.table(feature, policy=GENEROUS)
    setting.append(table, "first")
    transaction = appending(setting.again(table), "late")
    newest = move_on(setting, table)
    before = setting.again(table).snapshot()
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        transaction.commit()
    assert (caught.value.version, caught.value.latest) == (2, newest)
    assert not table.log.published(2)
    assert setting.again(table).snapshot().files == before.files
    assert appending(setting.again(table), "late").commit().version == newest + 1


@pytest.mark.parametrize("newest", [4, 2])
@pytest.mark.parametrize("pointer", [True, False], ids=["hint", "no-hint"])
def test_commits_deleted_newest_first_do_not_free_their_versions(setting: Setting, pointer: bool, newest: int) -> None:
    """A cleanup by another program deleted newer commits first and died halfway. The newest version is 4,
    and 2 and 3 are missing; or the newest version is 2, which only a checkpoint holds.
    """
    table = setting.table(None)
    setting.append(table, "first")
    transaction = appending(setting.again(table), "late")
    for number in range(newest - 1):
        setting.append(table, f"other-{number}")
    write_checkpoint(table, newest)
    hide(table, *range(2, max(newest, 3)))
    if not pointer:
        hide(table, 1)
        table.log.delete(LAST_CHECKPOINT)
    with pytest.raises(errors.ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(2)


@pytest.mark.parametrize("landed", [False, True], ids=["before-the-link", "after-the-link"])
def test_a_cleanup_during_the_link_leaves_the_outcome_unknown(
    setting: Setting, storage: FailingFiles, landed: bool
) -> None:
    """The commit landed in one of the two cases only, but both leave the same files in the log."""
    table = setting.table(None)
    setting.append(table, "first")
    transaction = appending(setting.again(table), "late")
    target = table.log.folder / log_path.commit(2)
    moment = ("fsync_directory", target.parent) if landed else ("link", target)
    acted = once(storage, moment, lambda: move_on(setting, table), lambda: table.log.published(2) is landed)
    with pytest.raises(errors.OutcomeUnknown) as caught:
        transaction.commit()
    assert acted
    assert caught.value.version == 2
    assert ("late" in setting.paths(table)) is landed


def test_a_failing_disk_after_such_a_cleanup_denies_no_commit(setting: Setting, storage: FailingFiles) -> None:
    """Taken as "nothing landed", the error made the client delete the data files of a commit that landed."""
    table = setting.table(None)
    table.append(ROW)
    late = setting.again(table)
    late.snapshot()

    def act() -> None:
        move_on(setting, table)
        storage.fail_when = lambda name, path: name == "list_directory"

    moment = ("fsync_directory", table.log.folder)
    once(storage, moment, act, lambda: table.log.published(2))
    with pytest.raises(errors.OutcomeUnknown):
        late.append(ROW)
    storage.fail_when = lambda name, path: False
    own = [path for path in setting.paths(table) if not path.startswith("other")]
    assert [(table.location / path).exists() for path in own] == [True, True]


def test_a_cleanup_up_to_the_new_commit_leaves_its_outcome_known(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(None)
    setting.append(table, "first")
    transaction = appending(setting.again(table), "late")
    moved: list[int] = []
    moment = ("fsync_directory", table.log.folder)
    once(storage, moment, lambda: moved.append(move_on(setting, table, commits=0)), lambda: table.log.published(2))
    assert transaction.commit().version == 2
    assert moved == [2]


def test_a_cleaned_up_winner_is_reported(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(None)
    setting.append(table, "first")
    transaction = appending(setting.again(table), "late")
    setting.append(table, "winner")
    reads = iter((False, True))  # after the read that shows that the winner is another commit
    once(storage, ("read", table.log.folder / log_path.commit(2)), lambda: move_on(setting, table), lambda: next(reads))
    with pytest.raises(errors.ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(2)


# Arbitrary histories of writers, faults and maintenance


FAULTS = st.fixed_dictionaries(
    {
        "lose_answers": st.sampled_from([0, 0, 1, 2]),
        "lose_requests": st.sampled_from([0, 0, 1, 2]),
        "unresolvable": st.sampled_from([0, 0, 3, 40]),
        "conflicts_without_winners": st.booleans(),
        "list_late": st.sampled_from([0, 0, 2]),
        "phantom_conflicts": st.sampled_from([0, 0, 0, 1]),
        "twice": st.booleans(),
        "conflict_for_replay": st.booleans(),
        "waited": st.booleans(),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.integers(0, 3), FAULTS),
        st.tuples(st.just("backfill")),
        st.tuples(st.just("deliver")),
    ),
    min_size=4,
    max_size=20,
)


def transactions_in(table: Table) -> dict[str, list[int]]:
    """The versions of each transaction in the log, by its id."""
    versions: dict[str, list[int]] = {}
    for entry in table.history():
        assert isinstance(entry.info, CommitInfo)
        versions.setdefault(entry.info.txn_id or "", []).append(entry.version)
    return versions


def in_commit_timestamps(table: Table) -> list[int | None]:
    return [entry.info and entry.info.in_commit_timestamp for entry in reversed(table.history())]


@given(kind=st.sampled_from(OWNED_COMMIT_MODES), steps=STEPS, limit=st.sampled_from([1, 2, 100]))
def test_every_transaction_lands_as_often_as_reported(
    kind: tuple[TableFeature, CommitMode], steps: list[tuple[object, ...]], limit: int
) -> None:
    """FB07, FB08, FB09, FB40, FB46: once if it returned, never if it failed, at most once if the outcome is unknown."""
    host = ScriptedHost()
    environment = host.environment()
    with (
        tempfile.TemporaryDirectory() as name,
        refimpl.open(Path(name), environment=environment, create=True) as warehouse,
    ):
        owner = UnreliableOwner(warehouse.owner)
        setting = Setting(owner, host, environment, Path(name))
        table = setting.table(*kind, policy=MaintenancePolicy(backfill_every=None, backlog_limit=limit))
        open_transactions: dict[int, Transaction] = {}
        expected: dict[str, tuple[int, int]] = {}
        landed: dict[str, int] = {}
        for number, step in enumerate(steps):
            host.clock += 3 if number % 2 else -2
            match step:
                case ("begin", int(writer)):
                    open_transactions[writer] = setting.again(table).transaction()
                    open_transactions[writer].add(adding(f"file-{number}"))
                case ("commit", int(writer), dict(faults)) if writer in open_transactions:
                    transaction = open_transactions.pop(writer)
                    for fault, value in faults.items():
                        setattr(owner.faults, fault, value)
                    try:
                        landed[transaction.id] = transaction.commit().version
                        expected[transaction.id] = (1, 1)
                    except errors.OutcomeUnknown:
                        expected[transaction.id] = (0, 1)
                    except errors.DeltaError:
                        expected[transaction.id] = (0, 0)
                    owner.faults = type(owner.faults)()
                case ("backfill",):
                    assert table.table_id is not None
                    owner.backfill_to_version(table.table_id)
                case ("deliver",):
                    owner.deliver_delayed()
        owner.deliver_delayed()
        versions = transactions_in(setting.again(table))
        for txn_id, (least, most) in expected.items():
            assert least <= len(versions.get(txn_id, [])) <= most
        for txn_id, version in landed.items():
            assert versions[txn_id] == [version]
        snapshot = setting.again(table).snapshot()
        assert len(snapshot.files) == snapshot.version
        stamps = in_commit_timestamps(setting.again(table))
        assert all(a is not None and b is not None and a < b for a, b in itertools.pairwise(stamps))


def test_a_large_inline_commit_is_staged(setting: Setting) -> None:
    """catalog-managed: the owner takes the content of small commits only."""
    table = setting.table(commit_mode=CommitMode.INLINE)
    appending(table, "small").commit()
    large = table.transaction()
    large.add(adding("large", stats="x" * INLINE_LIMIT))
    large.commit()
    kinds = [type(proposal) for _, proposal in setting.owner.proposals]
    assert kinds == [DirectProposal, InlineProposal, StagedProposal]
    assert setting.paths(table) == {"small", "large"}
