"""Delta on Spark as a client: PySpark 4.2 with Delta's jars, driven through py4j in one JVM with one Spark session.

Delta speaks the Delta API by itself if the class of a catalog is named `io.unitycatalog.spark.UCSingleCatalog`. Our
`UCSingleCatalog.java` replaces that class: it finds no table and can only drop one. Delta itself sends all requests
about a table.

Each operation first asks the catalog for the table, as any statement does. Then:

- `snapshot`: `DeltaLog.update`, or `getSnapshotAt` of the version that Delta resolves for time travel. The files come
from `Snapshot.allFiles`. No data is read. A path is opened like `spark.read.format("delta").load(path)`.
- `transact`: an `OptimisticTransaction` on the snapshot of `read_version`. `readWholeTable` and `filterFiles` record
reads. A change of the metadata obeys the rules of the SQL statement for it.
- `checkpoint`: like `DeltaLog.checkpoint`, but without the cleanup after it. The kit's commits are years old, so the
cleanup would delete most of them; with `any_version`, all of them. The hint `_last_checkpoint` is written only for the
newest version, because Delta makes no checkpoints of older versions.
- `cleanup`: `DeltaLog.cleanUpExpiredLogs`.
- `maintain`: VACUUM, OPTIMIZE, REORG.
- `create_table`: CREATE TABLE. Delta asks the catalog for a location, writes version 0 there, and registers the table.

Not supported:

- `checksum`: Delta writes a checksum after each of its commits, and at no other time.
- `compact`: Delta reads log compactions, but writes none.
- Isolation levels: Delta allows only Serializable, and itself lowers a transaction that changes no data to
SnapshotIsolation.
- managedCommit: Delta 4.4 has only its successors `catalogManaged` and `coordinatedCommits-preview`, and rejects a
protocol with the document's feature. A coordinator of the kit (`CatalogOwnedCommitCoordinatorProvider.registerBuilder`)
would replace Delta's `UCCommitCoordinatorClient` by code of this adapter, and test nothing more of Delta.
`delta_spark_coordinated` has such a coordinator.

What a client keeps: a real second client is another JVM, so each simulated client has a Spark session of its own (with
its token), and `DeltaLog`s of its own: an option `fs.kit.client` makes them distinct in Delta's cache. The clients
share threads and Hadoop's file system objects, which does not affect the answers.

Delta's own retries, caches and sizes (4.4.0):

- a lost race is retried up to 10,000,000 times without a pause (`spark.databricks.delta.maxCommitAttempts`);
- after no answer, a 429 or a 5xx status, Unity Catalog's client sends a request 3 times in all
(`JitterDelayRetryPolicy`), and a commit in 16 such rounds (`UCCommitCoordinatorClient.commitImpl`), with growing
pauses of up to a minute. This adapter shortens only the pauses (`_PAUSES`), not the number of sends;
- the registration of a new table is sent again after a 503, but not after a lost answer: CREATE TABLE then fails with
an IOException, and the table may exist;
- a `DeltaLog` and its newest snapshot are cached for 60 minutes; each statement updates it;
- a commit backfills all commits before it (`UCCommitCoordinatorClient`), and writes a checksum; each tenth commit
writes a checkpoint (`delta.checkpointInterval`) and then deletes expired log files.
"""

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

from conformance.adapters.engines.engine import CATALOG_MANAGED, EngineClient, NewTable, fetch_jars, sql_text
from conformance.adapters.in_process import answering
from conformance.adapters.jvm import jars
from conformance.adapters.jvm import machine as jvm
from conformance.adapters.jvm.machine import NoJavaError
from conformance.adapters.uc.server import CATALOG, SCHEMA
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING
from conformance.interface.subject import Ask, UsageError, how_to_install
from conformance.models import proposals

VERSIONS: Final = ("4.4.0",)
"""The versions of Delta that run on the kit's version of PySpark."""
CATALOG_CLASS: Final = "io.unitycatalog.spark.UCSingleCatalog"
_CATALOG_SOURCE: Final = Path(__file__).with_name("UCSingleCatalog.java")
_CATALOG: Final = f"spark.sql.catalog.{CATALOG}"
_DELTA: Final = "org.apache.spark.sql.delta"
_OPENED: Final = (
    "java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar",
)  # fmt: skip
"""Java packages whose internals Spark uses."""
_OPTIONS: Final = (*jvm.OPTIONS, "-Xmx1g", *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED))
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.master": "local[2]",
    "spark.app.name": "conformance",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": f"{_DELTA}.catalog.DeltaCatalog",
    # For logs of a few files: compiling code for them would take most of the time.
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else VACUUM lists a folder with 10,000 tasks
    # Without the two commits in which VACUUM describes itself: no request of the kit proposes them.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}
