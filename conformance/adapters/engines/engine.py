"""The common part of the engines' adapters.

An adapter is a class with a method for each operation of the shared interface that its engine supports:

    class DuckDb(EngineClient):
        engine = "duckdb"
        profiles = ("core", "staged", "discovery")

        @classmethod
        def missing(cls, version: str | None) -> str: ...     # what to install; "" if the engine can run here
        def snapshot(self, client: str, request: m.Snapshot) -> m.Answer: ...
        def transact(self, client: str, request: m.Transact) -> m.Answer: ...

A method with the decorator `conformance.adapters.in_process.answering` may raise the engine's errors: the adapter's
`answered` turns them into answers. A request without a method is answered `unsupported`; so is a request with a field
that the engine does not support (`m.Unsupported`). The kit runs an adapter in a process of its own
(`delta-commit-conformance serve engine:NAME`) and kills the process group with all engine processes in it.
`conformance.subjects.names.ENGINES` lists module and class.

The engine reaches its owner at `self.url`, a server of the Delta API (`conformance.adapters.uc.server`), or the adapter
asks `self.owner` itself. The engine may choose the `txnId` of its commits, because the kit finds them by the UUID of
the staged file.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from conformance.adapters.jvm import jars
from conformance.adapters.uc.server import DeltaApiServer
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, version_of
from conformance.interface.subject import Ask, UsageError
from conformance.models import proposals

CATALOG_MANAGED: Final = "catalogManaged"
OPERATIONS: Final = {
    "create_table": "create a table", "drop_table": "drop a table", "backfill_to_version": "publish commits on request",
    "checkpoint": "write a checkpoint on request", "compact": "write a log compaction",
    "checksum": "write a checksum on request", "cleanup": "clean up the log",
    "maintain": "run VACUUM, OPTIMIZE or REORG",
    "take_over": "make a path-based table a catalog's", "hand_back": "make a catalog's table path-based",
}  # fmt: skip
"""A description of each request."""
FIELDS: Final = {
    "read_version": "commit based on an older version", "reads": "say what a transaction read",
    "adds": "add files", "removes": "remove chosen files", "changes": "write change data",
    "data_change": "rearrange files", "isolation": "choose the isolation level",
    "application": "record the batch of an application", "set_properties": "set table properties",
    "unset_properties": "remove table properties", "replace_table": "replace the table",
    "partition_by": "change the partition columns", "add_feature": "add a table feature",
    "domain": "write a metadata domain", "if_needed": "leave out an empty commit",
}  # fmt: skip
"""A description of each field of a transaction."""


class EngineClient:
    """One engine, for all simulated clients. `directory`: the only folder, besides the tables, that it may write to.
    `version`: of the engine; None: the adapter's default."""

    engine: ClassVar[str]
    """NAME in `engine:NAME`."""
    title: ClassVar[str]
    """The engine's name in messages."""
    profiles: ClassVar[tuple[str, ...]] = ("core", "staged")
    features: ClassVar[tuple[str, ...]] = (CATALOG_MANAGED,)
    commit_modes: ClassVar[dict[str, tuple[str, ...]]] = {CATALOG_MANAGED: ("staged",)}
    limits: ClassVar[dict[str, int]] = {}
    """The limits in the identity. `{"proposals": 1}`: after a lost race the engine gives the transaction up, and
    reports that."""
    promises: ClassVar[tuple[str, ...]] = ()
    """The promises in the identity."""
    seconds: ClassVar[float] = 60.0
    """The timeout of one answer, if the user's timeout is shorter."""

    reads_data: ClassVar[bool] = False
    """Whether the engine opens data files. If so, the adapter writes the data files that the kit's commits name before
    the engine reads a log."""

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        self._owner = owner
        self.directory = directory
        self.version = version
        self.files = DataFiles()
        self._connections: dict[str, Any] = {}
        self._tables: dict[str, m.Table] = {}
        self._latest: dict[tuple[str, str], int | None] = {}
        self._landed: int | None = None
        self.created: str | None = None
        """The table that the owner created since `begin`."""
        self.server = DeltaApiServer(self.owner)
        self.url = self.server.url

    def owner(self, client: str, request: m.Request) -> m.Answer:
        """Ask the kit's owner, and record its answer. Engines ask it through `self.url`."""
        answer = self._owner(client, request)
        reference = getattr(request, "table", None)
        match request, answer:
            case m.LoadTable(name=str(name)), m.Table(table=reference):
                self._tables[name] = self._tables[reference] = answer
                self._latest[client, reference] = answer.latest
            case m.GetCommits(), m.Commits(latest=latest):
                self._latest[client, request.table] = latest
            case m.Commit(), m.Ratified(version=version):
                self._landed = version
            case m.CreateTable(), m.Ratified(table=created):
                self.created = created
        if self.reads_data and reference in self._tables:
            self.files.write_missing(Path(self._tables[reference].location or ""))
        return answer

    def newest_named(self, client: str, table: str) -> int | None:
        """The latest version in the owner's answers to this client about the table of this name; None: there was
        none."""
        resolved = self._tables.get(table)
        latest = None if resolved is None else self._latest.get((client, resolved.table))
        return None if latest == -1 else latest

    def location(self, table: str) -> str:
        """The folder of the table of this name, which the owner resolved."""
        return self._tables[table].location or ""

    def begin(self) -> None:
        """Called when a transaction or a creation begins. Clears `landed` and `created`."""
        self._landed = self.created = None

    @property
    def landed(self) -> int | None:
        """The version that the owner ratified since `begin`, for an engine that does not report it."""
        return self._landed

    @classmethod
    def missing(cls, version: str | None) -> str:
        """What this machine lacks to run that version of the engine, and how to install it; empty: nothing."""
        raise NotImplementedError

    @classmethod
    def fetch(cls, version: str | None) -> str:
        """Download or build that version of the engine, and return a text that says where it is. No other part of the
        kit downloads an engine. Raises `UsageError`."""
        problem = cls.missing(version)
        if problem:
            raise UsageError(f"engine:{cls.engine} cannot be fetched: {problem}")
        return f"engine:{cls.engine} can run here"

    @property
    def engine_version(self) -> str:
        """The version of the running engine, for reports."""
        raise NotImplementedError

    def connect(self, client: str) -> Any:
        """A connection, session or handle of its own for this simulated client."""
        raise NotImplementedError

    def connection(self, client: str) -> Any:
        """The client's connection. It is kept over all its requests, as a process of its own would do."""
        if client not in self._connections:
            self._connections[client] = self.connect(client)
        return self._connections[client]

    def lacks(self, operation: str) -> str:
        """Why the answer to a request of that name is `unsupported`."""
        return f"{self.title} cannot {OPERATIONS.get(operation, operation)}, as far as its adapter knows"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=f"engine:{self.engine}",
            version=self.engine_version,
            interface_version=m.INTERFACE_VERSION,
            side="client",
            profiles=self.profiles,
            features=self.features,
            commit_modes=self.commit_modes,
            limits=dict(self.limits),
            promises=self.promises,
        )

    def close(self) -> None:
        """Idempotent."""
        self._connections.clear()
        self.server.close()


