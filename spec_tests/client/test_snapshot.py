"""Loading and refreshing a version: replay, the owner's commits, races with publication and cleanup, refused tables. A
refresh reads only the new commits, and gives the same snapshot as loading it anew."""

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.client.maintenance import write_checkpoint
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log.log_reading import LOOK_AHEAD
from refimpl.log.table_state import LayeredMap, collector_paused
from refimpl.protocol import errors, log_path
from refimpl.protocol.actions import Action, DomainMetadata, Txn
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TableFeature
from spec_tests.client.conftest import both
from spec_tests.support.written_log import (
    FEATURES,
    START,
    WatchedFiles,
    WrittenLog,
    add,
    classic_content,
    compaction,
    definition,
    remove,
)


def paths(table: Table, **options: int) -> set[str]:
    return {path for path, _ in table.snapshot(**options).files}  # type: ignore[arg-type]


@pytest.fixture
def plain(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "t").create()


class TestReplay:
    """DELTA.md#actions."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("file:/x/a", "file:///x/a"),
            ("/x/a", "FILE:///x/a"),
            ("/x/a", "file://localhost/x/a"),
            ("p=%c3%bc/a", "p=%C3%BC/a"),
            ("file:/x%2fa", "/x%2Fa"),
        ],
    )
    def test_two_spellings_of_a_path_are_one_file(self, plain: WrittenLog, first: str, second: str) -> None:
        """RFC 3986, 6.2.2.1; an empty authority equals a missing one."""
        plain.publish(1, add(first)).publish(2, remove(second)).publish(3, add("c"))
        snapshot = plain.table().snapshot()
        assert {file.path for file in snapshot.files.values()} == {"c"}
        assert snapshot.size_in_bytes == 100

    @pytest.mark.parametrize(
        "other",
        [
            "x/a",
            "file://host/x/a",
            "s3://x/a",
            "file:x/a",
            "/x/A",
            "file://h/file:/x/a",
            "/x%2Fa",
            "file://localhosts/x/a",
        ],
    )
    def test_different_paths_are_different_files(self, plain: WrittenLog, other: str) -> None:
        plain.publish(1, add("file:/x/a")).publish(2, add(other), remove("/x/a"))
        assert [file.path for file in plain.table().snapshot().files.values()] == [other]

    def test_the_later_action_on_a_file_wins_within_a_commit_too(self, plain: WrittenLog) -> None:
        """No writer may write such a commit. All readers must still agree on it, whether they read the commit or a
        checkpoint.
        """
        plain.publish(1, add("twice", size=1), add("twice", size=2), add("gone"), remove("gone"))
        plain.publish(2, remove("back"), add("back", size=3))
        table = plain.table()
        first = table.snapshot()
        assert {path: file.size for (path, _), file in first.files.items()} == {"twice": 2, "back": 3}
        assert (set(first.tombstones), first.size_in_bytes) == ({("gone", None)}, 5)
        write_checkpoint(table, 2)
        for version in (1, 2):
            (plain.folder / log_path.commit(version)).unlink()
        assert {path: file.size for (path, _), file in plain.table().snapshot().files.items()} == {
            "twice": 2,
            "back": 3,
        }


class TestBrokenLogs:
    def test_a_compaction_is_not_read(self, plain: WrittenLog) -> None:
        """DELTA.md#compaction-reconciled: some writers put the newest action first."""
        plain.publish(1, add("a")).publish(2, remove("a"), add("b"))
        plain.write(compaction(1, 2).name, plain.content(99, remove("a"), add("b"), add("a")))
        snapshot = plain.table().snapshot()
        assert {path for path, _ in snapshot.files} == {"b"}
        assert snapshot.warnings == ()

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe\n", b'{"add":{"path":1}}\n', b"[1]\n", b'{"commitInfo":{}}\n{"add"', b"\n\n"],
        ids=["empty", "cut off", "not UTF-8", "of a wrong type", "no object", "second line cut off", "blank"],
    )
    def test_the_error_for_a_malformed_commit_names_its_file(self, plain: WrittenLog, content: bytes) -> None:
        plain.publish(1, add("a"))
        assert paths(plain.table()) == {"a"}
        plain.write(log_path.commit(1), content)
        with pytest.raises(errors.CorruptLogError) as caught:
            plain.table().snapshot()
        assert caught.value.path == str(plain.folder / log_path.commit(1))

    def test_a_folder_without_a_log_is_no_table(self, tmp_path: Path) -> None:
        with pytest.raises(errors.TableNotFoundError) as caught:
            Table.by_path(tmp_path / "nothing").snapshot()
        assert caught.value.location == str(tmp_path / "nothing")


