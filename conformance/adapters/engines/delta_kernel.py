"""Delta Kernel for Java as a client under test: its snapshots, transactions, checkpoints, checksums and publishing.

Kernel is a library for connectors, in a JVM without Spark. This adapter is a connector, and does what Kernel's
documentation leaves to connectors:

- It runs a blind append again on the newest snapshot if Kernel throws `ConcurrentWriteException` itself, whose message
says that the query "needs to be re-executed using the latest version".
- It checks whether the table has an application's batch before it writes the batch.
- It makes the folder of staged commits, because Kernel makes that only when it creates a table.
- It publishes only when the kit asks.

What Kernel and its Unity Catalog client do by themselves (Delta 4.4.0, unitycatalog-client 0.6.0):

- `TransactionImpl.commitWithRetry`: at most 201 tries (`DEFAULT_MAX_RETRIES`), each with a new staged file, without a
  pause. A conflict after a try of unknown outcome is a `CommitStateUnknownException`.
- `HttpRetryHandler`: after a 429 or 5xx answer, or a socket error, it sends a request again, at most three times in
all. The pauses are 0.5 s and 1 s, each multiplied by a random factor from 0.5 to 1.5. It does not retry after a
connection that the server closed without an answer.
- `ConflictChecker` lists the log folder for the winners, and never asks the catalog.
- A snapshot is loaded anew for each request (`getCommits`). Only the HTTP connection is kept between requests.
- `UCCatalogManagedCommitter` registers a new table itself, and `commitWithRetry` sends that request again, with the
same version 0: once more after a lost answer, and 200 times if the catalog answers 409 because the name is taken.
- It retries a 429 for a full backlog in the same way, for minutes, and publishes nothing. So this adapter has no
profile `backlog-limit`.
- The catalog client rejects metadata domains other than `delta.clustering` and `delta.rowTracking`, with an error that
Kernel retries 200 times.
- Post-commit hooks (checkpoint, checksum, log compaction) open the table by its path. For an unpublished version each
hook fails and writes nothing. This adapter does not run them.

Kernel's public interface does not have, so this adapter does not support: removing files, reading in a transaction,
changes that only rearrange data, another partitioning, REPLACE TABLE, log compaction without a commit, and metadata
cleanup.

Delta 4.3 creates no table: its client of the Delta API cannot parse the columns that its `UCCatalogManagedCommitter`
registers. It also commits without the name of the table, which its own client of the Delta API rejects; `_NamesTables`
adds the name.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from conformance.adapters.engines.engine import CATALOG_MANAGED, EngineClient, NewTable, fetch_jars, unsupported
from conformance.adapters.in_process import answering
from conformance.adapters.jvm import jars
from conformance.adapters.jvm.machine import JavaObject, Machine, NoJavaError, Supplier, java, machine
from conformance.adapters.uc.server import CATALOG, SCHEMA
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.interface.subject import AdapterError

PARTITION_COLUMN: Final = "part"
"""The kit's only partition column."""
CAN: Final = (
    "read_version", "adds", "application", "set_properties", "unset_properties", "add_feature",
)  # fmt: skip
"""The fields of a transaction for which Kernel has public calls."""
RUNS: Final = 50
"""How often the adapter runs a transaction again after a lost race that Kernel does not resolve."""

_KERNEL: Final = "io.delta.kernel"
_UC: Final = "io.delta.storage.commit.uccommitcoordinator"
_UNIFIED: Final = "io.delta.kernel.unitycatalog"
_NO_TABLE: Final = (f"{_KERNEL}.exceptions.TableNotFoundException", f"{_UC}.exceptions.NoSuchTableException")
_MOST_CAUSES: Final = 20