class WheelClient(EngineClient):
    """An engine that is a Python wheel, in the version that is installed."""

    wheels: ClassVar[tuple[str, ...]]
    """Its distribution, and others that it needs in the same version."""

    @classmethod
    def missing(cls, version: str | None) -> str:
        found = {wheel: _installed(wheel) for wheel in cls.wheels}
        if absent := [wheel for wheel in cls.wheels if found[wheel] is None]:
            return f"the wheel {absent[0]} is not installed; run: pip install {' '.join(absent)}"
        if wrong := [wheel for wheel in cls.wheels if version not in (None, found[wheel])]:
            wanted = " ".join(f"{wheel}=={version}" for wheel in wrong)
            return f"{wrong[0]} {found[wrong[0]]} is installed, not {version}; run: pip install {wanted}"
        return ""

    @property
    def engine_version(self) -> str:
        return _installed(self.wheels[0]) or ""


def _installed(wheel: str) -> str | None:
    """The wheel's version in this environment; None: it is not installed."""
    try:
        return metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """The table of a `create_table`, in the terms of an engine's CREATE TABLE. It leaves out what the catalog requires
    of every table, because the engine adds that."""

    name: str
    schema: str
    """The schema in JSON, as in the log."""
    partition_columns: tuple[str, ...]
    properties: dict[str, str]

    @classmethod
    def of(cls, request: m.CreateTable) -> "NewTable":
        body = proposals.body_of(proposals.content(request.actions), "metaData") or {}
        properties = dict(body.get("configuration") or {})
        properties.pop("delta.enableInCommitTimestamps", None)
        return cls(
            name=request.name,
            schema=body["schemaString"],
            partition_columns=tuple(body.get("partitionColumns") or ()),
            properties=properties,
        )


