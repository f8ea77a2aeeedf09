"""Compactions, checksums, and the permission that every maintenance job needs from the owner."""

import json
from collections.abc import Callable

import pytest

from refimpl import actions, log_path
from refimpl.actions import Add, CommitInfo, DomainMetadata, Metadata, Remove
from refimpl.client.maintenance import clean_up, compact, write_checkpoint, write_checksum
from refimpl.client.properties import DELETED_FILES, LOG, retention
from refimpl.client.table import Table
from refimpl.commit_owner import Backfilled, Maintenance, MaintenancePolicy
from refimpl.commits import CommitsAnswer
from refimpl.errors import CorruptLogError, InvalidRequestError, InvalidTableError, MaintenanceRefusedError
from refimpl.log_path import LAST_CHECKPOINT
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from spec_tests.client.conftest import (
    DAY,
    EVERY_COMMIT,
    GENEROUS,
    SCHEMA,
    Setting,
    backfill,
    both,
    busy,
    every_kind,
    hide,
    names,
    state,
)
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles
from spec_tests.support.other_readers import by_delta_rs


@every_kind
def test_a_compaction_replaces_its_commits(setting: Setting, feature: TableFeature | None) -> None:
    """Delta's protocol, "Log Compaction Files"."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 5)
    before = table.snapshot()
    name = compact(table, 2, 5)
    assert name == log_path.compaction(2, 5)
    after = setting.again(table).snapshot()
    assert [path.name for path in after.segment.compactions] == [name]
    assert state(after) == state(before)
    compacted = actions.decode(table.log.read(name), source=name)
    assert not any(isinstance(action, CommitInfo) for action in compacted)
    keys = [action.key for action in compacted if isinstance(action, Add | Remove)]
    assert len(keys) == len(set(keys))
    assert any(isinstance(action, Remove) for action in compacted), "a removal must stay, for files added earlier"
    if feature is None or (
        feature.path_access and not feature.vacuum_protocol_check
    ):  # delta-rs cannot read the others
        assert by_delta_rs(table.location) == rows


@both
def test_a_commit_published_during_a_compaction_is_found(
    setting: Setting, feature: TableFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks the owner before it lists the log. In the other order, such a commit would be in
    neither answer.
    """
    table = setting.table(feature, policy=GENEROUS)
    busy(setting, table, 5)
    backfill(setting, table, 2)
    snapshot = table.snapshot()
    ask, published = setting.owner.get_commits, iter((3, 3, 5))

    def publish_then_answer(table_id: str, start: int | None = None, end: int | None = None) -> CommitsAnswer:
        backfill(setting, table, next(published))
        return ask(table_id, start, end)

    monkeypatch.setattr(setting.owner, "get_commits", publish_then_answer)
    times = snapshot.commit_times()
    assert (times.first, times.last) == (0, 5)
    assert compact(table, 1, 2) == log_path.compaction(1, 2)
    assert next(published, None) is None, "version 5 must be published during the compaction"


def test_a_compaction_keeps_unknown_fields_and_actions(setting: Setting) -> None:
    """A compaction keeps unknown fields of known actions, and unknown actions in their order. Of two actions on one
    file it keeps the later.
    """
    table = setting.table(None)
    old, new = ({"add": {**action, "path": "file:/x/a"}} for action in (_foreign("old"), _foreign("new")))
    unknown = [{"futureAction": {"number": number}} for number in (1, 2)]
    commits = ([{"commitInfo": {}}, old, unknown[0]], [new, unknown[1], {"add": {**_foreign("b"), "path": "b"}}])
    for version, lines in enumerate(commits, start=1):
        content = b"\n".join(json.dumps(line).encode() for line in lines)  # the last line has no newline
        assert table.log.put_if_absent(log_path.commit(version), content)
    kept = [json.loads(line) for line in table.log.read(compact(table, 1, 2)).splitlines()]
    assert kept == [unknown[0], new, unknown[1], {"add": {**_foreign("b"), "path": "b"}}]


def test_commits_of_commit_info_alone_are_not_compacted(setting: Setting) -> None:
    """Such a compaction would be an empty file, which no reader can use."""
    table = setting.table(None)
    for version in (1, 2):
        assert table.log.put_if_absent(log_path.commit(version), b'{"commitInfo":{}}\n')
    before = names(table)
    with pytest.raises(InvalidRequestError):
        compact(table, 1, 2)
    assert names(table) == before