class DeltaKernel(EngineClient):
    """Catalog-managed tables with staged commits. Each simulated client has an engine and a catalog client of its own.
    `version`: Delta's version on Maven Central."""

    engine = "delta-kernel"
    title = "Delta Kernel"
    profiles = ("core", "staged", "discovery", "uc-delta-api")
    promises = ("fresh-snapshots",)

    @classmethod
    def missing(cls, version: str | None) -> str:
        try:
            java()
            jars.classpath(jars.KERNEL, hadoop=True, delta=version)
        except (NoJavaError, jars.JarsError) as error:
            return error.problem
        return ""

    @classmethod
    def fetch(cls, version: str | None) -> str:
        """Download the Java libraries."""
        return fetch_jars(version)

    @property
    def engine_version(self) -> str:
        return f"Delta {self.version or jars.version(jars.MAIN)}"

    def connect(self, client: str) -> "_Connector":
        return _Connector(machine(jars.classpath(jars.KERNEL, hadoop=True, delta=self.version)), self.url, client)

    def close(self) -> None:
        """Closes everything, even if a connector raises."""
        with ExitStack() as closing:
            closing.callback(super().close)
            for connector in self._connections.values():
                closing.callback(connector.close)

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """The answer. If Kernel throws here, it has proposed nothing. Raises `AdapterError` if the JVM is gone."""
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            causes = _causes(error)
            if any(name in _NO_TABLE for name, _ in causes):
                return m.NotFound()
            if any(_unanswered(name, thrown) for name, thrown in causes):
                return m.Unknown(reason=_said(causes))
            return m.Rejected(reason=_said(causes))
        except Py4JError as error:
            raise AdapterError(f"Delta Kernel could not be called: {error}") from error

    # Reading

    @answering
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        connector: _Connector = self.connection(client)
        if request.path is not None:
            return connector.read(connector.by_path(request.path, request.version), _with_slash(request.path))
        table = connector.find(request.table or "")
        return connector.read(connector.snapshot(table, request.version, request.timestamp), table.folder)

    # Writing

    @answering
    def transact(self, client: str, request: m.Transact) -> m.Answer:
        beyond = unsupported(request, *CAN)
        if beyond is not None:
            return beyond
        connector: _Connector = self.connection(client)
        table = connector.find(request.table)
        answer = connector.commit(table, connector.snapshot(table, request.read_version), request)
        blind = unsupported(request, "read_version", "adds") is None
        for _ in range(RUNS if blind else 0):
            if answer is not None:
                break
            answer = connector.commit(table, connector.snapshot(table), request)
        return answer or m.Conflict()

    @answering
    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        connector: _Connector = self.connection(client)
        if not connector.creates:
            return m.Unsupported(reason="Delta Kernel before 4.4 cannot register a table by the Delta API")
        return connector.create(NewTable.of(request))

    # Publishing and maintenance

    @answering
    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        return self._done(client, request.table, request.version, lambda it, on: it.publish(on))

    @answering
    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        return self._done(client, request.table, request.version, lambda it, on: it.writeCheckpoint(on))

    @answering
    def checksum(self, client: str, request: m.Checksum) -> m.Answer:
        def write(snapshot: Any, engine: Any) -> None:
            mode = snapshot.getStatistics().getChecksumWriteMode()
            if mode.isPresent():  # otherwise the checksum exists
                snapshot.writeChecksum(engine, mode.get())

        return self._done(client, request.table, request.version, write)

    def _done(self, client: str, name: str, version: int, act: Callable[[Any, Any], object]) -> m.Answer:
        connector: _Connector = self.connection(client)
        act(connector.snapshot(connector.find(name), version), connector.engine)
        return m.Done()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table, as the catalog resolved it."""

    name: str
    id: str
    location: str
    """A URI."""

    @property
    def folder(self) -> str:
        return _with_slash(unquote(urlsplit(self.location).path))


class _NamesTables(JavaObject):
    """A `UCClient` that adds the name of the table to commits: Kernel of Delta 4.3 leaves it out, and Delta's client of
    the API rejects that. Java exceptions pass through."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.names: dict[str, Any] = {}
        """The `TableIdentifier` of each table, by the table's id."""

    def commit(self, table: str, location: Any, name: Any, *more: Any) -> None:
        self._client.commit(table, location, self.names[table] if name is None else name, *more)

    def getCommits(self, *arguments: Any) -> Any:  # noqa: N802  # Java's name
        return self._client.getCommits(*arguments)

    class Java:
        implements = (f"{_UC}.UCClient",)


