"""Delta on Spark as the client of a managed-commit table, whose owner is a commit coordinator.

Delta calls managed commits coordinated commits. It has had them since 3.3, as the table feature
`coordinatedCommits-preview`, and 4.4.0 still has them. The kit tests 4.4.0, the newest version that runs on its
PySpark. Delta never shipped the names of the RFC, and rejects writes to a table that has them. So this adapter replaces
the names in Delta's classes by those of the document (`_NAMES`), before the JVM loads the classes; it does not change
their code. It replaces one more name: Delta's feature requires `vacuumProtocolCheck`, but the document's feature does
not.

Delta finds a coordinator by the name in `delta.managedCommit.commitOwner`, and asks it through the interface
`io.delta.storage.commit.CommitCoordinatorClient`. The coordinator here has no behaviour of its own: it passes each
request on to the kit's owner, in the name of the client whose request the adapter is answering.

| Delta calls | request to the owner |
|---|---|
| `commit` | `commit` with the staged file that Delta's `CoordinatedCommitsUtils` wrote |
| `commit` without the owner's properties | `hand_back` with the actions |
| `getCommits` | `get_commits` of the same range |
| `backfillToVersion` | `backfill_to_version` |
| `registerTable` | none: see below |

| the owner answers a commit | Delta gets |
|---|---|
| `ratified` | the staged file |
| `conflict` | `CommitFailedException(retryable, conflict)` |
| `rejected` | `CommitFailedException`, retryable if the owner says so |
| `gap`, `not_found`, `unsupported` | `CommitFailedException`, neither retryable nor conflict |
| `unknown` | `UncheckedIOException`: Delta's interface has no exception for it |

`load_table` finds a table: by its name at each request, as in a metastore, or by its path for a read by path.
Operations and the state of a client are the same as in `delta_spark`.

Not supported, beside what `delta_spark` does not support:

- `create_table`, `take_over`: Delta registers the table with its coordinator, and then itself writes the version that
makes the coordinator the owner. In the shared interface the owner writes that version.
- The second commit of `DROP FEATURE`, by which Delta hands a table back. The first commit removes the owner's
properties, and is the coordinator's last one. The second commit removes the feature, and goes to the filesystem.
- The profile `backlog-limit`: Delta expects the coordinator to publish when the backlog is full.

Delta's own retries, caches and sizes (4.4.0):

- Delta retries a lost race, or a commit with a retryable rejection, up to 10,000,000 times without a pause
(`spark.databricks.delta.maxCommitAttempts`).
- It caches a `DeltaLog` and its newest snapshot for 60 minutes. Each statement updates them, which asks for the
commits.
- Each tenth commit writes a checkpoint.
- Delta asks for the commits and lists the log at the same time, and does not compare the listing with the latest
version of the answer. So a read while the listing lacks the newest version fails if the listing comes first (as on a
busy machine). Otherwise it violates LOG-27 and MC-READ-07, as it always does with `delta-spark`.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from conformance.adapters.engines.delta_spark import DeltaSpark, Table, put_before
from conformance.adapters.in_process import answering
from conformance.adapters.jvm.machine import JavaObject, Machine
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file, staged_file
from conformance.interface.subject import Ask
from conformance.models import proposals

FEATURE: Final = "managedCommit"
OWNER: Final = f"delta.{FEATURE}.commitOwner"
_COMMIT: Final = "io.delta.storage.commit"
_DELTA: Final = "org.apache.spark.sql.delta"


def _constants(names: Mapping[str, str]) -> dict[bytes, bytes]:
    """Strings or class names, encoded as constants of a class file."""
    return {
        b"\x01" + len(old).to_bytes(2, "big") + old.encode(): b"\x01" + len(new).to_bytes(2, "big") + new.encode()
        for old, new in names.items()
    }


_SPARK: Final = "delta-spark_4.2_2.13"
_CLASSES: Final = _DELTA.replace(".", "/")
_PROPERTY: Final = "coordinatedCommits.commitCoordinator"
_VACUUM: Final = f"{_CLASSES}/VacuumProtocolCheckTableFeature$"
_TIMESTAMPS: Final = f"{_CLASSES}/InCommitTimestampTableFeature$"
_FOLDER: Final = {STAGING["catalogManaged"]: STAGING[FEATURE]}
_NAMES: Final = {
    (_SPARK, f"{_CLASSES}/CoordinatedCommitsTableFeature$.class"): _constants(
        {"coordinatedCommits-preview": FEATURE, _VACUUM: _TIMESTAMPS, f"L{_VACUUM};": f"L{_TIMESTAMPS};"}
    ),
    (_SPARK, f"{_CLASSES}/DeltaConfigsBase.class"): _constants(
        {f"{_PROPERTY}{end}-preview": f"{FEATURE}.commitOwner{end}" for end in ("", "Conf")}
    ),
    (_SPARK, f"{_CLASSES}/util/FileNames$.class"): _constants(_FOLDER),
    ("delta-storage", "io/delta/storage/commit/CoordinatedCommitsUtils.class"): _constants(
        _FOLDER | {f"delta.{_PROPERTY}{end}-preview": f"{OWNER}{end}" for end in ("", "Conf")}
    ),
}
"""For each library and class, Delta's names and the document's. The class of the feature names the features that it
requires."""


class DeltaSparkCoordinated(DeltaSpark):
    """Answers the client side of the shared interface, for managed-commit tables with staged commits."""

    engine: ClassVar[str] = "delta-spark-coordinated"
    profiles: ClassVar[tuple[str, ...]] = ("core", "staged", "change-data", "row-tracking", "ownership-transfer")
    features: ClassVar[tuple[str, ...]] = (FEATURE,)
    commit_modes: ClassVar[dict[str, tuple[str, ...]]] = {FEATURE: ("staged",)}
    promises: ClassVar[tuple[str, ...]] = ("fresh-snapshots",)
    domains: ClassVar[tuple[str, ...]] = ()

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        self._coordinator = _Coordinator(self.owner, self._spark.machine)
        self._registered: set[str] = set()

    def _prepare(self, classes: Path) -> None:
        put_before(classes, "spark", _NAMES)

    def connect(self, client: str) -> Any:
        return self._spark.session({})

    def _location_of(self, client: str, request: m.LoadTable) -> str:
        """The location of a table. From now on Delta finds the coordinator by the name in the table's metadata, and the
        coordinator asks in the name of this client. If there is no table, raises the same exception as Delta."""
        self._coordinator.client = client
        table = self._coordinator.find(request)
        name = json.loads(table.metadata or "{}").get("metaData", {}).get("configuration", {}).get(OWNER)
        if name is not None and name not in self._registered:
            self._registered.add(name)
            provider = self._spark.module(f"{_DELTA}.coordinatedcommits.CommitCoordinatorProvider")
            provider.registerBuilder(_Builder(name, self._coordinator))
        return str(table.location)

    def _table(self, client: str, name: str) -> Table:
        location = self._location_of(client, m.LoadTable(name=name))
        self._make_room(name)
        session = self.connection(client)
        self._spark.use(session)
        path = self._spark.type("org.apache.hadoop.fs.Path")(location)
        return Table(self._spark, session, self._spark.log(session, path, client), self._spark.none, FEATURE)

    def _by_path(self, client: str, location: str, version: int | None) -> Any:
        """The log names the owner, which may no longer have a table there."""
        from py4j.protocol import Py4JJavaError

        with suppress(Py4JJavaError):
            self._location_of(client, m.LoadTable(path=location))
        return super()._by_path(client, location, version)

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return m.Unsupported(reason="Delta writes the version that makes a coordinator the owner by itself")

    @answering
    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        """The first of the two commits of `DROP FEATURE`."""
        table = self._table(client, request.table)
        tables, options = self._spark.module(f"{_DELTA}.catalog.DeltaTableV2"), self._spark.options(client)
        target = tables.apply(table.session, table.log.dataPath(), options, "DROP FEATURE")
        command = self._spark.type(f"{_DELTA}.CoordinatedCommitsPreDowngradeCommand")(target)
        command.removeFeatureTracesIfNeeded(table.session)
        return self._coordinator.answer

    def _in_sql(self, client: str, name: str) -> str:
        return f"delta.`{self._location_of(client, m.LoadTable(name=name))}`"


class _Builder(JavaObject):
    """Delta finds this builder by the owner's name. It returns the same coordinator for all tables."""

    def __init__(self, name: str, coordinator: "_Coordinator") -> None:
        self.name = name
        self._coordinator = coordinator

    def getName(self) -> str:  # noqa: N802
        return self.name

    def build(self, spark: Any, conf: Any) -> "_Coordinator":
        return self._coordinator

    class Java:
        implements: Final = [f"{_DELTA}.coordinatedcommits.CommitCoordinatorBuilder"]


