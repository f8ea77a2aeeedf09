"""Races, lost answers and full backlogs: every transaction lands once or not at all."""

import contextlib
from unittest.mock import Mock

import msgspec
import pyarrow as pa
import pytest

from refimpl import actions, log_path
from refimpl.actions import CommitInfo
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.ownership import take_over
from refimpl.client.proposing import INLINE_LIMIT, LONGEST_PAUSE, MAX_LOOKS
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.commits import (
    MAX_WINNERS,
    Conflict,
    DirectProposal,
    InlineProposal,
    Landed,
    Outcome,
    Proposal,
    RejectionReason,
    StagedProposal,
    VersionGap,
)
from refimpl.errors import (
    BacklogFullError,
    CommitRejectedError,
    ConcurrentAppendError,
    ConcurrentModificationError,
    CorruptionError,
    CorruptLogError,
    InvalidRequestError,
    LostRaceError,
    OutcomeUnknown,
    OwnerUnavailableError,
    ProtocolChangedError,
    TableNotFoundError,
)
from refimpl.table_feature import MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.client.conftest import OWNED_COMMIT_MODES, Setting, adding, appending
from spec_tests.support.faults import HOST_START as START


def name_of(value: object) -> str:
    return str(getattr(value, "name", "filesystem")).lower()


every_owned_mode = pytest.mark.parametrize(("feature", "commit_mode"), OWNED_COMMIT_MODES, ids=name_of)


def staged_versions(table: Table) -> list[int]:
    assert table.feature is not None
    return [path.version for path in table.log.staged_listing(table.feature.staging_folder)]


def compete(setting: Setting, table: Table, times: int) -> None:
    """Another writer wins each of the next `times` races."""
    left = list(range(times))

    def be_first() -> None:
        if left:
            setting.append(table, f"other-{left.pop()}")
            setting.owner.faults.before_proposal.append(be_first)

    setting.owner.faults.before_proposal.append(be_first)


# Time


def test_a_missing_time_of_the_previous_commit_is_an_error(setting: Setting) -> None:
    """A checkpoint replaces the commit but does not hold its time. A time by the clock alone might be before the
    previous commit. test_transaction has the same case with the commit.
    """
    table = setting.table(None, in_commit_timestamps=True)
    write_checkpoint(table)
    table.log.delete(log_path.commit(0))
    with pytest.raises(CorruptLogError):
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


def test_a_writer_far_behind_checks_all_winners(setting: Setting) -> None:
    """FB35: an owner may limit the winners in a conflict, but the writer must check all fifteen."""
    table = setting.table(commit_mode=CommitMode.INLINE)
    transaction = appending(table, "mine")
    others = setting.again(table)
    for number in range(MAX_WINNERS + 20):
        setting.append(others, f"other-{number}")
    committed = transaction.commit()
    assert committed.rebased_over == MAX_WINNERS + 20
    assert committed.tries == 2


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
    with pytest.raises(ConcurrentAppendError) as caught:
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
    with pytest.raises((ConcurrentAppendError, LostRaceError)):
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
    with pytest.raises(LostRaceError) as caught:
        transaction.commit()
    assert caught.value.tries == 3
    assert "mine" not in setting.paths(table)
    assert staged_versions(table) == [1, 2, 3], "the loser leaves no file behind"


def test_a_writer_waits_for_a_winner_that_the_owner_lists_late(setting: Setting) -> None:
    """FB04: the winner is ratified, but neither published nor listed yet."""
    table = setting.table()
    transaction = appending(table, "mine")
    setting.append(table, "theirs")
    setting.owner.faults.conflicts_without_winners = True
    setting.owner.faults.list_late = 3
    assert transaction.commit().version == 2
    assert len(setting.host.pauses) >= 3


@pytest.mark.parametrize("phantom", [False, True])
def test_a_conflict_without_a_visible_winner_ends_in_an_error(setting: Setting, phantom: bool) -> None:
    """FB48: the writer does not retry without end, and does not leave a staged file for each try."""
    table = setting.table()
    transaction = appending(table, "mine")
    if phantom:
        setting.owner.faults.phantom_conflicts = 1
    else:
        setting.append(table, "theirs")
        setting.owner.faults.conflicts_without_winners = True
        setting.owner.faults.nothing_listed = True
    before = staged_versions(table)
    setting.owner.proposals.clear()
    with pytest.raises(LostRaceError) as caught:
        transaction.commit()
    assert (caught.value.tries, caught.value.version) == (1, 1)
    assert len(setting.owner.proposals) == 1
    assert staged_versions(table) == before
    setting.owner.faults.nothing_listed = False
    assert "mine" not in setting.paths(table)


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


