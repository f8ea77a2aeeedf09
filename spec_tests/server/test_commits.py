"""Commits over HTTP, in the order of the checks: UNITY_CATALOG.md#order-of-judging."""

import errno
import json
import os
import uuid
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import refimpl
from refimpl.client import proposing
from refimpl.client.ownership import hand_back
from refimpl.protocol.commits import Landed, Ratified, StagedProposal
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.protocol.table_feature import MANAGED_COMMIT, CommitMode
from refimpl.server.delta_api import DeltaApi
from spec_tests.server.conftest import Serve, inline_table
from spec_tests.server.wire import (
    BAD,
    EXHAUSTED,
    NO_TABLE,
    REQUIREMENT,
    START,
    UNKNOWN,
    VERSION_CONFLICT,
    WireTable,
    added,
    commit_info,
    lines,
    refusal,
    reported,
)

# What lands


def test_replay_is_answered_with_success_permanently(table: WireTable) -> None:
    """A client repeats its request after a lost answer. Unity Catalog's server forgets all but the newest commit."""
    staged = table.land(1)
    table.land(2)
    for version in (1, 2):
        table.publish(staged) if version == 1 else None
    assert table.update(reported(1)).status_code == 200
    staged.path.unlink()  # removed by a cleanup
    before = table.state()
    answer = table.propose(staged)
    assert answer.status_code == 200
    assert answer.json()["latest-table-version"] == 2
    assert table.state() == before


def test_replay_is_recognized_before_its_report_and_etag_are_checked(table: WireTable) -> None:
    etag = table.state()[2]
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    assert table.propose(staged, etag=etag).status_code == 200
    assert table.state()[2] != etag
    assert table.propose(staged, reported(0), etag=etag).status_code == 200
    assert table.propose(staged, reported(99), etag="another").status_code == 200


ENABLED = {"delta.enableInCommitTimestamps": "true"}

# What loses


def test_loser_of_a_race_is_answered_with_the_table_on_request(table: WireTable) -> None:
    """UNITY_CATALOG.md#conflict."""
    table.land(1)
    staged = table.write_staged(1)
    plain = table.propose(staged)
    assert refusal(plain) == VERSION_CONFLICT
    table.http.headers["Prefer"] = "return=representation"
    shown = table.propose(staged)
    assert shown.status_code == 409
    assert shown.json() == {"error": plain.json()["error"], "table": table.load()}


@pytest.mark.parametrize(
    "problem",
    [OSError(errno.EIO, "disk"), OwnerUnavailableError("busy"), ZeroDivisionError()],
    ids=["disk", "busy", "defect"],
)
def test_lost_race_is_a_conflict_although_the_table_cannot_be_shown(table: WireTable, problem: Exception) -> None:
    """Any other answer would mean that the outcome is unknown."""
    table.land(1)
    table.http.headers["Prefer"] = "return=representation"
    with patch.object(DeltaApi, "load", side_effect=problem):
        answer = table.propose(table.write_staged(1))
    assert refusal(answer) == VERSION_CONFLICT
    assert "table" not in answer.json()


def test_lost_race_is_answered_before_all_other_errors(table: WireTable) -> None:
    """This loser reports versions at or above its own, has an old etag, and has removed its file."""
    table.land(1)
    staged = table.write_staged(1)
    staged.path.unlink()
    assert refusal(table.propose(staged, reported(1), etag="another")) == VERSION_CONFLICT
    assert refusal(table.propose(staged, reported(5))) == VERSION_CONFLICT


def test_a_gap_is_a_bad_request_and_no_conflict(table: WireTable) -> None:
    """Also for the first commit, version 1; Unity Catalog's server accepts any first version."""
    before = table.state()
    assert refusal(table.propose(table.write_staged(5))) == BAD
    assert refusal(table.propose(table.write_staged(2))) == BAD
    assert table.state() == before
    table.land(1)


def test_wrong_table_uuid_is_answered_before_all_other_errors(table: WireTable) -> None:
    staged = table.land(1)
    assert refusal(table.propose(staged, table_uuid=str(uuid.uuid4()))) == REQUIREMENT
    assert table.propose(staged).status_code == 200


def test_outdated_etag_is_a_conflict(table: WireTable) -> None:
    staged = table.write_staged(1)
    assert refusal(table.propose(staged, etag="etag-of-yesterday")) == REQUIREMENT
    assert table.state()[0] == 0
    assert table.propose(staged, etag=table.state()[2]).status_code == 200


