"""Version 0: its content, the winner of a race for it, and the clean-up by losers. Take-overs of filesystem tables by
an owner, and hand-backs.
"""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

import refimpl
from refimpl.client.create import Creation, create_table
from refimpl.client.maintenance import clean_up, write_checkpoint, write_checksum
from refimpl.client.ownership import hand_back, take_over
from refimpl.client.proposing import MAX_LOOKS, RetryPolicy
from refimpl.client.table import Table
from refimpl.protocol import actions, errors, log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commit_owner import Backfilled, NewTableDemands, ResolvedTable, TableState
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Rejected, RejectionReason
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, ENABLEMENT_VERSION, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.client.conftest import DAY, ON_REQUEST, SCHEMA, Setting, adding, both, failing, names
from spec_tests.support import written_log
from spec_tests.support.faults import FailingFiles
from spec_tests.support.unreliable_owner import unavailable


def taken(setting: Setting, table: Table, feature: TableFeature = MANAGED_COMMIT, name: str = "owned") -> Table:
    return take_over(table, setting.owner, name, feature, policy=ON_REQUEST)


def test_a_take_over_that_loses_a_race_starts_again(setting: Setting) -> None:
    """managed-commits: if the put-if-absent fails, the owner forgets the change. The client builds it again on the
    winner.
    """
    table = setting.table(None)
    setting.owner.faults.before_proposal = [lambda: setting.append(table, "racing")]
    owned = taken(setting, table)
    assert owned.snapshot().version == 2
    assert {path for path, _ in owned.snapshot().files} == {"racing"}
    (first, lost), (second, won) = setting.owner.proposals
    assert (first, second) == (1, 2)
    assert lost.attempt != won.attempt
    assert isinstance(lost, DirectProposal)
    assert isinstance(won, DirectProposal)
    identities = [actions.decode(proposal.content, source="a try")[0] for proposal in (lost, won)]
    assert len({identity.txn_id for identity in identities if isinstance(identity, CommitInfo)}) == 1
    configuration = owned.snapshot().metadata.configuration
    assert configuration[ENABLEMENT_VERSION] == "2"


@both
def test_the_first_metadata_change_after_a_take_over_adds_the_id(setting: Setting, feature: TableFeature) -> None:
    """Before this change the owner's id is not in the log. A hand-back removes it."""
    owned = taken(setting, setting.table(None), feature)
    owned.alter(properties={"team": "b"})
    configuration = owned.snapshot().metadata.configuration
    assert configuration["team"] == "b"
    ids = {key: value for key, value in configuration.items() if value == owned.table_id}
    assert ids == ({} if feature.table_id_property is None else {feature.table_id_property: owned.table_id})
    kept = hand_back(owned).snapshot().metadata.configuration
    assert feature.table_id_property not in kept
    assert kept["team"] == "b"


@pytest.mark.parametrize(
    "refusal",
    [Rejected(reason=RejectionReason.OWNER_REFUSES, detail="no access"), errors.InvalidRequestError("no access")],
)
def test_a_rejection_after_a_lost_answer_leaves_the_outcome_unknown(
    setting: Setting, refusal: Rejected | errors.DeltaError
) -> None:
    """The client keeps all files of the change: it may have landed before the client lost its access."""
    send = Mock(side_effect=[errors.OutcomeUnknown("lost"), *[refusal] * MAX_LOOKS])
    retries = RetryPolicy(setting.environment, max_tries=1, label="t")
    with pytest.raises(errors.OutcomeUnknown, match="may or may not"):
        retries.ask_until_answered(send, errors.OutcomeUnknown("may or may not"))


def test_a_change_of_owner_that_was_cleaned_up_is_unknown(setting: Setting) -> None:
    """Its answer is lost. Before the client asks again another writer commits, a cleanup deletes the change, and the
    owner answers the replay as a conflict."""
    table = setting.table(MANAGED_COMMIT)

    def clean() -> None:
        free = Table.by_path(table.location, setting.environment)
        setting.append(free, "b")
        write_checkpoint(free)
        setting.host.clock += DAY
        assert clean_up(free, older_than=0).cut_off == 2

    faults = setting.owner.faults
    faults.lose_answers, faults.conflict_for_replay, faults.before_proposal = 1, True, [lambda: None, clean]
    with pytest.raises(errors.OutcomeUnknown):
        hand_back(table)


def test_a_take_over_that_landed_is_not_reported_as_failed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's answers end after the commit point."""
    table = setting.table(None)
    with monkeypatch.context() as patched, pytest.raises(errors.OutcomeUnknown):
        patched.setattr(setting.owner, "resolve", Mock(side_effect=errors.OwnerUnavailableError("the lock is held")))
        taken(setting, table)
    assert setting.owner.resolve("owned").commits.latest_ratified_version == 1


