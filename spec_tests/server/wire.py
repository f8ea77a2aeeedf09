"""A client of the Delta API without any logic: the test decides every step."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DELTA = "/api/2.1/unity-catalog/delta/v1"
CATALOG = "/api/2.1/unity-catalog"
START = 1_700_000_000_000
"""The in-commit timestamp of version 0, in ms since the epoch. Each next version's is one ms later."""
COLUMNS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True,
     "metadata": {}},
]  # fmt: skip
WIRE_COLUMNS = [COLUMNS[0], {**COLUMNS[1], "type": {"type": "array", "element-type": "string", "contains-null": True}}]

PROTOCOL = {
    "min-reader-version": 3,
    "min-writer-version": 7,
    "reader-features": ["catalogManaged", "vacuumProtocolCheck"],
    "writer-features": ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"],
}
"""The protocol of each table's version 0, as a request spells it."""


def commit_info(timestamp: int, **more: Any) -> dict[str, Any]:
    return {"commitInfo": {"inCommitTimestamp": timestamp, "timestamp": timestamp, "operation": "WRITE",
                           "txnId": str(uuid.uuid4()), **more}}  # fmt: skip


def lines(*actions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A staged file, and its description in a request."""

    version: int
    name: str
    path: Path
    content: bytes
    timestamp: int

    @property
    def commit(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "timestamp": self.timestamp,
            "file-name": self.name,
            "file-size": len(self.content),
            "file-modification-timestamp": self.timestamp,
        }


class WireTable:
    """One table over HTTP. `http`: any object with the method `request` of httpx."""

    def __init__(self, http: Any, name: str = "orders", *, catalog: str = "unity", schema: str = "default") -> None:
        self.http = http
        self.name = name
        self.base = f"{DELTA}/catalogs/{catalog}/schemas/{schema}"
        self.url = f"{self.base}/tables/{name}"
        self.table_id = ""
        self.location = Path()

    # Creation

    def stage(self) -> dict[str, Any]:
        answer = self.http.request("POST", f"{self.base}/staging-tables", json={"name": self.name})
        assert answer.status_code == 200, answer.text
        answer_body: dict[str, Any] = answer.json()
        self.table_id = answer_body["table-id"]
        self.location = Path(unquote(urlsplit(answer_body["location"]).path))
        return answer_body

    def write_first_version(self, **properties: str) -> None:
        answer_body = {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": self.table_id, **properties}
        features = ["catalogManaged", "vacuumProtocolCheck"]
        content = lines(
            commit_info(START),
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                          "writerFeatures": [*features, "inCommitTimestamp"]}},
            {"metaData": self.metadata(answer_body)},
        )  # fmt: skip
        (self.location / "_delta_log").mkdir(exist_ok=True)
        (self.location / "_delta_log" / f"{0:020d}.json").write_bytes(content)

    def metadata(self, configuration: dict[str, str]) -> dict[str, Any]:
        return {
            "id": self.table_id,
            "schemaString": json.dumps({"type": "struct", "fields": COLUMNS}),
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {"io.unitycatalog.tableId": self.table_id, **configuration},
        }

    def creation(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "location": self.location.as_uri(),
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": WIRE_COLUMNS},
            "protocol": PROTOCOL,
            "properties": {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": self.table_id},
            "last-commit-timestamp-ms": START,
            **changes,
        }

    def register(self, **changes: Any) -> Any:
        return self.http.request("POST", f"{self.base}/tables", json=self.creation(**changes))

    def prepared(self, **properties: str) -> "WireTable":
        """Stage the table and write its version 0, but do not register it."""
        self.stage()
        self.write_first_version(**properties)
        return self

    def create(self) -> "WireTable":
        self.prepared()
        answer = self.register()
        assert answer.status_code == 200, answer.text
        return self

    # Commits

    def write_staged(self, version: int, *actions: dict[str, Any], timestamp: int | None = None) -> Staged:
        at = START + version if timestamp is None else timestamp
        content = lines(commit_info(at), *actions)
        name = f"{version:020d}.{uuid.uuid4()}.json"
        path = self.location / "_delta_log" / "_staged_commits" / name
        path.parent.mkdir(parents=True, exist_ok=True)  # a table that is not registered yet has none
        path.write_bytes(content)
        return Staged(version=version, name=name, path=path, content=content, timestamp=at)

    def staged_nowhere(self, version: int) -> Staged:
        """A staged file that was never written."""
        name = f"{version:020d}.{uuid.uuid4()}.json"
        return Staged(version=version, name=name, path=Path(name), content=b"{}", timestamp=START + version)

    def request(
        self, *updates: dict[str, Any], table_uuid: str | None = None, etag: str | None = None
    ) -> dict[str, Any]:
        """The body of a request with these updates."""
        requirements = [{"type": "assert-table-uuid", "uuid": table_uuid or self.table_id}]
        if etag is not None:
            requirements.append({"type": "assert-etag", "etag": etag})
        return {"requirements": requirements, "updates": list(updates)}

    def update(self, *updates: dict[str, Any], **terms: Any) -> Any:
        return self.send(self.request(*updates, **terms))

    def send(self, body: Any) -> Any:
        return self.http.request("POST", self.url, json=body)

    def propose(self, staged: Staged, *more: dict[str, Any], **terms: Any) -> Any:
        return self.update(added(staged), *more, **terms)

    def land(self, version: int) -> Staged:
        staged = self.write_staged(version)
        answer = self.propose(staged)
        assert answer.status_code == 200, answer.text
        return staged

    def publish(self, staged: Staged) -> None:
        (self.location / "_delta_log" / f"{staged.version:020d}.json").write_bytes(staged.content)

    def load(self) -> dict[str, Any]:
        answer = self.http.request("GET", self.url)
        assert answer.status_code == 200, answer.text
        answer_body: dict[str, Any] = answer.json()
        return answer_body

    def state(self) -> tuple[int, list[int], str]:
        """The latest version, the unpublished versions (newest first), and the etag."""
        answer_body = self.load()
        return (
            answer_body["latest-table-version"],
            [c["version"] for c in answer_body["commits"]],
            answer_body["metadata"]["etag"],
        )


def added(staged: Staged, **changes: Any) -> dict[str, Any]:
    return {"action": "add-commit", "commit": {**staged.commit, **changes}}


def reported(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def refusal(answer: Any) -> tuple[int, str]:
    """The status and the documented type of an error. Also checks the whole body of the error."""
    body = answer.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) == {"message", "type", "code"}
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]


BAD = (400, "InvalidParameterValueException")
NO_TABLE = (404, "NoSuchTableException")
VERSION_CONFLICT = (409, "CommitVersionConflictException")
REQUIREMENT = (409, "UpdateRequirementConflictException")
EXHAUSTED = (429, "ResourceExhaustedException")
UNKNOWN = (500, "CommitStateUnknownException")
UNAVAILABLE = (503, "InternalServerErrorException")
