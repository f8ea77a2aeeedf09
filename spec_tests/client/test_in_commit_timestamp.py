"""The rules of commit times, one by one: DELTA.md#in-commit-timestamps."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.actions import Metadata, Protocol
from refimpl.client.in_commit_timestamp import (
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    CommitTimes,
    Enablement,
    after_lost_race,
    enablement,
    is_enabled_by,
    keep_enablement,
    monotonic,
    next_timestamp,
    stamp_enablement,
)
from refimpl.errors import InvalidTableError, NotFoundInHistoryError

steady = settings(deadline=None, derandomize=True)

SUPPORTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
PLURAL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamps",))
LEGACY = Protocol(min_reader_version=1, min_writer_version=2)
ON = {"delta.enableInCommitTimestamps": "true"}


def metadata(**configuration: str) -> Metadata:
    return Metadata(id="t", schema_string="{}", configuration=configuration)


def enabled_at(version: int, timestamp: int) -> Metadata:
    return metadata(**ON, **{ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)})


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
    assert enablement(protocol, metadata(**configuration)) == enabled


class TestRule2TheTimeOfACommit:
    @pytest.mark.parametrize(
        ("now", "previous", "time"), [(2000, 1000, 2000), (500, 1000, 1001), (1000, 1000, 1001), (1000, None, 1000)]
    )
    def test_the_time_is_the_clock_or_one_more_than_the_previous(
        self, now: int, previous: int | None, time: int
    ) -> None:
        """FB19: the clock went forward, went back, or did not change; the last case is the first commit."""
        assert next_timestamp(now, previous) == time


class TestRule3EnabledAfterCreation:
    def test_version_and_time_are_written_by_the_enabling_commit(self) -> None:
        stamped = stamp_enablement(metadata(**ON, other="kept"), version=7, timestamp=1000)
        assert stamped.configuration == {**ON, "other": "kept", ENABLEMENT_VERSION: "7", ENABLEMENT_TIMESTAMP: "1000"}
        assert enablement(SUPPORTED, stamped) == Enablement(version=7, timestamp=1000)

    def test_an_enablement_at_version_0_writes_no_properties(self) -> None:
        assert stamp_enablement(metadata(**ON), version=0, timestamp=1000).configuration == ON

    @pytest.mark.parametrize("present", [ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP])
    def test_exactly_one_of_the_two_properties_is_an_error(self, present: str) -> None:
        with pytest.raises(InvalidTableError):
            enablement(SUPPORTED, metadata(**ON, **{present: "7"}))
        assert enablement(SUPPORTED, enabled_at(7, 1000)) is not None

    def test_a_property_that_is_no_number_is_an_error(self) -> None:
        with pytest.raises(InvalidTableError):
            enablement(SUPPORTED, metadata(**ON, **{ENABLEMENT_VERSION: "7", ENABLEMENT_TIMESTAMP: "noon"}))

    def test_the_enabling_commit_is_recognised(self) -> None:
        on, off = (SUPPORTED, metadata(**ON)), (SUPPORTED, metadata())
        assert is_enabled_by(off, on)
        assert is_enabled_by(None, on)
        assert not is_enabled_by(on, on)
        assert not is_enabled_by(on, off)
        assert not is_enabled_by(off, off)


class TestRule4AfterALostRace:
    @pytest.mark.parametrize(("mine", "winner", "time"), [(2000, 1000, 2000), (1000, 1000, 1001), (1000, 5000, 5001)])
    def test_the_time_is_mine_or_one_more_than_the_winners(self, mine: int, winner: int, time: int) -> None:
        assert after_lost_race(mine, winner) == time

    def test_a_pending_enablement_gets_a_new_version_and_time(self) -> None:
        first = stamp_enablement(metadata(**ON), version=7, timestamp=1000)
        again = stamp_enablement(first, version=8, timestamp=2000)
        assert enablement(SUPPORTED, again) == Enablement(version=8, timestamp=2000)


class TestRule5TheTimeOfAVersion:
    def test_modification_times_are_made_monotonic(self) -> None:
        assert monotonic([5, 3, 3, 9, 1]) == [5, 6, 7, 9, 10]

    def test_times_come_from_files_before_the_enablement_and_then_from_commits(self) -> None:
        times = history([100, 90, 200], [1000, 1001], Enablement(version=3, timestamp=1000))
        assert [times.of(version) for version in range(5)] == [100, 101, 200, 1000, 1001]

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

    @steady
    @given(st.data())
    def test_version_at_agrees_with_a_search_of_all_versions(self, data: st.DataObject) -> None:
        modified = data.draw(st.lists(st.integers(0, 100), max_size=5))
        enabling = data.draw(st.integers(0, 150))
        steps = data.draw(st.lists(st.integers(1, 30), max_size=5))
        stored = [enabling + sum(steps[: i + 1]) - steps[0] for i in range(len(steps))]
        assume(modified or stored)
        enabled = Enablement(version=len(modified), timestamp=enabling) if stored else None
        times = history(modified, stored, enabled)
        at = data.draw(st.integers(0, 320))
        considered = range(times.first, times.last + 1)
        if enabled is not None:
            considered = range(len(modified), times.last + 1) if at >= enabling else range(len(modified))
        earlier = [version for version in considered if times.of(version) <= at]
        if not earlier or at > times.of(times.last):
            with pytest.raises(NotFoundInHistoryError):
                times.version_at(at)
        else:
            assert times.version_at(at) == max(earlier)


class TestRule7ReplaceAndDisable:
    def test_a_replacement_keeps_the_enablement(self) -> None:
        """FB21."""
        kept = keep_enablement(enabled_at(7, 1000), metadata(**ON, other="new"))
        assert enablement(SUPPORTED, kept) == Enablement(version=7, timestamp=1000)
        assert kept.configuration["other"] == "new"

    def test_a_replacement_without_enablement_has_no_properties(self) -> None:
        assert keep_enablement(metadata(**ON), enabled_at(7, 1000)).configuration == ON


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


def test_times_before_the_enablement_come_from_files() -> None:
    """The history ends before the enablement, as the history of an old version does."""
    times = history([10, 20], [], Enablement(version=5, timestamp=99))
    assert (times.of(0), times.of(1), times.version_at(20)) == (10, 20, 1)


def test_the_enablement_is_found_while_it_is_the_newest_version() -> None:
    times = history([10, 20], [30], Enablement(version=2, timestamp=30))
    assert (times.version_at(29), times.version_at(30)) == (1, 2)