def test_a_table_that_another_owner_took_over_is_left_alone(setting: Setting, tmp_path: Path) -> None:
    table = setting.table(None)
    with refimpl.open(tmp_path / "other", roots=[tmp_path], create=True) as other:
        rival = Table.by_path(table.location, other.environment)
        setting.owner.faults.before_proposal = [lambda: take_over(rival, other.owner, "first", MANAGED_COMMIT)]
        with pytest.raises(errors.ProtocolChangedError):
            taken(setting, table, name="second")
        assert Table.resolve("first", other.owner, other.environment).snapshot().version == 1
    with pytest.raises(errors.TableNotFoundError):
        setting.owner.resolve("second")


@pytest.mark.parametrize("state", [TableState.ACTIVE, TableState.HANDED_BACK])
def test_a_client_publishes_a_hand_back_that_its_owner_only_staged(tmp_path: Path, state: TableState) -> None:
    """managed-commits, "Converting a managed-commit table to filesystem table": until it is published, no client can
    write the table."""
    log = written_log.WrittenLog(tmp_path / "t", MANAGED_COMMIT).create().stage(1, written_log.add("a"))
    owner = log.owner()
    with pytest.raises(InvalidRequestError, match="its owner publishes"):
        log.table(owner).publish()
    log.stage(2, *written_log.definition(None))
    owner.state = state
    table = log.table(owner)
    assert table.publish(1) == Backfilled(through=1, published=1)
    assert table.publish() == Backfilled(through=2, published=2)
    free = Table.by_path(log.location)
    assert (free.snapshot().version, free.snapshot().feature) == (2, None)
    (log.folder / log_path.commit(2)).write_bytes(b"another writer's")
    with pytest.raises(CorruptLogError):
        table.publish()


@both
@pytest.mark.parametrize("looks", [False, True], ids=["at-the-end", "after-each-step"])
def test_a_handle_follows_its_table_to_another_owner(setting: Setting, feature: TableFeature, looks: bool) -> None:
    """A take-over gives the table a new id; the first owner still knows the old id."""
    table = setting.table(feature)
    handle = setting.again(table)
    handle.snapshot()
    free = hand_back(table)
    if looks:
        assert (handle.snapshot().version, handle.owner) == (1, None)
    setting.append(free, "free")
    if looks:
        assert {path for path, _ in handle.snapshot().files} == {"free"}
    again = take_over(Table.by_path(table.location, setting.environment), setting.owner, "again", feature,
                      policy=ON_REQUEST)  # fmt: skip
    if looks:
        assert handle.snapshot().version == 3
    setting.append(again, "unpublished")
    pinned = handle.snapshot(version=4)
    assert {path for path, _ in pinned.files} == {"free", "unpublished"}
    for follower in (handle, free):
        newest = follower.snapshot()
        assert (newest.version, newest.stale) == (4, False)
        assert (follower.table_id, follower.commit_mode) == (again.table_id, again.commit_mode)
    transaction = handle.transaction()
    transaction.claim("job", 1)
    assert transaction.commit().version == 5


