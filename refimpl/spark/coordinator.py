"""Delta Spark commits through our owner: a commit coordinator for `io.delta:delta-spark` 4.4, written in Python.

    from refimpl.spark import coordinator
    coordinator.register(spark, "/data/warehouse", new_tables=True)
    spark.sql("CREATE TABLE orders (id BIGINT) USING delta LOCATION '/data/warehouse/orders'")
    spark.sql("INSERT INTO orders VALUES (1)")

`spark` is any session that has Delta on its class path and was started with `SETTINGS`. The owner runs in the driver's
Python process, and other processes share the warehouse as usual. Tables must be inside the warehouse, or below one of
its roots. The table feature is `table_feature.COORDINATED_COMMITS`; DELTA_SPARK.md#interfaces describes the interfaces.

Each answer of the owner becomes an answer to Delta:

    Ratified                 the commit, with its published file if there is one
    Conflict                 CommitFailedException(retryable, conflict): lost the version, rebase
    will never land          CommitFailedException(retryable): propose the same version again, as a new attempt
    VersionGap, Rejected     CommitFailedException: do the work again, or give it up
    outcome unknown          IllegalStateException: the commit may have landed

Callbacks arrive on any thread, several at once. Nothing here holds a lock while it calls Spark.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from refimpl.client.proposing import RetryPolicy
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy, ResolvedTable, TableState
from refimpl.protocol.commits import (
    Conflict,
    DirectProposal,
    Landed,
    Outcome,
    Ratified,
    RatifiedCommit,
    Rejected,
    RejectionReason,
    StagedProposal,
    VersionGap,
)
from refimpl.protocol.errors import DeltaError, InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.protocol.table_feature import COORDINATED_COMMITS, TableFeature
from refimpl.storage.log_store import LogStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from refimpl.warehouse import Warehouse

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
)
"""Spark settings that Delta needs; they take effect only when the session starts."""

TABLE_ID: Final = "tableId"
"""An entry of a table's coordinator configuration; this coordinator sets it when the table is registered."""
_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."
_REGISTERED: Final = "_refimpl_coordinators"
"""The gateway's attribute with the builders registered in its JVM; the JVM itself cannot list them."""


def register(
    spark: SparkSession, warehouse: Warehouse | str | os.PathLike[str], *, new_tables: bool = False
) -> Mapping[str, str]:
    """Let this session's Delta commit through the owner of `warehouse`. Returns the properties that give it a table.

    Put them into `TBLPROPERTIES` of a CREATE, or into `ALTER TABLE ... SET TBLPROPERTIES` for an existing table.
    `new_tables`: every table that this session creates gets them by default.
    The registration lasts as long as the JVM, longer than the session: a second call replaces the first warehouse.
    Raises `InvalidRequestError` if the session has no Delta 4.
    """
    if isinstance(warehouse, str | os.PathLike):
        import refimpl

        warehouse = refimpl.open(warehouse)
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = spark.sparkContext._gateway
    provider = _provider(gateway)
    gateway.callback_server_parameters.propagate_java_exceptions = True  # otherwise a lost race fails the whole INSERT
    ensure_callback_server_started(gateway)
    name = warehouse.owner.name
    served = Served(warehouse, gateway)
    known = gateway.__dict__.setdefault(_REGISTERED, {})
    if name in known:
        known[name].client.serve(served)
    else:
        builder = CoordinatorBuilder(name, CoordinatorClient(name, served))
        provider.registerBuilder(builder)
        known[name] = builder
    owner, conf = COORDINATED_COMMITS.owner_property, COORDINATED_COMMITS.owner_conf_property
    assert owner is not None
    assert conf is not None
    properties = {owner: name, conf: "{}"}
    for key, value in properties.items():
        setting = _DEFAULTS + key.removeprefix("delta.")
        if new_tables:
            spark.conf.set(setting, value)
        else:
            spark.conf.unset(setting)
    return properties


def _provider(gateway: Any) -> Any:
    from py4j.java_gateway import JavaClass

    provider = gateway.jvm.org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorProvider
    if not isinstance(provider, JavaClass):
        raise InvalidRequestError(
            "this Spark session has no Delta 4 on its class path; start it with the jars of io.delta:delta-spark 4.4, "
            "io.delta:delta-storage and com.amazonaws:aws-java-sdk-dynamodb:1.12.262 in spark.jars"
        )
    return provider


