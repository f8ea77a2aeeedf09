"""What the reference owner answers through the shared interface, and what is so afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from conformance.adapters.reference.owner import FILESYSTEM_TABLES, ReferenceOwner
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from spec_tests.conformance.reference.asking import (
    COMMIT_MODES,
    FEATURES,
    STAGING,
    Asking,
    attempt,
    content,
    published_name,
)

every_commit_mode = pytest.mark.parametrize(("feature", "commit_mode"), COMMIT_MODES)
both = pytest.mark.parametrize("feature", FEATURES)


def test_it_declares_every_profile_of_an_owner_and_every_commit_mode_of_both_features(owner: Asking) -> None:
    identity = owner.identity
    assert set(identity.profiles) == {profile.value for profile in Profile}
    assert {
        (feature, commit_mode)
        for feature, commit_modes in identity.commit_modes.items()
        for commit_mode in commit_modes
    } == set(COMMIT_MODES)
    assert {Promise(promise) for promise in identity.promises} <= set(Promise)
    assert identity.shared_state


# Committing


@every_commit_mode
def test_a_commit_lands_and_is_found_where_its_commit_mode_puts_it(
    owner: Asking, feature: str, commit_mode: str
) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    (sent,) = table.land(1)
    listed = table.commits()
    assert listed.latest == 1
    match commit_mode:
        case "staged":
            name = f"{published_name(1).removesuffix('.json')}.{sent.attempt}.json"
            assert [(each.version, each.file_name) for each in listed.commits] == [(1, name)]
            assert table.files()[f"{STAGING[feature]}/{name}"] == content(sent.actions)
        case "inline":
            assert [(each.version, each.actions) for each in listed.commits] == [(1, sent.actions)]
            assert table.staged() == []
        case "direct":
            assert listed.commits == ()
            assert table.files()[published_name(1)] == content(sent.actions)
    assert table.published() == ([0, 1] if commit_mode == "direct" else [0])


@every_commit_mode
def test_a_version_that_is_taken_is_a_conflict_with_its_winners(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    table.land(1, 2)
    lost = owner.expect(m.Conflict, table.proposal(1))
    assert lost.latest == 2
    assert [each.version for each in lost.winners or ()] == [1, 2]
    assert table.latest == 2


@every_commit_mode
def test_a_version_too_far_is_a_gap_until_its_turn(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    early = table.proposal(2)
    assert owner.expect(m.Gap, early).latest == 0
    table.land(1)
    assert owner.expect(m.Ratified, early).version == 2


@every_commit_mode
def test_a_landed_attempt_stays_ratified(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    first, _ = table.land(1, 2)
    table.backfill(2)
    assert owner.expect(m.Ratified, first).version == 1
    owner.expect(m.Done, m.Restart())
    assert owner.expect(m.Ratified, first).version == 1
    assert table.published() == [0, 1, 2]
    assert owner.expect(m.Landed, m.AttemptOutcome(table=table.reference, attempt=first.attempt)).version == 1


@every_commit_mode
def test_an_attempt_that_was_resolved_never_lands(owner: Asking, feature: str, commit_mode: str) -> None:
    """Refused as such, before any look at versions: the promise `tombstone-first`."""
    table = owner.table(feature=feature, commit_mode=commit_mode)
    for late in (table.proposal(1), table.proposal(0), table.proposal(9)):
        owner.expect(m.NotLanded, m.AttemptOutcome(table=table.reference, attempt=late.attempt))
        assert not owner.expect(m.Rejected, late).retryable
    table.land(1)


@both
def test_a_file_that_the_kit_staged_is_ratified_by_its_name(owner: Asking, feature: str) -> None:
    table = owner.table(feature=feature)
    proposal = table.proposal(1)
    name = f"{1:020}.{proposal.attempt}.json"
    by_name = m.Commit(table=table.reference, version=1, attempt=proposal.attempt, staged_file=name)
    owner.expect(m.Rejected, by_name)
    file = f"{STAGING[feature]}/{name}"
    owner.expect(m.Done, m.Plant(table=table.reference, file=file, content=content(proposal.actions)))
    assert owner.expect(m.Ratified, by_name).version == 1
    table.backfill(1)
    assert table.files()[published_name(1)] == content(proposal.actions)


def test_a_staged_file_is_for_one_version_and_one_content(owner: Asking) -> None:
    table = owner.table()
    early = table.proposal(2)
    owner.expect(m.Gap, early)
    table.land(1)
    other = proposals.append(early.attempt, proposals.BASE_TIME + 2, ["another.parquet"])
    owner.expect(m.Rejected, table.proposal(2, attempt=early.attempt, actions=other))
    name = f"{2:020}.{early.attempt}.json"
    owner.expect(m.Rejected, m.Commit(table=table.reference, version=2, attempt=attempt(), staged_file=name))
    assert table.latest == 1
    assert owner.expect(m.Ratified, early).version == 2


def test_what_is_no_proposal_is_refused(owner: Asking) -> None:
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


def test_a_range_that_ends_before_it_begins_holds_nothing(owner: Asking) -> None:
    table = owner.table()
    table.land(1, 2, 3)
    assert table.commits(3, 1) == m.Commits(commits=(), latest=3)
    assert [each.version for each in table.commits(1, 2).commits] == [1, 2]


# Publishing


@every_commit_mode
def test_a_backfill_publishes_in_order_what_was_ratified(owner: Asking, feature: str, commit_mode: str) -> None:
    table = owner.table(feature=feature, commit_mode=commit_mode)
    sent = table.land(1, 2, 3)
    table.backfill(2)
    assert table.published() == ([0, 1, 2, 3] if commit_mode == "direct" else [0, 1, 2])
    table.backfill(3)
    files = table.files()
    assert [files[published_name(each.version)] for each in sent] == [content(each.actions) for each in sent]
    assert table.commits() == m.Commits(commits=(), latest=3)


def test_an_owner_that_backfills_by_itself_leaves_some_for_later(owner: Asking) -> None:
    table = owner.table(backfill="subject")
    table.land(1, 2)
    assert table.published() == [0]
    table.land(3, 4)
    assert table.published() == [0, 1, 2, 3]
    assert [each.version for each in table.commits().commits] == [4]


def test_a_full_backlog_is_refused_until_there_is_room(owner: Asking) -> None:
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
def test_of_two_creators_of_a_name_one_wins(owner: Asking, feature: str) -> None:
    first, second = owner.creation(feature=feature), owner.creation(feature=feature)
    made = owner.expect(m.Ratified, first)
    lost = owner.expect(m.Conflict, second)
    assert (lost.latest, lost.winner_table) == (0, made.table)
    again = owner.expect(m.Ratified, first)
    assert (again.version, again.table) == (0, made.table)


@both
def test_a_table_may_be_made_at_a_given_place(owner: Asking, feature: str) -> None:
    place = f"{owner.identity.storage}/here"
    creation = owner.creation(feature=feature, path=place)
    made = owner.expect(m.Ratified, creation)
    assert owner.expect(m.Table, m.LoadTable(path=place)).table == made.table
    assert owner.expect(m.Ratified, creation).table == made.table
    owner.expect(m.Conflict, owner.creation("another", feature, path=place))
    owner.expect(m.NotFound, m.LoadTable(name="another"))
    owner.expect(m.Rejected, owner.creation("another", feature, path=f"{place}/below"))
    owner.expect(m.Rejected, owner.creation("another", feature, path="/tmp/elsewhere"))


@both
def test_of_a_filesystem_creator_and_the_owners_one_wins(owner: Asking, feature: str) -> None:
    """managed-commits, "Creating a new managed-commit table": version 0 is written in place, by put-if-absent."""
    place = owner.filesystem_table(versions=1)
    owner.expect(m.Conflict, owner.creation(feature=feature, path=place))
    owner.expect(m.NotFound, m.LoadTable(path=place))
    owner.expect(m.Ratified, owner.creation(feature=feature, path=f"{owner.identity.storage}/other"))
    late = m.Plant(table=f"{owner.identity.storage}/other", file=published_name(0), content="x", if_absent=True)
    owner.expect(m.Conflict, late)


def test_a_creation_that_is_sent_again_after_the_drop_makes_no_table(owner: Asking) -> None:
    creation = owner.creation()
    made = owner.expect(m.Ratified, creation)
    assert made.table is not None
    owner.expect(m.Done, m.DropTable(table=made.table))
    assert owner.expect(m.Ratified, creation).table == made.table
    owner.expect(m.NotFound, m.LoadTable(name="orders"))
    second = owner.expect(m.Ratified, owner.creation())
    assert second.table != made.table


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
    found = owner.expect(m.Table, m.LoadTable(name="orders"))
    assert (found.table, found.feature, found.commit_mode, found.latest) == (table.reference, feature, commit_mode, 1)
    assert found.commits == table.commits().commits
    assert found.protocol is not None
    assert feature in found.protocol
    assert found.metadata is not None
    assert found.metadata.startswith('{"metaData":{')
    assert owner.expect(m.Table, m.LoadTable(path=found.location)) == found
    assert owner.expect(m.Table, m.LoadTable(name=table.reference)) == found
    for unclear in (m.LoadTable(), m.LoadTable(name="orders", path=found.location)):
        owner.expect(m.Rejected, unclear)


def test_a_table_that_was_dropped_is_gone(owner: Asking) -> None:
    table = owner.table()
    table.land(1)
    owner.expect(m.Done, m.DropTable(table=table.reference))
    for gone in (m.LoadTable(name="orders"), m.LoadTable(name=table.reference), m.DropTable(table=table.reference),
                 m.MaintenancePolicy(table=table.reference)):  # fmt: skip
        owner.expect(m.NotFound, gone)
    owner.expect(m.Rejected, table.proposal(2))
    assert table.published() == [0, 1], "its files stay"
    owner.expect(m.Ratified, owner.creation())


def test_a_feature_or_commit_mode_that_does_not_exist_is_refused(owner: Asking) -> None:
    for feature, commit_mode in (("delta", "staged"), ("managedCommit", "inline"), ("managedCommit", "post")):
        owner.expect(m.Rejected, msgspec.structs.replace(owner.creation(), feature=feature, commit_mode=commit_mode))
    owner.expect(m.NotFound, m.LoadTable(name="orders"))


def test_the_policy_allows_what_is_always_allowed(owner: Asking) -> None:
    policy = owner.expect(m.Policy, m.MaintenancePolicy(table=owner.table().reference))
    assert {"checkpoint", "log-compaction", "checksum"} <= set(policy.allowed)


# Changing the owner


@every_commit_mode
def test_a_filesystem_table_is_taken_over_and_handed_back(owner: Asking, feature: str, commit_mode: str) -> None:
    path = owner.filesystem_table()
    change = owner.taking_over(path, 2, feature, commit_mode)
    made = owner.expect(m.Ratified, change)
    assert made.version == 2
    found = owner.expect(m.Table, m.LoadTable(name="imports"))
    assert (found.table, found.location, found.latest) == (made.table, path, 2)
    assert owner.expect(m.Ratified, change) == made
    table = owner.table("other", feature, commit_mode)
    table.reference = found.table
    table.land(3, 4)
    back = table.handing_back(5)
    assert owner.expect(m.Ratified, back).version == 5
    assert table.published() == [0, 1, 2, 3, 4, 5]
    owner.expect(m.NotFound, m.LoadTable(path=path))
    owner.expect(m.Rejected, table.proposal(6))
    assert owner.expect(m.Ratified, back).version == 5
    assert owner.expect(m.Ratified, change).version == 2


def test_a_take_over_loses_to_a_filesystem_writer(owner: Asking) -> None:
    path = owner.filesystem_table(versions=4)
    assert owner.expect(m.Conflict, owner.taking_over(path, 2)).latest == 3
    owner.expect(m.Gap, owner.taking_over(path, 6))
    owner.expect(m.NotFound, m.LoadTable(path=path))
    assert owner.expect(m.Ratified, owner.taking_over(path, 4)).version == 4


def test_only_tables_below_its_storage_are_taken_over(owner: Asking, tmp_path: Path) -> None:
    owner.expect(m.Rejected, owner.taking_over(str(tmp_path), 1))
    owner.expect(m.Rejected, owner.taking_over("", 1))
    inside = owner.taking_over(owner.filesystem_table(), 2)
    owner.expect(m.Rejected, msgspec.structs.replace(inside, feature="delta"))
    owner.expect(m.Ratified, inside)


# The kit's eyes and hands


def test_an_observer_sees_names_sizes_contents_and_times(owner: Asking) -> None:
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


def test_hands_make_replace_and_remove_files(owner: Asking) -> None:
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
def test_hands_reach_no_further_than_the_log(owner: Asking, file: str) -> None:
    table = owner.table()
    owner.expect(m.Rejected, m.Plant(table=table.reference, file=file, content="x"))
    owner.expect(m.Rejected, m.Remove(table=table.reference, file=file))
    assert table.published() == [0]


def test_hands_touch_no_table_outside_the_storage(owner: Asking, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "_delta_log").mkdir(parents=True)
    storage = owner.identity.storage
    for path in (str(tmp_path / "elsewhere"), f"{storage}/../x", str(storage), "/"):
        owner.expect(m.Rejected, m.Plant(table=path, file="x", content="x"))
        owner.expect(m.Rejected, m.Observe(table=path))
    owner.expect(m.NotFound, m.Observe(table=attempt()))
    assert list((tmp_path / "elsewhere" / "_delta_log").iterdir()) == []


# Processes, threads, and where it lives


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


def test_threads_may_ask_at_once_and_one_of_them_wins(owner: Asking) -> None:
    table = owner.table()
    rivals = [table.proposal(1) for _ in range(4)]
    together, answers = threading.Barrier(len(rivals)), []

    def propose(request: m.Commit) -> None:
        together.wait()
        answers.append(owner.ask(request))

    threads = [threading.Thread(target=propose, args=(request,)) for request in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "Conflict", "Conflict", "Ratified"]
    assert table.latest == 1


def test_its_own_directory_goes_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_it_waits_for_the_disk_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("refimpl.files.os.fsync", synced.append)
    for wanted in (False, True):
        synced.clear()
        asking = Asking(tmp_path / str(wanted), synced=wanted)
        asking.table().land(1)
        asking.close()
        assert bool(synced) is wanted
