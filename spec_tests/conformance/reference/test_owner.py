"""The reference owner's answers through the shared interface, and the resulting state."""

from pathlib import Path

import msgspec
import pytest

from conformance.adapters.reference.owner import FILESYSTEM_TABLES, ReferenceOwner
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from spec_tests.conformance.reference.conftest import COMMIT_MODES, FEATURES, Asking, attempt, content, published_name

every_commit_mode = pytest.mark.parametrize(("feature", "commit_mode"), COMMIT_MODES)
both = pytest.mark.parametrize("feature", FEATURES)


def test_every_profile_and_commit_mode_is_declared(owner: Asking) -> None:
    identity = owner.identity
    of_clients = {Profile.CHANGE_DATA, Profile.ROW_TRACKING}
    assert set(identity.profiles) == {profile.value for profile in set(Profile) - of_clients}
    assert {
        (feature, commit_mode)
        for feature, commit_modes in identity.commit_modes.items()
        for commit_mode in commit_modes
    } == set(COMMIT_MODES)
    assert {Promise(promise) for promise in identity.promises} <= set(Promise)
    assert identity.shared_state


# Committing


def test_an_invalid_proposal_is_rejected(owner: Asking) -> None:
    table = owner.table()
    good = table.proposal(1)
    nothing = m.Commit(table=table.reference, version=1, attempt=attempt())
    both_at_once = table.proposal(1, staged_file="x.json")
    for flawed in (
        nothing, both_at_once, table.proposal(1, attempt="../../x"), table.proposal(-1),
        table.proposal(1, actions=("{",)), table.proposal(1, actions=()), table.proposal(2**63),
    ):  # fmt: skip
        owner.expect(m.Rejected, flawed)
    owner.expect(m.NotFound, m.Commit(table=attempt(), version=1, attempt=attempt(), actions=good.actions))
    assert table.latest == 0
    assert owner.expect(m.Ratified, good).version == 1


# Publishing


def test_a_full_backlog_rejects_commits_until_it_has_room(owner: Asking) -> None:
    table = owner.table(backlog_limit=2)
    table.land(1, 2)
    third = table.proposal(3)
    assert owner.expect(m.Rejected, third).retryable
    assert table.latest == 2
    table.backfill(1)
    assert owner.expect(m.Ratified, third).version == 3
    owner.expect(m.Rejected, owner.creation("none", backlog_limit=0))


# Creating, finding, dropping


@both
def test_a_table_may_be_created_at_a_given_location(owner: Asking, feature: str) -> None:
    location = f"{owner.identity.storage}/here"
    creation = owner.creation(feature=feature, path=location)
    made = owner.expect(m.Ratified, creation)
    assert owner.expect(m.Table, m.LoadTable(path=location)).table == made.table
    assert owner.expect(m.Ratified, creation).table == made.table
    owner.expect(m.Conflict, owner.creation("another", feature, path=location))
    owner.expect(m.NotFound, m.LoadTable(name="another"))
    owner.expect(m.Rejected, owner.creation("another", feature, path=f"{location}/below"))
    owner.expect(m.Rejected, owner.creation("another", feature, path="/tmp/elsewhere"))


@pytest.mark.parametrize("name", ["a b/ü[x]", "orders-1", "x" * 300, "1", "select * from t;", "\ud800"])
def test_a_table_may_have_any_name(owner: Asking, name: str) -> None:
    made = owner.expect(m.Ratified, owner.creation(name))
    other = owner.expect(m.Ratified, owner.creation(f"{name}."))
    assert other.table != made.table
    assert owner.expect(m.Table, m.LoadTable(name=name)).table == made.table


