"""What a client may do: the expected snapshots, outcomes and files of a log that the kit built.

    replay(log, 7)                          the snapshot of version 7
    read(log, answer, ...)                  None, or what is wrong with a read
    outcomes(request, base, winners)        whether a transaction may, must or must not be committed
    transaction(...), checkpoint(...), compaction(...), checksum(...), cleanup(...)

A log is the actions of its versions as they were committed. One rule is one function; each names what it requires, in
the order in which a report shows it. Nothing here asks a client, or looks into a folder.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from conformance.history.events import Digest
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, TABLE_ID
from conformance.models.log_files import vector_file
from conformance.models.proposals import BASE_TIME, ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, MODE, TIMESTAMPS

Action = dict[str, Any]
Log = Mapping[int, Sequence[Action]]
OWNED: Final = ("delta.managedCommit.", TABLE_ID)
"""Properties that an owner adds."""
ROW_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
ROW_DOMAIN: Final = "delta.rowTracking"
UNKNOWN_FEATURE: Final = "anUnknownFeature"
"""A table feature that no client supports."""
FRESH: Final = ("MC-READ-07", "CM-READ-05")


class Wrong(NamedTuple):
    """An observation that the documents do not allow."""

    requirements: tuple[str, ...]
    expected: str
    observed: str = ""
    version: int | None = None
    alone: bool = False
    """Whether only these requirements can be violated, whatever else was at stake."""


class Snapshot(NamedTuple):
    """A snapshot. Paths are decoded once."""

    version: int
    files: dict[str, str | None]
    """Files, with the value of the column `part`."""
    properties: dict[str, str]
    applications: dict[str, int]
    domains: dict[str, str]
    protocol: Action
    timestamp: int | None
    """The in-commit timestamp; None if it has none."""


# Replay


def key_of(action: Action) -> tuple[str, ...] | None:
    """What an action is about: a later one with the same key replaces it. None if only its own commit needs it."""
    (kind, body), *_ = action.items()
    match kind:
        case "protocol" | "metaData":
            return (kind,)
        case "add" | "remove":
            return ("file", body["path"], *vector_of(body))
        case "txn":
            return (kind, body["appId"])
        case "domainMetadata":
            return (kind, body["domain"])
        case _:
            return None


def vector_of(body: Action) -> tuple[str, ...]:
    """The identity of a file's deletion vector. Delta's protocol, "Action Reconciliation": with the path, that of
    the file."""
    vector = body.get("deletionVector") or {}
    return tuple(str(vector.get(field)) for field in ("storageType", "pathOrInlineDv", "offset"))


def reconciled(log: Log, version: int, start: int = 0) -> list[Action]:
    """The valid actions after the versions from `start` to `version`: the last one for each file, application, domain
    and kind. Removals are included, as in compactions and checkpoints.

    From the newest version to the oldest, the first action of each key counts. Readers replay in the opposite order.
    """
    held: dict[tuple[str, ...], Action] = {}
    for number in range(version, start - 1, -1):
        for action in reversed(log[number]):
            key = key_of(action)
            if key is not None:
                held.setdefault(key, action)
    if start > 0:
        return list(held.values())
    return [action for action in held.values() if not action.get("domainMetadata", {}).get("removed")]


def metadata_of(log: Log, version: int) -> Action:
    """The table's metadata at a version."""
    body: Action = next(action["metaData"] for action in reconciled(log, version) if "metaData" in action)
    return body


def replay(log: Log, version: int) -> Snapshot:
    """The snapshot of a version."""
    bodies: dict[str, list[Any]] = {}
    for action in reconciled(log, version):
        for kind, body in action.items():
            bodies.setdefault(kind, []).append(body)
    properties: dict[str, str] = bodies["metaData"][0].get("configuration") or {}
    return Snapshot(
        version=version,
        files={unquote(add["path"]): part_of(add) for add in bodies.get("add", [])},
        properties={name: value for name, value in properties.items() if not name.startswith(OWNED)},
        applications={body["appId"]: body["version"] for body in bodies.get("txn", [])},
        domains={body["domain"]: body["configuration"] for body in bodies.get("domainMetadata", [])},
        protocol=bodies["protocol"][0],
        timestamp=info_of(log[version]).get("inCommitTimestamp"),
    )


def part_of(add: Action) -> str | None:
    """A partition value, by the name of its column or, in tables with column mapping, by the physical one: the empty
    string means null."""
    values = add.get("partitionValues") or {}
    return values.get("part", next(iter(values.values()), None)) or None


def stored_part(metadata: Action) -> str:
    """The name of the column `part` in partition values: with column mapping the physical one."""
    if (metadata.get("configuration") or {}).get(MODE, "none") == "none":
        return "part"
    fields = json.loads(metadata["schemaString"])["fields"]
    names = {field["name"]: field["metadata"].get("delta.columnMapping.physicalName") for field in fields}
    return str(names.get("part") or "part")


def info_of(actions: Sequence[Action]) -> Action:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def differences(expected: Snapshot, read: m.SnapshotRead, location: str) -> list[str]:
    """The differences in words. Fields that the reader does not return are not compared."""
    return [*_of_files(expected, read, location), *_of_state(expected, read)]


def _of_files(expected: Snapshot, read: m.SnapshotRead, location: str) -> list[str]:
    problems: list[str] = []
    right = sorted(_spelled(location, path) for path in expected.files)
    files = sorted(_spelled(location, path) for path in read.files)
    if files != right:
        problems.append(f"the snapshot of version {read.version} has the files {files}, and must have {right}")
    partitions = {_spelled(location, path): value for path, value in (read.partitions or {}).items()}
    for path, value in expected.files.items():
        returned = partitions.get(_spelled(location, path), value)
        if returned != value:
            problems.append(f"the partition value of {path} is {returned!r}, and must be {value!r}")
    return problems


def _of_state(expected: Snapshot, read: m.SnapshotRead) -> list[str]:
    """The differences of applications, metadata domains and properties."""
    problems: list[str] = []
    if read.applications is not None and read.applications != expected.applications:
        problems.append(f"the applications are at {read.applications}, and must be at {expected.applications}")
    if read.domains is not None and read.domains != expected.domains:
        problems.append(f"the metadata domains are {read.domains}, and must be {expected.domains}")
    if read.properties is not None:
        properties = {key: value for key, value in read.properties.items() if not key.startswith(OWNED)}
        if properties != expected.properties:
            problems.append(f"the properties are {properties}, and must be {expected.properties}")
    return problems


def _spelled(location: str, path: str) -> str:
    """A file in the table's folder by its relative path, also if its path is absolute."""
    return without_scheme(path).removeprefix(f"{location}/")


def _end(path: str) -> str:
    """The name of a file, decoded, without its folders."""
    return unquote(path).rpartition("/")[2]


def without_scheme(path: str) -> str:
    """The path of a local file that may be a URI."""
    return path.removeprefix("file://").removeprefix("file:")


# Reads


class Reading(NamedTuple):
    """The circumstances of one read."""

    request: m.Snapshot
    log: Log
    """Every version that was ratified when the answer arrived."""
    before: int
    """The newest version that was ratified when the read began."""
    published: int
    """The newest version that was published when it began."""
    published_after: int
    """The newest version that was published when it ended."""
    returned: int
    """The newest version that the owner returned to the reader during the read; -1 if it returned none."""
    remembered: int
    """The newest version of an earlier list, which the reader may use for a version or a time (FREE-STALE-02)."""
    readable: Collection[int]
    """The versions that the files and the owner's commits prove."""
    feature: str
    location: str
    promises_fresh: bool
    """Whether the reader of a managedCommit table promises to ask its owner."""
    asked: bool
    """Whether the reader asked the owner."""
    may_refuse: bool
    """Whether the owner did not answer a request of the reader, the table has a feature that it need not know, a
    version by whose time it reads has no commit any more that shows its time, or a cleanup deleted the commit of the
    requested version: an old checkpoint may still have its state, but the version has left the table's history."""
    harmed: tuple[str, ...] = ()
    """The requirements about a commit that no reader has read before, and that is missing or cannot be read."""
    modified: Mapping[int, int] = MappingProxyType({})
    """The modification times of the files of versions, as far as the kit set them."""
    names: Mapping[str, Sequence[str]] = MappingProxyType({})
    """The requested files for each file that a client named itself. An answer has either names."""

    @property
    def known(self) -> int:
        """The newest version that a read of a version or a time must know: one from before the read began, even if the
        owner returned a later one meanwhile. A reader of a managedCommit table that does not promise fresh snapshots
        may use the published prefix only."""
        without_owner = self.feature == "managedCommit" and not self.promises_fresh
        if without_owner or self.returned < 0:
            return self.published
        return min(self.returned, self.remembered, self.before)