def _foreign(tag: str) -> dict[str, object]:
    fields = {"partitionValues": {"month": "01"}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {**fields, "futureField": {"nested": tag}}


def test_a_compaction_keeps_removed_domains_and_latest_metadata(setting: Setting) -> None:
    table = setting.table(None)
    for work in ("set", "remove"):
        transaction = table.transaction()
        transaction.set_domain("some", "{}" if work == "set" else None)
        transaction.set_properties({"step": work})
        transaction.commit()
    compacted = actions.decode(table.log.read(compact(table, 1, 2)), source="compaction")
    assert [a.removed for a in compacted if isinstance(a, DomainMetadata)] == [True]
    assert [a.configuration["step"] for a in compacted if isinstance(a, Metadata)] == ["remove"]
    assert not setting.again(table).snapshot().domains


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2)])
def test_a_range_of_fewer_than_two_versions_is_no_compaction(setting: Setting, start: int, end: int) -> None:
    table = setting.table(None)
    busy(setting, table, 3)
    with pytest.raises(InvalidRequestError):
        compact(table, start, end)
    assert compact(table, 2, 3)


def test_missing_commits_are_not_compacted(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 2)
    hide(table, 0, 1)
    with pytest.raises(MaintenanceRefusedError) as caught:
        compact(table, 1, 3)
    assert caught.value.version == 1
    assert compact(table, 2, 3)


@both
def test_a_checksum_may_be_written_before_the_publication(setting: Setting, feature: TableFeature) -> None:
    """catalog-managed, "Maintenance Operations"; DELTA.md#checksum-any-version."""
    table = setting.table(feature)
    busy(setting, table, 3)
    assert not table.log.published(3)
    name = write_checksum(table)
    assert name == log_path.checksum(3)
    snapshot = setting.again(table).snapshot()
    assert snapshot.segment.checksum is not None
    assert snapshot.warnings == ()
    checksum = json.loads(table.log.read(name))
    assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (len(snapshot.files), snapshot.size_in_bytes)
    assert (checksum["numMetadata"], checksum["numProtocol"]) == (1, 1)
    assert checksum["inCommitTimestampOpt"] == snapshot.in_commit_timestamp
    assert checksum["setTransactions"] == [{"appId": "job", "version": 2, "lastUpdated": START}]


def test_an_existing_checksum_is_kept(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 1)
    table.log.put_if_absent(log_path.checksum(1), b"{}")
    assert write_checksum(table, 1) == log_path.checksum(1)
    assert table.log.read(log_path.checksum(1)) == b"{}"


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (write_checkpoint, LAST_CHECKPOINT),
        (write_checksum, log_path.checksum(2)),
        (lambda table: compact(table, 1, 2), log_path.compaction(1, 2)),
    ],
    ids=["checkpoint", "checksum", "compaction"],
)
def test_a_file_that_cannot_be_written_is_an_error(
    setting: Setting, storage: FailingFiles, job: Callable[[Table], object], name: str
) -> None:
    table = setting.table(None)
    busy(setting, table, 2)
    storage.fail_when = lambda operation, path: operation in ("link", "replace") and path.name == name
    with pytest.raises(OSError, match="injected"):
        job(table)
    storage.fail_when = lambda operation, path: False
    assert setting.again(table).snapshot().version == 2


def job_of(name: str) -> Callable[[Table], object]:
    jobs: dict[str, Callable[[Table], object]] = {
        "checkpoint": lambda table: write_checkpoint(table, 2),
        "log-compaction": lambda table: compact(table, 0, 2),
        "checksum": lambda table: write_checksum(table, 2),
        "metadata-cleanup": clean_up,
    }
    return jobs[name]