_TABLES_KEPT: Final = 32
_JOBS: Final = {
    "vacuum": "VACUUM {table}",
    "optimize": "OPTIMIZE {table}",
    "reorg": "REORG TABLE {table} APPLY (PURGE)",
}
_CONFLICT: Final = "io.delta.exceptions.DeltaConcurrentModificationException"
_COMMIT_FAILED: Final = "io.delta.storage.commit.CommitFailedException"
_NO_ANSWER: Final = frozenset(
    {_COMMIT_FAILED, "java.io.IOException", f"{_DELTA}.CommitCoordinatorGetCommitsFailedException"}
)


class DeltaSpark(EngineClient):
    """Answers the client side of the shared interface, for catalog-managed tables with staged commits."""

    engine: ClassVar[str] = "delta-spark"
    title: ClassVar[str] = "Delta Spark"
    profiles: ClassVar[tuple[str, ...]] = (
        "core", "staged", "backlog-limit", "discovery", "change-data", "row-tracking", "uc-delta-api",
    )  # fmt: skip
    seconds: ClassVar[float] = 120.0
    domains: ClassVar[tuple[str, ...]] = ("delta.clustering", "delta.rowTracking")
    """The metadata domains that Delta's client of the Delta API sends. Empty: it sends all."""

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        classes = directory / "classes"
        self._prepare(classes)
        self._spark = Spark(directory, classes)
        self._seen: set[str] = set()

    @classmethod
    def missing(cls, version: str | None) -> str:
        if version not in (None, *VERSIONS):
            return f"unknown version {version!r}; expected {' or '.join(VERSIONS)}, which PySpark 4.2 runs"
        if find_spec("py4j") is None or find_spec("pyspark") is None:
            return f"PySpark 4.2 is missing; install it: {how_to_install('jvm')}"
        try:
            _classpath()
            _javac()
        except (NoJavaError, jars.JarsError) as error:
            return error.problem
        return ""

    @classmethod
    def fetch(cls, version: str | None) -> str:
        """Download the Java libraries."""
        if version not in (None, *VERSIONS):
            raise UsageError(cls.missing(version))
        return fetch_jars()

    @property
    def engine_version(self) -> str:
        return f"Delta {VERSIONS[0]}, Spark {self._spark.version}"

    def _prepare(self, classes: Path) -> None:
        """Fill the folder of classes that the JVM loads instead of Delta's own."""
        compile_catalog(classes)
        put_before(classes, "unity", _PAUSES)

    def connect(self, client: str) -> Any:
        return self._spark.session({_CATALOG: CATALOG_CLASS, f"{_CATALOG}.uri": self.url, f"{_CATALOG}.token": client})

    def _table(self, client: str, name: str) -> "Table":
        """The table, from a new answer of the catalog, with this client's handle of its log."""
        self._make_room(name)
        session = self.connection(client)
        self._spark.use(session)
        catalog = session.sessionState().catalogManager().catalog(CATALOG)
        folder = self._spark.machine.array("java.lang.String", (SCHEMA,))
        identifier = self._spark.type("org.apache.spark.sql.connector.catalog.Identifier").of(folder, name)
        entry = catalog.loadTable(identifier).catalogTable()
        return Table(self._spark, session, self._spark.log(session, entry.get(), client), entry)

    def _make_room(self, name: str) -> None:
        """Forget the logs of all tables if this table is one too many."""
        if name not in self._seen:
            if len(self._seen) >= _TABLES_KEPT:
                self._seen.clear()
                self._spark.forget()
            self._seen.add(name)

    def _in_sql(self, client: str, name: str) -> str:
        """The table's name in a statement."""
        return f"{CATALOG}.{SCHEMA}.`{name}`"

    # Reading

    @answering
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        if request.path is not None:
            return self._spark.read(self._by_path(client, request.path, request.version))
        table = self._table(client, request.table or "")
        return self._spark.read(table.snapshot(request.version, request.timestamp))

    def _by_path(self, client: str, location: str, version: int | None) -> Any:
        """The snapshot that a read of this path uses."""
        return self._spark.by_path(self.connection(client), location, version)

    # Writing

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        if request.isolation is not m.Isolation.SERIALIZABLE and request.data_change:
            return m.Unsupported(reason=f"Delta has no {request.isolation.value} isolation for changes of data")

        if request.domain is not None and self.domains and request.domain[0] not in self.domains:
            known = " and ".join(self.domains)
            return m.Unsupported(reason=f"Delta's client of the Delta API sends no domain but {known}")

        def prepare() -> _Transaction | None:
            transaction = _Transaction(self._table(client, request.table), request)
            return transaction if transaction.described() else None

        return self._committed(prepare, lambda transaction: transaction.landed())

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """CREATE TABLE. The answer has the table's id in the catalog."""
        new = NewTable.of(request)
        full_name = f"{CATALOG}.{SCHEMA}.`{new.name}`"

        def create(session: Any) -> m.Answer:
            session.sql(self._spark.creation(full_name, new)).collect()
            return m.Ratified(version=0, table=self.created)

        self.begin()
        return self._committed(lambda: self.connection(client), create)

    # Maintenance

    @answering
    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        table = self._table(client, request.table)
        if request.any_version:
            table.log.checkpoint(table.snapshot(request.version, None), table.entry)
            return m.Done()
        newest, snapshot = table.snapshot(None, None), table.snapshot(request.version, None)
        written = table.log.writeCheckpointFiles(snapshot, table.entry)
        if snapshot.version() == newest.version():
            table.log.writeLastCheckpointFile(table.log, written, True)
        return m.Done()

    @answering
    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        table = self._table(client, request.table)
        kept = table.log.clock().getTimeMillis() - request.older_than
        finest = self._spark.module(f"{_DELTA}.TruncationGranularity").MINUTE()
        table.log.cleanUpExpiredLogs(table.snapshot(None, None), table.entry, self._spark.some_long(kept), finest)
        return m.Done()

    @answering
    def maintain(self, client: str, request: m.Maintain) -> m.Answer:
        table = self._in_sql(client, request.table)
        self.connection(client).sql(_JOBS[request.job].format(table=table)).collect()
        return m.Done()

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            return self._spark.failure(error.java_exception, proposed=False)

    def _committed(self, prepare: Callable[[], Any], commit: Callable[[Any], m.Answer]) -> m.Answer:
        """The answer of `commit`, if `prepare` finds something to commit. After a possible proposal, only a conflict
        says that it did not land."""
        from py4j.protocol import Py4JJavaError

        proposed = False
        try:
            prepared = prepare()
            if prepared is None:
                return m.Committed(version=None)
            proposed = True
            return commit(prepared)
        except Py4JJavaError as error:
            return self._spark.failure(error.java_exception, proposed=proposed)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._spark.close()


