"""The reference client through the shared interface: what it reads, commits and maintains, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.adapters.http_server import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError
from conformance.models import proposals
from conformance.models.owner import OWNER_PROPERTY
from spec_tests.conformance.reference.asking import COMMIT_MODES, attempt, published_name
from spec_tests.conformance.reference.serving import TABLE, Serving

every_commit_mode = pytest.mark.parametrize(("feature", "commit_mode"), COMMIT_MODES)
MANAGED = ("managedCommit", "staged")


@pytest.fixture
def s(tmp_path: Path) -> Serving:
    serving = Serving(tmp_path / "tables")
    serving.create()
    return serving


@pytest.fixture
def managed(tmp_path: Path) -> Serving:
    serving = Serving(tmp_path / "tables", *MANAGED)
    serving.create()
    return serving


# Reading


@every_commit_mode
def test_a_snapshot_has_all_that_was_ratified(tmp_path: Path, feature: str, commit_mode: str) -> None:
    s = Serving(tmp_path / "tables", feature, commit_mode)
    s.create()
    s.land(1, s.adds("a%20b.parquet"), s.adds("c.parquet", "y"))
    s.land(2, proposals.line("txn", {"appId": "stream", "version": 7}), proposals.remove("c.parquet", 1))
    read = s.read()
    assert (read.version, read.files, read.stale) == (2, ("a b.parquet",), False)
    assert read.timestamp == proposals.BASE_TIME + 2000
    assert read.partitions == {"a b.parquet": "x"}
    assert read.applications == {"stream": 7}
    assert read.properties is not None
    assert read.properties["delta.enableInCommitTimestamps"] == "true"
    s.backfill(2)
    assert s.read() == read


def test_a_client_keeps_its_table_and_asks_for_what_is_new(s: Serving) -> None:
    assert s.read().version == 0
    s.land(1, s.adds("a"))
    assert s.read().files == ("a",)
    assert [each.start for each in s.asked(m.GetCommits)] == [None, 1]
    s.expect(m.SnapshotRead, m.Snapshot(table=TABLE), client="another")
    assert s.asked(m.GetCommits)[-1] == m.GetCommits(table=s.reference), "it has nothing yet"


def test_an_old_version_or_time_can_be_read(s: Serving) -> None:
    for version in (1, 2):
        s.land(version, s.adds(f"{version}.parquet"))
    assert s.read(version=1).files == ("1.parquet",)
    assert s.read(timestamp=proposals.BASE_TIME + 1999).version == 1
    for nowhere in ({"version": 3}, {"timestamp": 1}):
        s.expect(m.Rejected, m.Snapshot(table=TABLE, **nowhere))


def test_a_table_that_is_not_there_is_not_found(s: Serving) -> None:
    s.expect(m.NotFound, m.Snapshot(table="no such table"))
    s.expect(m.NotFound, m.Snapshot(path=str(s.folder / "nowhere")))
    s.expect(m.NotFound, m.Transact(table="no such table", marker=attempt()))


def test_by_its_path_a_table_shows_what_is_published(managed: Serving) -> None:
    managed.land(1)
    read = managed.expect(m.SnapshotRead, m.Snapshot(path=managed.location))
    assert (read.version, read.stale) == (0, True)
    managed.expect(m.Rejected, m.Transact(table=managed.location, marker=attempt()))
    assert managed.latest() == 1


def test_a_catalog_managed_table_is_refused_by_its_path(s: Serving) -> None:
    s.expect(m.Rejected, m.Snapshot(path=s.location))
    s.expect(m.Rejected, m.Transact(table=s.location, marker=attempt(), adds=(m.DataFile(path="a"),)))
    assert s.names() == {published_name(0)}
    assert s.committed("a") == 1


def test_a_question_without_an_answer_is_asked_again(s: Serving) -> None:
    s.land(1)
    s.owner.on(m.GetCommits, lose_answer=True, times=2)
    s.owner.on(m.LoadTable, lose_request=True, times=2)
    assert s.read().version == 1
    s.owner.on(m.GetCommits, lose_request=True, times=3)
    s.expect(m.Unknown, m.Snapshot(table=TABLE))
    assert s.read().version == 1


# Writing


@every_commit_mode
def test_a_transaction_lands_with_its_marker(tmp_path: Path, feature: str, commit_mode: str) -> None:
    s = Serving(tmp_path / "tables", feature, commit_mode)
    s.create()
    request = s.write("a b%.parquet", part="ü")
    assert s.expect(m.Committed, request).version == 1
    s.backfill(1)
    lines = [json.loads(line) for line in (s.log / published_name(1)).read_text(encoding="utf-8").splitlines()]
    assert lines[0]["commitInfo"]["txnId"] == request.marker
    assert lines[0]["commitInfo"]["isBlindAppend"] is True
    (add,) = (line["add"] for line in lines if "add" in line)
    assert (add["path"], add["partitionValues"], add["dataChange"]) == ("a%20b%25.parquet", {"part": "ü"}, True)
    assert s.read().partitions == {"a b%.parquet": "ü"}


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
@every_commit_mode
def test_a_commit_without_an_answer_is_made_once(tmp_path: Path, feature: str, commit_mode: str, fault: str) -> None:
    s = Serving(tmp_path / "tables", feature, commit_mode)
    s.create()
    s.owner.on(m.Commit, **{fault: True})
    assert s.committed("a") == 1
    assert s.latest() == 1
    assert len(s.asked(m.AttemptOutcome)) == 1


def test_an_unknown_outcome_is_reported(s: Serving) -> None:
    s.owner.on(m.Commit, lose_answer=True)
    s.owner.on(m.AttemptOutcome, lose_request=True, times=1000)
    s.expect(m.Unknown, s.write("a"))
    assert s.read().files == ("a",), "it landed after all"


def test_a_lost_race_is_won_at_the_next_version(s: Serving) -> None:
    s.owner.on(m.Commit, before=lambda: s.land(1, s.adds("theirs")))
    assert s.committed("mine") == 2
    assert s.read().files == ("mine", "theirs")


def test_a_conflict_without_a_latest_version_is_looked_into(s: Serving) -> None:
    s.owner.on(m.Commit, before=lambda: s.land(1), change=lambda _: m.Conflict())
    assert s.committed("mine") == 2


def test_a_full_backlog_is_backfilled(tmp_path: Path) -> None:
    s = Serving(tmp_path / "tables")
    s.create(backlog_limit=1)
    s.land(1)
    assert s.committed("a") == 2
    assert [each.version for each in s.asked(m.BackfillToVersion)] == [1]


def test_a_refusal_is_passed_on(s: Serving) -> None:
    s.owner.on(m.Commit, answer=m.Rejected(reason="not today"))
    assert not s.expect(m.Rejected, s.write("a")).retryable
    assert s.latest() == 0
    assert s.committed("a") == 1


def test_what_was_read_is_checked_against_others(s: Serving) -> None:
    s.land(1, s.adds("old"), s.adds("other", "y"))
    mine = s.write("new", reads="x", removes=("old",), read_version=1)
    s.owner.on(m.Commit, before=lambda: s.land(2, s.adds("late", "it's")))
    assert s.expect(m.Committed, mine).version == 3
    for reads in ("*", "it's"):
        s.owner.on(m.Commit, before=lambda: s.land((s.latest() or 0) + 1, s.adds(attempt(), "it's")))
        latest = s.latest() or 0
        s.expect(m.Conflict, s.write("never", reads=reads))
        assert s.latest() == latest + 1
    free = s.write("free", reads="*", isolation=m.Isolation.SNAPSHOT, read_version=s.latest())
    s.owner.on(m.Commit, before=lambda: s.land((s.latest() or 0) + 1, s.adds("unseen")))
    s.expect(m.Committed, free)
    assert {"new", "late", "free", "unseen"} < set(s.read().files)
    assert "old" not in s.read().files


def test_only_files_of_the_snapshot_are_removed(s: Serving) -> None:
    s.land(1, s.adds("a%20b"))
    s.expect(m.Rejected, s.write(removes=("gone",)))
    assert s.committed(removes=("a b",), data_change=False) == 2
    assert s.read().files == ()


def test_a_batch_is_written_once(s: Serving) -> None:
    assert s.committed("a", application=("stream", 1)) == 1
    assert s.committed("b", application=("stream", 1)) is None
    assert s.committed("c", application=("stream", 2)) == 2
    read = s.read()
    assert (read.files, read.applications) == (("a", "c"), {"stream": 2})


def test_nothing_to_do_leaves_a_commit_only_where_it_is_wanted(s: Serving) -> None:
    assert s.committed(if_needed=True) is None
    assert s.latest() == 0
    assert s.committed() == 1


def test_properties_features_and_domains_are_changed(s: Serving) -> None:
    s.committed(set_properties={"color": "red", "size": "1"})
    s.committed(unset_properties=("size",), domain=("my.domain", "{}"), add_feature="appendOnly")
    read = s.read()
    assert read.properties is not None
    assert "size" not in read.properties
    assert read.properties["color"] == "red"
    assert read.domains == {"my.domain": "{}"}
    s.expect(m.Rejected, s.write(add_feature="unheardOf"))
    assert s.latest() == 2


def test_what_belongs_to_the_owner_and_to_timestamps_stays(managed: Serving) -> None:
    """FB21, FB22."""
    s = managed
    before = s.read().properties
    s.land(1, s.adds("old"))
    for edit in ({"unset_properties": (OWNER_PROPERTY,)}, {"set_properties": {OWNER_PROPERTY: "me"}},
                 {"unset_properties": ("delta.enableInCommitTimestamps",)}):  # fmt: skip
        s.expect(m.Rejected, s.write(**edit))
    assert s.latest() == 1
    s.committed("new", replace_table=True, set_properties={"color": "red"})
    read = s.read()
    assert read.files == ("new",)
    assert read.properties == {**(before or {}), "color": "red"}


# Creating and changing the owner


def creation(s: Serving, name: str = "created") -> m.CreateTable:
    own = attempt()
    actions = proposals.version_0(s.feature, own, attempt())
    return m.CreateTable(name=name, feature=s.feature, commit_mode=s.commit_mode, attempt=own, actions=actions)


@every_commit_mode
def test_a_creator_whose_answer_was_lost_knows_its_table(tmp_path: Path, feature: str, commit_mode: str) -> None:
    """FB24, FB25."""
    s = Serving(tmp_path / "tables", feature, commit_mode)
    s.owner.on(m.CreateTable, lose_answer=True)
    made = s.expect(m.Ratified, creation(s))
    assert made.version == 0
    assert s.direct(m.Table, m.LoadTable(name="created")).table == made.table
    other = s.expect(m.Conflict, creation(s))
    assert other.winner_table == made.table


def test_a_creator_knows_its_table_although_the_owner_does_not(s: Serving) -> None:
    """Without the promise of idempotent retry, an owner may answer a replay by a conflict."""
    request = creation(s)
    s.owner.on(m.CreateTable, lose_answer=True)
    s.owner.on(m.CreateTable, change=lambda answer: m.Conflict(latest=0, winner_table=getattr(answer, "table", None)))
    assert s.expect(m.Ratified, request).version == 0


def test_a_creation_that_is_never_answered_is_unknown(s: Serving) -> None:
    s.owner.on(m.CreateTable, lose_request=True, times=1000)
    s.expect(m.Unknown, creation(s))


@pytest.fixture
def plain(s: Serving) -> str:
    """The path of a table without an owner, at version 1."""
    path = s.folder / "imports"
    for version in (0, 1):
        own, time = attempt(), proposals.BASE_TIME + version
        lines = proposals.append(own, time, ["a"]) if version else proposals.version_0(None, own, "t", timestamp=time)
        plant = m.Plant(table=str(path), file=published_name(version), content=proposals.content(lines))
        s.direct(m.Done, plant)
    return str(path)


def taking_over(path: str, feature: str, commit_mode: str) -> m.TakeOver:
    return m.TakeOver(
        path=path, name="imports", feature=feature, commit_mode=commit_mode, version=2, attempt=attempt(), actions=()
    )


@every_commit_mode
@pytest.mark.parametrize("fault", [{}, {"lose_answer": True}, {"lose_request": True}], ids=str)
def test_a_filesystem_table_is_given_to_the_owner_and_taken_back(
    s: Serving, plain: str, feature: str, commit_mode: str, fault: dict[str, bool]
) -> None:
    s.owner.on(m.TakeOver, **fault)
    request = taking_over(plain, feature, commit_mode)
    made = s.expect(m.Ratified, request)
    assert made.version == 2
    found = s.direct(m.Table, m.LoadTable(name="imports"))
    assert (found.table, found.feature, found.commit_mode, found.latest) == (made.table, feature, commit_mode, 2)
    change = (Path(plain) / "_delta_log" / published_name(2)).read_text(encoding="utf-8")
    assert proposals.attempt_of(change) == request.attempt
    assert s.expect(m.SnapshotRead, m.Snapshot(table="imports")).files == ("a",)
    s.owner.on(m.HandBack, **fault)
    back = m.HandBack(table="imports", version=3, attempt=attempt(), actions=())
    assert s.expect(m.Ratified, back).version == 3
    s.expect(m.NotFound, m.Snapshot(table="imports"))
    read = s.expect(m.SnapshotRead, m.Snapshot(path=plain))
    assert (read.version, read.stale, read.files) == (3, False, ("a",))
    assert s.expect(m.Committed, m.Transact(table=plain, marker=attempt())).version == 4


def test_a_take_over_that_lost_to_a_filesystem_writer_is_built_anew(s: Serving, plain: str) -> None:
    content = proposals.content(proposals.append(attempt(), proposals.BASE_TIME + 2, ["b"]))
    winner = m.Plant(table=plain, file=published_name(2), content=content)
    s.owner.on(m.TakeOver, before=lambda: s.direct(m.Done, winner))
    assert s.expect(m.Ratified, taking_over(plain, "managedCommit", "staged")).version == 3
    assert s.expect(m.SnapshotRead, m.Snapshot(table="imports")).files == ("a", "b")


def test_a_table_is_dropped_and_published_through_the_client(s: Serving) -> None:
    s.land(1)
    s.expect(m.Done, m.BackfillToVersion(table=TABLE, version=1))
    assert s.names() == {published_name(0), published_name(1)}
    s.expect(m.Done, m.DropTable(table=TABLE))
    s.expect(m.NotFound, m.DropTable(table=TABLE))


# Maintenance


def test_only_what_is_published_is_checkpointed_and_compacted(s: Serving) -> None:
    """FB16."""
    s.land(1, s.adds("a"))
    s.land(2, s.adds("b"))
    jobs = [m.Checkpoint(table=TABLE, version=2), m.Compact(table=TABLE, start=0, end=2)]
    for job in jobs:
        s.expect(m.Rejected, job)
    assert s.names() == {published_name(0)}
    s.backfill(2)
    for job in jobs:
        s.expect(m.Done, job)
    assert {f"{2:020}.checkpoint.parquet", "_last_checkpoint", f"{0:020}.{2:020}.compacted.json"} < s.names()
    assert s.expect(m.SnapshotRead, m.Snapshot(table=TABLE), client="another").files == ("a", "b")


def test_a_checksum_is_written_of_any_version(s: Serving) -> None:
    s.land(1)
    s.expect(m.Done, m.Checksum(table=TABLE, version=1))
    assert f"{1:020}.crc" in s.names()


def test_cleanup_keeps_what_is_younger_than_the_given_time(s: Serving) -> None:
    for version in (1, 2, 3):
        s.land(version)
    s.backfill(3)
    s.expect(m.Done, m.Checkpoint(table=TABLE, version=2))
    s.expect(m.Done, m.Cleanup(table=TABLE, older_than=proposals.BASE_TIME + 1999))
    assert published_name(0) in s.names(), "the cut-off commit is 1, and no checkpoint is at or before it"
    s.expect(m.Done, m.Cleanup(table=TABLE, older_than=proposals.BASE_TIME + 2000))
    commits = {name for name in s.names() if name.endswith(".json")}
    assert commits == {published_name(2), published_name(3)}
    assert s.read().version == 3


def test_maintenance_that_the_owner_forbids_is_not_done(s: Serving) -> None:
    """FB06."""
    s.backfill(0)
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=("checkpoint",)), times=1000)
    s.expect(m.Done, m.Checkpoint(table=TABLE, version=0))
    s.expect(m.Rejected, m.Cleanup(table=TABLE, older_than=proposals.BASE_TIME))
    for job in ("vacuum", "optimize", "reorg"):
        s.expect(m.Rejected, m.Maintain(table=TABLE, job=job))


@pytest.mark.parametrize("job", ["vacuum", "optimize", "reorg"])
def test_what_the_reference_lacks_is_unsupported_where_it_would_be_allowed(s: Serving, job: str) -> None:
    s.owner.on(m.MaintenancePolicy, answer=m.Policy(allowed=(job,)), times=1000)
    s.expect(m.Unsupported, m.Maintain(table=TABLE, job=job))


def test_without_a_policy_only_what_is_always_allowed_is_done(s: Serving) -> None:
    s.owner.on(m.MaintenancePolicy, answer=m.Unsupported(), times=1000)
    s.expect(m.Done, m.Checkpoint(table=TABLE, version=0))
    s.expect(m.Rejected, m.Cleanup(table=TABLE, older_than=proposals.BASE_TIME))
    s.expect(m.Unsupported, m.Maintain(table=TABLE, job="no such job"))


# The owner that it asks


def test_without_an_owner_it_says_how_to_name_one() -> None:
    with pytest.raises(AdapterError, match="owner_url"):
        InProcess(ReferenceClient())
    with pytest.raises(AdapterError, match="hello"):
        ReferenceClient().snapshot("client", m.Snapshot(table=TABLE))


@pytest.fixture
def url(s: Serving) -> Iterator[str]:
    with HttpServer(s.owner.ask) as server:
        yield server.url


def test_it_finds_its_owner_by_its_url(s: Serving, url: str) -> None:
    handler = ReferenceClient()
    try:
        identity = handler.hello("kit", m.Hello(owner_url=url))
        assert identity.side == "client"
        assert handler.hello("kit", m.Hello(owner_url=url)) == identity
        answer = handler.transact("client", s.write("a"))
        assert isinstance(answer, m.Committed)
        assert s.latest() == answer.version == 1
    finally:
        handler.close()
        handler.close()


@pytest.mark.parametrize(
    "answer",
    [
        m.Table(table="t", feature="managedCommit", commit_mode="staged", latest=0),
        m.Table(table="t", feature="other", commit_mode="staged", latest=0, location="/tmp"),
        m.Table(table="t", feature="managedCommit", commit_mode="by post", latest=0, location="/tmp"),
        m.Rejected(reason="no"),
        m.Done(),
    ],
    ids=["nowhere", "feature", "commit_mode", "refused", "wrong"],
)
def test_an_owner_that_cannot_be_understood_is_no_table(s: Serving, answer: m.Answer) -> None:
    s.owner.on(m.LoadTable, answer=answer)
    s.expect(m.Rejected, m.Snapshot(table=TABLE))
    assert s.read().version == 0
