"""`engine:sail`: Sail, a Spark Connect server without a JVM, from the wheel `pysail`.

Sail finds a table by Unity Catalog's older calls, and commits by `/delta/preview/commits`. A simulated client has a
server of its own in this process, because a server has one token for a catalog, and a session of PySpark's client.

- The files of a snapshot are those in the plan of a SELECT. Sail opens no data file of the kit, because it relies on
the sizes in the commits, and those in the kit's commits are not the sizes of Parquet files.
- A transaction is one INSERT of rows into one partition. Sail names the data file, so the `id`s in it say which files
the kit meant.
- After a lost race Sail gives the transaction up, and after a 429 too.
- The version of a snapshot is the latest version in the owner's last answer to this client's request for the table.

Sail 0.7.2 registers a new table before it writes version 0, which this kit's catalog rejects. So this adapter creates
no table.
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from conformance.adapters.engines.engine import WheelClient, sql_text, unsupported
from conformance.adapters.in_process import answering
from conformance.adapters.uc.server import CATALOG, SCHEMA
from conformance.interface import messages as m
from conformance.interface.subject import Ask, how_to_install

_FILES: Final = re.compile(r"file_groups=\{\d+ groups?: \[\[(.*?)\]\]\}", re.DOTALL)
_OWN: Final = re.compile(r"part-\d{5}-[0-9a-f-]{36}-c000\.snappy\.parquet")
"""The names of Sail's data files."""


class Sail(WheelClient):
    engine: ClassVar[str] = "sail"
    title: ClassVar[str] = "Sail"
    wheels: ClassVar[tuple[str, ...]] = ("pysail",)
    limits: ClassVar[dict[str, int]] = {"proposals": 1}
    profiles: ClassVar[tuple[str, ...]] = ("core", "staged", "discovery")

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        self._servers: list[Any] = []

    @classmethod
    def missing(cls, version: str | None) -> str:
        absent = [name for name in ("pyspark", "pandas", "grpc", "pysail") if find_spec(name) is None]
        if absent:
            return f"{absent[0]} is missing; install it: {how_to_install('sail')}"
        return super().missing(version)

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        """Sail's error as an answer. Only the text of the error contains the status of the server's answer."""
        from pyspark.errors import PySparkException

        try:
            return ask()
        except PySparkException as error:
            text = re.sub(r"http://127\.0\.0\.1:\d+", "OWNER", str(error)).strip().partition("\n")[0]
            if "Unsupported table features" in text:
                return m.Unsupported(reason=text)
            if "409 Conflict" in text:
                return m.Conflict()
            if "404 Not Found" in text or "table not found" in text.lower():
                return m.NotFound()
            if re.search(r"\(4\d\d ", text):
                return m.Rejected(reason=text, retryable="(429 " in text)
            if "error sending request" in text or re.search(r"\(5\d\d ", text):
                return m.Unknown(reason=text)
            return m.Rejected(reason=f"{type(error).__name__}: {text}")

    @answering
    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        if request.timestamp is not None or request.path is not None:
            return m.Unsupported(reason="this adapter reads a version of a catalog's table only")
        table = request.table or ""
        of_version = "" if request.version is None else f" VERSION AS OF {request.version}"
        query = f"EXPLAIN FORMATTED SELECT id FROM {_quoted(table)}{of_version}"
        plan = self.connection(client).sql(query).collect()[0][0]
        listed = files_in(plan)
        if listed is None:
            return m.Unsupported(reason=f"the plan does not list all files: {plan}")
        version = self.newest_named(client, table) if request.version is None else request.version
        if version is None:
            return m.Unsupported(reason="neither the owner nor Sail names the version that was read")
        folder = Path(self.location(table))
        files = {name for path in listed for name in self._meant(Path("/", path), folder)}
        return m.SnapshotRead(version=version, files=tuple(sorted(files)))

    def _meant(self, file: Path, folder: Path) -> tuple[str, ...]:
        """The kit's names for a data file: its own, or for a file that Sail wrote, those of its rows."""
        import pyarrow.parquet as pq

        if _OWN.fullmatch(file.name) and file.is_file():
            return self.files.names(pq.read_table(file, columns=["id"])["id"].to_pylist())
        return (str(file.relative_to(folder) if file.is_relative_to(folder) else file),)

    @answering
    def transact(self, client: str, request: m.Transact) -> m.Answer:
        refused = unsupported(request, "adds", "isolation")
        if refused is not None or len({add.partition for add in request.adds}) != 1:
            return refused or m.Unsupported(reason="this adapter can only commit rows of one partition")
        partition = request.adds[0].partition
        value = "NULL" if partition is None else sql_text(partition)
        rows = ", ".join(f"({self.files.number(add.path)}, {value})" for add in request.adds)
        self.begin()
        self.connection(client).sql(f"INSERT INTO {_quoted(request.table)} VALUES {rows}").collect()
        if self.landed is None:
            return m.Unknown(reason="Sail reported success, but the owner ratified no commit")
        return m.Committed(version=self.landed)

    def connect(self, client: str) -> Any:
        catalog = {
            "type": "unity", "name": CATALOG, "uri": f"{self.url}/api/2.1/unity-catalog", "default_catalog": CATALOG,
            "token": client,
        }  # fmt: skip
        members = ", ".join(f"{key} = {json.dumps(value)}" for key, value in catalog.items())
        os.environ["SAIL_CATALOG__LIST"] = f"[{{{members}}}]"
        os.environ["SAIL_CATALOG__DEFAULT_CATALOG"] = CATALOG
        os.environ["SAIL_CATALOG__DEFAULT_DATABASE"] = f'["{SCHEMA}"]'
        from pysail.spark import SparkConnectServer
        from pyspark.sql.connect.session import SparkSession

        server = SparkConnectServer()
        server.start()
        self._servers.append(server)
        return SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()

    def close(self) -> None:
        """Stop the servers; otherwise the process does not end."""
        with ExitStack() as stack:  # stops the sessions, then their servers, even if one of them raises
            stack.callback(super().close)
            stack.callback(self._servers.clear)
            for running in (*self._servers, *self._connections.values()):
                stack.callback(running.stop)


def _quoted(table: str) -> str:
    name = table.replace("`", "``")
    return f"{CATALOG}.{SCHEMA}.`{name}`"


def files_in(plan: str) -> list[str] | None:
    """The paths of the files that the plan reads; None: it does not list them all."""
    scanned = _FILES.search(plan)
    if scanned is None:
        return [] if "EmptyExec" in plan else None
    listed = [name for name in re.split(r", |\], \[", scanned[1]) if name]
    return None if any("..." in name for name in listed) else listed