class TestThroughTheOwner:
    def test_a_gap_in_two_listings_is_an_error(self, plain: WrittenLog) -> None:
        plain.publish(1).publish(2).delete(log_path.commit(1))
        files = WatchedFiles()
        with pytest.raises(errors.CorruptLogError):
            plain.table(files=files).snapshot()
        assert files.listings == 2

    def test_a_log_that_changes_during_each_load_is_an_error(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t", CATALOG_MANAGED).create()
        owner, latest = log.owner(), [5]

        def move_on() -> int:
            latest[0] += 1
            return latest[0]

        owner.latest = move_on
        with pytest.raises(errors.CorruptLogError, match="changed during each"):
            log.table(owner).snapshot()

    @both
    def test_a_commit_published_after_the_answer_is_read(self, tmp_path: Path, feature: TableFeature) -> None:
        """FB01, FB03: the staged file is deleted; the client reads the published file."""
        log = WrittenLog(tmp_path / "t", feature).create().stage(1, add("a")).stage(2, add("b"))
        owner = log.owner()
        owner.after_answer.append(lambda: log.backfill(1))
        assert paths(log.table(owner)) == {"a", "b"}
        assert owner.asked == [(None, None)]


class TestOwnership:
    def test_a_table_with_the_feature_of_another_owner_is_invalid(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t", MANAGED_COMMIT).create()
        owner = log.owner()
        assert log.table(owner).snapshot().feature is MANAGED_COMMIT
        owner.feature = CATALOG_MANAGED
        with pytest.raises(errors.InvalidTableError):
            log.table(owner).snapshot()

    def test_a_take_over_during_the_read_is_followed(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t", CATALOG_MANAGED).publish(0, *definition(None), add("a"))
        owner = log.owner()
        owner.state, owner.latest = TableState.TAKING_OVER, lambda: 0

        def take_over() -> None:
            log.publish(1, *definition(CATALOG_MANAGED))
            owner.state, owner.latest = TableState.ACTIVE, lambda: 1

        owner.after_answer.append(take_over)
        table = log.table(owner)
        assert (table.snapshot().version, table.snapshot().feature) == (1, CATALOG_MANAGED)
        assert table.owner is not None


class TestTimeTravelByVersion:
    @pytest.mark.parametrize("version", [-1, 2**63, True])
    def test_an_invalid_version_is_rejected_without_a_request(self, tmp_path: Path, version: int) -> None:
        log = WrittenLog(tmp_path / "t", CATALOG_MANAGED).create()
        owner = log.owner()
        for table in (log.table(), log.table(owner)):
            with pytest.raises(errors.InvalidRequestError):
                table.snapshot(version=version)
        assert owner.asked == []

    @pytest.mark.parametrize(
        "options", [{"timestamp": "2020-01-01"}, {"timestamp": 1.5}, {"version": 0, "timestamp": START}]
    )
    def test_an_invalid_time_or_a_time_with_a_version_is_rejected(
        self, plain: WrittenLog, options: dict[str, Any]
    ) -> None:
        with pytest.raises(errors.InvalidRequestError):
            plain.table().snapshot(**options)


class TestChecksums:
    """DELTA.md#checksum-disagrees: a corrupt checksum is ignored. A valid checksum that disagrees causes a warning."""

    def log(self, tmp_path: Path) -> WrittenLog:
        log = WrittenLog(tmp_path / "t", MANAGED_COMMIT).create().publish(1, add("a"), Txn(app_id="x", version=1))
        return log.publish(2, add("b"))

    def test_a_correct_checksum_causes_no_warning(self, tmp_path: Path) -> None:
        log = self.log(tmp_path)
        log.checksum(
            2,
            numFiles=2,
            tableSizeBytes=200,
            numMetadata=1,
            numProtocol=1,
            inCommitTimestampOpt=START + 2000,
            setTransactions=[{"appId": "x", "version": 1}],
            domainMetadata=[{"domain": "gone", "configuration": "", "removed": True}],
            protocol={
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["inCommitTimestamp", "managedCommit"],
            },
        )
        assert log.table(log.owner()).snapshot().warnings == ()

    @pytest.mark.parametrize("wrong", [{"numFiles": 3}, {"setTransactions": []}], ids=lambda wrong: next(iter(wrong)))
    def test_a_wrong_checksum_causes_only_a_warning(self, tmp_path: Path, wrong: dict[str, object]) -> None:
        log = self.log(tmp_path)
        log.checksum(2, **wrong)
        snapshot = log.table(log.owner()).snapshot()
        assert {path for path, _ in snapshot.files} == {"a", "b"}
        assert [log_path.checksum(2) in warning for warning in snapshot.warnings] == [True]


def content(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        dict(snapshot.files),
        dict(snapshot.tombstones),
        dict(snapshot.transactions),
        dict(snapshot.domains),
        snapshot.size_in_bytes,
        snapshot.in_commit_timestamp,
    )


class TestCost:
    def test_time_travel_by_path_reads_the_newest_version_once(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create()
        for version in range(1, 10):
            log.publish(version, add(f"f{version}"))
        files = WatchedFiles()
        table = log.table(files=files)
        table.snapshot(version=0)
        files.reads = []
        assert table.snapshot(version=1).version == 1
        assert [name for name in files.reads if name.endswith(".json")] == [log_path.commit(0), log_path.commit(1)]

    @both
    def test_the_owner_is_asked_only_for_the_next_versions(self, tmp_path: Path, feature: TableFeature) -> None:
        log = WrittenLog(tmp_path / "t", feature).create().stage(1, add("a"))
        owner, files = log.owner(), WatchedFiles()
        snapshot = log.table(owner, files).snapshot()
        log.stage(2, add("b"))
        owner.asked, files.listings, files.reads = [], 0, []
        later = snapshot.refresh()
        assert (later.version, files.listings, owner.asked) == (2, 0, [(2, None)])
        assert len(files.reads) == 1

    @both
    def test_new_published_commits_are_found_without_a_listing(self, tmp_path: Path, feature: TableFeature) -> None:
        log = WrittenLog(tmp_path / "t", feature).create().stage(1, add("a"))
        files = WatchedFiles()
        snapshot = log.table(log.owner(), files).snapshot()
        log.backfill(1).publish(2, add("b")).stage(3, add("c"))
        files.listings = 0
        later = snapshot.refresh()
        assert {path for path, _ in later.files} == {"a", "b", "c"}
        assert files.listings == 0

    @pytest.mark.parametrize("feature", [None, *FEATURES], ids=["filesystem", "managed", "catalog"])
    def test_a_refresh_without_new_commits_returns_the_same_snapshot(
        self, tmp_path: Path, feature: TableFeature | None
    ) -> None:
        log = WrittenLog(tmp_path / "t", feature).create().publish(1, add("a"))
        files = WatchedFiles()
        snapshot = log.table(None if feature is None else log.owner(), files).snapshot()
        files.reads, files.looks = [], []
        assert snapshot.refresh() is snapshot
        assert files.reads == []
        assert log_path.checksum(1) not in files.looks

    def test_a_table_handle_refreshes_its_last_snapshot(self, tmp_path: Path) -> None:
        """It reads only new commits, and lists nothing."""
        log = WrittenLog(tmp_path / "t").create().publish(1, add("a"))
        files = WatchedFiles()
        table = log.table(files=files)
        assert table.snapshot() is table.snapshot()
        log.publish(2, add("b")).publish(3, remove("a"))
        files.listings, files.reads = 0, []
        assert table.snapshot().version == 3
        assert (files.listings, files.reads) == (0, [log_path.commit(2), log_path.commit(3)])


class TestWhenTheLogMovedMore:
    def test_a_gap_is_an_error_and_not_the_end(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create()
        snapshot = log.table().snapshot()
        log.publish(1, add("a")).publish(2, add("b")).publish(3, add("c"))
        hidden = log.contents[2]
        log.delete(log_path.commit(2))
        with pytest.raises(CorruptLogError) as caught:
            snapshot.refresh()
        assert caught.value.missing_version == 2
        log.write(log_path.commit(2), hidden)
        assert snapshot.refresh().version == 3

    @pytest.mark.parametrize("feature", [None, *FEATURES], ids=["filesystem", "managed", "catalog"])
    def test_new_commits_that_were_cleaned_up_are_in_the_checkpoint(
        self, tmp_path: Path, feature: TableFeature | None
    ) -> None:
        """The owner of managed-commits need not know the latest version of a table whose commits are published."""
        log = WrittenLog(tmp_path / "t", feature).create().publish(1, add("a"))
        owner = None if feature is None else log.owner()
        if owner is not None and feature is MANAGED_COMMIT:
            owner.latest = lambda: None
        snapshot = log.table(owner).snapshot()
        last = 1 + LOOK_AHEAD + 2
        for version in range(2, last):
            log.publish(version, add("b"))
        log.publish(last, remove("a"), add("c"))
        kept = [*definition(feature), add("b"), add("c")]
        log.write(log_path.classic_checkpoint(last), classic_content(kept))
        for version in range(last):
            log.delete(log_path.commit(version))
        assert {path for path, _ in snapshot.refresh().files} == {"b", "c"}

    def test_a_table_created_anew_at_the_location_is_found(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create().publish(1, add("a")).modified(1, 1_000)
        snapshot = log.table().snapshot()
        again = WrittenLog(tmp_path / "t").publish(1, add("other"), add("more"))
        assert {path for path, _ in snapshot.refresh().files} == {"other", "more"}
        again.delete(log_path.commit(1))
        assert snapshot.refresh().version == 0


class TestTheHint:
    """`_last_checkpoint`: DELTA.md#last-checkpoint; FB31. The file only saves work; every snapshot is the same without
    it.
    """

    def owned(self, tmp_path: Path) -> WrittenLog:
        """A catalog-managed table with checkpoints at 3 and 5. The owner has the later commits."""
        log = WrittenLog(tmp_path / "t", CATALOG_MANAGED).create()
        state: list[Action] = [*definition(CATALOG_MANAGED)]
        for version in range(1, 7):
            log.publish(version, add(f"f{version}"))
            state.append(add(f"f{version}"))
            if version in (3, 5):
                log.write(log_path.classic_checkpoint(version), classic_content(state))
        log.write("_last_checkpoint", b'{"version":5,"size":7}')
        return log.stage(7, add("f7"))

    EVERYTHING = frozenset({f"f{version}" for version in range(1, 8)})

    @pytest.mark.parametrize(("version", "listings", "checkpoint"), [(None, 0, 5), (4, 1, 3)])
    def test_the_hint_saves_the_listing_if_the_owner_caps_readers(
        self, tmp_path: Path, version: int | None, listings: int, checkpoint: int
    ) -> None:
        """A hint beyond the target is ignored."""
        log, files = self.owned(tmp_path), WatchedFiles()
        snapshot = log.table(log.owner(), files).snapshot(version=version)
        paths = {path for path, _ in snapshot.files}
        assert paths == (self.EVERYTHING if version is None else {f"f{number}" for number in range(1, version + 1)})
        assert (files.listings, snapshot.loaded.segment.checkpoint_version) == (listings, checkpoint)
        assert log_path.commit(5) not in files.reads

    @pytest.mark.parametrize(
        "hint",
        [
            b"", b"{", b"\xff", b"[]", b"{}", b'{"x":' + b"[" * 100_000, b'{"version":-1}',
            b'{"version":4,"size":1}', b'{"version":99}',
            b'{"version":5,"parts":2}', b'{"version":5,"parts":0}', b'{"version":5,"parts":99999999999}',
            b'{"version":5,"v2Checkpoint":{"path":"00000000000000000005.checkpoint.x.parquet"}}',
            b'{"version":4,"v2Checkpoint":{"path":"00000000000000000005.checkpoint.parquet"}}',
        ],
        ids=lambda hint: hint[:20].decode(errors="replace"),
    )  # fmt: skip
    def test_a_corrupt_hint_falls_back_to_the_listing(self, tmp_path: Path, hint: bytes) -> None:
        log, files = self.owned(tmp_path).write("_last_checkpoint", hint), WatchedFiles()
        snapshot = log.table(log.owner(), files).snapshot()
        assert {path for path, _ in snapshot.files} == self.EVERYTHING
        assert files.listings == 1

    def test_versions_beyond_the_target_are_not_looked_for(self, tmp_path: Path) -> None:
        """Time travel reads no part of the history after its version."""
        log = self.owned(tmp_path).write("_last_checkpoint", b'{"version":3,"size":5}')
        files = WatchedFiles()
        assert log.table(log.owner(), files).snapshot(version=4).loaded.segment.checkpoint_version == 3
        assert log_path.commit(4) in files.looks
        assert log_path.commit(5) not in files.looks

    def test_a_hint_to_an_unreadable_checkpoint_falls_back(self, tmp_path: Path) -> None:
        log = self.owned(tmp_path).write(log_path.classic_checkpoint(5), b"PAR1 no more")
        snapshot = log.table(log.owner()).snapshot()
        assert {path for path, _ in snapshot.files} == self.EVERYTHING
        assert snapshot.loaded.segment.checkpoint_version == 3
        assert len(snapshot.warnings) == 1

    def test_a_filesystem_table_is_listed_despite_the_hint(self, tmp_path: Path) -> None:
        log, files = WrittenLog(tmp_path / "t").create().publish(1, add("a")), WatchedFiles()
        log.write(log_path.classic_checkpoint(1), classic_content([*definition(), add("a")]))
        log.write("_last_checkpoint", b'{"version":1,"size":3}')
        log.table(files=files).snapshot()
        assert files.listings == 1


NAMES = st.sampled_from(["a", "b", "c", "d"])
ACTIONS = st.one_of(
    NAMES.map(add),
    NAMES.map(remove),
    st.builds(Txn, app_id=NAMES, version=st.integers(0, 9)),
    st.builds(DomainMetadata, domain=NAMES, configuration=st.just("x"), removed=st.booleans()),
)
COMMITS = st.lists(st.lists(ACTIONS, max_size=4), min_size=1, max_size=8)


@given(COMMITS, st.lists(st.booleans(), min_size=8, max_size=8), st.data())
def test_a_refresh_equals_a_new_load(commits: list[list[Action]], looks: list[bool], data: st.DataObject) -> None:
    """This holds for all commits, commit modes and refreshes in between."""
    feature = data.draw(st.sampled_from([None, MANAGED_COMMIT, CATALOG_MANAGED]))
    with tempfile.TemporaryDirectory() as folder:
        log = WrittenLog(Path(folder) / "t", feature).create()

        def handle() -> Table:
            return log.table(None if feature is None else log.owner())

        table = handle()
        table.snapshot()
        for version, actions in enumerate(commits, start=1):
            if feature is not None and data.draw(st.booleans()):
                log.stage(version, *actions)
            else:
                for stored in list(log.stored):
                    log.backfill(stored.version)
                log.publish(version, *actions)
            if looks[version - 1]:
                assert content(table.snapshot()) == content(handle().snapshot())
        assert content(table.snapshot()) == content(handle().snapshot())


def test_the_garbage_collector_pauses_and_goes_on_as_before() -> None:
    before = gc.isenabled()
    try:
        for switch in (gc.enable, gc.disable):
            switch()
            outside = gc.isenabled()
            with collector_paused():
                assert not gc.isenabled()
            assert gc.isenabled() is outside
    finally:
        (gc.enable if before else gc.disable)()


# The mapping of files: a new version of it costs only the changed keys


KEYS = st.integers(0, 30)
CHANGES = st.dictionaries(KEYS, st.none() | st.integers())


@given(st.lists(CHANGES), st.lists(st.booleans()))
def test_a_layered_map_equals_a_dictionary_at_each_version(
    steps: list[dict[int, int | None]], looks: list[bool]
) -> None:
    model: dict[int, int] = {}
    layered: LayeredMap[int, int] = LayeredMap()
    past: list[tuple[LayeredMap[int, int], dict[int, int]]] = []
    for number, changes in enumerate(steps):
        past.append((layered, dict(model)))
        layered = layered.updated(changes)
        for key, value in changes.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        assert len(layered) == len(model)
        if looks[number : number + 1] == [True]:
            assert dict(layered) == model
        for key in range(31):
            assert layered.get(key) == model.get(key)
            assert (key in layered) == (key in model)
    for before, expected in [*past, (layered, model)]:
        assert dict(before.items()) == expected
        assert set(before) == set(before.keys()) == set(expected)
        assert sorted(before.values()) == sorted(expected.values())