def test_a_new_owner_that_does_not_answer_is_an_error(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published commits alone may be an old state."""
    table = setting.table(MANAGED_COMMIT)
    handle = setting.again(table)
    handle.snapshot()
    take_over(hand_back(table), setting.owner, "again", MANAGED_COMMIT, policy=ON_REQUEST)
    monkeypatch.setattr(setting.owner, "resolve", lambda _place: unavailable())
    with pytest.raises(errors.OwnerUnavailableError):
        handle.snapshot()
    monkeypatch.undo()
    assert handle.snapshot().version == 2


@both
def test_following_the_owner_costs_nothing_while_it_stays(setting: Setting, feature: TableFeature) -> None:
    table = setting.table(feature)
    handle = setting.again(table)
    for version in (1, 2, 3):
        setting.append(table, str(version))
        setting.owner.calls["resolve"] = 0
        assert handle.snapshot().version == version
        assert setting.owner.calls["resolve"] == 0


@both
def test_a_read_by_path_judges_all_versions_by_the_newest(setting: Setting, feature: TableFeature) -> None:
    """The version is from before the take-over. A reader must still go to the owner to read it."""
    table = setting.table(None)
    setting.append(table, "a")
    by_path = setting.again(table)
    assert (by_path.snapshot(version=0).stale, by_path.snapshot(version=1).stale) == (False, False)
    owned = taken(setting, table, feature)
    before = names(table)
    for handle in (by_path, setting.again(table)):
        for job in (write_checkpoint, write_checksum):
            with pytest.raises((errors.PathAccessError, errors.MaintenanceRefusedError)):
                job(handle, 1)
        if feature.path_access:
            assert handle.snapshot(version=1).stale
            with pytest.raises(errors.PathAccessError):
                handle.transaction(snapshot=handle.snapshot(version=1))
        else:
            with pytest.raises(errors.PathAccessError):
                handle.snapshot(version=1)
    assert names(table) == before
    assert not owned.snapshot(version=1).stale


def test_an_old_version_is_stale_if_the_newest_is_unreadable(setting: Setting) -> None:
    """The client cannot know whether the table now has an owner."""
    table = setting.table(None)
    setting.append(table, "a")
    table.log.overwrite(log_path.commit(1), b"{")
    old = setting.again(table).snapshot(version=0)
    assert old.stale
    with pytest.raises(errors.CorruptLogError):
        setting.again(table).snapshot()


def test_an_unreadable_commit_time_is_not_a_missing_one(setting: Setting, storage: FailingFiles) -> None:
    """The version was read from its checkpoint. The next commit's time must be later than this one's."""
    table = setting.table(None)
    table.alter(properties={"delta.enableInCommitTimestamps": "true"})
    write_checkpoint(setting.again(table))
    with failing(storage, "read", log_path.commit(1)), pytest.raises(OSError, match="injected"):
        setting.again(table).snapshot()


def begun(setting: Setting, name: str = "orders", feature: TableFeature = CATALOG_MANAGED) -> Creation:
    return Creation.begin(
        setting.owner, setting.environment, name, SCHEMA, partition_columns=["month"], feature=feature
    )


# The content of version 0


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableInCommitTimestamps": "false"},
        {"delta.managedCommit.commitOwner": "another"},
        {"delta.columnMapping.maxColumnId": "7"},
    ],
)
def test_protected_properties_are_refused_before_creation(setting: Setting, properties: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidRequestError):
        setting.table(properties=properties)
    assert "stage_table" not in setting.owner.calls
    with pytest.raises(errors.InvalidRequestError):
        setting.table(None, properties=properties)
    assert not (setting.folder / "orders").exists()
    assert setting.table(properties={"delta.checkpointInterval": "20"}).snapshot().version == 0


def test_types_that_this_client_does_not_write_are_refused(setting: Setting) -> None:
    with pytest.raises((errors.UnsupportedFeatureError, errors.InvalidRequestError)):
        create_table(setting.owner, setting.environment, "t", SCHEMA.replace('"long"', '"variant"'))
    assert "stage_table" not in setting.owner.calls


# Races


def test_the_loser_of_a_name_reports_the_winner_and_leaves_no_file(setting: Setting, storage: FailingFiles) -> None:
    """catalog-managed, "Creating and Dropping": the owner assigns the name in the third phase."""
    mine, theirs = begun(setting), begun(setting)
    data = mine.location / "month=01" / "a b.parquet"
    data.parent.mkdir()
    data.write_bytes(b"rows")
    foreign = theirs.location / "keep.txt"
    winner = theirs.finish()
    foreign.write_text("another writer's")
    with pytest.raises(errors.NameTakenError) as caught:
        mine.finish([adding("month=01/a%20b.parquet")])
    assert caught.value.name == "orders"
    assert caught.value.winner.table_id == winner.table_id
    assert caught.value.winner.location == winner.location
    assert not mine.location.exists()
    assert foreign.exists()
    assert setting.again(winner).snapshot().version == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Conflict(latest_ratified_version=0, winners=()), errors.LocationError),
        (Rejected(reason=RejectionReason.INCONSISTENT_TABLE, detail="no"), errors.CommitRejectedError),
    ],
    ids=["conflict", "rejected"],
)
def test_a_creation_that_the_owner_rejects_leaves_no_file(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, answer: Outcome, error: type[errors.DeltaError]
) -> None:
    creation = begun(setting)
    monkeypatch.setattr(setting.owner, "register_table", lambda *_: answer)
    with pytest.raises(error):
        creation.finish()
    assert not creation.location.exists()
    assert setting.owner.calls["drop_table"] == 1


# Unknown outcomes


def test_a_visible_table_whose_fsync_failed_has_an_unknown_outcome(setting: Setting, storage: FailingFiles) -> None:
    """The outcome is not "failed": a caller deletes its data files after a failed creation."""
    version_0 = setting.folder / "orders" / LOG_FOLDER / log_path.commit(0)
    storage.fail_when = lambda operation, path: operation == "fsync_directory" and ("link", version_0) in storage.done
    with pytest.raises(errors.OutcomeUnknown):
        setting.table(None)
    storage.fail_when = lambda operation, path: operation == "link"
    with pytest.raises(errors.LocationError):
        setting.table(None, name="invoices")
    assert Table.by_path(setting.folder / "orders", setting.environment).snapshot().version == 0
    assert not (setting.folder / "invoices" / LOG_FOLDER / log_path.commit(0)).exists()


def test_a_folder_that_is_not_durable_creates_no_table(setting: Setting, storage: FailingFiles) -> None:
    storage.fail_when = lambda operation, path: (operation, path) == ("fsync_directory", setting.folder / "orders")
    with pytest.raises(errors.LocationError):
        setting.table(None)
    assert not (setting.folder / "orders" / LOG_FOLDER / log_path.commit(0)).exists()


def test_an_owner_unavailable_after_a_lost_answer_is_asked_again(setting: Setting) -> None:
    """The table exists, so "nothing landed" would be wrong. The client repeats the request until the owner answers."""
    faults = setting.owner.faults
    faults.lose_answers, faults.before_proposal = 1, [lambda: None, unavailable]
    assert setting.table().snapshot().version == 0


def test_no_request_follows_the_registration(setting: Setting) -> None:
    """The table exists after the commit point. A later request that fails would report a failed creation."""
    creation = begun(setting)
    setting.owner.calls.clear()
    table = creation.finish()
    assert setting.owner.calls == {"register_table": 1}
    assert (table.name, table.table_id, table.feature, table.commit_mode) == (
        "orders",
        creation.table_id,
        CATALOG_MANAGED,
        CommitMode.STAGED,
    )


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        (Conflict(latest_ratified_version=0), 1),
        (Conflict(latest_ratified_version=0), 2),
        (Rejected(reason=RejectionReason.NOT_ACTIVE, detail="no"), 2),
    ],
    ids=["conflict", "conflict in a second call", "rejected in a second call"],
)
def test_a_replayed_registration_that_is_refused_keeps_the_table(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, answer: Outcome, calls: int
) -> None:
    """FB09 and FB25 at version 0: the client took its own table for another one, and deleted its files."""
    creation = begun(setting)
    register = setting.owner.register_table

    def landed(table_id: str, proposal: DirectProposal) -> object:
        register(table_id, proposal)
        answers = iter([*[errors.OutcomeUnknown("the answer was lost")] * (0 if calls == 1 else MAX_LOOKS - 1), answer])
        monkeypatch.setattr(setting.owner, "register_table", Mock(side_effect=answers))
        raise errors.OutcomeUnknown("the answer was lost on its way")

    monkeypatch.setattr(setting.owner, "register_table", landed)
    if calls == 2:
        with pytest.raises(errors.OutcomeUnknown):
            creation.finish()
    table = creation.finish()
    assert table.snapshot().version == 0
    assert setting.owner.resolve("orders").table_id == creation.table_id


def test_a_refused_registration_of_unknown_outcome_keeps_its_files(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    creation = begun(setting)
    setting.owner.faults.unresolvable = 1
    monkeypatch.setattr(setting.owner, "register_table", lambda *_: Conflict(latest_ratified_version=0))
    with pytest.raises(errors.OutcomeUnknown):
        creation.finish()
    assert (creation.location / LOG_FOLDER / log_path.commit(0)).exists()


def test_a_version_0_that_cannot_be_written_creates_no_table(setting: Setting, storage: FailingFiles) -> None:
    creation = begun(setting)
    with failing(storage, "link", log_path.commit(0)), pytest.raises(errors.OwnerUnavailableError):
        creation.finish()
    with pytest.raises(errors.TableNotFoundError):
        setting.owner.resolve("orders")
    assert creation.finish().snapshot().version == 0


def test_a_table_with_a_feature_that_cannot_be_written_leaves_no_folder(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog requires the feature, and the client knows it only after the table is staged."""
    plain, staged = setting.owner.stage_table, list[ResolvedTable]()

    def demanding(*arguments: Any, **options: Any) -> Any:
        demands = NewTableDemands(reader_features=(), writer_features=("nextFeature",), properties={})
        staged.append(plain(*arguments, **options))
        return msgspec.structs.replace(staged[0], demands=demands)

    monkeypatch.setattr(setting.owner, "stage_table", demanding)
    with pytest.raises(errors.UnsupportedFeatureError, match="nextFeature"):
        begun(setting)
    assert not staged[0].location.exists()