class _Connector:
    """One process of a connector: Kernel's engine and catalog client. `name` is its bearer token."""

    def __init__(self, on: Machine, url: str, name: str) -> None:
        self._java = on
        self._none = on.type("java.util.Optional").empty()
        configuration = on.type("org.apache.hadoop.conf.Configuration")()
        # The raw file system: Hadoop's usual one writes a checksum file beside each file of the log.
        configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        configuration.set("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs")
        self.engine = on.type(f"{_KERNEL}.defaults.engine.DefaultEngine").create(configuration)
        self._uc = _rest_client(on, url, name, configuration)
        self._named = _NamesTables(self._uc)
        self.creates = _names_tables(on)
        client = self._uc if self.creates else self._named
        self._catalog = on.type(f"{_UNIFIED}.UCCatalogManagedClient")(client)

    def close(self) -> None:
        self._uc.close()

    def create(self, new: NewTable) -> m.Answer:
        """Kernel writes version 0 to the location that the catalog gives, and registers the table. Raises
        `Py4JJavaError`."""
        from py4j.protocol import Py4JJavaError

        staged = self._uc.createStagingTable(self._identifier(new.name))
        table = str(staged.getTableId().toString())
        schema = self._java.type(f"{_KERNEL}.internal.types.DataTypeJsonSerDe").deserializeStructType(new.schema)
        named = self._java.type(f"{_UNIFIED}.UCTableIdentifier")(CATALOG, SCHEMA, new.name)
        builder = self._catalog.buildCreateTableTransaction(
            table, staged.getLocation(), schema, "delta-commit-conformance", named
        )
        if new.properties:
            builder = builder.withTableProperties(self._java.map(new.properties))
        if new.partition_columns:
            column = self._java.type(f"{_KERNEL}.expressions.Column")
            columns = self._java.collection("ArrayList", [column(name) for name in new.partition_columns])
            layout = self._java.type(f"{_KERNEL}.transaction.DataLayoutSpec").partitioned(columns)
            builder = builder.withDataLayoutSpec(layout)
        transaction = builder.build(self.engine)
        try:
            transaction.commit(self.engine, self._java.type(f"{_KERNEL}.utils.CloseableIterable").emptyIterable())
        except Py4JJavaError as error:
            return _not_committed(error) or m.Conflict()
        return m.Ratified(version=0, table=table)

    def _identifier(self, name: str) -> Any:
        namespace = self._java.array("java.lang.String", (CATALOG, SCHEMA))
        return self._java.type("io.delta.storage.commit.TableIdentifier")(namespace, name)

    def find(self, name: str) -> _Table:
        """Raises `Py4JJavaError`."""
        identifier = self._identifier(name)
        info = self._uc.loadTable(identifier)
        table = _Table(name=name, id=info.getTableId().toString(), location=info.getLocation())
        self._named.names[table.id] = identifier
        return table

    def snapshot(self, table: _Table, version: int | None = None, timestamp: int | None = None) -> Any:
        """Raises `Py4JJavaError`."""
        named = self._java.type(f"{_UNIFIED}.UCTableIdentifier")(CATALOG, SCHEMA, table.name)
        return self._catalog.loadSnapshot(
            self.engine, table.id, table.location, named, self._long(version), self._long(timestamp)
        )

    def by_path(self, path: str, version: int | None) -> Any:
        builder = self._java.type(f"{_KERNEL}.TableManager").loadSnapshot(path)
        return (builder if version is None else builder.atVersion(version)).build(self.engine)

    def read(self, snapshot: Any, folder: str) -> m.SnapshotRead:
        """The snapshot for the kit. Kernel cannot list applications, so they are left out."""
        files = {}
        rows = self._java.type(f"{_KERNEL}.internal.InternalScanFileUtils")
        for row in self._scanned(snapshot):
            path = _relative_path(rows.getAddFileStatus(row).getPath(), folder)
            files[path] = self._as_read(next(iter(dict(rows.getPartitionValues(row)).values()), None))
        return m.SnapshotRead(
            version=snapshot.getVersion(),
            files=tuple(sorted(files)),
            timestamp=snapshot.getTimestamp(self.engine),
            properties=dict(snapshot.getTableProperties()),
            partitions=files,
            domains={
                name: domain.getConfiguration() for name, domain in dict(snapshot.getActiveDomainMetadataMap()).items()
            },
        )

    def _as_read(self, value: str | None) -> str | None:
        """The value of the partition column in the rows of a file. Kernel's method is private until Delta 4.3."""
        if value is None:
            return None
        kinds = [self._java.reflected(class_name) for class_name in (f"{_KERNEL}.types.DataType", "java.lang.String")]
        method = self._java.reflected(f"{_KERNEL}.internal.util.PartitionUtils").getDeclaredMethod(
            "literalForPartitionValue", self._java.array("java.lang.Class", kinds)
        )
        method.setAccessible(True)
        string = self._java.type(f"{_KERNEL}.types.StringType").STRING
        literal = method.invoke(None, self._java.array("java.lang.Object", [string, value]))
        return None if literal.getValue() is None else str(literal.getValue())

    def _scanned(self, snapshot: Any) -> Iterator[Any]:
        batches = snapshot.getScanBuilder().build().getScanFiles(self.engine)
        try:
            while batches.hasNext():
                rows = batches.next().getRows()
                while rows.hasNext():
                    yield rows.next()
        finally:
            batches.close()

    def commit(self, table: _Table, snapshot: Any, request: m.Transact) -> m.Answer | None:
        """One transaction. None: it lost a race that only a new run of the transaction can resolve."""
        from py4j.protocol import Py4JJavaError

        if request.application is not None:
            latest = snapshot.getLatestTransactionVersion(self.engine, request.application[0])
            if latest.isPresent() and latest.get() >= request.application[1]:
                return m.Committed(version=None)
        Path(table.folder, LOG, STAGING[CATALOG_MANAGED]).mkdir(exist_ok=True)
        transaction = self._prepared(snapshot, request)
        actions = self._adds(table, transaction, request.adds)
        try:
            landed = transaction.commit(self.engine, actions)
        except Py4JJavaError as error:
            return _not_committed(error)
        return m.Committed(version=landed.getVersion())

    def _prepared(self, snapshot: Any, request: m.Transact) -> Any:
        operation = self._java.type(f"{_KERNEL}.Operation").WRITE
        builder = snapshot.buildUpdateTableTransaction("delta-commit-conformance", operation)
        if request.application is not None:
            builder = builder.withTransactionId(*request.application)
        properties = dict(request.set_properties)
        if request.add_feature is not None:
            properties[f"delta.feature.{request.add_feature}"] = "supported"
        if properties:
            builder = builder.withTablePropertiesAdded(self._java.map(properties))
        if request.unset_properties:
            builder = builder.withTablePropertiesRemoved(self._java.collection("HashSet", request.unset_properties))
        return builder.build(self.engine)

    def _adds(self, table: _Table, transaction: Any, files: Sequence[m.DataFile]) -> Any:
        """The add actions, made like a connector's from the files that it wrote into each partition."""
        rows = self._java.collection("ArrayList", ())
        state = transaction.getTransactionState(self.engine)
        kernel = self._java.type(f"{_KERNEL}.Transaction")
        status = self._java.type(f"{_KERNEL}.utils.DataFileStatus")
        closeable = self._java.type(f"{_KERNEL}.internal.util.Utils").toCloseableIterator
        partitioned = PARTITION_COLUMN in list(transaction.getPartitionColumns(self.engine))
        for file in files:
            values = {PARTITION_COLUMN: self._literal(file.partition)} if partitioned else {}
            context = kernel.getWriteContext(self.engine, state, self._java.map(values))
            path = Path(table.folder, file.path)  # an absolute path does not change
            written = self._java.collection("ArrayList", [status(f"file:{path}", 1, 1, self._none)])
            actions = kernel.generateAppendActions(self.engine, state, closeable(written.iterator()), context)
            while actions.hasNext():
                rows.add(actions.next())
        return self._java.type(f"{_KERNEL}.utils.CloseableIterable").inMemoryIterable(closeable(rows.iterator()))

    def _literal(self, value: str | None) -> Any:
        literal = self._java.type(f"{_KERNEL}.expressions.Literal")
        if value is None:
            return literal.ofNull(self._java.type(f"{_KERNEL}.types.StringType").STRING)
        return literal.ofString(value)

    def _long(self, value: int | None) -> Any:
        """An `Optional` of a Java `Long`. py4j turns a small Python number into an `Integer` instead."""
        if value is None:
            return self._none
        return self._java.type("java.util.stream.LongStream").range(value, value + 1).boxed().findFirst()


