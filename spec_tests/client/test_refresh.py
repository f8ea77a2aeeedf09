"""A refresh of a snapshot reads only the new commits, and gives the same snapshot as loading it anew."""

import gc
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.log.table_state import Changes, LayeredMap, ReplayedState, collector_paused
from refimpl.protocol import log_path
from refimpl.protocol.actions import Action, DeletionVector, DomainMetadata, Txn
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TableFeature
from spec_tests.client.conftest import both
from spec_tests.support.written_log import FEATURES, WatchedFiles, WrittenLog, add, classic_content, definition, remove


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

    def test_new_commits_that_were_cleaned_up_are_in_the_checkpoint(self, tmp_path: Path) -> None:
        from deltalake import DeltaTable

        log = WrittenLog(tmp_path / "t").create().publish(1, add("a"))
        snapshot = log.table().snapshot()
        log.publish(2, add("b")).publish(3, remove("a"), add("c"))
        DeltaTable(log.location).create_checkpoint()
        for version in range(3):
            log.delete(log_path.commit(version))
        later = snapshot.refresh()
        assert content(later) == content(log.table().snapshot())
        assert {path for path, _ in later.files} == {"b", "c"}

    def test_a_table_created_anew_at_the_location_is_found(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create().publish(1, add("a")).modified(1, 1_000)
        snapshot = log.table().snapshot()
        again = WrittenLog(tmp_path / "t").publish(1, add("other"), add("more"))
        assert {path for path, _ in snapshot.refresh().files} == {"other", "more"}
        again.delete(log_path.commit(1))
        assert snapshot.refresh().version == 0

    @both
    def test_a_commit_published_during_the_refresh_is_read(self, tmp_path: Path, feature: TableFeature) -> None:
        log = WrittenLog(tmp_path / "t", feature).create()
        owner = log.owner()
        snapshot = log.table(owner).snapshot()
        log.stage(1, add("a")).stage(2, add("b"))
        owner.after_answer.append(lambda: log.backfill(1).backfill(2))
        assert {path for path, _ in snapshot.refresh().files} == {"a", "b"}


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


VECTORS = st.sampled_from(
    [None, *(DeletionVector(storage_type="u", path_or_inline_dv=x, size_in_bytes=1, cardinality=1) for x in "xy")]
)
FILES = st.one_of(
    st.builds(add, NAMES, size=st.integers(1, 9), deletion_vector=VECTORS),
    st.builds(remove, NAMES, deletion_vector=VECTORS),
)


@given(st.lists(st.lists(FILES, max_size=4), max_size=8))
def test_a_states_totals_match_its_files(commits: list[list[Action]]) -> None:
    """The total size and the number of deletion vectors are kept up to date. No file is both active and removed."""
    state = ReplayedState()
    for commit in commits:
        changes = Changes()
        changes.apply(commit)
        state = state.after(changes)
        assert state.size_in_bytes == sum(file.size for file in state.files.values())
        assert state.files_with_deletion_vectors == sum(vector is not None for _, vector in state.files)
        assert not set(state.files) & set(state.tombstones)


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