@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.parametrize("error", [InvalidRequestError("the token expired"), OwnerUnavailableError("busy")], ids=type)
def test_a_conflict_with_unreadable_winners_may_be_our_own_commit(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception, resolved: bool
) -> None:
    """The owner gets the proposal twice, and the client only its second answer, a conflict. The data files stay."""
    table = setting.table()

    def refuse() -> None:
        for name in ("get_commits",) if resolved else ("get_commits", "attempt_outcome"):
            monkeypatch.setattr(setting.owner, name, Mock(side_effect=error))

    setting.owner.faults.twice = setting.owner.faults.conflict_for_replay = True
    setting.owner.faults.after_proposal = [refuse]
    with contextlib.nullcontext() if resolved else pytest.raises(OutcomeUnknown):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    monkeypatch.undo()
    assert setting.again(table).snapshot().to_arrow().num_rows == 1


def test_a_lost_race_with_unreadable_winners_raises_the_reason(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit won, and the owner reports that the attempt did not land."""
    table = setting.table()
    transaction = appending(table, "mine")
    setting.append(table, "theirs")
    setting.owner.faults.conflicts_without_winners = True
    monkeypatch.setattr(setting.owner, "get_commits", Mock(side_effect=InvalidRequestError("the token expired")))
    with pytest.raises(InvalidRequestError, match="the token expired"):
        transaction.commit()
    assert staged_versions(table) == [1], "the loser's file is removed"
    monkeypatch.undo()
    assert setting.paths(table) == {"theirs"}


def test_a_conflict_stays_a_conflict_after_its_winner_was_cleaned_up(setting: Setting) -> None:
    """The winner is older than the attempt, so the attempt did not land, even if the owner can no longer look it up."""
    table = setting.table()
    transaction = appending(table, "mine")

    def go_on() -> None:
        for path in ("theirs", "more"):
            setting.append(table, path)
        assert table.table_id is not None
        setting.owner.backfill_to_version(table.table_id)
        write_checkpoint(table)
        for version in (0, 1):
            table.log.delete(log_path.commit(version))
        setting.owner.faults.conflicts_without_winners = True
        setting.owner.faults.unresolvable = MAX_LOOKS

    setting.owner.faults.before_proposal = [go_on]
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert setting.paths(table) == {"theirs", "more"}


def test_an_outcome_that_stays_unknown_says_how_to_resolve_it(setting: Setting) -> None:
    """FB40: the writer keeps the staged file, because the commit may have landed."""
    table = setting.table()
    transaction = appending(table, "mine")
    setting.owner.faults.lose_answers = 1
    setting.owner.faults.unresolvable = MAX_LOOKS
    with pytest.raises(OutcomeUnknown) as caught:
        transaction.commit()
    error = caught.value
    assert (error.table_id, error.version) == (table.table_id, 1)
    assert staged_versions(table) == [1]
    assert isinstance(setting.owner.attempt_outcome(error.table_id, error.attempt), Landed)
    assert setting.paths(table) == {"mine"}


@pytest.mark.parametrize("refusal", [TableNotFoundError("dropped"), InvalidRequestError("the token expired")], ids=type)
def test_an_outcome_stays_unknown_if_the_lookup_is_rejected(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """A rejected lookup proves nothing about the commit. The owner may restore the table, whose log then names the data
    file.
    """
    table = setting.table()
    setting.owner.faults.lose_answers = 1
    monkeypatch.setattr(setting.owner, "attempt_outcome", Mock(side_effect=refusal))
    with pytest.raises(OutcomeUnknown):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    assert setting.again(table).snapshot().to_arrow().num_rows == 1


def test_an_owner_that_finds_damage_is_not_asked_again(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    table = setting.table()
    setting.owner.faults.lose_answers = 1
    damage = Mock(side_effect=CorruptionError("version 7 is published, the ledger's latest is 1"))
    monkeypatch.setattr(setting.owner, "attempt_outcome", damage)
    with pytest.raises(CorruptionError, match="version 7 is published"):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    assert damage.call_count == 1
    assert setting.again(table).snapshot().to_arrow().num_rows == 1, "the data files stay"


def test_an_outcome_is_looked_up_until_it_is_known(setting: Setting) -> None:
    table = setting.table()
    transaction = appending(table, "mine")
    setting.owner.faults.lose_answers = 1
    setting.owner.faults.unresolvable = MAX_LOOKS - 1
    assert transaction.commit().version == 1
    assert len(setting.host.pauses) == MAX_LOOKS - 1


def test_an_error_after_the_commit_point_does_not_fail_the_commit(setting: Setting) -> None:
    """FB43: the backfill fails with an I/O error after the commit landed."""
    table = setting.table()
    transaction = appending(table, "mine")
    setting.owner.faults.raise_after_landing = [OSError("the backfill failed")]
    assert transaction.commit().version == 1


def test_an_error_before_the_commit_point_is_raised_unchanged(setting: Setting) -> None:
    """The opposite of the test above: the commit certainly did not land."""
    table = setting.table()
    transaction = appending(table, "mine")

    def fail() -> None:
        raise RuntimeError("a bug in the owner's client")

    setting.owner.faults.before_proposal = [fail]
    with pytest.raises(RuntimeError):
        transaction.commit()
    assert setting.again(table).snapshot().version == 0


@every_owned_mode
def test_a_writer_recognises_its_own_commit_in_a_conflict(
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


@pytest.mark.parametrize("error", [OSError("the disk is full"), OwnerUnavailableError("the disk is full")], ids=type)
def test_a_backlog_that_cannot_be_emptied_is_an_error(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = setting.table(policy=MaintenancePolicy(backfill_every=None, backlog_limit=1))
    setting.append(table, "a")

    def fail(table_id: str, version: int | None = None) -> None:
        raise error

    monkeypatch.setattr(setting.owner, "backfill_to_version", fail)
    with pytest.raises(BacklogFullError):
        appending(table, "b").commit()
    assert setting.again(table).snapshot().version == 1
    monkeypatch.undo()
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


def test_a_rejection_carries_its_reason(setting: Setting) -> None:
    table = setting.table()
    transaction = appending(table, "mine")
    assert table.table_id is not None
    setting.owner.drop_table(table.table_id)
    with pytest.raises(CommitRejectedError) as caught:
        transaction.commit()
    assert caught.value.reason is RejectionReason.NOT_ACTIVE


def test_commits_that_another_writer_published_are_explained(setting: Setting) -> None:
    """The log's newest version is above the owner's latest version."""
    table = setting.table(MANAGED_COMMIT)
    other = CommitInfo({"inCommitTimestamp": START + 100, "operation": "WRITE"})
    table.log.put_if_absent(log_path.commit(1), actions.encode([other, adding("other")]))
    transaction = appending(setting.again(table), "mine")
    assert transaction.snapshot.version == 1
    with pytest.raises(CorruptionError) as caught:
        transaction.commit()
    assert caught.value.version == 2
    assert setting.owner.proposals[-1][0] == 2
    assert setting.paths(table) == {"other"}


def test_a_large_inline_commit_is_staged(setting: Setting) -> None:
    """catalog-managed: the owner takes the content of small commits only."""
    table = setting.table(commit_mode=CommitMode.INLINE)
    small, large = appending(table, "small"), table.transaction()
    small.commit()
    large.add(adding("large", stats="x" * INLINE_LIMIT))
    large.commit()
    # The large commit is staged twice: one try lost the race, the other won.
    kinds = [type(proposal) for _, proposal in setting.owner.proposals]
    assert kinds == [DirectProposal, InlineProposal, StagedProposal, StagedProposal]
    assert setting.paths(table) == {"small", "large"}


@pytest.mark.parametrize(("moved", "reason"), [(True, "was cleaned up"), (False, "ends before version 1")])
def test_the_error_for_a_missing_base_version_has_the_reason(setting: Setting, moved: bool, reason: str) -> None:
    """The table has no owner: only the log shows whether the history was cleaned up, or went back."""
    table = setting.table(None)
    setting.append(table, "theirs")
    transaction = appending(setting.again(table), "mine")
    if moved:
        setting.append(table, "more")
        write_checkpoint(table)
    for version in (1, 2):
        table.log.delete(log_path.commit(version))
    with pytest.raises(ConcurrentModificationError, match=reason):
        transaction.commit()
    assert not table.log.published(2)


def test_a_malformed_winner_stops_the_writer(setting: Setting) -> None:
    """DELTA.md#malformed-commit: a zero-byte or malformed published commit is an error that names the file."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    table.log.put_if_absent(log_path.commit(1), b"")
    with pytest.raises(CorruptLogError) as caught:
        transaction.commit()
    assert str(caught.value.path).endswith(log_path.commit(1))


def test_a_filesystem_writer_that_loses_to_a_take_over_stops(setting: Setting) -> None:
    """managed-commits, "Converting an existing filesystem based table": the writer finds the new protocol and
    aborts.
    """
    table = setting.table(None)
    transaction = appending(table, "mine")
    taken = take_over(setting.again(table), setting.owner, "orders", MANAGED_COMMIT)
    with pytest.raises(ProtocolChangedError):
        transaction.commit()
    assert taken.snapshot().version == 1
    assert appending(taken, "mine").commit().version == 2