@every_commit_mode
def test_a_table_is_found_by_name_path_and_reference(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    table.land(1)
    loaded = owner.expect(m.Table, m.LoadTable(name="orders"))
    assert (loaded.table, loaded.feature, loaded.commit_mode, loaded.latest) == (
        table.reference,
        feature,
        commit_mode,
        1,
    )
    assert loaded.commits == table.commits().commits
    assert loaded.protocol is not None
    assert feature in loaded.protocol
    assert loaded.metadata is not None
    assert loaded.metadata.startswith('{"metaData":{')
    assert owner.expect(m.Table, m.LoadTable(path=loaded.location)) == loaded
    assert owner.expect(m.Table, m.LoadTable(name=table.reference)) == loaded
    for unclear in (m.LoadTable(), m.LoadTable(name="orders", path=loaded.location)):
        owner.expect(m.Rejected, unclear)


def test_an_unknown_feature_or_commit_mode_is_rejected(owner: Asking) -> None:
    for feature, commit_mode in (("delta", "staged"), ("managedCommit", "inline"), ("managedCommit", "post")):
        owner.expect(m.Rejected, msgspec.structs.replace(owner.creation(), feature=feature, commit_mode=commit_mode))
    owner.expect(m.NotFound, m.LoadTable(name="orders"))


# Changing the owner


def test_only_tables_below_its_storage_are_taken_over(owner: Asking, tmp_path: Path) -> None:
    owner.expect(m.Rejected, owner.taking_over(str(tmp_path), 1))
    owner.expect(m.Rejected, owner.taking_over("", 1))
    inside = owner.taking_over(owner.filesystem_table(), 2)
    owner.expect(m.Rejected, msgspec.structs.replace(inside, feature="delta"))
    owner.expect(m.Ratified, inside)


# The kit's access to files


def test_observe_returns_names_sizes_contents_and_times(owner: Asking) -> None:
    table = owner.table()
    (sent,) = table.land(1)
    plant = m.Plant(table=table.reference, file="notes/ü.txt", content="größer", modified=1_700_000_000_123)
    owner.expect(m.Done, plant)
    seen = {file.name: file for file in owner.expect(m.Observation, m.Observe(table=table.reference)).files}
    assert list(seen) == sorted(seen)
    note = seen["notes/ü.txt"]
    assert (note.size, note.content, note.modified) == (8, "größer", 1_700_000_000_123)
    assert seen[f"_staged_commits/{1:020}.{sent.attempt}.json"].content == content(sent.actions)
    blind = owner.expect(m.Observation, m.Observe(table=table.reference, contents=False))
    assert {file.name: file.size for file in blind.files} == {name: file.size for name, file in seen.items()}
    assert all(file.content is None for file in blind.files)


def test_plant_and_remove_change_files(owner: Asking) -> None:
    table = owner.table()
    file = published_name(7)
    owner.expect(m.Done, m.Plant(table=table.reference, file=file, content="one", if_absent=True))
    owner.expect(m.Conflict, m.Plant(table=table.reference, file=file, content="two", if_absent=True))
    assert table.files()[file] == "one"
    owner.expect(m.Done, m.Plant(table=table.reference, file=file, content="two"))
    assert table.files()[file] == "two"
    for _ in range(2):
        owner.expect(m.Done, m.Remove(table=table.reference, file=file))
    assert file not in table.files()


@pytest.mark.parametrize("file", ["../x", "a/../../x", "/etc/x", "", ".."])
def test_plant_and_remove_reach_only_the_log(owner: Asking, file: str) -> None:
    table = owner.table()
    owner.expect(m.Rejected, m.Plant(table=table.reference, file=file, content="x"))
    owner.expect(m.Rejected, m.Remove(table=table.reference, file=file))
    assert table.published() == [0]


def test_plant_and_remove_touch_no_table_outside_the_storage(owner: Asking, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "_delta_log").mkdir(parents=True)
    storage = owner.identity.storage
    for path in (str(tmp_path / "elsewhere"), f"{storage}/../x", str(storage), "/"):
        owner.expect(m.Rejected, m.Plant(table=path, file="x", content="x"))
        owner.expect(m.Rejected, m.Observe(table=path))
    owner.expect(m.NotFound, m.Observe(table=attempt()))
    assert list((tmp_path / "elsewhere" / "_delta_log").iterdir()) == []


# Processes, threads, and the owner's directory


def test_processes_on_one_warehouse_share_one_state(owner: Asking) -> None:
    other = Asking(owner.handler.directory)
    try:
        table = owner.table()
        proposal = table.proposal(1)
        assert other.expect(m.Ratified, proposal).version == 1
        assert owner.expect(m.Ratified, proposal).version == 1
        assert owner.expect(m.Conflict, table.proposal(1)).latest == 1
        assert other.expect(m.Conflict, other.creation()).winner_table == table.reference
    finally:
        other.close()
    assert table.latest == 1


def test_a_temporary_directory_is_removed_with_the_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONFORMANCE_DIRECTORY", raising=False)
    asking = Asking()
    asking.table()
    assert (asking.handler.directory / FILESYSTEM_TABLES).is_dir()
    asking.close()
    asking.close()
    assert not asking.handler.directory.exists()
    monkeypatch.setenv("CONFORMANCE_DIRECTORY", str(tmp_path / "given"))
    given = ReferenceOwner()
    given.close()
    assert (tmp_path / "given" / "_owner").is_dir()


def test_the_owner_syncs_to_disk_if_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("refimpl.files.os.fsync", synced.append)
    for wanted in (False, True):
        synced.clear()
        asking = Asking(tmp_path / str(wanted), synced=wanted)
        asking.table().land(1)
        asking.close()
        assert bool(synced) is wanted