@both
@pytest.mark.parametrize("name", ["checkpoint", "log-compaction", "checksum", "metadata-cleanup"])
def test_every_job_asks_the_owner_each_time(setting: Setting, feature: TableFeature, name: str) -> None:
    """catalog-managed, "Maintenance Operations", as tightened: three jobs are always allowed, the others need
    permission. FB06.
    """
    table = setting.table(feature, policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    job = job_of(name)
    setting.owner.calls.clear()
    if name == "metadata-cleanup":
        before = names(table)
        with pytest.raises(MaintenanceRefusedError) as caught:
            job(table)
        assert caught.value.job is Maintenance.METADATA_CLEANUP
        assert names(table) == before
        assert table.table_id is not None
        setting.owner.owner.set_policy(table.table_id, EVERY_COMMIT)  # type: ignore[attr-defined]
    job(table)
    calls = setting.owner.calls["resolve"]
    job(table)
    assert setting.owner.calls["resolve"] == calls + 1


def test_an_owned_table_is_not_maintained_by_its_path(setting: Setting) -> None:
    table = setting.table(MANAGED_COMMIT, policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    by_path = Table.by_path(table.location, setting.environment)
    for name in ("checkpoint", "log-compaction", "checksum", "metadata-cleanup"):
        with pytest.raises(MaintenanceRefusedError):
            job_of(name)(by_path)


def test_a_table_that_was_dropped_is_not_maintained(setting: Setting) -> None:
    table = setting.table(policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    assert table.table_id is not None
    setting.owner.drop_table(table.table_id)
    with pytest.raises(InvalidRequestError):
        write_checkpoint(table, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 1 week", 7 * DAY),
        ("interval 2 days 12 hours", 2 * DAY + DAY // 2),
        ("INTERVAL 90 MINUTES", 5_400_000),
        ("30 seconds", 30_000),
        ("interval 5 milliseconds", 5),
    ],
)
def test_deltas_spellings_of_a_duration_are_read(text: str, expected: int) -> None:
    assert retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG) == expected


@pytest.mark.parametrize("text", ["", "interval", "interval 1 month", "7", "interval 1 day and more"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(InvalidTableError):
        retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG)
    plain = Metadata(id="t", schema_string=SCHEMA)
    assert (retention(plain, LOG), retention(plain, DELETED_FILES)) == (30 * DAY, 7 * DAY)


# Publishing by a client: DELTA.md#publish


@pytest.mark.parametrize("mode", [CommitMode.STAGED, CommitMode.INLINE], ids=lambda mode: mode.value)
def test_a_client_publishes_listed_commits_and_reports_them(setting: Setting, mode: CommitMode) -> None:
    """catalog-managed, "Publishing Commits"."""
    table = setting.table(CATALOG_MANAGED, mode)
    busy(setting, table, 4)
    listed = {commit.version: table.reader.content(commit) for commit in table.reader.ask().commits}  # type: ignore[union-attr]
    assert table.publish(2) == Backfilled(through=2, published=2)
    assert table.log.published_versions() == {0, 1, 2}
    with pytest.raises(InvalidRequestError, match=r"version 5 .* is not ratified"):
        table.publish(5)
    assert table.publish(4) == Backfilled(through=4, published=2)
    assert {version: table.log.read(log_path.commit(version)) for version in listed} == listed
    assert setting.owner.get_commits(table.table_id or "").commits == (), "the owner may stop listing reported commits"
    assert table.publish() == Backfilled(through=4, published=0)
    assert table.snapshot().version == 4


def test_commits_are_durable_and_in_order_before_they_are_reported(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 3)
    storage.done.clear()
    reported: list[list[tuple[str, object]]] = []
    report = setting.owner.owner.report_published

    def watched(table_id: str, through: int) -> None:
        reported.append(list(storage.done))
        report(table_id, through)

    setting.owner.owner.report_published = watched  # type: ignore[method-assign]
    table.publish()
    steps = [
        step
        for version in (1, 2, 3)
        for step in (("link", table.log.folder / log_path.commit(version)), ("fsync_directory", table.log.folder))
    ]
    assert [step for step in reported[0] if step in steps] == steps


def test_an_interrupted_publication_is_continued(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 3)
    storage.fail_when = lambda operation, path: operation == "link" and path.name == log_path.commit(2)
    with pytest.raises(OSError, match="injected"):
        table.publish()
    storage.fail_when = lambda operation, path: False
    assert table.log.published_versions() == {0, 1}
    assert "report_published" not in setting.owner.calls
    assert setting.again(table).publish() == Backfilled(through=3, published=3)


def test_nothing_is_published_above_a_missing_version(setting: Setting) -> None:
    """The owner's list begins above the missing version, which must be published first."""
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 3)
    table.publish(1)
    table.log.delete(log_path.commit(1))
    with pytest.raises(CorruptLogError) as caught:
        table.publish()
    assert caught.value.missing_version == 1
    assert table.log.published_versions() == {0}


def test_a_report_of_unpublished_commits_is_rejected(setting: Setting) -> None:
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 2)
    with pytest.raises(InvalidRequestError, match="not published"):
        setting.owner.report_published(table.table_id or "", 2)
    assert len(setting.owner.get_commits(table.table_id or "").commits) == 2


def test_publishing_is_refused_if_clients_may_not_publish(setting: Setting) -> None:
    """managed-commits: only the owner backfills."""
    managed, plain = setting.table(MANAGED_COMMIT, name="managed"), setting.table(None, name="plain")
    busy(setting, managed, 2)
    catalog = setting.table(CATALOG_MANAGED, name="catalog")
    for table, version in ((managed, None), (plain, None), (catalog, 7)):
        with pytest.raises(InvalidRequestError):
            table.publish(version)
        assert table.log.published_versions() == {0}