def test_the_etag_changes_with_the_metadata_and_only_with_it(table: WireTable) -> None:
    first = table.state()[2]
    table.land(1)
    assert table.state()[2] == first
    staged = table.write_staged(2, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    assert table.propose(staged).status_code == 200
    assert table.state()[2] != first


def test_an_append_leaves_the_catalogs_properties_alone(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """Also a property that a local client has committed to the log since; other clients still have the etag from
    before."""
    assert table.update({"action": "set-properties", "updates": {"team": "a"}}).status_code == 200
    staged = table.write_staged(1, {"metaData": table.metadata({**ENABLED, "team": "a"})})
    owner = warehouse.owner
    local = StagedProposal(attempt=staged.name.split(".")[1], file_name=staged.name)
    assert isinstance(owner.commit(owner.resolve("orders").table_id, 1, local), Ratified)
    etag = table.state()[2]
    table.land(2)
    assert table.state()[2] == etag


# Published versions


def test_report_of_the_ratified_bytes_is_recorded(table: WireTable) -> None:
    staged = table.land(1)
    assert refusal(table.update(reported(1))) == BAD, "version 1 is not published yet"
    assert table.state()[:2] == (1, [1])
    table.publish(staged)
    assert table.update(reported(1)).status_code == 200
    assert table.state()[:2] == (1, [])


def test_a_report_of_other_bytes_is_refused_and_the_commit_stays(table: WireTable) -> None:
    staged = table.land(1)
    published = table.location / "_delta_log" / f"{1:020d}.json"
    forged = lines(commit_info(START + 1, operation="forged"))
    published.symlink_to(staged.path)  # the target of a link can change
    assert refusal(table.update(reported(1))) == BAD
    published.unlink()
    for content in (forged, staged.content.replace(b"WRITE", b"wRITE"), b""):
        published.write_bytes(content)
        assert refusal(table.update(reported(1))) == BAD
    published.unlink()
    answered = table.load()
    assert [c["file-name"] for c in answered["commits"]] == [staged.name]


def test_report_beyond_the_latest_version_is_rejected(table: WireTable) -> None:
    staged = table.land(1)
    table.publish(staged)
    assert refusal(table.update(reported(99))) == BAD
    assert table.update(reported(1)).status_code == 200
    assert table.update(reported(0)).status_code == 200
    assert table.state()[:2] == (1, [])


@pytest.mark.parametrize("limit", [1, 2])
def test_report_makes_room_for_the_commit_beside_it(serve: Serve, limit: int) -> None:
    table = WireTable(serve(backlog_limit=limit)).create()
    landed = [table.land(version) for version in range(1, limit + 1)]
    assert refusal(table.propose(table.write_staged(limit + 1))) == EXHAUSTED
    table.publish(landed[0])
    assert table.propose(table.write_staged(limit + 1), reported(1)).status_code == 200
    assert table.state()[0] == limit + 1


def test_commit_and_its_report_take_effect_together_or_not_at_all(table: WireTable) -> None:
    table.publish(table.land(1))
    second = table.write_staged(2, timestamp=START)  # not greater than version 1's
    assert refusal(table.propose(second, reported(1))) == BAD
    assert table.state()[:2] == (1, [1])
    assert table.propose(table.write_staged(2), reported(1)).status_code == 200
    assert table.state()[:2] == (2, [2])


# Where Unity Catalog's server checks less

SOME_ID = "8a1f64b2-97d3-4c5e-b0aa-6e2c1d9f7b35"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("version", value) for value in (0, -1, 2**63, 10**400, 1.5, True, None)),
        *(("file-size", value) for value in (0, -5, 2**64, 7)),
        *(("timestamp", value) for value in (-1, 2**63, START + 99)),
        *(("file-name", value) for value in (None, "", "x" * 100_000, "foo", "../../0000.json", f"1.{SOME_ID}.json")),
        ("file-name", f"{2:020d}.{SOME_ID}.json"),  # of another version
        ("file-name", f"{1:020d}.{SOME_ID}.json/.."),
        ("file-name", f"{1:020d}.not-a-uuid.json"),
        ("file-name", f"{1:020d}.json"),
        ("file-name", f"{1:020d}.{SOME_ID.upper()}.json"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_commit_with_an_invalid_member_is_rejected(table: WireTable, member: str, value: object) -> None:
    """The size and the timestamp must also match the file."""
    staged = table.write_staged(1)
    assert refusal(table.update(added(staged, **{member: value}))) == BAD
    assert table.state()[:2] == (0, [])
    assert table.propose(staged).status_code == 200


def test_a_staged_file_behind_a_symbolic_link_is_refused(table: WireTable) -> None:
    staged = table.write_staged(1)
    elsewhere = table.location.parent.parent / "elsewhere.json"
    staged.path.rename(elsewhere)
    staged.path.symlink_to(elsewhere)
    assert refusal(table.propose(staged)) == BAD
    assert table.state()[0] == 0


# Attempts, and tables of other commit modes


def test_the_attempt_of_a_commit_is_the_uuid_of_its_file(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    staged = table.land(1)
    outcome = warehouse.owner.attempt_outcome(table.table_id, staged.name.split(".")[1])
    assert isinstance(outcome, Landed)


def test_an_attempt_that_was_resolved_as_not_landed_never_lands(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    staged = table.write_staged(1)
    warehouse.owner.attempt_outcome(table.table_id, staged.name.split(".")[1])
    assert refusal(table.propose(staged)) == REQUIREMENT
    table.land(1)


@pytest.mark.parametrize("named", ["gone", "taken"])
def test_a_proposal_to_a_dropped_table_does_not_land_after_an_undrop(
    table: WireTable, warehouse: refimpl.Warehouse, named: str
) -> None:
    """The answer said that it did not land, and the client deleted its data files."""
    warehouse.owner.drop_table(table.table_id)
    other = warehouse.create_table("orders", pa.schema([("id", pa.int64())])) if named == "taken" else None
    staged = table.write_staged(1)
    assert refusal(table.propose(staged)) == (NO_TABLE if other is None else REQUIREMENT)
    if other is not None:
        warehouse.owner.drop_table(other.table_id or "")
    warehouse.undrop_table(table.table_id)
    assert refusal(table.propose(staged)) == REQUIREMENT
    table.land(1)


@pytest.mark.parametrize("end", ["dropped", "handed back"])
def test_replay_after_the_end_of_a_table_is_not_denied(
    table: WireTable, warehouse: refimpl.Warehouse, end: str
) -> None:
    """A 404 says that the commit did not land: its client would delete its data files."""
    staged = table.land(1)
    if end == "dropped":
        warehouse.owner.drop_table(table.table_id)
    else:
        hand_back(warehouse.table("orders"))
    assert refusal(table.propose(staged)) == UNKNOWN
    assert refusal(table.propose(table.write_staged(2))) == NO_TABLE
    if end == "dropped":
        warehouse.undrop_table(table.table_id)
        assert table.propose(staged).status_code == 200


def test_commit_is_listed_with_the_time_of_its_file(table: WireTable) -> None:
    staged = table.land(1)
    (answered,) = table.load()["commits"]
    assert answered["file-modification-timestamp"] == staged.path.stat().st_mtime_ns // 1_000_000


def test_restored_file_is_listed_with_its_time_again(
    table: WireTable, warehouse: refimpl.Warehouse, tmp_path: Path
) -> None:
    """For example, after an operator restored the file. The server does not remember that it was missing."""
    staged = table.write_staged(1)
    proposal = StagedProposal(attempt=staged.name.split(".")[1], file_name=staged.name)
    assert isinstance(warehouse.owner.commit(table.table_id, 1, proposal), Ratified)
    os.utime(staged.path, (1_000, 1_000))
    moved = staged.path.rename(tmp_path / "moved")
    (missing,) = table.load()["commits"]
    assert missing["file-modification-timestamp"] != 1_000_000
    moved.rename(staged.path)
    (answered,) = table.load()["commits"]
    assert answered["file-modification-timestamp"] == 1_000_000


def test_a_file_whose_time_cannot_be_read_is_an_error(table: WireTable, warehouse: refimpl.Warehouse) -> None:
    """The server must not take it for a missing file, whose commit is listed with the time of its ratification."""
    staged = table.write_staged(1)
    proposal = StagedProposal(attempt=staged.name.split(".")[1], file_name=staged.name)
    assert isinstance(warehouse.owner.commit(table.table_id, 1, proposal), Ratified)
    staged.path.unlink()
    staged.path.symlink_to(staged.name)
    assert table.http.get(table.url).status_code == 500


@pytest.mark.parametrize("staged_after", [False, True])
def test_inline_commit_is_published_before_a_load(
    http: TestClient, warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, staged_after: bool
) -> None:
    """The API cannot express a commit without a file."""
    local = inline_table(warehouse)
    if staged_after:
        monkeypatch.setattr(proposing, "INLINE_LIMIT", 1)
        local.append(pa.table({"id": [2]}))
    latest = 1 + staged_after
    assert len(warehouse.owner.get_commits(local.table_id).commits) == latest
    assert WireTable(http).state()[:2] == (latest, [])
    assert (local.location / "_delta_log" / f"{1:020d}.json").exists()


def test_direct_table_is_readable_and_rejects_writers(http: TestClient, warehouse: refimpl.Warehouse) -> None:
    direct = warehouse.create_table("orders", pa.schema([("id", pa.int64())]), commit_mode=CommitMode.DIRECT)
    wire = WireTable(http)
    wire.table_id, wire.location = direct.table_id, direct.location
    (wire.location / "_delta_log" / "_staged_commits").mkdir(exist_ok=True)
    at = json.loads((wire.location / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[0])
    later = at["commitInfo"]["inCommitTimestamp"] + 1
    assert refusal(wire.propose(wire.write_staged(1, timestamp=later))) == BAD
    assert wire.state()[0] == 0
    warehouse.create_table("by_path", pa.schema([("id", pa.int64())]), feature=MANAGED_COMMIT)
    assert refusal(http.get(f"{wire.base}/tables/by_path")) == NO_TABLE
