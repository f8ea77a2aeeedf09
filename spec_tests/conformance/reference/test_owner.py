"""The reference owner's answers through the shared interface, the resulting state, and what remains after crashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.host_effects import CRASH_POINTS
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, ReferenceOwner
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING
from conformance.interface.subject import GONE
from conformance.models.proposals import content
from conformance.requirements.catalogue import Profile
from conformance.simulation.operations import COMMIT_MODES
from spec_tests.conformance.asking import Asking, Table, attempt

both = pytest.mark.parametrize("feature", STAGING)


def opened(directory: Path | None = None, **options: Any) -> Asking:
    return Asking(InProcess(ReferenceOwner(directory, **options)))


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Asking]:
    with opened(tmp_path / "warehouse") as asking:
        yield asking


@pytest.fixture
def other(owner: Asking, tmp_path: Path) -> Iterator[Asking]:
    """Another process on the same warehouse."""
    with opened(tmp_path / "warehouse") as asking:
        yield asking


def test_every_profile_and_commit_mode_is_declared(owner: Asking) -> None:
    identity = owner.identity
    elsewhere = {Profile.CHANGE_DATA, Profile.ROW_TRACKING, Profile.UC_DELTA_API}  # of clients; of a server
    assert set(identity.profiles) == {profile.value for profile in set(Profile) - elsewhere}
    assert {
        (feature, commit_mode)
        for feature, commit_modes in identity.commit_modes.items()
        for commit_mode in commit_modes
    } == set(COMMIT_MODES)
    assert {Promise(promise) for promise in identity.promises} <= set(Promise)
    assert identity.shared_state


# Changing the owner


def test_only_tables_below_its_storage_are_taken_over(owner: Asking, tmp_path: Path) -> None:
    owner.expect(m.Rejected, owner.taking_over(str(tmp_path), 1))
    owner.expect(m.Rejected, owner.taking_over("", 1))
    inside = owner.taking_over(owner.filesystem_table(), 2)
    owner.expect(m.Rejected, msgspec.structs.replace(inside, feature="delta"))
    owner.expect(m.Ratified, inside)


# The kit's access to files


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


def test_a_temporary_directory_is_removed_with_the_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONFORMANCE_DIRECTORY", raising=False)
    handler = ReferenceOwner()
    Asking(InProcess(handler)).table()
    assert (handler.directory / FILESYSTEM_TABLES).is_dir()
    handler.close()
    handler.close()
    assert not handler.directory.exists()
    monkeypatch.setenv("CONFORMANCE_DIRECTORY", str(tmp_path / "given"))
    ReferenceOwner().close()
    assert (tmp_path / "given" / "_owner").is_dir()


# Crashes


def dies(owner: Asking, point: str, request: m.Request) -> None:
    """Send a request that kills the owner. The owner answers no request until it starts again."""
    owner.expect(m.Done, m.Crash(point=point))
    for message in (request, m.LoadTable(name="orders"), m.Crash()):
        answer = owner.expect(m.Unknown, message)
        assert answer.reason.startswith(GONE), answer
    owner.expect(m.Done, m.Restart())


def staged(owner: Asking) -> Table:
    return owner.table(feature="managedCommit", commit_mode="staged")


@both
def test_an_incomplete_staged_file_is_never_a_commit(owner: Asking, feature: str) -> None:
    table = owner.table(feature=feature)
    request = table.proposal(1)
    dies(owner, "during-stage", request)
    (name,) = table.staged()
    left = table.files()[f"{STAGING[feature]}/{name}"]
    assert left is not None
    assert content(request.actions or ()).startswith(left)
    assert 0 < len(left) < len(content(request.actions or ()))
    owner.expect(m.Rejected, m.Commit(table=table.reference, version=1, attempt=request.attempt, staged_file=name))
    owner.expect(m.Rejected, request)
    table.land(1)


# The process as a whole


def test_an_unknown_crash_point_is_unsupported(owner: Asking) -> None:
    owner.expect(m.Unsupported, m.Crash(point="after-lunch"))
    staged(owner).land(1)
    assert set(owner.identity.crash_points) == set(CRASH_POINTS)


def test_a_death_frees_the_locks_for_other_processes(owner: Asking, other: Asking) -> None:
    table = staged(owner)
    owner.expect(m.Done, m.Crash(point="before-ratify"))
    owner.expect(m.Unknown, table.proposal(1))
    proposal = table.proposal(1)
    assert other.expect(m.Ratified, proposal).version == 1
    owner.expect(m.Done, m.Restart())
    assert owner.expect(m.Ratified, proposal).version == 1
