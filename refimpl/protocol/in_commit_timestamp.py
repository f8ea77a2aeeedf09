"""The time of a commit, stored in the commit: pure rules for writers, readers and time travel.

DELTA.md#in-commit-timestamps. All times are in ms
since the epoch. Where the document is silent, these rules follow Delta: one enablement property without
the other is an error, modification times are made monotonic, a time outside the history is an error.

=============================  ================================================
a writer's question            function
=============================  ================================================
when is my commit?             `next_timestamp`, rule 2
when, after a lost race?       `after_lost_race`, rule 4
do I enable the feature?       `stamp_enablement`, rule 3
do I replace the metadata?     `properties.carried_over`, rule 7
=============================  ================================================
"""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, NotFoundInHistoryError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, in_commit_timestamps_enabled

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enablement:
    """From `version` on, commits carry their time. `timestamp`: of the enabling commit; None: since version 0."""

    version: Version
    timestamp: int | None


def next_timestamp(now: int, previous: int | None) -> int:
    """The time of a commit that is proposed `now`, after one with the time `previous` (None: the first commit).

    Rule 2: times increase, even if the clock stands still or goes back. For the commit that enables the
    feature, `previous` is the modification time of the commit before it (rule 3).
    """
    return now if previous is None else max(now, previous + 1)


def after_lost_race(timestamp: int, winner: int) -> int:
    """A commit's new time after it lost a race; `winner`: the time of the last winner. Rule 4."""
    return max(timestamp, winner + 1)


def stamp_enablement(metadata: Metadata, *, version: Version, timestamp: int) -> Metadata:
    """The metadata of the enabling commit with its version and time; call it again after a lost race.

    Rules 3 and 4. At version 0 neither is written, because every commit has its time then.
    """
    own = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    kept = {key: value for key, value in metadata.configuration.items() if key not in own}
    if version > 0:
        kept |= {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)}
    return msgspec.structs.replace(metadata, configuration=kept)


def enablement(protocol: Protocol, metadata: Metadata) -> Enablement | None:
    """From which version commits carry their time, according to the latest snapshot; None if the feature is off.

    Rules 1, 3 and 7. Raises `InvalidTableError` for one enablement property without the other, or for a property that
    is not a number.
    """
    if not in_commit_timestamps_enabled(protocol, metadata):
        return None
    version, timestamp = (metadata.configuration.get(name) for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP))
    if version is None and timestamp is None:
        return Enablement(version=0, timestamp=None)
    if version is None or timestamp is None:
        present, absent = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)[:: 1 if timestamp is None else -1]
        raise InvalidTableError(
            f"the table has the property {present}, but not {absent}; expected both or neither: correct the "
            "metadata with the client that wrote it"
        )
    try:
        return Enablement(version=int(version), timestamp=int(timestamp))
    except ValueError:
        raise InvalidTableError(
            f"{ENABLEMENT_VERSION}={version!r} and {ENABLEMENT_TIMESTAMP}={timestamp!r} must be integers"
        ) from None


def milliseconds(moment: datetime) -> int:
    """A moment with a time zone in ms since the epoch, rounded down, so that time travel to it never reads a later
    commit."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


Moment = int | str | datetime
"""A time: ms since the epoch, a text in ISO 8601 (without a time zone: UTC), or a `datetime` with a time zone."""


def checked(timestamp: object) -> int:
    """The caller's `Moment` in ms since the epoch. Raises `InvalidRequestError`."""
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    expected = "ISO 8601, such as 2026-11-21T12:00:00 (default zone: UTC), or epoch milliseconds"
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is not None:
            return milliseconds(timestamp)
        expected = "a datetime with a time zone, such as datetime.now(datetime.UTC)"
    elif isinstance(timestamp, str):
        with contextlib.suppress(ValueError):
            if re.fullmatch(r"\d{1,15}", timestamp, re.ASCII) is not None:
                return int(timestamp)
            moment = datetime.fromisoformat(timestamp)
            return milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    raise InvalidRequestError(f"invalid timestamp {timestamp!r}; expected {expected}", timestamp=timestamp)


def text(timestamp: int) -> str:
    """A timestamp for a message, in ISO 8601; in milliseconds if Python does not have its year."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)


def monotonic(modification_times: Iterable[int]) -> list[int]:
    """Modification times of successive commits, each at least one more than the one before. Rule 5."""
    adjusted: list[int] = []
    for modified in modification_times:
        adjusted.append(next_timestamp(modified, adjusted[-1] if adjusted else None))
    return adjusted


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """The commit time of each version in the history: rules 5 and 6.

    `first` and `last` delimit the history. `enabled`: None if the latest snapshot has the feature off.
    `modified`: modification times of the versions from `first` up to the first one that carries its time.
    `stored`: reads the in-commit timestamp of one such version; `version_at` calls it a logarithmic number of times.
    """

    first: Version
    last: Version
    enabled: Enablement | None
    modified: Sequence[int]
    """Monotonic; one for each version from `first` up to before the enablement, or to `last`."""
    stored: Callable[[Version], int]

    def __post_init__(self) -> None:
        if len(self.modified) != self._first_stored() - self.first:
            raise ValueError(
                f"{len(self.modified)} modification times for {self._first_stored() - self.first} versions"
            )

    def _first_stored(self) -> Version:
        """The first version of the history that carries its time; `last` + 1 if none does."""
        if self.enabled is None:
            return self.last + 1
        return min(max(self.enabled.version, self.first), self.last + 1)

    def of(self, version: Version) -> int:
        """The time of a version. Rule 5."""
        if not self.first <= version <= self.last:
            raise NotFoundInHistoryError(
                f"version {version} is not in the history, which has versions {self.first} to {self.last}",
                version=version,
            )
        if version < self._first_stored():
            return self.modified[version - self.first]
        return self.stored(version)

    def version_at(self, timestamp: int) -> Version:
        """The latest version that was committed at or before `timestamp`. Rule 6.

        Raises `NotFoundInHistoryError` for a time before the first commit or after the last one.
        """
        newest = self.of(self.last)
        if timestamp > newest:
            raise self._outside(timestamp, "after the last commit", self.last)
        boundary = self._first_stored()
        stored_first = self.enabled is not None and self.enabled.timestamp is None
        enabled_at = None if self.enabled is None else self.enabled.timestamp
        if boundary <= self.last and (stored_first or (enabled_at is not None and timestamp >= enabled_at)):
            version = bisect_right(range(boundary, self.last + 1), timestamp, key=self.stored) + boundary - 1
            oldest = boundary
        else:
            version = bisect_right(self.modified, timestamp) + self.first - 1
            oldest = self.first
        if version < oldest:
            stamped = "" if oldest == self.first else " with an in-commit timestamp"
            raise self._outside(timestamp, f"before the oldest commit{stamped}", oldest)
        return version

    def _outside(self, timestamp: int, where: str, version: Version) -> NotFoundInHistoryError:
        return NotFoundInHistoryError(
            f"the time {text(timestamp)} is {where} (version {version} at {text(self.of(version))}); "
            f"the history holds versions {self.first} to {self.last}",
            timestamp=timestamp,
        )