class Spark:
    """The JVM with its Spark session."""

    def __init__(self, directory: Path, classes: Path) -> None:
        options = (*_OPTIONS, f"-Djava.io.tmpdir={directory}")
        self.machine = jvm.machine(os.pathsep.join([str(classes), _classpath()]), options)
        builder = self.type("org.apache.spark.sql.SparkSession").builder()
        places = {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory / "warehouse")}
        for key, value in {**_SETTINGS, **places}.items():
            builder = builder.config(key, value)
        self._first = builder.getOrCreate()
        self.version = str(self._first.version())
        self.none = self.type("scala.Option").empty()
        self._conversions = self.type("scala.jdk.javaapi.CollectionConverters")
        self._logs = self.module(f"{_DELTA}.DeltaLog")

    def session(self, settings: Mapping[str, str]) -> Any:
        session = self._first.newSession()
        for key, value in settings.items():
            session.conf().set(key, value)
        return session

    def type(self, name: str) -> Any:
        return self.machine.type(name)

    def module(self, name: str) -> Any:
        """A Scala object."""
        return getattr(self.type(f"{name}$"), "MODULE$")

    def some(self, value: Any) -> Any:
        return self.type("scala.Option").apply(value)

    def some_long(self, number: int) -> Any:
        """A `Some` of a Java `Long`; py4j would turn a small number into an Integer."""
        optional = self.type("java.util.OptionalLong").of(number)
        return self.type("scala.jdk.javaapi.OptionConverters").toScala(optional)

    def seq(self, items: Iterable[Any]) -> Any:
        return self._conversions.asScala(self.machine.collection("ArrayList", items)).toSeq()

    def scala_map(self, items: Mapping[str, Any]) -> Any:
        mutable = self._conversions.asScala(self.machine.map(items))
        return getattr(self.type("scala.collection.immutable.Map"), "from")(mutable)

    def as_dict(self, items: Any) -> dict[Any, Any]:
        return dict(self._conversions.asJava(items))

    def items(self, items: Any) -> list[Any]:
        return list(self._conversions.asJava(items))

    def action(self, line: str) -> Any:
        return self.module(f"{_DELTA}.actions.Action").fromJson(line)

    def creation(self, full_name: str, new: NewTable) -> str:
        """CREATE TABLE, in SQL."""
        columns = self.type("org.apache.spark.sql.types.DataType").fromJson(new.schema).toDDL()
        properties = {"delta.feature.catalogManaged": "supported", **new.properties}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        by = f" PARTITIONED BY ({', '.join(new.partition_columns)})" if new.partition_columns else ""
        return f"CREATE TABLE {full_name} ({columns}) USING delta{by} TBLPROPERTIES ({listed})"

    def use(self, session: Any) -> None:
        """Make this the active session, which Delta uses."""
        self.type("org.apache.spark.sql.SparkSession").setActiveSession(session)

    def log(self, session: Any, table: Any, client: str) -> Any:
        """This client's log of the table at a `Path`, or of a table in the catalog."""
        return self._logs.forTable(session, table, self.options(client))

    def options(self, client: str) -> Any:
        """Options that make the client's logs distinct in Delta's cache."""
        return self.scala_map({"fs.kit.client": client})

    def forget(self) -> None:
        """Drop the logs of all tables."""
        self._logs.clearCache()

    def by_path(self, session: Any, location: str, version: int | None) -> Any:
        """The snapshot that a read of this path uses, in this session."""
        self.use(session)
        reader = session.read().format("delta")
        reader = reader if version is None else reader.option("versionAsOf", version)
        plan = reader.load(location).queryExecution().analyzed()
        relation = plan.collectLeaves().head().relation()
        return relation.location().getSnapshot()

    def time_travel(self, version: int | None, timestamp: int | None) -> Any:
        """`VERSION AS OF` or `TIMESTAMP AS OF`; the timestamp in ms."""
        moment = self.none
        if timestamp is not None:
            literals = self.module("org.apache.spark.sql.catalyst.expressions.Literal")
            moment = self.some(literals.apply(self.type("java.sql.Timestamp")(timestamp)))
        number = self.none if version is None else self.some_long(version)
        return self.type(f"{_DELTA}.DeltaTimeTravelSpec")(moment, number, self.none, False)

    def read(self, snapshot: Any) -> m.SnapshotRead:
        adds = [json.loads(add.json())["add"] for add in snapshot.allFiles().collect()]
        paths = {unquote(add["path"]): next(iter(add["partitionValues"].values()), None) or None for add in adds}
        return m.SnapshotRead(
            version=snapshot.version(),
            files=tuple(sorted(paths)),
            timestamp=snapshot.timestamp(),
            properties=self.as_dict(snapshot.metadata().configuration()),
            partitions=paths,
            applications=self.as_dict(snapshot.transactions()),
            domains={domain.domain(): domain.configuration() for domain in self.items(snapshot.domainMetadata())},
        )

    def failure(self, thrown: Any, *, proposed: bool) -> m.Answer:
        """The answer for an exception of Delta. After a possible proposal, a lost answer makes the outcome unknown; any
        other exception says that the transaction failed."""
        reasons: list[str] = []
        unknown = False
        cause = thrown
        while cause is not None and len(reasons) < 8:
            kinds = self._kinds(cause)
            if proposed and _CONFLICT in kinds:
                return m.Conflict()
            reasons.append(f"{kinds[0].rpartition('.')[2]}: {str(cause.getMessage()).partition(chr(10))[0][:300]}")
            if _COMMIT_FAILED in kinds and not cause.getRetryable():
                return m.Rejected(reason=" <- ".join(reasons))
            unknown = unknown or not _NO_ANSWER.isdisjoint(kinds)
            cause = cause.getCause()
        reason = " <- ".join(reasons)
        return m.Unknown(reason=reason) if proposed and unknown else m.Rejected(reason=reason)

    def _kinds(self, thrown: Any) -> list[str]:
        """The names of the exception's class and its base classes."""
        names, kind = [], thrown.getClass()
        while kind is not None:
            names.append(str(kind.getName()))
            kind = kind.getSuperclass()
        return names

    def close(self) -> None:
        self._first.stop()