def _names_tables(on: Machine) -> bool:
    """Whether this Kernel belongs to Delta 4.4 or newer, whose catalog client takes options."""
    constructors = on.reflected(f"{_UC}.UCDeltaTokenBasedRestClient").getConstructors()
    return any(constructor.getParameterCount() == 2 for constructor in constructors)


def _rest_client(on: Machine, url: str, token: str, configuration: Any) -> Any:
    """Delta's own client of the Delta API. Until Delta 4.3 its constructor takes a token provider."""
    kind = on.type(f"{_UC}.UCDeltaTokenBasedRestClient")
    if _names_tables(on):
        return kind(on.map({"token": token, "uri": url}), Supplier(configuration))
    provider = on.type("io.unitycatalog.client.auth.TokenProvider").create(on.map({"token": token, "type": "static"}))
    return kind(url, provider, on.map({}))


def _with_slash(folder: str) -> str:
    return f"{folder.rstrip('/')}/"


def _relative_path(path: str, folder: str) -> str:
    """The path of a data file relative to the table's folder. Kernel's path is decoded, and begins with `file:`."""
    return path.removeprefix("file:").removeprefix("//").removeprefix(folder)


# Exceptions


def _causes(error: Any) -> list[tuple[str, Any]]:
    """The exception that Java threw and its causes, each with its class name."""
    causes: list[tuple[str, Any]] = []
    thrown = error.java_exception
    while thrown is not None and len(causes) < _MOST_CAUSES:
        causes.append((str(thrown.getClass().getName()), thrown))
        thrown = thrown.getCause()
    return causes


