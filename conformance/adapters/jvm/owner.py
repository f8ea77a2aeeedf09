"""A `CommitCoordinatorClient` as a subject of the kit.

The coordinator stages, ratifies, lists and publishes. This module does only what Delta's client does: after it has
registered a table, it writes version 0 or the change of ownership to the log by put-if-absent, and it sends with every
proposal the metadata that its writer had read. It interprets the coordinator's exceptions as Delta's client does: a
`CommitFailedException` by its two flags, any other exception as an unknown outcome.

The first part translates between Delta's names and the names in the documents, which the kit uses; behaviour is never
translated. Delta 4 ships managed commits as the feature `coordinatedCommits-preview`. Its table properties have
other names than in the document, and its staged files are in `_staged_commits`, with a uuid that the coordinator
chooses. The kit identifies a commit by its attempt, the `txnId` of its commitInfo, and a file by its name in the
document.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from conformance.adapters.in_process import answering
from conformance.adapters.jvm.dynamodb import FAILING, Database, Fault
from conformance.adapters.jvm.machine import Machine, class_of, machine, message_of
from conformance.adapters.jvm.naming import Named, UnknownError
from conformance.adapters.log_folder import LogAccess, LogFolder, OutsideError, content_of
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.subject import AdapterError, ProcessDied
from conformance.models import proposals

OWNER: Final = "delta.managedCommit.commitOwner"
NAME: Final = "delta.coordinatedCommits.commitCoordinator-preview"
CONF: Final = "delta.coordinatedCommits.commitCoordinatorConf-preview"
TABLE_CONF: Final = "delta.coordinatedCommits.tableConf-preview"
STAGING: Final = "_staged_commits"
STAGING_OF_THE_DOCUMENT: Final = "_commits"


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").split("\n") if line]


def owned(action: str, coordinator: str, table_conf: Mapping[str, str]) -> str:
    """A metaData action with the properties that make the coordinator the owner; any other action unchanged. Raises
    `ValueError` for a text that is no action."""
    parsed = _parsed(action)
    if "metaData" not in parsed:
        return action
    configuration = parsed["metaData"].setdefault("configuration", {})
    configuration.update(
        {OWNER: coordinator, NAME: coordinator, CONF: "{}", TABLE_CONF: json.dumps(dict(table_conf), sort_keys=True)}
    )
    return json.dumps(parsed, separators=(",", ":"))


def table_conf(actions: Iterable[str]) -> dict[str, str]:
    """The table configuration in the newest metaData of these actions: the coordinator's answer when the table was
    registered. Raises `ValueError`."""
    newest: dict[str, str] = {}
    for action in actions:
        configuration = (_parsed(action).get("metaData") or {}).get("configuration") or {}
        if TABLE_CONF in configuration:
            newest = json.loads(configuration[TABLE_CONF])
    return newest


def has_owner(actions: Iterable[str]) -> bool:
    """Whether the newest metaData of these actions names a coordinator. Raises `ValueError`."""
    newest = of_kind(actions, "metaData")
    return newest is not None and NAME in (_parsed(newest)["metaData"].get("configuration") or {})


def of_kind(actions: Iterable[str], kind: str) -> str | None:
    """The last action of that kind. Raises `ValueError`."""
    return next((action for action in reversed(list(actions)) if kind in _parsed(action)), None)


def _parsed(action: str) -> dict[str, Any]:
    body = json.loads(action)
    if not isinstance(body, dict):
        raise ValueError(f"{action[:60]!r} is not an action")  # noqa: TRY004 - the content is wrong, not the call
    return body


# Files


class Log(LogFolder):
    """The files of one table. A staged file gets its name for the kit when it is first seen, because the kit may change
    its content later. The name stays, unless another file of the same attempt turns out to be the commit."""

    def __init__(self, location: Path) -> None:
        super().__init__(location)
        self._shown: dict[str, str] = {}
        """For the real name of each staged file, its name for the kit."""
        self._of_attempt: dict[str, str] = {}
        """For the real name of each staged file, the document's name for the commit of its attempt."""

    def make(self) -> None:
        """Make the folders, as Delta's client does before the first commit."""
        (self.folder / STAGING).mkdir(parents=True, exist_ok=True)

    def published(self, version: int) -> Path:
        return self.folder / commit_file(version)

    def commit(self, version: int) -> list[str] | None:
        """The actions of a published commit."""
        try:
            return _lines(self.published(version))
        except FileNotFoundError:
            return None

    def actions(self) -> list[str]:
        """Of all published commits, in order."""
        return [line for path in sorted(self.folder.glob("*.json")) for line in _lines(path)]

    # Names

    def name_of(self, real: str) -> str:
        """The kit's name for a staged file: `<version>.<attempt>.json`. If an attempt has several files, the committed
        file has that name, and the others keep their own. Until a commit is known, the first file has it."""
        self.meet()
        return self._shown.get(real, real)

    def ratified(self, real: str) -> None:
        """Record that this file is a commit. Its attempt may have other files: a coordinator stages a new file for each
        request, and leaves the file of a rejected request there."""
        self.meet()
        wanted = self._of_attempt.get(real)
        if wanted is not None and self._shown[real] != wanted:
            self._shown = {name: name if shown == wanted else shown for name, shown in self._shown.items()}
            self._shown[real] = wanted

    def meet(self) -> None:
        """Give names to new staged files. Called after each commit, while their contents are unchanged since
        staging."""
        folder = self.folder / STAGING
        with contextlib.suppress(FileNotFoundError):
            for name in sorted({path.name for path in folder.iterdir()} - self._shown.keys()):
                version, _, rest = name.partition(".")
                if not rest.endswith(".json"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    content = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
                    attempt = proposals.attempt_of(content)
                    wanted = f"{version}.{attempt}.json"
                    free = attempt is not None and wanted not in self._shown.values()
                    self._shown[name] = wanted if free else name
                    if attempt is not None:
                        self._of_attempt[name] = wanted

    def path(self, file: str) -> Path:
        """The path of the file with this name in the document. Raises `OutsideError`."""
        path = PurePosixPath(file)
        if not path.parts or path.parts[0] != STAGING_OF_THE_DOCUMENT:
            return super().path(file)
        self.meet()
        name = next((real for real, shown in self._shown.items() if shown == path.name), path.name)
        return super().path("/".join((STAGING, *path.parts[1:-1], name)))

    def shown(self, path: PurePath) -> str:
        if path.parts[0] != STAGING:
            return path.as_posix()
        return "/".join((STAGING_OF_THE_DOCUMENT, *path.parts[1:-1], self.name_of(path.name)))


@contextlib.contextmanager
def unreadable(log: Path) -> Iterator[None]:
    """Hide the staged files of the log while this context is open."""
    staged, aside = log / STAGING, log.with_name(".out-of-sight")
    aside.mkdir()
    for path in sorted(staged.glob("*.json")):
        path.replace(aside / path.name)
    try:
        yield
    finally:
        for path in sorted(aside.iterdir()):
            path.replace(staged / path.name)
        aside.rmdir()


FEATURE: Final = "managedCommit"
COMMIT_MODE: Final = "staged"
EVERY: Final = 3
"""The batch size of a table that the coordinator publishes by itself."""
NEVER: Final = 1_000_000
"""The batch size of a table that is published only on request."""

_IN_MEMORY: Final = "its state is in the memory of its process"
_COMMIT: Final = "io.delta.storage.commit"
_REFUSALS: Final = (
    "java.lang.IllegalArgumentException", "java.lang.IllegalStateException", "java.lang.UnsupportedOperationException",
)  # fmt: skip
"""Java exceptions which say that the call had no effect."""
_DO_NOT_FIT: Final = (
    "AbstractMethodError", "BootstrapMethodError", "ClassFormatError", "ExceptionInInitializerError",
    "IllegalAccessError", "IncompatibleClassChangeError", "NoClassDefFoundError", "NoSuchFieldError",
    "NoSuchMethodError", "UnsatisfiedLinkError", "UnsupportedClassVersionError", "VerifyError",
)  # fmt: skip
"""Errors of `java.lang` for classes that do not fit together."""


@dataclass(slots=True, kw_only=True)
class Table:
    """A table, with what a client knows of it."""

    reference: str
    log: Log
    batch: int
    descriptor: Any
    metadata: Any
    protocol: Any


class Refused(Exception):  # noqa: N818 - it is an answer
    """At this point Delta's client stops, with `answer`."""

    def __init__(self, answer: m.Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


class CoordinatorOwner(LogAccess):
    """Answers the owner side of the shared interface, one request at a time. `directory`: holds the tables, and all
    state that outlives the coordinator."""

    def __init__(self, coordinator: Named, directory: Path) -> None:
        self._named = coordinator
        self._directory = directory.resolve()
        self._storage = self._directory / "tables"
        self._storage.mkdir(parents=True, exist_ok=True)
        self._saved = self._directory / "tables.json"
        self._logs: dict[Path, Log] = {}
        self._places: dict[str, tuple[str, int]] = {}
        """The location and the batch size of every table, by its reference."""
        self._tables: dict[str, Table] = {}
        """The tables of the requests since the start. The others are not loaded, so that a start stays fast."""
        self._dead = ""
        """Why the coordinator's process ended; empty: it runs."""
        self._started = False
        self._machine: Machine
        self._database: Database | None

    def _start(self) -> None:
        """Start the machine. This takes long, so it happens at the first request to the coordinator."""
        self._machine = machine(self._named.classpath)
        self._configuration = self._machine.type("org.apache.hadoop.conf.Configuration")(False)
        # The raw file system: Hadoop's usual one writes a checksum file beside each file of the log.
        self._configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        self._configuration.set("fs.file.impl.disable.cache", "true")
        self._store = self._machine.type("io.delta.storage.LocalLogStore")(self._configuration)
        self._database = self._named.database(self._machine, self._directory)
        self._coordinators = {batch: self._named.make(self._machine, batch, self._database) for batch in (EVERY, NEVER)}
        self._tables = {}
        if self._saved.exists():
            saved = json.loads(self._saved.read_bytes())
            self._places = {reference: (location, batch) for reference, (location, batch) in saved.items()}
        self._started = True

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=f"jvm:{self._named.name}",
            version=self._named.version,
            interface_version=m.INTERFACE_VERSION,
            side="owner",
            profiles=self._named.profiles,
            features=(FEATURE,),
            commit_modes={FEATURE: (COMMIT_MODE,)},
            storage=str(self._storage),
            crash_points=self._named.crash_points,
        )

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """The answer. Raises `ProcessDied` after a simulated crash. Raises `AdapterError` if the JVM is gone, or the
        classes on its class path do not fit together: then no verdict on the coordinator is possible."""
        from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

        if self._dead:
            raise ProcessDied(self._dead)
        try:
            if not self._started:
                self._start()
            answer = ask()
        except Refused as refused:
            answer = refused.answer
        except OutsideError as error:
            answer = m.Rejected(reason=str(error))
        except UnknownError as error:
            raise AdapterError(error.problem) from error
        except Py4JJavaError as error:
            answer = _thrown(error)
        except Py4JNetworkError as error:
            raise AdapterError(f"the Java virtual machine of {self._named.name} ended: {error}") from error
        except Py4JError as error:
            raise AdapterError(f"{self._named.name} could not be called: {error}") from error
        if self._database is not None and self._database.dead is not None:
            self._dead = f"it died {self._database.dead}"
            raise ProcessDied(self._dead)
        return answer

    # Committing

    @answering
    def commit(self, client: str, request: m.Commit) -> m.Answer:
        if request.actions is None:
            return m.Rejected(reason="the coordinator stages proposals itself; send actions instead of a staged file")
        return self._propose(request.table, request.version, request.actions, owned=True)

    @answering
    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        return self._propose(request.table, request.version, request.actions, owned=False)

    def _propose(self, reference: str, version: int, actions: Sequence[str], *, owned: bool) -> m.Answer:
        """`owned`: the table keeps its owner, whatever its new metadata says; if false, this commit hands it back."""
        from py4j.protocol import Py4JJavaError

        table = self._table(reference)
        metadata, protocol, info = self._parsed(actions, table if owned else None)
        if info is None:
            raise Refused(m.Rejected(reason="Delta's client proposes no commit without a commitInfo"))
        updated = self._machine.type(f"{_COMMIT}.UpdatedActions")(
            info, metadata or table.metadata, protocol or table.protocol, table.metadata, table.protocol
        )
        try:
            lines = self._machine.iterator(actions)
            with self._storage_of(table, version):
                response = self._coordinators[table.batch].commit(
                    self._store, self._configuration, table.descriptor, version, lines, updated
                )
        except Py4JJavaError as error:
            raise Refused(_not_committed(error)) from error
        finally:
            table.log.meet()
        table.log.ratified(response.getCommit().getFileStatus().getPath().getName())
        return m.Ratified(version=response.getCommit().getVersion())

    def _storage_of(self, table: Table, version: int) -> AbstractContextManager[None]:
        """The state of the storage during the commit of that version."""
        fails = Fault.FAILING_STORAGE in self._named.faults and version % FAILING == 0
        return unreadable(table.log.folder) if fails else nullcontext()

    def _parsed(self, actions: Sequence[str], owner_of: Table | None) -> tuple[Any, Any, Any]:
        """The metadata, the protocol and the commitInfo among these actions as Delta's objects, or None for each."""
        from py4j.protocol import Py4JJavaError

        action = self._machine.type("org.apache.spark.sql.delta.actions.Action")
        parsed = []
        try:
            for kind in ("metaData", "protocol", "commitInfo"):
                text = of_kind(actions, kind)
                if text is not None and owner_of is not None:
                    text = owned(text, self._named.name, {})
                parsed.append(None if text is None else action.fromJson(text))
        except (ValueError, TypeError, AttributeError, Py4JJavaError) as error:
            raise Refused(m.Rejected(reason=f"Delta's client cannot read its own actions: {error}"[:300])) from error
        return parsed[0], parsed[1], parsed[2]

    # Reading and publishing

    @answering
    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        return self._listed(self._table(request.table), request.start, request.end)

    def _listed(self, table: Table, start: int | None, end: int | None) -> m.Commits:
        listed = self._coordinators[table.batch].getCommits(table.descriptor, start, end)
        entries = []
        for commit in listed.getCommits():
            path = commit.getFileStatus().getPath()
            name = None
            if path.getParent().getName() == STAGING:
                table.log.ratified(path.getName())
                name = table.log.name_of(path.getName())
            entries.append(m.CommitEntry(version=commit.getVersion(), file_name=name))
        return m.Commits(commits=tuple(entries), latest=listed.getLatestTableVersion())

    @answering
    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        table = self._table(request.table)
        self._coordinators[table.batch].backfillToVersion(
            self._store, self._configuration, table.descriptor, request.version, None
        )
        return m.Done()

    # Tables

    @answering
    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """Like Delta's client: look whether the table exists, register it, and write version 0."""
        _require_feature(request)
        reference = _reference(request.name)
        log = self._log(Path(request.path) if request.path is not None else self._storage / reference)
        there = log.commit(0)
        if there is not None:
            mine = proposals.attempt_of("\n".join(there)) == request.attempt and reference in self._places
            known = reference if reference in self._places else None
            return m.Ratified(version=0, table=reference) if mine else m.Conflict(winner_table=known)
        batch = EVERY if request.backfill == "subject" else NEVER
        if not self._own(reference, log, 0, batch, request.actions):
            return m.Conflict(winner_table=reference if reference in self._places else None)
        return m.Ratified(version=0, table=reference)

    @answering
    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        _require_feature(request)
        log = self._log(Path(request.path))
        if has_owner(log.actions()):
            return m.Rejected(
                reason="the table's newest metadata names an owner; Delta's client does not ask for another"
            )
        if log.published(request.version).exists():
            return m.Conflict()
        if not log.published(request.version - 1).exists():
            return m.Gap()
        reference = _reference(request.name)
        if not self._own(reference, log, request.version, NEVER, request.actions):
            return m.Conflict()
        return m.Ratified(version=request.version, table=reference)

    def _own(self, reference: str, log: Log, version: int, batch: int, actions: Sequence[str]) -> bool:
        """Register the table, then write the version that makes the coordinator its owner, by put-if-absent. False:
        that version existed. Delta's local log store does not exclude writers of other processes, so the kit writes."""
        log.make()
        metadata, protocol, _ = self._parsed(actions, None)
        empty = self._machine.type("java.util.Optional").empty()
        path = self._machine.type("org.apache.hadoop.fs.Path")(str(log.folder))
        conf = dict(self._coordinators[batch].registerTable(path, empty, version - 1, metadata, protocol))
        content = content_of(owned(action, self._named.name, conf) for action in actions)
        if not log.put(commit_file(version), content, if_absent=True):
            return False
        self._tables[reference] = self._known(reference, log.location, batch)
        self._places[reference] = (str(log.location), batch)
        self._save()
        return True

    @answering
    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        wanted = _reference(request.name) if request.name is not None else None
        for reference, (location, _) in self._places.items():
            if reference in (wanted, request.name) or location == request.path:
                table = self._table(reference)
                listed = self._listed(table, None, None)
                return m.Table(
                    table=table.reference, feature=FEATURE, commit_mode=COMMIT_MODE, latest=listed.latest,
                    commits=listed.commits, location=str(table.log.location),
                )  # fmt: skip
        return m.NotFound()

    def _known(self, reference: str, location: Path, batch: int) -> Table:
        """The table with the properties of its newest ownership change, which a client learns from a snapshot."""
        log = self._log(location)
        actions = log.actions()
        metadata, protocol, _ = self._parsed(actions, None)
        empty = self._machine.type("java.util.Optional").empty()
        conf = self._machine.map(table_conf(actions))
        path = self._machine.type("org.apache.hadoop.fs.Path")(str(log.folder))
        descriptor = self._machine.type(f"{_COMMIT}.TableDescriptor")(path, empty, conf)
        return Table(
            reference=reference, log=log, batch=batch, descriptor=descriptor, metadata=metadata, protocol=protocol
        )

    def _table(self, reference: str) -> Table:
        if reference not in self._places:
            raise Refused(m.NotFound())
        if reference not in self._tables:
            location, batch = self._places[reference]
            self._tables[reference] = self._known(reference, Path(location), batch)
        return self._tables[reference]

    def _log(self, location: Path) -> Log:
        """The log of a table anywhere below the storage. Raises `OutsideError`."""
        if ".." in location.parts or not location.is_relative_to(self._storage) or location == self._storage:
            raise OutsideError(f"{location} is not the path of a table below {self._storage}")
        return self._logs.setdefault(location, Log(location))

    def _save(self) -> None:
        temporary = self._saved.with_suffix(".new")
        temporary.write_text(json.dumps(self._places), "utf-8")
        temporary.replace(self._saved)

    def log_of(self, table: m.TableRef) -> Log:
        """The log of a table of the coordinator, or of a filesystem table of the kit."""
        return self._table(table).log if "/" not in table else self._log(Path(table))

    # Crash and restart

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        points = self._named.crash_points
        if not points:
            return m.Unsupported(reason=_IN_MEMORY)
        if request.point is None:
            self._dead = "it was crashed, as requested"
            return m.Done()
        if request.point not in points:
            return m.Unsupported(reason=f"crash points are {', '.join(points)}")

        def arm() -> m.Answer:
            assert self._database is not None
            self._database.crash_point = request.point
            return m.Done()

        return self.answered(arm)

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        """Start a new coordinator on the state that the old one wrote."""
        if not self._named.crash_points:
            return m.Unsupported(reason=_IN_MEMORY)
        self._dead, self._started = "", False
        return self.answered(m.Done)


def _require_feature(request: m.CreateTable | m.TakeOver) -> None:
    if (request.feature, request.commit_mode) != (FEATURE, COMMIT_MODE):
        raise Refused(m.Unsupported(reason=f"it owns tables with {FEATURE}, by {COMMIT_MODE} commits"))


def _reference(name: str) -> str:
    """The folder of a table with that name. The same text is the table's reference."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name)[:80].strip("-")
    return f"{readable}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _not_committed(error: Any) -> m.Answer:
    """How Delta's client interprets an exception of a commit. `CommitFailedException(retryable, conflict)`: with
    `conflict`, the version was lost; with `retryable` alone, the client proposes the same version again; with neither,
    the commit failed permanently. After any other exception the outcome is unknown."""
    if class_of(error) != f"{_COMMIT}.CommitFailedException":
        return _unknown(error)
    thrown = error.java_exception
    return (
        m.Conflict() if thrown.getConflict() else m.Rejected(reason=message_of(error), retryable=thrown.getRetryable())
    )


def _thrown(error: Any) -> m.Answer:
    """How Delta's client interprets an exception of any other call."""
    return m.Rejected(reason=message_of(error)) if class_of(error) in _REFUSALS else _unknown(error)


def _unknown(error: Any) -> m.Unknown:
    """The outcome is unknown. Raises `AdapterError` for an error that the coordinator did not cause."""
    if class_of(error).removeprefix("java.lang.") in _DO_NOT_FIT:
        raise AdapterError(f"the classes on the class path do not fit together: {message_of(error)}")
    return m.Unknown(reason=message_of(error))