def supported(log: Log, version: int) -> bool:
    """Whether a reader may support the protocol of the version."""
    protocol = replay(log, version).protocol
    return protocol.get("minReaderVersion", 1) <= 3 and UNKNOWN_FEATURE not in (protocol.get("readerFeatures") or ())


def read(reading: Reading, answer: m.Answer) -> Wrong | None:
    """What is wrong with the answer to a read: the first rule that it breaks."""
    rules = (
        _version_exists, _is_proven, _catalog_limits, _path_shows_the_published, _version_is_fresh,
        _version_is_the_requested, _time_selects, _is_readable, _is_the_replay,
    )  # fmt: skip
    if not isinstance(answer, m.SnapshotRead):
        return _may_be_refused(reading, answer)
    return next((wrong for rule in rules if (wrong := rule(reading, answer)) is not None), None)


def _version_exists(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """managed-commits, "Commit Files"; catalog-managed, "Terminology: Commits": only the owner knows which files are
    commits."""
    if answer.version in reading.log:
        return None
    newest = max(reading.log)
    beyond = ("LOG-11",) if reading.request.version is not None else ()
    return Wrong(
        (*beyond, "MC-FILES-05", "CM-FILES-04", "LOG-17", "PROFILE-CLIENT-01"),
        f"a version that was ratified; the newest is {newest}", f"a snapshot of version {answer.version}",
        answer.version,
    )  # fmt: skip


def _is_proven(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """A commit that is missing, or cannot be read, is an error, not a version without changes."""
    if not reading.harmed or answer.version in reading.readable:
        return None
    expected = f"a commit that version {answer.version} needs is missing, or cannot be read: an error"
    return Wrong(reading.harmed, expected, "a snapshot", answer.version)


def _catalog_limits(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """catalog-managed, "Reading": the latest version that the catalog returned limits the snapshot."""
    if reading.feature != "catalogManaged" or not 0 <= reading.returned < answer.version:
        return None
    expected = f"the catalog returned latest version {reading.returned}: no later one"
    ids = ("CM-READ-04", "LOG-11") if reading.request.version is not None else ("CM-READ-04", "LOG-15")
    return Wrong(ids, expected, f"a snapshot of version {answer.version}", answer.version)


def _path_shows_the_published(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """managed-commits, "Reading": a path shows the published prefix. catalog-managed: a path alone is not enough."""
    if reading.request.path is None or reading.feature == FILESYSTEM:
        return None
    if reading.feature == "catalogManaged":
        if reading.asked:
            return None
        expected = "a reader that has only the path rejects the table, or asks its catalog"
        return Wrong(("CM-ACCESS-01", "CM-READ-08"), expected, "the client read it without asking", answer.version)
    if answer.version > max(reading.published_after, reading.returned):
        expected = f"version {reading.published_after} is the last published one, and the owner was not asked"
        observed = f"the client read version {answer.version}"
        return Wrong(("MC-READ-04", "MC-READ-03"), expected, observed, answer.version)
    return None


def _version_is_fresh(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """A read without a version sees every version that was ratified before it began.

    A reader of a managedCommit table that does not promise fresh snapshots may read the published prefix only. A
    reader that declares a stale snapshot may do so if the owner did not answer.
    """
    if reading.request.version is not None or reading.request.timestamp is not None or answer.version >= reading.before:
        return None
    may_be_stale = not reading.promises_fresh or answer.stale or reading.request.path is not None
    if reading.feature == "managedCommit" and answer.version >= reading.published and may_be_stale:
        return None
    expected = f"version {reading.before} was ratified before the read began"
    observed = f"a snapshot of version {answer.version}"
    if not reading.asked and reading.feature != FILESYSTEM:
        return Wrong(FRESH, expected, f"{observed}, without a request to the owner", reading.before, alone=True)
    more = ("CM-READ-09", "MC-LOG-03", "LOG-18", "LOG-09")
    return Wrong((*FRESH, *more), expected, observed, reading.before)


def _version_is_the_requested(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    if reading.request.version in (None, answer.version):
        return None
    ids = ("LOG-11",) if reading.request.version not in reading.log else ("LOG-09", "PROFILE-CLIENT-01")
    return Wrong(
        ids,
        f"version {reading.request.version}, or an error",
        f"a snapshot of version {answer.version}",
        reading.request.version,
    )


class Times(NamedTuple):
    """The in-commit timestamps of a log, as its newest version enables them."""

    since: int
    """The first version that has one."""
    at: int
    """The time from which they count."""
    times: dict[int, int]


def times_of(log: Log) -> Times | None:
    """in-commit timestamps, "Recommendations for Readers". None: they are not enabled, or not completely recorded."""
    properties = replay(log, max(log)).properties
    recorded = [name in properties for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)]
    if properties.get(TIMESTAMPS) != "true" or any(recorded) != all(recorded):
        return None
    since = int(properties.get(ENABLEMENT_VERSION, 0))
    times = {v: info_of(log[v]).get("inCommitTimestamp") for v in log if v >= since}
    stamped = {version: time for version, time in times.items() if time is not None}
    return Times(since=since, at=int(properties.get(ENABLEMENT_TIMESTAMP, 0)), times=stamped)


def is_disabled(log: Log) -> bool:
    """Whether the newest version disables in-commit timestamps."""
    return replay(log, max(log)).properties.get(TIMESTAMPS) == "false"


def _file_time_selects(
    reading: Reading, answer: m.SnapshotRead, time: int, versions: Collection[int], *ids: str
) -> Wrong | None:
    """Before the enablement, or if the newest version disables them: the last version whose file is not later."""
    if reading.may_refuse or not {*versions} <= {*reading.modified}:
        return None
    right = max((version for version in versions if reading.modified[version] <= time), default=answer.version)
    if answer.version == right:
        return None
    expected = f"version {right}, the last one whose file is not later than {time}"
    observed = f"the client read version {answer.version}"
    return Wrong((*ids, "PROFILE-CLIENT-01"), expected, observed, right, alone=is_disabled(reading.log))


def _time_selects(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """in-commit timestamps, "Reader Requirements": the last version whose time is not later, among those on the same
    side of the enablement. A stale read of a time may miss versions that the owner did not return."""
    stamps, time = times_of(reading.log), reading.request.timestamp
    if time is not None and is_disabled(reading.log):
        return _file_time_selects(reading, answer, time, reading.log, "ICT-22")
    if time is None or stamps is None:
        return None
    after = time >= stamps.at
    if after != (answer.version >= stamps.since):
        ids = ("ICT-18", "ICT-20") if after else ("ICT-19", "ICT-20")
        side = "from the enablement on" if after else "before the enablement"
        expected = f"version {stamps.since} enabled the timestamps at {stamps.at}: a version {side} for {time}"
        return Wrong((*ids, "PROFILE-CLIENT-01"), expected, f"the client read version {answer.version}", answer.version)
    if not after:
        return _file_time_selects(reading, answer, time, range(stamps.since), "ICT-17", "ICT-19")
    reached = [version for version, t in stamps.times.items() if t <= time and version in reading.readable]
    right = max(reached, default=stamps.since)
    known = reading.known
    if answer.version == right or (answer.version < right and answer.version >= known):
        return None
    if reading.may_refuse and answer.version > right:  # the time of `right` may be gone with its commit: FREE-TIME-02
        return None
    return Wrong(
        ("ICT-20", "ICT-16", "ICT-18", "PROFILE-CLIENT-01"),
        f"version {right}, the last one whose in-commit timestamp is not after {time}",
        f"a snapshot of version {answer.version}, whose timestamp is {stamps.times.get(answer.version)}", right,
    )  # fmt: skip


def _is_readable(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """A version with an unsupported protocol is not read, nor one whose commits cannot be read."""
    if not supported(reading.log, answer.version):
        return Wrong(
            ("LOG-46",), f"version {answer.version} requires reader features that no reader knows: an error",
            "a snapshot", answer.version,
        )  # fmt: skip
    return None


def _is_the_replay(reading: Reading, answer: m.SnapshotRead) -> Wrong | None:
    """Delta's protocol, "Action Reconciliation": the result of all commits up to the version."""
    expected = replay(reading.log, answer.version)
    own = {_spelled(reading.location, path) for path in answer.files}
    names = {path: names for path, names in reading.names.items() if _spelled(reading.location, path) not in own}
    files = {name: part for path, part in expected.files.items() for name in names.get(path, (path,))}
    expected = expected._replace(files=files)
    state = _of_state(expected, answer)
    different = [*_of_files(expected, answer, reading.location), *state]
    ids: tuple[str, ...] = (*(("LOG-31",) if state else ()), "MC-LOG-06", "CM-LOG-03", "LOG-18", "PROFILE-CLIENT-01")
    stamps = times_of(reading.log)
    right = expected.timestamp if stamps is not None and answer.version in stamps.times else None
    ids_of_time = "ICT-16"
    if is_disabled(reading.log) or (stamps is not None and answer.version < stamps.since):
        right, ids_of_time = reading.modified.get(answer.version), "ICT-22" if stamps is None else "ICT-17"
    if not different and right is not None and answer.timestamp not in (None, right):
        ids, expected_time = (ids_of_time, "PROFILE-CLIENT-01"), f"the time of version {answer.version} is {right}"
        return Wrong(ids, expected_time, f"it is {answer.timestamp}", answer.version, alone=stamps is None)
    if not different:
        return None
    nulls = {path: value or None for path, value in (answer.partitions or {}).items()}
    if not [*_of_files(expected, msgspec.structs.replace(answer, partitions=nulls), reading.location), *state]:
        return Wrong(("LOG-33",), "an empty partition value is null", "; ".join(different), answer.version, alone=True)
    wanted = f"the result of all commits up to version {answer.version}"
    right_files = {_spelled(reading.location, path) for path in files}
    if not state and own != right_files and sorted(map(_end, answer.files)) == sorted(map(_end, files)):
        return Wrong(("LOG-32",), wanted, "; ".join(different), answer.version, alone=True)
    return Wrong(ids, wanted, "; ".join(different), answer.version)


def _may_be_refused(reading: Reading, answer: m.Answer) -> Wrong | None:
    """A version that exists, and that the files and the owner prove, is read."""
    if reading.request.path is not None and reading.feature != FILESYSTEM:
        return None
    target = reading.before
    ids: tuple[str, ...] = FRESH
    stamps, time = times_of(reading.log), reading.request.timestamp
    if reading.request.version is not None:
        target, ids = reading.request.version, ("LOG-09",)
    elif time is not None:
        last = 0 if stamps is None else stamps.times.get(reading.known, 0)
        if stamps is None or not max(stamps.at, stamps.times[stamps.since]) <= time <= last:
            return None  # outside the history a reader may refuse, as FREE-TIME-02 says
        if any(version not in reading.readable for version in reading.log):
            return None
        target, ids = max(version for version, stamp in stamps.times.items() if stamp <= time), ("ICT-20",)
    if target not in reading.readable or not supported(reading.log, target) or reading.may_refuse:
        return None
    if ids != FRESH and (target > reading.known or not supported(reading.log, reading.before)):
        return None
    return Wrong(
        (*ids, "CM-READ-09", "MC-LOG-03", "LOG-18", "CM-READ-02", "PROFILE-CLIENT-01"),
        f"version {target} is ratified, and its files exist: a snapshot of it", _answered(answer),
        target,
    )  # fmt: skip


# Transactions


class Outcome(Enum):
    MUST_LAND = "it is committed"
    MUST_FAIL = "it ends with an error, and commits nothing"
    EITHER = "the documents leave it open"


class Expected(NamedTuple):
    outcome: Outcome
    requirements: tuple[str, ...] = ("CONFLICT-RETRY-05",)
    why: str = "no winner conflicts with it"
    version: int | None = None
    """The winner that decides."""


BLIND: Final = "CONFLICT-FILES-02"
"""That a blind append does not conflict with changes of files."""
CHECKED: Final = ("CONFLICT-ORDER-01", "CONFLICT-CHECK-01", "CONFLICT-RETRY-04")


def outcomes(request: m.Transact, log: Log, base: int, last: int) -> Expected:
    """Whether the transaction, which read version `base`, may be committed after the versions up to `last`.

    delta-commits-and-conflicts: every winner is checked, the oldest first.
    """
    if base not in log:
        return Expected(Outcome.EITHER)
    if not writable(log, base):
        return Expected(Outcome.MUST_FAIL, ("LOG-47",), "its protocol requires features that no writer knows", base)
    if request.application is not None:
        name, batch = request.application
        if replay(log, base).applications.get(name, -1) >= batch:
            return Expected(Outcome.MUST_FAIL, ("CONFLICT-REPEAT-01",), f"batch {batch} of {name} is recorded", base)
    if request.removes and request.data_change and not request.replace_table and _is_append_only(log, last):
        return Expected(Outcome.MUST_FAIL, ("LOG-53",), "the table is append-only, and it removes data", base)
    judged = [_after(Race(request, log, base, version)) for version in range(base + 1, last + 1)]
    for outcome in (Outcome.MUST_FAIL, Outcome.EITHER):
        for expected in judged:
            if expected.outcome is outcome:
                return expected
    ids = (BLIND,) if request.reads is None and not request.removes else ("CONFLICT-FILES-04",)
    own = ("CONFLICT-ORDER-06",) if request.domain is not None else ()
    return Expected(Outcome.MUST_LAND, ("CONFLICT-RETRY-05", "CONFLICT-RETRY-01", *(ids if judged else ()), *own))


def writable(log: Log, version: int) -> bool:
    protocol = replay(log, version).protocol
    features = {*(protocol.get("writerFeatures") or ()), *(protocol.get("readerFeatures") or ())}
    return UNKNOWN_FEATURE not in features and protocol.get("minWriterVersion", 2) <= 7


def _has_feature(log: Log, version: int, feature: str) -> bool:
    return feature in (replay(log, version).protocol.get("writerFeatures") or ())


def _is_append_only(log: Log, version: int) -> bool:
    is_on = replay(log, version).properties.get("delta.appendOnly") == "true"
    return is_on and _has_feature(log, version, "appendOnly")


class Race(NamedTuple):
    """A transaction, and one of the winners."""

    request: m.Transact
    log: Log
    base: int
    version: int
    """That of the winner."""


def _after(race: Race) -> Expected:
    """The outcome as far as one winner decides it: the first rule that does."""
    for rule in (_protocol, _metadata, _domain, _application, _added, _removed):
        expected = rule(race)
        if expected is not None:
            return expected
    return Expected(Outcome.MUST_LAND)


def _answered(answer: m.Answer) -> str:
    reason = getattr(answer, "reason", "")
    return f"the request was answered `{m.name_of(answer)}`" + (f": {reason[:300]}" if reason else "")


def _bodies(log: Log, version: int, kind: str) -> list[Action]:
    return [action[kind] for action in log[version] if kind in action]


def _fails(race: Race, *ids: str, why: str) -> Expected:
    return Expected(Outcome.MUST_FAIL, (*ids, *CHECKED), f"version {race.version} {why}", race.version)


def _open(race: Race) -> Expected:
    return Expected(Outcome.EITHER, version=race.version)


def _protocol(race: Race) -> Expected | None:
    if not _bodies(race.log, race.version, "protocol"):
        return None
    if not writable(race.log, race.version):
        return _fails(race, "CONFLICT-ORDER-02", why="requires features that no writer knows")
    if race.request.add_feature is not None and not _has_feature(race.log, race.base, race.request.add_feature):
        return _fails(race, "CONFLICT-ORDER-03", why="changed the protocol, as it does itself")
    return _open(race)


def metadata_changes(request: m.Transact) -> bool:
    changes = (request.set_properties, request.unset_properties, request.replace_table)
    return any(changes) or request.partition_by is not None


def _metadata(race: Race) -> Expected | None:
    changed = _bodies(race.log, race.version, "metaData")
    if not changed:
        return None
    before = metadata_of(race.log, race.version - 1)
    if metadata_changes(race.request):
        ids = ("CONFLICT-ORDER-04", "CONFLICT-ORDER-05")
        return _fails(race, *ids, why="changed the metadata, as it does itself")
    shaped = any(changed[0].get(field) != before.get(field) for field in ("schemaString", "partitionColumns"))
    if shaped and race.request.adds:
        why = "changed the schema or the partitioning after it wrote its files"
        return _fails(race, "CONFLICT-ORDER-05", "CONFLICT-ORDER-04", why=why)
    return _open(race)


def _domain(race: Race) -> Expected | None:
    named = {body["domain"] for body in _bodies(race.log, race.version, "domainMetadata")}
    if race.request.domain is None or race.request.domain[0] not in named:
        return None
    return _fails(race, "CONFLICT-ORDER-06", why="changed the same metadata domain")


def _application(race: Race) -> Expected | None:
    named = {body["appId"] for body in _bodies(race.log, race.version, "txn")}
    if race.request.application is None or race.request.application[0] not in named:
        return None
    why = "recorded a batch of the same application"
    return _fails(race, "CONFLICT-ORDER-07", "CONFLICT-REPEAT-01", why=why)


def _added(race: Race) -> Expected | None:
    """Files that the winner added to what the transaction read, as far as the isolation level considers them."""
    adds = _bodies(race.log, race.version, "add")
    if race.request.partition_by is not None and adds:
        if race.request.partition_by == _partition_columns(race.log, race.base):
            return _open(race)
        why = "added files by the old partitioning"
        return _fails(race, "CONFLICT-ISOLATION-04", "CONFLICT-ORDER-08", why=why)
    if race.request.replace_table and adds:
        return _open(race)
    if adds and not race.request.adds and not race.request.removes:  # it changes no data: its isolation may be weaker
        return _open(race)
    if race.request.reads is None or not any(_was_read(race.request, race.log, race.base, add) for add in adds):
        return None
    blind = bool(info_of(race.log[race.version]).get("isBlindAppend"))
    if race.request.isolation is m.Isolation.SNAPSHOT or not race.request.data_change:
        return _open(race)
    if blind and race.request.isolation is m.Isolation.WRITE_SERIALIZABLE and not metadata_changes(race.request):
        return _open(race)
    full = ("CONFLICT-FILES-03",) if race.request.reads == "*" or not _partitioned(race.log, race.base) else ()
    level = ("CONFLICT-ISOLATION-01",) if race.request.isolation is m.Isolation.SERIALIZABLE else ()
    why = f"added a file to what it read, and its isolation is {race.request.isolation.value}"
    return _fails(race, "CONFLICT-ORDER-08", *full, *level, why=why)


def _removed(race: Race) -> Expected | None:
    """A file that both remove, or that the transaction read. A file whose deletion vector the winner replaced was
    removed, too."""
    removes, before = _bodies(race.log, race.version, "remove"), replay(race.log, race.base).files
    mine = [body for body in removes if unquote(body["path"]) in race.request.removes]
    if race.request.replace_table and removes:
        return _open(race)
    if mine:
        ids = ("CONFLICT-ORDER-10", "CONFLICT-FILES-01", "CONFLICT-ORDER-09")
        return _fails(race, *ids, why="removed a file that it removes, too")
    known = [body for body in removes if unquote(body["path"]) in before]
    if any(
        _was_read(race.request, race.log, race.base, {"partitionValues": {"part": before[unquote(b["path"])]}})
        for b in known
    ):
        if race.request.reads != "*" and _is_repartitioned(race.log, race.base):
            return _open(race)
        return _fails(race, "CONFLICT-ORDER-09", why="removed a file that it read")
    return None


def _partition_columns(log: Log, version: int) -> tuple[str, ...]:
    body = metadata_of(log, version)
    return tuple(body.get("partitionColumns") or ())


def _partitioned(log: Log, version: int) -> bool:
    return bool(_partition_columns(log, version))


def _is_repartitioned(log: Log, last: int) -> bool:
    """Whether the partition columns changed: files of the other partitioning have no value to compare, or one that is
    not a column's."""
    return len({_partition_columns(log, version) for version in log if version <= last}) > 1


def _was_read(request: m.Transact, log: Log, base: int, file: Action) -> bool:
    if request.reads is None:
        return False
    return request.reads == "*" or not _partitioned(log, base) or part_of(file) == request.reads


class Transacted(NamedTuple):
    """A transaction of the client under test, as the kit saw it."""

    request: m.Transact
    answer: m.Answer
    log: Log
    base: int
    before: int
    """The newest version when it began."""
    landed: tuple[int, ...]
    """The versions that the client committed during the operation."""
    lost: bool
    """Whether the owner did not answer one of its proposals."""
    excused: bool
    """Whether it need not succeed, because of that or of another answer."""
    rejected: bool
    """Whether the owner rejected a proposal for good."""
    proposals: int
    """The number of its proposals after that."""
    by_path: bool
    feature: str


UNKNOWN: Final = ("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-CLIENT-02")


def transaction(done: Transacted) -> Wrong | None:
    """What is wrong with the outcome of a transaction: the first rule that it breaks."""
    rules = (
        _needs_its_catalog,
        _lands_once,
        _reports_the_outcome,
        _stops_after_a_rejection,
        _lands_only_without_conflict,
        _lands_if_it_may,
    )
    return next((wrong for rule in rules if (wrong := rule(done)) is not None), None)


def _needs_its_catalog(done: Transacted) -> Wrong | None:
    """catalog-managed, "Catalog-managed tables": a table that is known by its path only is not written."""
    if not (done.by_path and done.feature == "catalogManaged" and isinstance(done.answer, m.Committed)):
        return None
    return Wrong(
        ("CM-ACCESS-02", "CM-WRITE-01"),
        "a catalog-managed table is written by its name only",
        "the transaction was committed",
    )


LOST: Final = ("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", "DELAYED-03", "DELAYED-04", "CM-COMMIT-06", "MC-COMMIT-06")


def _lands_once(done: Transacted) -> Wrong | None:
    if len(done.landed) <= 1:
        return None
    return Wrong(
        (*LOST, *(("DELAYED-01", "DELAYED-02", "DELAYED-10") if len(done.request.adds) > 1 else ())),
        "one transaction is one commit", f"the transaction is versions {', '.join(map(str, done.landed))}",
        done.landed[-1],
    )  # fmt: skip


def _reports_the_outcome(done: Transacted) -> Wrong | None:
    """Committed means that it is in the log, and an error that it is not. After a lost answer it may be unknown."""
    version = done.landed[0] if done.landed else None
    ids = UNKNOWN if done.lost else ("PROFILE-CLIENT-02", "PROFILE-UNKNOWN-01")
    if isinstance(done.answer, m.Committed) and done.answer.version is not None and done.answer.version != version:
        observed = "nothing was committed" if version is None else f"the transaction was committed as version {version}"
        return Wrong(
            ids, f"the client reported version {done.answer.version}: it is in the log", observed, done.answer.version
        )
    if version is not None and isinstance(done.answer, m.Conflict | m.Rejected):
        more = ("CONFLICT-CHECK-02",) if not done.lost else ("PROFILE-UNKNOWN-03",)
        expected = f"it was committed as version {version}: a success, or an unknown outcome"
        return Wrong((*ids, *more), expected, _answered(done.answer), version)
    return None


def _stops_after_a_rejection(done: Transacted) -> Wrong | None:
    if not done.rejected or (done.proposals == 0 and not isinstance(done.answer, m.Committed)):
        return None
    return Wrong(
        ("CONFLICT-RETRY-02",), "the owner rejected it for a reason that a retry does not change: no other proposal",
        f"the transaction was proposed {done.proposals} more times, and answered {m.name_of(done.answer)}",
    )  # fmt: skip


def _lands_only_without_conflict(done: Transacted) -> Wrong | None:
    if not done.landed:
        return None
    expected = outcomes(done.request, done.log, done.base, done.landed[0] - 1)
    if expected.outcome is not Outcome.MUST_FAIL:
        return None
    return Wrong(
        expected.requirements, f"{expected.why}: {Outcome.MUST_FAIL.value}",
        f"the transaction was committed as version {done.landed[0]}", done.landed[0],
    )  # fmt: skip


def _lands_if_it_may(done: Transacted) -> Wrong | None:
    """Without a conflict it is proposed again, until it lands. A transaction without changes need not be committed."""
    if done.landed or done.excused or is_empty(done.request):
        return None
    expected = outcomes(done.request, done.log, done.base, max(done.log))
    if expected.outcome is not Outcome.MUST_LAND:
        return None
    ids = expected.requirements if max(done.log) > done.base else ("PROFILE-CLIENT-02", "CONFLICT-RETRY-05")
    wanted, observed = f"{expected.why}: {Outcome.MUST_LAND.value}", _answered(done.answer)
    removed = any("remove" in action for v in range(done.base + 1, max(done.log) + 1) for action in done.log[v])
    if removed and BLIND in ids and isinstance(done.answer, m.Conflict):
        return Wrong((BLIND,), wanted, observed, alone=True)  # that it is no conflict is only advice
    if done.request.reads is not None and isinstance(done.answer, m.Conflict):
        everything = outcomes(msgspec.structs.replace(done.request, reads="*"), done.log, done.base, max(done.log))
        if everything.outcome is not Outcome.MUST_LAND:  # to compare partitions is advice, too
            if _is_repartitioned(done.log, done.base):
                return None
            return Wrong(("CONFLICT-FILES-04",), wanted, observed, alone=True)
    return Wrong((*ids, "FIELD-04"), wanted, observed)


def transaction_group(done: Sequence[Transacted], *, in_one_request: bool) -> Iterator[tuple[int, Wrong]]:
    """What is wrong with the outcome of a transaction over several tables, with the number of the table: half of it
    landed, or one of its parts is wrong. It need not land if one of the parts need not. `in_one_request`: whether the
    commits that landed did so by requests for all tables."""
    landed = [index for index, part in enumerate(done) if part.landed]
    if landed and (len(landed) < len(done) or not in_one_request):
        version = done[landed[0]].landed[0]
        observed = f"version {version} was not proposed by one `commit_group` for all tables"
        missing = [index for index, part in enumerate(done) if not part.landed]
        if missing:
            observed = f"nothing landed in {done[missing[0]].request.table}"
        what = f"the transaction is version {version} here, and lands in all {len(done)} tables by one request"
        yield landed[0], Wrong(("PROFILE-GROUP-06",), what, observed, version, alone=True)
    free = all(outcomes(part.request, part.log, part.base, max(part.log)).outcome is Outcome.MUST_LAND for part in done)
    for index, part in enumerate(done):
        wrong = transaction(part._replace(excused=part.excused or not free))
        if wrong is not None:
            yield index, wrong


def is_empty(request: m.Transact) -> bool:
    changes = (request.adds, request.removes, request.add_feature, request.domain, request.application)
    return not any(changes) and not metadata_changes(request)


def commit(log: Log, request: m.Transact, version: int, names: Mapping[str, Sequence[str]]) -> Iterator[Wrong]:
    """What is wrong with the commit of a transaction: the version before it, with exactly its changes. `names`: the
    requested files for each file that the client named itself."""
    stamp = info_of(log[version]).get("inCommitTimestamp")
    if isinstance(stamp, int) and stamp < BASE_TIME:
        expected = f"its in-commit timestamp is the time of the attempt: {BASE_TIME} or later on any clock"
        yield Wrong(("ICT-09",), expected, f"it is {stamp}", version)
    actions, held = log[version], reconciled(log, version - 1)
    files = {key_of(action): action["add"] for action in held if "add" in action}
    adds = [action["add"] for action in actions if "add" in action]
    added = sorted(name for add in adds for name in _requested(add["path"], names))
    wanted = sorted(file.path for file in request.adds)
    if added != wanted:
        repeated = ("DELAYED-05",) if len(added) == len(wanted) else ("DELAYED-10", "DELAYED-02", "DELAYED-03")
        yield Wrong(
            (*repeated, "DELAYED-11", "CONFLICT-CHECK-02", "PROFILE-CLIENT-02"),
            f"the commit adds {wanted}", f"the commit adds {added}", version,
        )  # fmt: skip
    changed = [body for kind in ("add", "remove") for body in _bodies(log, version, kind)]
    if request.data_change and (silent := [body["path"] for body in changed if body.get("dataChange") is False]):
        yield Wrong(
            ("PROFILE-CLIENT-02",), "the transaction changes data", f"dataChange is false for {silent}", version
        )
    parts = {file.path: file.partition or None for file in request.adds}
    column = stored_part(metadata_of(log, version))
    mapped = ("LOG-54",) if column != "part" else ()
    for add in adds:
        for name in _requested(add["path"], names) if _partitioned(log, version) else ():
            if name in parts and (part_of(add) != parts[name] or set(add.get("partitionValues") or {}) != {column}):
                yield Wrong(
                    (*mapped, "DELAYED-05", "DELAYED-08"),
                    f"{name} has the partition value {parts[name]!r} in the column {column}",
                    f"{add['path']} has the partition values {add.get('partitionValues')}", version,
                )  # fmt: skip
    gone = {key_of(action) for action in actions if "remove" in action}
    if gone and info_of(actions).get("isBlindAppend") is True:
        expected = "a blind append only adds files: others may ignore it"
        yield Wrong(("CONFLICT-ISOLATION-05",), expected, f"the blind append removes {len(gone)}", version)
    target = set(files) if request.replace_table else {
        key for key, add in files.items() if unquote(add["path"]) in request.removes
    }  # fmt: skip
    if gone != target:
        yield Wrong(
            ("LOG-30", "PROFILE-CLIENT-02"), f"the commit removes {sorted(map(str, target))}, with their vectors",
            f"the commit removes {sorted(map(str, gone))}", version,
        )  # fmt: skip
    changes = {name: body for body in _bodies(log, version, "cdc") for name in _requested(body["path"], names)}
    missing = {file.path for file in request.changes} - set(changes)
    if missing or set(changes) & set(wanted):
        expected = f"the change data {[file.path for file in request.changes]}, in the commit of the change"
        ids = ("DELAYED-04", "PROFILE-CHANGES-01", "PROFILE-CLIENT-02")
        yield Wrong(ids, expected, f"it has {sorted(changes)}", version)
    for file in request.changes if _partitioned(log, version) else ():
        values = changes[file.path].get("partitionValues") or {} if file.path in changes else {column: file.partition}
        if {name: value or None for name, value in values.items()} != {column: file.partition or None}:
            expected = f"{file.path} has the partition value {file.partition!r} in {column}"
            yield Wrong((*mapped, "DELAYED-05", "PROFILE-CHANGES-01"), expected, f"it has {values}", version)
    yield from _state_changes(log, request, version)
    yield from _row_ids(log, version)


def _requested(path: str, names: Mapping[str, Sequence[str]]) -> Sequence[str]:
    plain = unquote(path)
    return names.get(plain, (without_scheme(plain),))


def _state_changes(log: Log, request: m.Transact, version: int) -> Iterator[Wrong]:
    """Applications, domains, properties and features: those of the request change, and no others."""
    before, after = replay(log, version - 1), replay(log, version)
    applications = dict(before.applications) | dict([request.application] if request.application else [])
    if after.applications != applications:
        observed = f"they are at {after.applications}"
        yield Wrong(("PROFILE-CLIENT-02",), f"the applications are at {applications}", observed, version)
    domains = dict(before.domains) | dict([request.domain] if request.domain else [])
    tracked = {name: value for name, value in after.domains.items() if name != ROW_DOMAIN}
    if tracked != {name: value for name, value in domains.items() if name != ROW_DOMAIN}:
        yield Wrong(("PROFILE-CLIENT-02",), f"the metadata domains are {domains}", f"they are {after.domains}", version)
    if not request.replace_table:
        properties = {**before.properties, **request.set_properties}
        properties = {name: value for name, value in properties.items() if name not in request.unset_properties}
        if after.properties != properties:
            kept = ("PROFILE-CLIENT-02", "ICT-04", "MC-WRITE-01", "CM-WRITE-02")
            yield Wrong(kept, f"the properties are {properties}", f"they are {after.properties}", version)
        old, new = (
            {name: metadata_of(log, number).get(name) for name in ("id", "name", "description")}
            for number in (version - 1, version)
        )
        if old != new:
            yield Wrong(("LOG-52",), f"the metadata keeps {old}", f"it has {new}", version)
        columns = [_columns(metadata_of(log, number)) for number in (version - 1, version)]
        if columns[0] != columns[1]:
            yield Wrong(("PROFILE-CLIENT-02",), f"the columns are {columns[0]}", f"they are {columns[1]}", version)
        partitioning = [_partition_columns(log, number) for number in (version - 1, version)]
        if request.partition_by is None and partitioning[0] != partitioning[1]:
            expected = f"the partition columns are {partitioning[0]}"
            yield Wrong(("PROFILE-CLIENT-02",), expected, f"they are {partitioning[1]}", version)
    features = set(before.protocol.get("writerFeatures") or ())
    listed = set(after.protocol.get("writerFeatures") or ())
    lost, wanted = features - listed, request.add_feature
    if lost or (wanted is not None and wanted not in listed):
        ids = ("ICT-03", "MC-WRITE-01", "CM-WRITE-02", "MC-ENABLE-02", "CM-ENABLE-02", "PROFILE-CLIENT-02")
        yield Wrong(ids, f"the table features {sorted(features)}, and {wanted}", f"they are {sorted(listed)}", version)
    yield from _features_stay(before.protocol, after.protocol, "readerFeatures", (), version)


LISTS: Final = MappingProxyType({"readerFeatures": ("minReaderVersion", 3), "writerFeatures": ("minWriterVersion", 7)})
"""The lists of features of a protocol, with the version that each requires. Delta's protocol, "Table Features"."""


def _features_stay(
    before: Action, after: Action, name: str, leaving: Collection[str], version: int, also: Collection[str] = ()
) -> Iterator[Wrong]:
    """A list of features without the version that it requires counts for nothing."""
    member, required = LISTS[name]
    listed = {*(after.get(name) or ())} if after.get(member) == required else set()
    lost = sorted({*(before.get(name) or ()), *also} - {*leaving} - listed)
    if lost:
        observed = f"{member} is {after.get(member)}, {name} {after.get(name)}"
        yield Wrong(("LOG-42",), f"the table still supports {lost}", observed, version)


def _columns(metadata: Action) -> list[tuple[str, Any]] | None:
    """The names and types of the columns; None if they cannot be read. What else a schema says of them may change."""
    try:
        schema = json.loads(metadata["schemaString"])
        return [(column["name"], column["type"]) for column in schema["fields"]]
    except (KeyError, TypeError, ValueError):
        return None


def _row_ids(log: Log, version: int) -> Iterator[Wrong]:
    """row tracking: ids above the high water mark of the version before, the new mark, and removals keep them."""
    before = replay(log, version - 1)
    if "rowTracking" not in (before.protocol.get("writerFeatures") or ()):
        return
    mark, adds = mark_of(before), _bodies(log, version, "add")
    for add in adds:
        ids = (add.get("baseRowId"), add.get("defaultRowCommitVersion"))
        if not isinstance(ids[0], int) or ids[0] <= mark or ids[1] != version:
            yield Wrong(
                ("ROW-02", "ROW-04", "ROW-01", "PROFILE-ROWS-01"),
                f"row ids above {mark}, and the row version {version}", f"{add['path']} has {ids}", version,
            )  # fmt: skip
            return
    last = max((add["baseRowId"] + (rows_of(add) or 1) - 1 for add in adds), default=mark)
    if mark_of(replay(log, version)) < last:
        observed = f"it is {mark_of(replay(log, version))}"
        yield Wrong(("ROW-03",), f"the high water mark is at least {last}", observed, version)
    spans = sorted((add["baseRowId"], add["baseRowId"] + rows) for add in adds if (rows := rows_of(add)))
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        expected, observed = "every row of the commit has its own id", f"the ids of its files are {spans}"
        yield Wrong(("ROW-01",), expected, observed, version)
    files = {key_of(action): action["add"] for action in reconciled(log, version - 1) if "add" in action}
    for body in _bodies(log, version, "remove"):
        known = files.get(key_of({"remove": body}), {})
        if any(body.get(field) != known.get(field) for field in ROW_IDS):
            yield Wrong(("ROW-05",), f"the removal of {body['path']} keeps its row ids", f"it has {body}", version)


def mark_of(snapshot: Snapshot) -> int:
    return int(json.loads(snapshot.domains.get(ROW_DOMAIN, '{"rowIdHighWaterMark": -1}'))["rowIdHighWaterMark"])


def rows_of(add: Action) -> int | None:
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    return rows if isinstance(rows, int) else None


# Files of maintenance


def checkpoint(log: Log, version: int, actions: Sequence[Action]) -> Wrong | None:
    """Delta's protocol, "Checkpoints": a checkpoint has each valid action of its version once, and removals until
    they expire."""
    right = reconciled(log, version)
    ids = ("LOG-34", "PROFILE-CLIENT-02")
    for kind in ("add", "txn", "domainMetadata", "metaData", "protocol"):
        wanted = sorted(_seen(action) for action in right if kind in action)
        try:
            held = sorted(_seen(action) for action in actions if kind in action)
        except KeyError as missing:
            return Wrong(ids, f"each {kind} of the checkpoint has {missing}", "one lacks it", version)
        if held != wanted:
            return Wrong(ids, f"the checkpoint has the actions {wanted}", f"the checkpoint has {held}", version)
    removed = {_path(action) for action in right if "remove" in action}
    unexpired = {_path(a) for a in right if "remove" in a and a["remove"].get("deletionTimestamp", 0) >= FUTURE}
    held_removals = {_path(action) for action in actions if "remove" in action}
    if not unexpired <= held_removals <= removed:
        lacking, more = sorted(unexpired - held_removals), sorted(held_removals - removed)
        observed = f"lacks the removal of {lacking[0]}" if lacking else f"has a removal of {more[0]}"
        expected = "the removals of the log that have not expired, and perhaps expired ones"
        return Wrong(("LOG-41", *ids), expected, f"the checkpoint {observed}", version)
    return None


FUTURE: Final = 4_000_000_000_000
"""ms since the epoch: no clock has reached it, so that no retention period is over."""


def _path(action: Action) -> str:
    """The data file of an action, with its deletion vector."""
    (body,) = action.values()
    vector = [part for part in vector_of(body) if part != "None"]
    return unquote(body["path"]) + (f" with the deletion vector {' '.join(vector)}" if vector else "")


def _seen(action: Action) -> str:
    """The parts of an action that its readers need."""
    (kind, body), *_ = action.items()
    match kind:
        case "add":
            ids = tuple(body.get(field) for field in ROW_IDS)
            encoded = " " not in body["path"]
            return str((encoded, unquote(body["path"]), part_of(body), body.get("size"), vector_of(body), ids))
        case "txn":
            return f"{body['appId']} {body['version']}"
        case "domainMetadata":
            return f"{body['domain']} {body['configuration']}"
        case "metaData":
            texts = (body["id"], body.get("name") or None, body.get("description") or None)
            lists = (sorted((body.get("configuration") or {}).items()), [*(body.get("partitionColumns") or ())])
            return str((*texts, *lists, _columns(body)))
        case _:
            features = (sorted(body.get(name) or ()) for name in LISTS)
            return str((body["minReaderVersion"], body["minWriterVersion"], *features))


def compaction(log: Log, start: int, end: int, actions: Sequence[Action]) -> Wrong | None:
    """Delta's protocol, "Log Compaction Files": the last action of each key, removals included."""
    right = {key: action for action in reconciled(log, end, start) if (key := key_of(action)) is not None}
    held = {key: action for action in actions if (key := key_of(action)) is not None}
    if start == 0:
        held = {key: action for key, action in held.items() if not action.get("domainMetadata", {}).get("removed")}
    wanted = {key: _kept(action) for key, action in right.items()}
    found = {key: _kept(action) for key, action in held.items()}
    wrong = sorted(str(key) for key in {*wanted, *found} if wanted.get(key) != found.get(key))
    if not wrong:
        return None
    return Wrong(
        ("LOG-35", "LOG-30"), f"the compaction of {start} to {end} has the last action of each file and kind",
        f"it differs for {', '.join(wrong)}", end,
    )  # fmt: skip


def _kept(action: Action) -> tuple[str, str]:
    """What a compaction has of an action: a removal hides an earlier action by its key alone."""
    (kind, body), *_ = action.items()
    if kind == "remove" or body.get("removed"):
        return kind, "removed"
    try:
        return kind, _seen(action)
    except KeyError as missing:
        return kind, f"without {missing}"


def checksum(log: Log, version: int, body: Action) -> Wrong | None:
    """Delta's protocol, "Version Checksum File": counts and state of its version."""
    held, snapshot = reconciled(log, version), replay(log, version)
    adds = [action["add"] for action in held if "add" in action]
    right: Action = {
        "numFiles": len(adds), "tableSizeBytes": sum(add["size"] for add in adds), "numMetadata": 1, "numProtocol": 1,
    }  # fmt: skip
    if body.get("inCommitTimestampOpt") is not None:
        right["inCommitTimestampOpt"] = snapshot.timestamp
    wrong = [f"{name} {body.get(name)}, not {value}" for name, value in right.items() if body.get(name) != value]
    for name, kind in (
        ("metadata", "metaData"), ("protocol", "protocol"), ("setTransactions", "txn"),
        ("domainMetadata", "domainMetadata"),
    ):  # fmt: skip
        given = body.get(name)
        if given is None and name in ("setTransactions", "domainMetadata"):
            continue
        parts = given if isinstance(given, list) else [given or {}]
        listed = sorted(_kept({kind: part})[1] for part in parts)
        wanted = sorted(_kept(action)[1] for action in held if kind in action)
        if listed != wanted:
            wrong.append(f"{name} {listed}, not {wanted}")
    if not wrong:
        return None
    return Wrong(("LOG-44",), f"the checksum describes version {version}", "; ".join(wrong), version)


YOUNG: Final = "young.parquet"
"""A file that no version has yet."""


def files_of(body: Action) -> list[str]:
    """The data file of an action, decoded, and that of its deletion vector."""
    vector = body.get("deletionVector")
    name = None if vector is None else vector_file(vector)
    return [unquote(body["path"]), *([] if name is None else [name])]


def vacuum(log: Log, gone: Collection[str]) -> Wrong | None:
    """VACUUM: data files of the newest version stay, published or not, and those that were removed within the
    retention, each with its deletion vector; so does `YOUNG`. `gone`: decoded paths."""
    version = max(log)
    held = reconciled(log, version)
    active = {name for action in held if "add" in action for name in files_of(action["add"])}
    recent = {
        name
        for action in held
        if "remove" in action and action["remove"].get("deletionTimestamp", 0) >= FUTURE
        for name in files_of(action["remove"])
    }
    if YOUNG in gone:
        return Wrong(("LOG-40",), f"{YOUNG} was written just now: a transaction may commit it", "VACUUM deleted it")
    for names, ids, why in ((active, ("LOG-37",), "is in the table"), (recent, ("LOG-40",), "was removed just now")):
        if lost := sorted(names & set(gone)):
            return Wrong(ids, f"{lost[0]} {why}: it stays", f"VACUUM deleted {', '.join(lost)}", version)
    return None


# Tables that are created, taken over and handed back


def change_of_owner(
    answer: m.Answer, landed: bool, lost: bool, ids: tuple[str, ...]
) -> Wrong | None:  # fmt: skip
    """The client reports a success if its change landed, and an error if it did not. After a lost answer the outcome
    may be unknown."""
    if isinstance(answer, m.Ratified) and not landed:
        return Wrong(
            (*ids, "MC-CONVERT-04", "PROFILE-CLIENT-02"), "it did not land: an error", "the client reported a success"
        )
    if landed and isinstance(answer, m.Conflict | m.Rejected):
        return Wrong((*ids, "PROFILE-UNKNOWN-01"), "it landed: no failure", _answered(answer))
    if landed and not lost and not isinstance(answer, m.Ratified):
        return Wrong((*ids, "PROFILE-CLIENT-02"), "it landed: a success", _answered(answer))
    return None


def created(metadata: Action) -> Wrong | None:
    """A table with in-commit timestamps from version 0 on has no enablement properties."""
    named = [name for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP) if name in metadata.get("configuration", {})]
    return Wrong(("ICT-13",), "a new table needs no enablement", f"it has {named}", 0) if named else None


def taken_over(log: Log, version: int, modified: int, raced: bool) -> Iterator[Wrong]:
    """The commit that enables in-commit timestamps and gives a table to its owner. `modified`: the modification time
    of the file before it."""
    info = info_of(log[version])
    metadata: Action = next((action["metaData"] for action in log[version] if "metaData" in action), {})
    properties, time = metadata.get("configuration") or {}, info.get("inCommitTimestamp")
    again = ("ICT-15",) if raced else ()
    if properties.get(TIMESTAMPS) != "true" or properties.get(ENABLEMENT_VERSION) != str(version):
        expected = f"version {version} enables timestamps: {ENABLEMENT_VERSION} is {version}"
        yield Wrong((*again, "ICT-10"), expected, f"the properties are {properties}", version)
    if properties.get(ENABLEMENT_TIMESTAMP) != str(time):
        expected = f"{ENABLEMENT_TIMESTAMP} is the commit's own time, {time}"
        yield Wrong((*again, "ICT-11"), expected, f"it is {properties.get(ENABLEMENT_TIMESTAMP)}", version)
    if not isinstance(time, int) or time <= modified:
        expected = f"the enabling commit is later than {modified}, the time of the file before it"
        yield Wrong(("ICT-12",), expected, f"the in-commit timestamp is {time}", version)
    yield from keeps_the_table(log, version)


def handed_back(log: Log, version: int) -> Iterator[Wrong]:
    """managed-commits, "Converting a managed-commit table to filesystem table": the commit removes the feature."""
    if "managedCommit" in (replay(log, version).protocol.get("writerFeatures") or ()):
        expected = "the table has the feature managedCommit no more"
        yield Wrong(("MC-RELEASE-01",), expected, "the protocol still lists it", version)


OF_OWNERS: Final = {"managedCommit", "catalogManaged", "vacuumProtocolCheck"}
"""Features that come and go with an owner."""
WHOLE: Final = ("id", "name", "description", "createdTime", "partitionColumns", "schemaString")
"""The members of the metadata besides the properties."""
REPLACED: Final = "it was replaced"


def keeps_the_table(log: Log, version: int) -> Iterator[Wrong]:
    """A change of the owner keeps the features that the table uses, and its metadata."""
    before, after = replay(log, version - 1), replay(log, version)
    old, new = metadata_of(log, version - 1), metadata_of(log, version)
    used = ("appendOnly",) if before.properties.get("delta.appendOnly") == "true" else ()
    for name, also in (("readerFeatures", ()), ("writerFeatures", used)):
        yield from _features_stay(before.protocol, after.protocol, name, OF_OWNERS, version, also)
    kept = {
        key: value for key, value in before.properties.items() if not key.startswith(("delta.inC", "delta.enableInC"))
    }
    lost = sorted(key for key, value in kept.items() if after.properties.get(key) != value)
    lost += [key for key in WHOLE if old.get(key) != new.get(key)]
    if lost:
        yield Wrong(("LOG-43",), "the metadata stays, except for its owner", f"{lost} changed", version)


# The folder of the log


class Folder(NamedTuple):
    """The files of a log, as far as a cleanup may remove them."""

    commits: Collection[int]
    """The versions of published commits."""
    checkpoints: Mapping[int, Collection[str]]
    """The complete, readable checkpoints, with all their files."""
    incomplete: Mapping[int, Collection[str]]
    compactions: Mapping[str, tuple[int, int]]
    checksums: Mapping[str, int]
    staged: Mapping[str, int]
    listed: Collection[str]
    """The staged files that the owner's last answer to the client lists."""
    seen: Collection[str] = ()
    """Those that earlier answers during the cleanup listed: the client may have decided by any of them."""
    modified: Mapping[int, int] = MappingProxyType({})
    """The modification times of published commits. They count in a table without in-commit timestamps."""


def cut_off(times: Mapping[int, int], folder: Folder, older_than: int) -> int | None:
    """The version of the cut-off checkpoint: the newest one at or before the newest commit that is not later. None:
    there is no such checkpoint."""
    times = {version: time for version, time in times.items() if isinstance(time, int)}  # a client may write anything
    last = max((version for version, time in times.items() if time <= older_than), default=-1)
    return max((version for version in folder.checkpoints if version <= last), default=None)


def cleanup(
    log: Log, folder: Folder, older_than: int, gone: Collection[str], feature: str, commit_file: Mapping[str, int],
    *, whole: bool = True,
) -> Iterator[Wrong]:  # fmt: skip
    """managed-commits and catalog-managed, "Metadata Cleanup": which files may be gone, and which must. `commit_file`:
    the versions of the published commits by name. `whole`: it was requested; a commit may clean up a part."""
    stamps, modified = times_of(log), [folder.modified[version] for version in sorted(folder.modified)]
    if stamps is not None and stamps.since == 0:
        cut = cut_off(stamps.times, folder, older_than)
    elif feature == FILESYSTEM and whole and modified == sorted(modified):
        cut = cut_off(folder.modified, folder, older_than)
    elif feature == FILESYSTEM or not whole:
        cut = max(folder.checkpoints, default=None)  # the times of files decide, too, but no commit after it may go
    else:
        return
    if cut is None:
        staged = set() if whole else {*gone} & {*folder.staged}  # the loser of a race deletes these, not a cleanup
        if others := sorted({*gone} - staged):
            yield Wrong(
                ("MC-CLEANUP-03", "CM-CLEANUP-03", "LOG-36"), "no checkpoint is old enough: nothing is deleted",
                f"{', '.join(others)} were deleted",
            )  # fmt: skip
        gone, cut = staged, -1
    newest = max(folder.commits, default=-1)
    kept = ("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36")
    needed = {name for version, names in folder.checkpoints.items() if version >= cut for name in names}
    for name in sorted(gone):
        version = commit_file.get(name)
        if name in needed:
            first = ("MC-CLEANUP-01", "CM-CLEANUP-01")
            yield Wrong(
                (*first, *kept), f"the cut-off checkpoint is that of version {cut}: {name} stays", f"{name} is gone"
            )
        elif version is not None and version == newest and feature != FILESYSTEM:
            yield Wrong(("MC-CLEANUP-09", *kept), f"{name} is the newest published commit: it stays", f"{name} is gone")
        elif version is not None and version >= cut:
            yield Wrong(
                kept, f"{name} is not before the cut-off checkpoint of version {cut}: it stays", f"{name} is gone"
            )
        elif name in folder.checksums and folder.checksums[name] >= cut:
            yield Wrong(kept, f"{name} is not before the cut-off checkpoint: it stays", f"{name} is gone")
        elif name in folder.compactions and folder.compactions[name][0] > cut:
            yield Wrong(kept, f"{name} starts after the cut-off checkpoint: it stays", f"{name} is gone")
        elif name in folder.staged and folder.staged[name] > cut:
            ids = ("MC-CLEANUP-08", "CM-CLEANUP-08")
            why = "may be in flight" if cut < 0 else "is above the cut-off checkpoint, and may be in flight"
            yield Wrong(ids, f"{name} {why}: it stays", f"{name} is gone")
        elif name in folder.staged and name in folder.listed and feature == "catalogManaged":
            yield Wrong(("RULING-CLEANUP-01",), f"the owner lists {name}: it stays", f"{name} is gone")
    if gone and whole and feature != FILESYSTEM:
        yield from _left(folder, cut, gone, feature)


def _left(folder: Folder, cut: int, gone: Collection[str], feature: str) -> Iterator[Wrong]:
    """What a cleanup that deleted something must have deleted. A client that does not list the folder finds no
    checkpoint in several parts."""
    old: list[tuple[Iterable[str], tuple[str, ...]]] = [
        ((name for v, names in folder.checkpoints.items() if v < cut for name in names if name.count(".") == 2),
         ("MC-CLEANUP-05", "CM-CLEANUP-05")),
        ((name for name, (start, _) in folder.compactions.items() if start <= cut), ("MC-CLEANUP-06", "CM-CLEANUP-06")),
        ((name for name, v in folder.checksums.items() if v < cut and feature == "catalogManaged"), ("CM-CLEANUP-05",)),
        ((name for name, v in folder.staged.items() if v < cut and name not in {*folder.listed, *folder.seen}),
         ("MC-CLEANUP-07", "CM-CLEANUP-07")),
    ]  # fmt: skip
    for names, ids in old:
        for name in sorted(set(names) - set(gone)):
            why = f"{name} is before the cut-off checkpoint of version {cut}"
            yield Wrong(ids, f"{why}: it is deleted", f"{name} was kept")


class File(NamedTuple):
    """A file of the folder, as far as a change of it shows."""

    size: int
    modified: int
    inode: int
    content: Digest | None = None
    """Of a published commit."""


def folder(
    before: Mapping[str, File], after: Mapping[str, File], feature: str, *, cleaned: bool = False, again: bool = True
) -> Iterator[Wrong]:  # fmt: skip
    """A file of another writer stays as it is. Only a cleanup removes files of the log, and nothing replaces them.

    `again`: a commit may be published again with the same bytes, as in any publication except that for a hand-back
    (RULINGS.md#published-whole).
    """
    for name in sorted(before):
        if name not in after and not cleaned:
            expected = f"{name} is another writer's, or ratified: it stays"
            yield Wrong(_lost(name, feature), expected, f"{name} was deleted")
        elif name in after and after[name] != before[name]:
            old, new = before[name], after[name]
            is_same = again and old.content is not None and old.content == new.content
            if is_same or _may_be_replaced(name, old, new):
                continue
            yield Wrong(_changed(name), f"{name} is another writer's, or ratified: it stays as it is", REPLACED)


def _may_be_replaced(name: str, before: File, after: File) -> bool:
    """The hint, a compaction, and the only checkpoint of its kind of a version: two writers of it write the same. So
    may the parts and sidecars of a checkpoint, if they are as large as before, and Hadoop's checksum of such a file."""
    if name.startswith("."):
        name = name[1:].removesuffix(".crc")
    if (".checkpoint." in name or name.startswith("_sidecars/")) and before.size == after.size:
        return True
    return name.endswith(("_last_checkpoint", ".compacted.json")) or (".checkpoint." in name and name.count(".") == 2)


def _lost(name: str, feature: str) -> tuple[str, ...]:
    """What a client breaks that deletes the file without a cleanup, or without the permission for one."""
    if "commits/" in name:
        return ("PROFILE-UNKNOWN-03", "MC-CLEANUP-08", "CM-CLEANUP-08", "CM-POLICY-01")
    of_checkpoints = ("FIELD-02",) if ".checkpoint." in name else ()
    of_cleanups = ("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04")
    return (*of_checkpoints, *(of_cleanups if feature == "catalogManaged" else ("MC-CLEANUP-04", "LOG-36")))


def _changed(name: str) -> tuple[str, ...]:
    if name.endswith(".crc"):
        return ("LOG-45",)
    if ".checkpoint." in name:
        return ("FIELD-02",)
    return ("MC-LOG-01", "CM-LOG-01", "CONFLICT-RETRY-03", "MC-FILES-11", "PROFILE-CLIENT-03")