class Table:
    """A table, as a statement of this client finds it."""

    def __init__(self, spark: Spark, session: Any, log: Any, entry: Any, feature: str = CATALOG_MANAGED) -> None:
        """`entry`: the table in the catalog, as a Scala `Option`."""
        self.spark = spark
        self.session = session
        self.log = log
        self.entry = entry
        (Path(log.logPath().toUri().getPath()) / STAGING[feature]).mkdir(exist_ok=True)

    def snapshot(self, version: int | None, timestamp: int | None) -> Any:
        """The newest snapshot, or the snapshot of time travel."""
        if version is None and timestamp is None:
            return self.log.update(False, self.spark.none, self.entry)
        spec = self.spark.time_travel(version, timestamp)
        tables = self.spark.module(f"{_DELTA}.DeltaTableUtils")
        resolved = tables.resolveTimeTravelVersion(
            self.session.sessionState().conf(), self.log, self.entry, spec, False
        )
        return self.log.getSnapshotAt(resolved._1(), self.spark.none, self.entry, False)


class _Transaction:
    """A transaction of Delta that makes the changes in a request."""

    def __init__(self, table: Table, request: m.Transact) -> None:
        self.table = table
        self.spark = table.spark
        self.request = request
        self.snapshot = table.snapshot(request.read_version, None)
        self.transaction = table.log.startTransaction(table.entry, self.spark.some(self.snapshot))
        self.actions: list[Any] = []

    def described(self) -> bool:
        """Add the reads and changes; False if the table already has the batch."""
        request, transaction = self.request, self.transaction
        if request.application is not None:
            name, version = request.application
            if transaction.txnVersion(name) >= version:
                return False
            self._act("txn", {"appId": name, "version": version, "lastUpdated": proposals.BASE_TIME})
        if request.reads == "*":
            transaction.readWholeTable()
        elif request.reads is not None:
            parser = self.table.session.sessionState().sqlParser()
            condition = parser.parseExpression(f"part = {sql_text(request.reads)}")
            transaction.filterFiles(self.spark.seq([condition]), False)
        self._change_metadata()
        if request.domain is not None:
            domain, configuration = request.domain
            self._act("domainMetadata", {"domain": domain, "configuration": configuration, "removed": False})
        self._remove()
        columns = self.snapshot.metadata().partitionColumns().toString()
        partitioned = "part" in (request.partition_by or ()) if request.partition_by is not None else "part" in columns
        for file in request.adds:
            body = {
                "path": quote(file.path), "partitionValues": {"part": file.partition} if partitioned else {}, "size": 1,
                "modificationTime": proposals.BASE_TIME, "dataChange": request.data_change,
            }  # fmt: skip
            if file.rows is not None:
                body["stats"] = json.dumps({"numRecords": file.rows})
            self._act("add", body)
        for change in request.changes:
            self._act("cdc", {"path": quote(change.path), "partitionValues": {}, "size": 1, "dataChange": False})
        return True

    def _act(self, kind: str, body: Mapping[str, Any]) -> None:
        self.actions.append(self.spark.action(proposals.line(kind, body)))

    def _remove(self) -> None:
        request = self.request
        if not request.removes and not request.replace_table:
            return
        active = {unquote(add.path()): add for add in self.snapshot.allFiles().collect()}
        removed = active if request.replace_table else request.removes
        moment = self.table.log.clock().getTimeMillis()
        self.actions += [active[path].removeWithTimestamp(moment, request.data_change) for path in removed]

    def _change_metadata(self) -> None:
        request = self.request
        body = json.loads(self.snapshot.metadata().json())["metaData"]
        known = self.snapshot.metadata().configuration()
        catalog = self.spark.module(f"{_DELTA}.coordinatedcommits.CatalogOwnedTableUtils")
        coordinator = self.spark.module(f"{_DELTA}.coordinatedcommits.CoordinatedCommitsUtils")
        if request.set_properties:
            changed = self.spark.scala_map(request.set_properties)
            catalog.validatePropertiesForAlterTableSetPropertiesDeltaCommand(self.snapshot, changed)
            coordinator.validateConfigurationsForAlterTableSetPropertiesDeltaCommand(known, changed)
            body["configuration"] |= request.set_properties
        if request.unset_properties:
            names = self.spark.seq(request.unset_properties)
            catalog.validatePropertiesForAlterTableUnsetPropertiesDeltaCommand(self.snapshot, names)
            coordinator.validateConfigurationsForAlterTableUnsetPropertiesDeltaCommand(known, names)
            for name in request.unset_properties:
                body["configuration"].pop(name, None)
        if request.partition_by is not None:
            body["partitionColumns"] = list(request.partition_by)
        if request.replace_table:
            body["configuration"] = {}
        metadata = self.spark.action(proposals.line("metaData", body))
        if request.replace_table:
            self.transaction.readWholeTable()
            self.transaction.updateMetadataForNewTableInReplace(metadata)
        elif request.partition_by is not None:
            self.transaction.updateMetadataForTableOverwrite(metadata)
        elif request.set_properties or request.unset_properties:
            self.transaction.updateMetadata(metadata, False)
        if request.add_feature is not None:
            protocol = json.loads(self.snapshot.protocol().json())["protocol"]
            protocol["writerFeatures"] = [*protocol.get("writerFeatures", ()), request.add_feature]
            self.transaction.updateProtocol(self.spark.action(proposals.line("protocol", protocol)))

    def landed(self) -> m.Answer:
        operation = self.spark.module(f"{_DELTA}.DeltaOperations$ManualUpdate")
        actions = self.spark.seq(self.actions)
        if not self.request.if_needed:
            return m.Committed(version=self.transaction.commit(actions, operation))
        version = self.transaction.commitIfNeeded(actions, operation, self.spark.scala_map({}))
        return m.Committed(version=version.get() if version.isDefined() else None)