class _JavaObject:
    """A Python object that the JVM can call. The JVM hands it back as a new proxy at every call, so two proxies are
    compared by their text: the class and the coordinator's name, which is unique in a JVM."""

    name: str

    def equals(self, other: Any) -> bool:
        return other is self or (hasattr(other, "toString") and bool(other.toString() == self.toString()))

    def hashCode(self) -> int:  # noqa: N802 - Java's names
        return hash(self.name) % 2**31

    def toString(self) -> str:  # noqa: N802
        return f"{type(self).__name__}({self.name})"


class CoordinatorBuilder(_JavaObject):
    """The Scala trait `CommitCoordinatorBuilder`: one client for all tables, whatever their configuration says."""

    def __init__(self, name: str, client: CoordinatorClient) -> None:
        self.name = name
        self.client = client

    def getName(self) -> str:  # noqa: N802 - the trait's
        return self.name

    def build(self, spark: Any, conf: Any) -> CoordinatorClient:
        return self.client

    class Java:
        implements = ("org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorBuilder",)


class AdoptingOwner(CommitOwner, Protocol):
    """A commit owner that can also adopt a table that an engine created or converted by itself."""

    def announce(
        self,
        location: Path,
        name: str | None,
        feature: TableFeature,
        latest: Version | None,
        *,
        owner_conf: str | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> ResolvedTable: ...
    def adopt(self, table_id: str) -> Outcome: ...


class Served:
    """A warehouse, and the JVM whose Delta commits through it."""

    def __init__(self, warehouse: Warehouse, gateway: Any) -> None:
        self.owner: AdoptingOwner = warehouse.owner
        self.environment = warehouse.environment
        self.java = _Java(gateway)
        self._owned: dict[str, LogStore] = {}
        """By table id: tables that are known to be the owner's. A table with this id stays the owner's."""

    def log_of(self, table: Any) -> tuple[str, LogStore]:
        """The id and log of the table that a descriptor means. A table that was only announced is adopted now.

        Raises `TableNotFoundError` for a table of another owner, and for a copy of one of this owner's tables.
        """
        location = location_of(table.getLogPath())
        table_id = table.getTableConf().get(TABLE_ID)
        if table_id in self._owned and self._owned[table_id].location == location:
            return table_id, self._owned[table_id]
        resolved = self.owner.resolve(location if table_id is None else table_id)
        if resolved.location != location:
            raise TableNotFoundError(
                f"{location} is a copy of the table {table_id}, which is at {resolved.location}; to use the copy as a "
                f"separate table, remove {COORDINATED_COMMITS.owner_property} from its newest metadata",
                reference=str(location),
            )
        log = LogStore(location, self.environment)
        if resolved.state is TableState.STAGING:
            outcome = self.owner.adopt(resolved.table_id)
            if isinstance(outcome, Rejected):
                raise InvalidRequestError(f"{location} cannot be owned: {outcome.detail}", location=str(location))
            if isinstance(outcome, VersionGap):  # the engine has not written it yet; the next call adopts the table
                return resolved.table_id, log
        self._owned[resolved.table_id] = log
        return resolved.table_id, log


class CoordinatorClient(_JavaObject):
    """The client that Delta calls. One instance serves all tables; `serve` gives it another warehouse."""

    def __init__(self, name: str, served: Served) -> None:
        self.name = name
        self._served = served

    def serve(self, served: Served) -> None:
        """Answer from another warehouse from now on."""
        self._served = served

    def registerTable(  # noqa: N802 - the interface's names
        self, log_folder: Any, identifier: Any, current_version: int, metadata: Any, protocol: Any
    ) -> Any:
        """Announce a table: Delta writes version `current_version + 1` by itself, which names this coordinator."""
        served = self._served

        def announce() -> Any:
            latest = None if current_version < 0 else current_version
            name = identifier.get().getName() if identifier.isPresent() else None
            conf = metadata.getConfiguration().get(COORDINATED_COMMITS.owner_conf_property)
            location = location_of(log_folder)
            announced = served.owner.announce(location, name, COORDINATED_COMMITS, latest, owner_conf=conf)
            return served.java.table_conf(announced.table_id)

        return served.java.answered(announce)

    def commit(self, store: Any, conf: Any, table: Any, version: int, lines: Any, updated: Any) -> Any:
        served = self._served
        return served.java.commit_answered(lambda: _Commit(served, table, version).propose(store, conf, lines, updated))

    def getCommits(self, table: Any, start: int | None, end: int | None) -> Any:  # noqa: N802
        """The unbackfilled commits of the range, and the latest version (-1: none)."""
        served = self._served

        def ask() -> Any:
            table_id, log = served.log_of(table)
            answer = served.owner.get_commits(table_id, start, end)
            return served.java.commits_answer(log, answer.commits, answer.latest_ratified_version)

        return served.java.answered(ask)

    def backfillToVersion(self, store: Any, conf: Any, table: Any, version: int, last: int | None) -> None:  # noqa: N802
        served = self._served

        def backfill() -> None:
            table_id, _ = served.log_of(table)
            served.owner.backfill_to_version(table_id, version)

        served.java.answered(backfill)

    def semanticEquals(self, other: Any) -> bool:  # noqa: N802
        return self.equals(other)

    class Java:
        implements = ("io.delta.storage.commit.CommitCoordinatorClient",)


class _Commit:
    """One call of `commit`: one attempt."""

    def __init__(self, served: Served, table: Any, version: Version) -> None:
        self._served = served
        self._owner = served.owner
        self._version = version
        self._attempt = served.environment.new_id()
        self._table_id, self._log = served.log_of(table)

    def propose(self, store: Any, conf: Any, lines: Any, updated: Any) -> Any:
        """The answer to Delta: a `CommitResponse`. Raises the exception that the JVM is to throw."""
        java = self._served.java
        folder = COORDINATED_COMMITS.staging_folder
        java.stage(store, conf, self._log, self._version, lines, self._attempt)
        name = log_path.staged_commit(self._version, self._attempt)
        if java.utils.isCoordinatedCommitsToFSConversion(self._version, updated):
            content = self._log.read_staged(folder, name)
            proposal = DirectProposal(attempt=self._attempt, content=content)
            outcome = self._resolved(lambda: self._owner.hand_back(self._table_id, self._version, proposal))
        else:
            try:
                self._log.make_staged_durable(folder, name)
            except OSError as error:
                raise OwnerUnavailableError(f"cannot make {name} durable: {error}; nothing was proposed") from error
            staged = StagedProposal(attempt=self._attempt, file_name=name)
            outcome = self._resolved(lambda: self._commit(staged))
        if not isinstance(outcome, Ratified):
            with contextlib.suppress(OSError):  # the outcome is known, also if the file cannot be deleted
                self._log.delete(f"{folder}/{name}")
            self._refuse(outcome)
        return java.commit_answer(self._log, outcome.commit)

    def _commit(self, proposal: StagedProposal) -> Outcome:
        """The outcome. If the backlog is full, it is published once, and the commit is proposed again."""
        outcome = self._owner.commit(self._table_id, self._version, proposal)
        if isinstance(outcome, Rejected) and outcome.reason is RejectionReason.BACKLOG_FULL:
            self._owner.backfill_to_version(self._table_id)
            outcome = self._owner.commit(self._table_id, self._version, proposal)
        return outcome

    def _resolved(self, ask: Callable[[], Outcome]) -> Outcome | None:
        """The outcome, also of a request whose answer was lost; None: the attempt did not land and never will."""
        try:
            return ask()
        except (InvalidRequestError, OwnerUnavailableError):
            raise  # these errors promise that nothing landed
        except Exception as error:  # noqa: BLE001 - whatever it was, the commit may have landed
            label = str(self._log.location)
            policy = RetryPolicy(self._served.environment, max_tries=1, label=label)
            resolved = policy.outcome_of(self._owner, self._table_id, self._version, self._attempt, error, label=label)
            return Ratified(commit=resolved.commit, replayed=True) if isinstance(resolved, Landed) else None

    def _refuse(self, outcome: Conflict | VersionGap | Rejected | None) -> NoReturn:
        java, version, location = self._served.java, self._version, self._log.location
        if outcome is None:
            java.fail(f"attempt {self._attempt} at version {version} of {location} did not land", retryable=True)
        if isinstance(outcome, Conflict):
            latest = outcome.latest_ratified_version
            java.fail(
                f"version {version} of {location} is taken (latest {latest}); rebase and propose {latest + 1}",
                retryable=True,
                conflict=True,
            )
        if isinstance(outcome, Rejected):
            java.fail(
                f"the owner rejected version {version} of {location}: {outcome.detail}", retryable=outcome.retryable
            )
        known = outcome.latest_ratified_version
        java.fail(f"version {version} of {location} would leave a gap: the latest version is {known}")


class _Java:
    """Builds objects in the JVM. Class references are kept, because each lookup of one is a round trip."""

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        storage = jvm.io.delta.storage.commit
        self.utils = storage.CoordinatedCommitsUtils
        self._failure = storage.CommitFailedException
        self._commit = storage.Commit
        self._commit_response = storage.CommitResponse
        self._get_commits_response = storage.GetCommitsResponse
        self._path = jvm.org.apache.hadoop.fs.Path
        self._file_status = jvm.org.apache.hadoop.fs.FileStatus
        self._list = jvm.java.util.ArrayList
        self._nothing = jvm.java.util.Collections.emptyList()
        self._map = jvm.java.util.HashMap
        self._illegal_state = jvm.java.lang.IllegalStateException
        self._illegal_argument = jvm.java.lang.IllegalArgumentException

    def stage(self, store: Any, conf: Any, log: LogStore, version: Version, lines: Any, attempt: str) -> None:
        """Let Delta write its actions into a staged file: they do not pass through Python."""
        self.utils.writeUnbackfilledCommitFile(store, conf, f"file:{log.folder}", version, lines, attempt)

    def table_conf(self, table_id: str) -> Any:
        conf = self._map()
        conf.put(TABLE_ID, table_id)
        return conf

    def commit_answer(self, log: LogStore, commit: RatifiedCommit) -> Any:
        return self._commit_response(self._commit_of(log, commit))

    def commits_answer(self, log: LogStore, commits: Sequence[RatifiedCommit], latest: Version | None) -> Any:
        listed = self._list() if commits else self._nothing
        for commit in commits:
            listed.add(self._commit_of(log, commit))
        return self._get_commits_response(listed, -1 if latest is None else latest)

    def _commit_of(self, log: LogStore, commit: RatifiedCommit) -> Any:
        """A commit with the file that holds it: the published file if it exists, otherwise the staged file."""
        published = None
        with contextlib.suppress(OSError):  # a commit that landed must not be reported as failed
            published = log.find(log_path.commit(commit.version))
        modified: int = commit.in_commit_timestamp
        if published is not None:
            modified = published.modified or modified
        if published is not None or commit.file_name is None:
            path = log.folder / log_path.commit(commit.version)
        else:
            path = log.folder / COORDINATED_COMMITS.staging_folder / commit.file_name
        status = self._file_status(commit.size, False, 1, 1, modified, self._path(f"file:{path}"))
        return self._commit(commit.version, status, commit.in_commit_timestamp)

    def fail(self, message: str, *, retryable: bool = False, conflict: bool = False) -> NoReturn:
        from py4j.protocol import Py4JJavaError

        raise Py4JJavaError(message, self._failure(retryable, conflict, message))

    def answered(self, ask: Callable[[], Any]) -> Any:
        """The result of `ask`. A `DeltaError` becomes an exception that every method may throw in the JVM."""
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except InvalidRequestError as error:
            raise Py4JJavaError(error.message, self._illegal_argument(error.message)) from error
        except (DeltaError, OSError) as error:
            raise Py4JJavaError(str(error), self._illegal_state(str(error))) from error

    def commit_answered(self, ask: Callable[[], Any]) -> Any:
        """The same for a commit. If the commit certainly did not land, the exception says so."""

        def certain() -> Any:
            try:
                return ask()
            except (InvalidRequestError, OwnerUnavailableError) as error:
                self.fail(error.message)

        return self.answered(certain)


def location_of(log_folder: Any) -> Path:
    """The location of a table, from the Hadoop path of its log. `InvalidRequestError` for a path not on this host.

    The text of such a path is `file:/folder` or `/folder`, unescaped; to ask its URI for the parts takes more round
    trips.
    """
    text: str = log_folder.toString()
    path = Path(text.removeprefix("file:"))
    if not text.startswith(("/", "file:/")) or text.startswith("file://") or path.name != LOG_FOLDER:
        raise InvalidRequestError(
            f"invalid log location {text!r}; expected a path on this host's file system", location=text
        )
    return path.parent
