"""Delta's own client of the Delta API, `UCDeltaTokenBasedRestClient` of delta-storage, in a JVM without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from conformance.adapters.jvm.machine import Machine, Supplier

_UC: Final = "io.delta.storage.commit.uccommitcoordinator"
BASE_TIME: Final = 1_700_000_000_000
COLUMNS: Final = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


class WireClient:
    """Tables of the schema `unity.default` of a server."""

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine = machine
        self._configuration = machine.type("org.apache.hadoop.conf.Configuration")()
        options = machine.type("java.util.HashMap")()
        options.put("uri", url)
        options.put("token", "unused")
        self._client = machine.type(f"{_UC}.UCDeltaTokenBasedRestClient")(options, Supplier(self._configuration))
        self._none = machine.type("java.util.Optional").empty()

    def close(self) -> None:
        self._client.close()

    def create(self, name: str) -> Table:
        """Staging, version 0 by the client, and the name."""
        staged = self._client.createStagingTable(self._identifier(name))
        table = Table(self, name, staged.getTableId().toString(), staged.getLocation())
        required = staged.getRequiredProtocol()
        protocol = {
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": sorted(required.getReaderFeatures()),
            "writerFeatures": sorted(required.getWriterFeatures()),
        }  # fmt: skip
        properties = {key: value for key, value in dict(staged.getRequiredProperties()).items() if value is not None}
        metadata = {
            "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(COLUMNS), "partitionColumns": [], "configuration": properties,
            "createdTime": BASE_TIME,
        }  # fmt: skip
        lines = [commit_info(0), json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
        table.log.mkdir(parents=True)
        table.write(table.published(0), lines)
        action = self.machine.type("org.apache.spark.sql.delta.actions.Action")
        self._client.createTable(
            self._uri(table.location), self._identifier(name), self._managed(), action.fromJson(lines[2]),
            action.fromJson(lines[1]), self.machine.type("java.util.ArrayList")(), BASE_TIME, self._none,
        )  # fmt: skip
        return table

    def load(self, name: str) -> Any:
        """The `TableInfo`."""
        return self._client.loadTable(self._identifier(name))

    def commit(self, table: Table, version: int, staged: Path, *, backfilled: int | None = None) -> None:
        """Propose a staged file. Raises `Py4JJavaError`."""
        path = self.machine.type("org.apache.hadoop.fs.Path")(staged.as_uri())
        status = path.getFileSystem(self._configuration).getFileStatus(path)
        commit = self.machine.type("io.delta.storage.commit.Commit")(version, status, BASE_TIME + version)
        self._client.commit(
            table.id, self._uri(table.location), self._identifier(table.name),
            self.machine.type("java.util.Optional").of(commit), self._long(backfilled), self._none, self._none,
            self._none, self._none, self.machine.type("java.util.ArrayList")(), self._none,
        )  # fmt: skip

    def commits(self, table: Table, start: int | None = None, end: int | None = None) -> tuple[list[int], int]:
        """Versions of the commits that the server stores, and the latest version."""
        answer = self._client.getCommits(
            table.id, self._uri(table.location), self._identifier(table.name), self._long(start), self._long(end)
        )
        return sorted(commit.getVersion() for commit in answer.getCommits()), answer.getLatestTableVersion()

    def _identifier(self, name: str) -> Any:
        namespace = self.machine.gateway.new_array(self.machine.jvm.java.lang.String, 2)
        namespace[0], namespace[1] = "unity", "default"
        return self.machine.type("io.delta.storage.commit.TableIdentifier")(namespace, name)

    def _managed(self) -> Any:
        return self.machine.type(f"{_UC}.UCDeltaModels$TableType").valueOf("MANAGED")

    def _uri(self, location: str) -> Any:
        return self.machine.type("java.net.URI").create(location)

    def _long(self, value: int | None) -> Any:
        """An `Optional` of a Java `Long`, which py4j makes of no Python number that is small."""
        if value is None:
            return self._none
        return self.machine.type("java.util.stream.LongStream").range(value, value + 1).boxed().findFirst()


class Table:
    """One that the client created; its files are written by us, as an engine writes them."""

    def __init__(self, client: WireClient, name: str, identifier: str, location: str) -> None:
        self.client, self.name, self.id, self.location = client, name, identifier, location
        self.log = Path(unquote(urlsplit(location).path)) / "_delta_log"

    def published(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def stage(self, version: int) -> Path:
        """A new staged file for that version."""
        staged = self.log / "_staged_commits" / f"{version:020}.{uuid.uuid4()}.json"
        staged.parent.mkdir(exist_ok=True)
        self.write(staged, [commit_info(version)])
        return staged

    def land(self, version: int) -> Path:
        """Commit it. Its staged file."""
        staged = self.stage(version)
        self.client.commit(self, version, staged)
        return staged

    def write(self, path: Path, lines: Sequence[str]) -> None:
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def commits(self, start: int | None = None, end: int | None = None) -> tuple[list[int], int]:
        return self.client.commits(self, start, end)


def commit_info(version: int) -> str:
    body = {
        "inCommitTimestamp": BASE_TIME + version, "timestamp": BASE_TIME + version, "operation": "WRITE",
        "operationParameters": {}, "txnId": str(uuid.uuid4()),
    }  # fmt: skip
    return json.dumps({"commitInfo": body})
