"""The times of commits: their rules one by one (DELTA.md#in-commit-timestamps), time travel by them, the history."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refimpl.log.history import Stored
from refimpl.log.loading import load
from refimpl.protocol import log_path
from refimpl.protocol.actions import CommitInfo, Metadata, Protocol, encode
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, InvalidTableError, NotFoundInHistoryError
from refimpl.protocol.in_commit_timestamp import (
    CommitTimes,
    Enablement,
    after_lost_race,
    enablement,
    monotonic,
    next_timestamp,
    stamp_enablement,
)
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    IN_COMMIT_TIMESTAMP_PROPERTY,
    MANAGED_COMMIT,
)
from spec_tests.support.written_log import START, WatchedFiles, WrittenLog, add, classic_content, definition, metadata

SUPPORTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
PLURAL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamps",))
LEGACY = Protocol(min_reader_version=1, min_writer_version=2)
ON = {"delta.enableInCommitTimestamps": "true"}


def configured(**configuration: str) -> Metadata:
    return Metadata(id="t", schema_string="{}", configuration=configuration)


def enabled_at(version: int, timestamp: int) -> Metadata:
    return configured(**ON, **{ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)})


@pytest.mark.parametrize(
    ("protocol", "configuration", "enabled"),
    [
        (SUPPORTED, ON, Enablement(version=0, timestamp=None)),
        (PLURAL, ON, Enablement(version=0, timestamp=None)),  # the spelling in the RFC
        (SUPPORTED, {}, None),
        (LEGACY, ON, None),
    ],
)
def test_the_feature_and_the_property_enable_together(
    protocol: Protocol, configuration: dict[str, str], enabled: Enablement | None
) -> None:
    """Rule 1."""
    assert enablement(protocol, configured(**configuration)) == enabled


@pytest.mark.parametrize(
    ("now", "previous", "time"), [(2000, 1000, 2000), (500, 1000, 1001), (1000, 1000, 1001), (1000, None, 1000)]
)
def test_the_time_is_the_clock_or_one_more_than_the_previous(now: int, previous: int | None, time: int) -> None:
    """Rules 2 and 4; FB19: the clock went forward, went back, or did not change; the last case is the first commit."""
    assert next_timestamp(now, previous) == time
    if previous is not None:
        assert after_lost_race(now, previous) == time


def test_an_enablement_at_version_0_writes_no_properties() -> None:
    """Rule 3."""
    assert stamp_enablement(configured(**ON), version=0, timestamp=1000).configuration == ON


@pytest.mark.parametrize(
    "properties",
    [{ENABLEMENT_VERSION: "7"}, {ENABLEMENT_TIMESTAMP: "7"}, {ENABLEMENT_VERSION: "7", ENABLEMENT_TIMESTAMP: "noon"}],
)
def test_exactly_one_of_the_two_properties_is_an_error(properties: dict[str, str]) -> None:
    """Rule 3. A property that is no number is one, too."""
    with pytest.raises(InvalidTableError):
        enablement(SUPPORTED, configured(**ON, **properties))
    assert enablement(SUPPORTED, enabled_at(7, 1000)) == Enablement(version=7, timestamp=1000)


class TestRule5TheTimeOfAVersion:
    def test_modification_times_are_made_monotonic(self) -> None:
        assert monotonic([5, 3, 3, 9, 1]) == [5, 6, 7, 9, 10]

    def test_a_version_outside_the_history_has_no_time(self) -> None:
        times = history([100], [], None, first=4)
        assert times.of(4) == 100
        for version in (3, 5):
            with pytest.raises(NotFoundInHistoryError):
                times.of(version)


class TestRule6TimeTravel:
    """FB20: a time after the enablement finds only versions after it, and a time before it only versions before it."""

    def test_no_version_may_be_left_before_the_enablement(self) -> None:
        cleaned = history([], [2000, 3000], Enablement(version=3, timestamp=1000), first=4)
        assert cleaned.version_at(2000) == 4
        for timestamp in (500, 1500):
            with pytest.raises(NotFoundInHistoryError):
                cleaned.version_at(timestamp)

    def test_few_commits_are_read(self) -> None:
        read: list[int] = []

        def stored(version: int) -> int:
            read.append(version)
            return version * 10

        times = CommitTimes(
            first=0, last=100_000, enabled=Enablement(version=0, timestamp=None), modified=(), stored=stored
        )
        assert times.version_at(777_775) == 77_777
        assert len(read) < 25

    @given(st.data())
    def test_version_at_agrees_with_a_search_of_all_versions(self, data: st.DataObject) -> None:
        modified = data.draw(st.lists(st.integers(0, 100), max_size=5))
        enabling = data.draw(st.integers(0, 150))
        steps = data.draw(st.lists(st.integers(1, 30), max_size=5))
        stored = [enabling + sum(steps[: i + 1]) - steps[0] for i in range(len(steps))]
        assume(modified or stored)
        enabled = Enablement(version=len(modified), timestamp=enabling) if stored else None
        times = history(modified, stored, enabled)
        at = data.draw(st.just(enabling) | st.sampled_from([*modified, *stored]) | st.integers(0, 320))
        considered = range(times.first, times.last + 1)
        if enabled is not None:
            considered = range(len(modified), times.last + 1) if at >= enabling else range(len(modified))
        earlier = [version for version in considered if times.of(version) <= at]
        if not earlier or at > times.of(times.last):
            with pytest.raises(NotFoundInHistoryError):
                times.version_at(at)
        else:
            assert times.version_at(at) == max(earlier)


def history(modified: list[int], stored: list[int], enabled: Enablement | None, *, first: int = 0) -> CommitTimes:
    """Versions from `first`: first those with only a file's time, then those with a time in the commit."""
    boundary = first + len(modified)
    return CommitTimes(
        first=first,
        last=boundary + len(stored) - 1,
        enabled=enabled,
        modified=monotonic(modified),
        stored=lambda version: stored[version - boundary],
    )