def _classpath() -> str:
    return os.pathsep.join([jars.classpath("spark"), jars.classpath("unity"), jars.pyspark_jars()])


def _javac() -> str:
    """The compiler of the Java that runs. Raises `NoJavaError`."""
    beside = Path(jvm.java()).resolve().with_name("javac")
    compiler = str(beside) if beside.is_file() else shutil.which("javac")
    if compiler is None:
        raise NoJavaError("no `javac` beside `java` or on the PATH; install a JDK, version 17 or newer")
    return compiler


def put_before(classes: Path, group: str, changes: Mapping[tuple[str, str], Mapping[bytes, bytes]]) -> None:
    """Write copies of classes, with other constants, which the JVM loads instead of the originals. `changes`: for each
    library and class file, the new value of each constant."""
    for (library, name), constants in changes.items():
        jar = next(path for path in jars.jars(group) if path.name.startswith(f"{library}-"))
        with zipfile.ZipFile(jar) as archive:
            content = archive.read(name)
        for constant, other in constants.items():
            content = content.replace(constant, other)
        target = classes / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _long(number: int) -> bytes:
    """A number, encoded as a constant of a class file."""
    return b"\x05" + number.to_bytes(8, "big")


_PAUSES: Final[Mapping[tuple[str, str], Mapping[bytes, bytes]]] = {
    ("delta-storage", "io/delta/storage/commit/uccommitcoordinator/UCCommitCoordinatorClient.class"): {
        _long(100): _long(1),
        _long(60_000): _long(5),
    },
    ("unitycatalog-client", "io/unitycatalog/client/retry/JitterDelayRetryPolicy$Builder.class"): {
        _long(500): _long(1)
    },
}
"""For each library and class, the shortest and the longest pause between sends of one request, and their values here,
in ms. With Delta's values all sends of one lost commit take ten minutes."""


def compile_catalog(classes: Path) -> None:
    """Compile the catalog class into this folder. Raises `NoJavaError`, or `JarsError`."""
    classes.mkdir(parents=True, exist_ok=True)
    command = [_javac(), "-proc:none", "-nowarn", "-d", str(classes), "-cp", _classpath(), str(_CATALOG_SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