class DataFiles:
    """The data files that the kit's commits name. The kit does not write them, so this class does. Each file has one
    row, whose `id` comes from the file's name. So the rows that an engine reads identify the files, even if the engine
    chooses the names of its files."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._read: set[tuple[Path, int]] = set()
        self._known: set[Path] = set()
        """Data files that exist or existed. An engine may have deleted some; no file is written twice."""

    def number(self, name: str) -> int:
        """The `id` of the row of this file."""
        number = int.from_bytes(sha256(name.encode("utf-8", "surrogateescape")).digest()[:6])
        self._names[number] = name
        return number

    def names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The files of these rows, sorted."""
        return tuple(sorted(self._names.get(number, f"row {number}") for number in numbers))

    def write_missing(self, table: Path) -> None:
        """Write the missing data files that any commit or checkpoint in the table's log adds. An empty file, which the
        kit made for its time, gets content and keeps its time."""
        for add in self._new_adds(table / LOG):
            name = unquote(str(add["path"]))
            file = table / name.removeprefix("file://")  # an absolute path does not change
            if "://" in name.removeprefix("file://") or file in self._known:
                continue
            self._known.add(file)
            if file.is_relative_to(table):
                file.parent.mkdir(parents=True, exist_ok=True)
            before = file.stat() if file.exists() else None
            if file.parent.is_dir() and (before is None or not before.st_size):
                _write(file, self.number(name), dict(add.get("partitionValues") or ()))
                if before is not None:
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def newest_published(self, table: Path) -> int:
        """The newest published version; -1 if no version is published."""
        versions = (version_of(file.name) for file in (table / LOG).glob("*.json"))
        return max((version for version in versions if version is not None), default=-1)

    def _new_adds(self, log: Path) -> Iterator[dict[str, Any]]:
        for file in sorted((*log.rglob("*.json"), *log.rglob("*.parquet"))):
            try:
                state = (file, file.stat().st_size)
                if state not in self._read:
                    self._read.add(state)
                    yield from _adds_in(file)
            except FileNotFoundError:  # a cleanup deleted the file meanwhile
                continue


def _adds_in(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        content = pq.ParquetFile(file)
        actions = content.read(columns=["add"]).to_pylist() if "add" in content.schema_arrow.names else []
    else:
        actions = [_action(line) for line in file.read_bytes().split(b"\n")]
    for action in actions:
        add = action.get("add") if isinstance(action, dict) else None
        if isinstance(add, dict) and isinstance(add.get("path"), str):
            yield add


def _action(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _write(file: Path, number: int, partition: dict[str, str | None]) -> None:
    """Write a data file with the kit's two columns, `id` and `part`; without a column that is a partition column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": pa.array([number], pa.int64())}
    if "part" not in partition:
        columns["part"] = pa.array([None], pa.string())
    pq.write_table(pa.table(columns), file)


def sql_text(value: str) -> str:
    """A text as a literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def unsupported(request: m.Transact, *can: str) -> m.Unsupported | None:
    """The answer to a transaction with a field that the engine does not support; None if it supports all of them.
    `can`: the names of the optional fields that it supports."""
    plain = m.Transact(table=request.table, marker=request.marker)
    beyond = [
        name
        for name in request.__struct_fields__
        if name not in ("table", "marker", *can) and getattr(request, name) != getattr(plain, name)
    ]
    words = ", or ".join(FIELDS[name] for name in beyond)
    return m.Unsupported(reason=f"the engine cannot {words}, as far as its adapter knows") if beyond else None


def fetch_jars(version: str | None = None) -> str:
    """Download the Java libraries of that version of Delta with Maven. Raises `UsageError`."""
    try:
        return f"the Java libraries are in {jars.fetch(version)}"
    except jars.JarsError as error:
        raise UsageError(error.problem) from error