# Histories of tables: DELTA.md#ict-commit-time, DELTA.md#ict-time-travel, DELTA.md#ict-replace


def on(version: int, timestamp: int) -> Metadata:
    return metadata(
        **{IN_COMMIT_TIMESTAMP_PROPERTY: "true", ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)}
    )


def old(log: WrittenLog, *seconds: int) -> WrittenLog:
    """The commits of a filesystem table, modified these numbers of seconds after `at(0)`. The owner's clock starts
    later.
    """
    for version, second in enumerate(seconds):
        actions = definition() if version == 0 else (add(f"f{version}"),)
        log.publish(version, *actions, carries_time=False).modified(version, START - 1_000_000 + second * 1000)
    return log


def at(second: int) -> int:
    return START - 1_000_000 + second * 1000


class TestByModificationTimes:
    @pytest.fixture
    def log(self, tmp_path: Path) -> WrittenLog:
        return old(WrittenLog(tmp_path / "t"), 10, 20, 15, 30)

    def test_a_cleaned_up_history_begins_at_the_oldest_commit(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(2), classic_content([*definition(), add("f1"), add("f2")]))
        log.delete(log_path.commit(0)).delete(log_path.commit(1))
        table = log.table()
        assert [entry.version for entry in table.history()] == [3, 2]
        assert table.snapshot(timestamp=at(15)).version == 2
        with pytest.raises(NotFoundInHistoryError):
            table.snapshot(timestamp=at(14))

    def test_a_version_without_checkpoint_or_commit_is_not_found(self, log: WrittenLog) -> None:
        log.write(log_path.classic_checkpoint(3), classic_content([*definition(), add("f1")]))
        log.delete(log_path.commit(0)).delete(log_path.commit(1))
        with pytest.raises(NotFoundInHistoryError) as caught:
            log.table().snapshot(timestamp=at(15))
        assert caught.value.earliest == 3