def _said(causes: Sequence[tuple[str, Any]]) -> str:
    return " <- ".join(f"{name.rpartition('.')[2]}: {thrown.getMessage()}" for name, thrown in causes)[:1000]


def _unanswered(name: str, thrown: Any) -> bool:
    """Whether the catalog did not answer a read."""
    if name == "io.unitycatalog.client.ApiException":
        status = int(thrown.getCode())
        return status in (0, 429) or status >= 500
    return False


def _not_committed(error: Any) -> m.Answer | None:
    """The answer that a connector must derive from an exception of `commit`. Kernel has a class for an unknown outcome,
    and another for too many tries; then the last try may have landed, unless it met a conflict. Every other exception
    is a failure."""
    causes = _causes(error)
    kind = causes[0][0].removeprefix(f"{_KERNEL}.exceptions.")
    if kind == "ConcurrentWriteException":
        return None
    if kind in ("ConcurrentTransactionException", "MetadataChangedException", "ProtocolChangedException"):
        return m.Conflict()
    if kind == "MaxCommitRetryLimitReachedException" and _last_conflicted(causes):
        return m.Conflict()
    if kind in ("CommitStateUnknownException", "MaxCommitRetryLimitReachedException"):
        return m.Unknown(reason=_said(causes))
    return m.Rejected(reason=_said(causes))


def _last_conflicted(causes: Sequence[tuple[str, Any]]) -> bool:
    return any(name == f"{_KERNEL}.commit.CommitFailedException" and thrown.isConflict() for name, thrown in causes)