class _Coordinator(JavaObject):
    """Passes Delta's requests on to the kit's owner."""

    def __init__(self, ask: Ask, machine: Machine) -> None:
        self._ask = ask
        self._machine = machine
        self.client = ""
        """The client whose request is being answered."""
        self.answer: m.Answer = m.Rejected(reason="Delta proposed nothing")
        """The owner's answer to the latest commit."""
        self._references: dict[str, str] = {}
        """For each location, the owner's latest reference of the table there."""

    def find(self, request: m.LoadTable) -> m.Table:
        answer = self._ask(self.client, request)
        if not isinstance(answer, m.Table) or answer.location is None:
            self._fail(f"the owner finds no table {request.name or request.path}: {answer}")
        self._references[answer.location] = answer.table
        return answer

    def registerTable(self, log: Any, identifier: Any, version: int, metadata: Any, protocol: Any) -> Any:  # noqa: N802
        self._throw("java.lang.UnsupportedOperationException", "the kit's owner takes no table over in two steps")

    def commit(self, store: Any, conf: Any, table: Any, version: int, lines: Any, updated: Any) -> Any:
        utils = self._machine.type(f"{_COMMIT}.CoordinatedCommitsUtils")
        folder, attempt = table.getLogPath(), str(uuid.uuid4())
        file = utils.writeUnbackfilledCommitFile(store, conf, folder.toString(), version, lines, attempt)
        name = staged_file(version, attempt)
        request: m.Commit | m.HandBack = m.Commit(
            table=self._reference(folder), version=version, attempt=attempt, staged_file=name
        )
        if utils.isCoordinatedCommitsToFSConversion(version, updated):
            content = Path(_location(folder), LOG, STAGING[FEATURE], name).read_text("utf-8")
            request = m.HandBack(
                table=request.table, version=version, attempt=attempt, actions=tuple(proposals.lines(content))
            )
        answer = self._ask(self.client, request)
        self.answer = answer
        if isinstance(answer, m.Ratified):
            commit = self._machine.type(f"{_COMMIT}.Commit")
            return self._machine.type(f"{_COMMIT}.CommitResponse")(
                commit(version, file, updated.getCommitInfo().getCommitTimestamp())
            )
        if isinstance(answer, m.Unknown):
            self._fail(f"no answer to the commit of version {version}: {answer.reason}")
        conflict = isinstance(answer, m.Conflict)
        retryable = conflict or (isinstance(answer, m.Rejected) and answer.retryable)
        return self._throw(f"{_COMMIT}.CommitFailedException", retryable, conflict, f"version {version}: {answer}")

    def getCommits(self, table: Any, start: int | None, end: int | None) -> Any:  # noqa: N802
        folder = table.getLogPath()
        answer = self._ask(self.client, m.GetCommits(table=self._reference(folder), start=start, end=end))
        if not isinstance(answer, m.Commits):
            self._fail(f"the owner does not list its commits: {answer}")
        log = Path(_location(folder)) / LOG
        listed = self._machine.collection("ArrayList", (self._commit(log, entry) for entry in answer.commits))
        latest = -1 if answer.latest is None else answer.latest
        return self._machine.type(f"{_COMMIT}.GetCommitsResponse")(listed, latest)

    def _commit(self, log: Path, entry: m.CommitEntry) -> Any:
        """The commit, with the file that the owner named. If that file is gone, its published copy has the same
        size."""
        published = log / commit_file(entry.version)
        named = published if entry.file_name is None else log / STAGING[FEATURE] / entry.file_name
        state = next((file.stat() for file in (named, published) if file.exists()), None)
        size, modified = (0, 0) if state is None else (state.st_size, state.st_mtime_ns // 1_000_000)
        path = self._machine.type("org.apache.hadoop.fs.Path")(f"file:{named}")
        status = self._machine.type("org.apache.hadoop.fs.FileStatus")(size, False, 1, 1, modified, path)
        return self._machine.type(f"{_COMMIT}.Commit")(entry.version, status, entry.in_commit_timestamp or modified)

    def backfillToVersion(self, store: Any, conf: Any, table: Any, version: int, known: int | None) -> None:  # noqa: N802
        request = m.BackfillToVersion(table=self._reference(table.getLogPath()), version=version)
        answer = self._ask(self.client, request)
        if not isinstance(answer, m.Done):
            self._fail(f"version {version} is not published: {answer}")

    def semanticEquals(self, other: Any) -> bool:  # noqa: N802
        """Always true: there is only one coordinator."""
        return True

    class Java:
        implements: Final = [f"{_COMMIT}.CommitCoordinatorClient"]

    def _reference(self, folder: Any) -> str:
        """The reference of the table with this log folder. If the table was opened by its path, ask the owner for
        it."""
        location = _location(folder)
        return self._references.get(location) or self.find(m.LoadTable(path=location)).table

    def _fail(self, problem: str) -> NoReturn:
        """Throw an exception that methods may throw without declaring it."""
        self._throw("java.io.UncheckedIOException", problem, self._machine.type("java.io.IOException")(problem))

    def _throw(self, kind: str, *arguments: Any) -> NoReturn:
        """Have Java throw an exception of this class."""
        from py4j.protocol import Py4JJavaError

        raise Py4JJavaError(f"{kind} of the kit's coordinator", self._machine.type(kind)(*arguments))


def _location(folder: Any) -> str:
    return str(Path(folder.toUri().getPath()).parent)