class TestEnabledInTheMiddle:
    """FB20: the time of a version before the enablement is its file's; the time of a later version is in its commit."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> WrittenLog:
        log = old(WrittenLog(tmp_path / "t"), 10, 20)
        log.publish(2, SUPPORTED, on(2, START + 2000)).publish(3, add("a")).publish(4, add("b"))
        for version in (2, 3, 4):
            log.modified(version, at(1))  # a copy of the table changed the files' times
        return log

    @pytest.mark.parametrize("last", range(1, 10))
    def test_history_and_snapshots_agree_on_the_times(self, log: WrittenLog, last: int) -> None:
        """Rules 5 and 7: the newest version decides for all versions, whatever was enabled at each of them."""
        later = [(SUPPORTED, metadata()), (add("c"),), (on(7, START + 7000),), (add("d"),), (metadata(),)]
        for version, actions in enumerate(later, start=5):
            log.publish(version, *actions).modified(version, at(version))
        for version in range(last + 1, 10):
            log.delete(log_path.commit(version))
        table = log.table()
        times = {entry.version: entry.timestamp for entry in table.history()}
        assert {version: table.snapshot(version=version).timestamp for version in times} == times
        assert table.snapshot().timestamp == times[last]
        assert len(times) == last + 1


class TestThroughTheOwner:
    def test_an_error_names_the_commit_without_its_time(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t", MANAGED_COMMIT).create().publish(1, carries_time=False)
        with pytest.raises(CorruptLogError) as caught:
            _ = log.table(log.owner()).snapshot().timestamp
        assert caught.value.version == 1


class TestHistory:
    def test_entries_are_newest_first_with_their_commit_info(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t", CATALOG_MANAGED).create().stage(1, add("a")).inline(2, add("b"))
        entries = log.table(log.owner()).history()
        assert [(entry.version, entry.stored) for entry in entries] == [
            (2, Stored.INLINE), (1, Stored.STAGED), (0, Stored.PUBLISHED),
        ]  # fmt: skip
        assert [entry.timestamp for entry in entries] == [START + 2000, START + 1000, START]
        assert [entry.info and entry.info.txn_id for entry in entries] == ["t2", "t1", "t0"]
        assert entries[0].operation == "WRITE"

    def test_a_commit_may_lack_its_commit_info(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create().write(log_path.commit(1), encode([add("a")]))
        log.write(log_path.commit(2), encode([add("b"), CommitInfo({"operation": 7})]))
        second, first = log.table().history(2)
        assert first.info is None
        assert (first.operation, first.parameters) == (None, {})
        assert (second.info, second.operation) == (CommitInfo({"operation": 7}), None)
        assert load(log.table().reader).in_commit_timestamp is None
        assert load(log.table().reader, 1).in_commit_timestamp is None, "not that of version 0"

    @pytest.mark.parametrize(("limit", "versions"), [(0, []), (1, [3]), (3, [3, 2, 1]), (9, [3, 2, 1, 0])])
    def test_a_limit_selects_the_newest_versions(self, tmp_path: Path, limit: int, versions: list[int]) -> None:
        log = WrittenLog(tmp_path / "t").create().publish(1).publish(2).publish(3)
        files = WatchedFiles()
        table = log.table(files=files)
        table.snapshot()
        files.reads = []
        assert [entry.version for entry in table.history(limit)] == versions
        assert len(files.reads) == len(versions)

    def test_a_negative_limit_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequestError):
            WrittenLog(tmp_path / "t").create().table().history(-1)

    def test_the_history_ends_where_a_concurrent_cleanup_begins(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create().publish(1).publish(2)
        files = WatchedFiles()
        table = log.table(files=files)
        table.snapshot()
        files.before_read[log_path.commit(2)] = lambda: log.delete(log_path.commit(1))
        assert [entry.version for entry in table.history()] == [2]

    def test_a_damaged_commit_does_not_end_the_history(self, tmp_path: Path) -> None:
        log = WrittenLog(tmp_path / "t").create().publish(1).publish(2)
        table = log.table()
        table.snapshot()
        log.write(log_path.commit(1), b"{")
        with pytest.raises(CorruptLogError):
            list(table.history())
