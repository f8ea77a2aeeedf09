"""Version 0: its content, the winner of a race for it, and the clean-up by losers."""

from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from refimpl.client.create import Creation, create_table
from refimpl.client.proposing import MAX_LOOKS
from refimpl.client.table import Table
from refimpl.protocol import errors, log_path
from refimpl.protocol.commit_owner import NewTableDemands, ResolvedTable
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Rejected, RejectionReason
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from spec_tests.client.conftest import SCHEMA, Setting, adding, failing
from spec_tests.support.faults import FailingFiles
from spec_tests.support.unreliable_owner import unavailable


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
