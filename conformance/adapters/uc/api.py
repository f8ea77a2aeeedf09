"""The calls of the Delta API, and what their answers mean. Nothing here depends on the kit's interface.

After a 5xx status, a broken connection or a timeout the outcome is unknown: `UnansweredError`. A 429 on a read is an
`UnansweredError` too; a 429 on a change says that the backlog is full. Every other answer that the API defines is a
value. An answer that the API does not define is an `AdapterError`, because no verdict on it is possible.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import msgspec

from conformance.adapters import wire
from conformance.adapters.connections import BrokenError
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError, UsageError

TOKEN_VARIABLE: Final = "UC_TOKEN"
FORM: Final = "uc:URL?catalog=C&schema=S"
ROOT: Final = "/api/2.1/unity-catalog/delta"
"""The path of the Delta API on a server."""
BASE: Final = f"{ROOT}/v1"

OPERATIONS: Final = {
    "DATA_REORGANIZATION": ("optimize", "reorg"), "DATA_CLEANUP": ("vacuum",), "METADATA_CLEANUP": ("metadata-cleanup",)
}  # fmt: skip
"""The maintenance operations of the API, each with the kit's names of its jobs."""
FREE_JOBS: Final = ("checkpoint", "log-compaction", "checksum")
"""The kit's names of the jobs that need no permission."""

_OPTIONS: Final = ("catalog", "schema", "name", "version", "without")

DERIVED: Final = re.compile(
    r"delta\.(feature\..*|minReaderVersion|minWriterVersion|lastUpdateVersion|lastCommitTimestamp"
    r"|clusteringColumns|rowTracking\.rowIdHighWaterMark)"
)
"""Properties that the server derives from the protocol, the newest commit and metadata domains. No client sets
them."""

T = TypeVar("T")


class AddressError(UsageError):
    """The subject's name does not name a server. `problem` says why, without any text that may be a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A schema in a catalog of a server. No text form of it shows the token."""

    server: str
    catalog: str
    schema: str
    token: str | None = field(default=None, repr=False)
    name: str = "uc-delta-api"
    """The subject's name in reports."""
    version: str | None = None
    """The server's version in reports; None: reports show the protocol version, the only version a server tells."""
    without: tuple[str, ...] = ()
    """Profiles that the server does not promise."""

    @property
    def tables(self) -> str:
        """The path of the schema's tables in the Delta API."""
        return f"{self.schema_path}/tables"

    @property
    def schema_path(self) -> str:
        catalog, schema = quote(self.catalog, safe=""), quote(self.schema, safe="")
        return f"{urlsplit(self.server).path.rstrip('/')}{BASE}/catalogs/{catalog}/schemas/{schema}"

    @property
    def config(self) -> str:
        path = urlsplit(self.server).path.rstrip("/")
        return f"{path}{BASE}/config?catalog={quote(self.catalog, safe='')}&protocol-versions=1.0"


def address_of(rest: str) -> Address:
    """Parse what follows `uc:`. Raises `AddressError`."""
    try:
        parts = urlsplit(rest if "://" in rest else f"http://{rest.removeprefix('//')}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise AddressError(f"invalid server URL: {str(error).lower()}; expected {FORM}") from error
    if "@" in parts.netloc:
        raise AddressError(f"the URL holds a token, and reports show the URL; set ${TOKEN_VARIABLE} instead")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "token" in given:
        raise AddressError(f"an option holds a token, and reports show the options; set ${TOKEN_VARIABLE} instead")
    if not usable:
        server = rest.partition("?")[0]
        raise AddressError(f"invalid server URL {server!r}; expected {FORM}, with http://127.0.0.1:8080 as URL")
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:
        raise AddressError(f"unknown option {unknown[0]!r} of {FORM}; expected one of {', '.join(_OPTIONS)}")
    missing = [name for name in ("catalog", "schema") if not given.get(name)]
    if missing:
        raise AddressError(f"`{missing[0]}` is missing; expected {FORM}")
    return Address(
        server=urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        catalog=given["catalog"],
        schema=given["schema"],
        token=os.environ.get(TOKEN_VARIABLE) or None,
        name=given.get("name") or "uc-delta-api",
        version=given.get("version") or None,
        without=tuple(profile for profile in given.get("without", "").split(",") if profile),
    )


# Calls


class UnansweredError(Exception):
    """It is unknown whether the server executed the request."""


class Transport(Protocol):
    """Sends requests."""

    def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]: ...


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A document of the API. Fields that this module does not use are left out."""


class ApiCommit(_Document, frozen=True, kw_only=True):
    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class TableMetadata(_Document, frozen=True, kw_only=True):
    table_uuid: str
    location: str
    etag: str | None = None
    columns: dict[str, Any] | None = None
    partition_columns: tuple[str, ...] | None = None
    properties: dict[str, str | None] | None = None


class Loaded(_Document, frozen=True, kw_only=True):
    """A table, as the answer to loading it describes it."""

    metadata: TableMetadata
    commits: tuple[ApiCommit, ...] | None = None
    latest_table_version: int | None = None
    allowed_maintenance_operations: tuple[str, ...] | None = None

    @property
    def latest(self) -> int | None:
        """None: no version is ratified."""
        return None if self.latest_table_version in (None, -1) else self.latest_table_version

    @property
    def unpublished(self) -> tuple[ApiCommit, ...]:
        """The commits that the server stores, oldest first."""
        return tuple(sorted(self.commits or (), key=lambda commit: commit.version))


class RequiredProtocol(_Document, frozen=True, kw_only=True):
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Staged(_Document, frozen=True, kw_only=True):
    """The location for a new table, and what the server requires of it."""

    table_id: str
    location: str
    required_protocol: RequiredProtocol = RequiredProtocol()
    required_properties: dict[str, str | None] = {}  # msgspec copies it


class Staging(_Document, frozen=True, kw_only=True):
    """Asks for the location of a new table."""

    name: str


class Creation(_Document, frozen=True, kw_only=True):
    """Registers a table whose version 0 is at `location`. Its other fields repeat what version 0 says."""

    name: str
    location: str
    table_type: str
    columns: dict[str, Any]
    protocol: RequiredProtocol
    properties: dict[str, str | None]
    last_commit_timestamp_ms: int

    def problem(self, staged: Staged) -> str:
        """Why the server must reject the registration of the staged table; empty: it need not."""
        required, properties = staged.required_protocol, staged.required_properties
        missing = {*(required.reader_features or ())} - {*(self.protocol.reader_features or ())}
        missing |= {*(required.writer_features or ())} - {*(self.protocol.writer_features or ())}
        wrong = [key for key, value in properties.items() if value not in (None, self.properties.get(key))]
        if self.table_type != "MANAGED":
            return f"invalid table-type {self.table_type!r}; expected MANAGED"
        if missing or wrong:
            return f"the table lacks the features {sorted(missing)} or the properties {wrong}"
        return repeated_columns(self.columns)


_NESTED: Final = {
    "elementType": "element-type", "containsNull": "contains-null", "keyType": "key-type", "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}  # fmt: skip
"""The names of the parts of nested types, in the log and in the API."""


def respelled(value: Any) -> Any:
    """A type in the API's spelling, from either one. The metadata of a column does not change."""
    if isinstance(value, list):
        return [respelled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {_NESTED.get(key, key): item if key == "metadata" else respelled(item) for key, item in value.items()}


def repeated_columns(columns: Mapping[str, Any]) -> str:
    """A name that two columns of one struct share without case, as an error; empty: all differ."""
    names = [str(field.get("name")).lower() for field in columns.get("fields") or ()]
    nested = [field["type"] for field in columns.get("fields") or () if isinstance(field.get("type"), dict)]
    shared = sorted({name for name in names if names.count(name) > 1})
    if shared:
        return f"two columns are called {shared[0]!r}; names must differ in more than case"
    return next((problem for part in nested if (problem := repeated_columns(part))), "")


class _Histogram(_Document, frozen=True, kw_only=True):
    sorted_bin_boundaries: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


class _CommitReport(_Document, frozen=True, kw_only=True):
    file_size_histogram: _Histogram | None = None


class _Report(_Document, frozen=True, kw_only=True):
    commit_report: _CommitReport | None = None


class Metrics(_Document, frozen=True, kw_only=True):
    """Metrics of a commit."""

    table_id: str
    report: _Report | None = None

    @property
    def consistent(self) -> bool:
        """Whether the lists of the histogram have one length."""
        commit = self.report and self.report.commit_report
        histogram = commit and commit.file_size_histogram
        return not histogram or len(set(map(len, msgspec.structs.astuple(histogram)))) == 1


class Renaming(_Document, frozen=True, kw_only=True):
    """`new_name`: within the same schema."""

    new_name: str


class Requirement(_Document, frozen=True, kw_only=True):
    """A condition that must hold for an update."""

    type: str
    uuid: str | None = None
    etag: str | None = None


UPDATES: Final = (
    "add-commit", "set-latest-backfilled-version", "set-properties", "remove-properties", "set-columns", "set-protocol",
    "set-partition-columns", "set-table-comment", "set-domain-metadata", "remove-domain-metadata",
    "update-metadata-snapshot-version",
)  # fmt: skip


class Update(_Document, frozen=True, kw_only=True):
    """One change. Changes of the table's metadata are not read here, because the commit has them too."""

    action: str
    commit: ApiCommit | None = None
    uniform: dict[str, Any] | None = None
    latest_published_version: int | None = None
    updates: dict[str, Any] | None = None
    removals: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    columns: dict[str, Any] | None = None

    @property
    def is_logged(self) -> bool:
        """Whether it changes what the log represents: all but the comment, and the properties of the catalog alone."""
        of_the_log = any(key.startswith("delta.") for key in (*(self.updates or ()), *self.removals))
        return of_the_log if self.action in ("set-properties", "remove-properties") else self.action in _LOGGED


_LOGGED: Final = ("set-columns", "set-protocol", "set-partition-columns", "set-domain-metadata",
                  "remove-domain-metadata")  # fmt: skip


class TableUpdate(_Document, frozen=True, kw_only=True):
    """A request that changes a table: the server applies all of its updates, or none."""

    requirements: tuple[Requirement, ...] | None = None
    updates: tuple[Update, ...]

    @property
    def problem(self) -> str:
        """Why the request is invalid; empty: it is valid."""
        actions = [update.action for update in self.updates]
        unknown = [action for action in actions if action not in UPDATES]
        missing = [
            update.action
            for update in self.updates
            if (update.action == UPDATES[0] and update.commit is None)
            or (update.action == UPDATES[1] and update.latest_published_version is None)
        ]
        if not actions:
            return "at least one update is required"
        if unknown or missing:
            return f"unknown update {unknown[0]!r}" if unknown else f"the update {missing[0]!r} lacks its fields"
        kinds = [requirement.type for requirement in self.requirements or ()]
        if len(set(actions)) < len(actions) or len(set(kinds)) < len(kinds):
            return f"at most one entry of each kind is possible; the request has {', '.join([*actions, *kinds])}"
        set_keys = {key for update in self.updates for key in update.updates or ()}
        removed = {key for update in self.updates for key in (*update.removals, *update.domains)}
        if set_keys & removed:
            return f"the request sets and removes {', '.join(sorted(set_keys & removed))}"
        commit = self.commit
        logged = [update.action for update in self.updates if update.is_logged]
        if commit is None and logged:
            return f"{logged[0]}: a change of the log needs the commit that makes it"
        if commit is not None and min(commit.version, commit.timestamp, commit.file_size) <= 0:
            return "the version, the timestamp and the size of a commit are greater than 0"
        if any(update.uniform is not None for update in self.updates):
            return "`uniform` is for tables that enable it, and this server creates none"
        return "" if self.table_id is not None else "`assert-table-uuid` is required"

    @property
    def table_id(self) -> str | None:
        return next(
            (requirement.uuid for requirement in self.requirements or () if requirement.type == "assert-table-uuid"),
            None,
        )

    @property
    def etag(self) -> str | None:
        return next(
            (requirement.etag for requirement in self.requirements or () if requirement.type == "assert-etag"), None
        )

    @property
    def commit(self) -> ApiCommit | None:
        return next((update.commit for update in self.updates if update.action == UPDATES[0]), None)

    @property
    def published(self) -> int | None:
        """The client reports that all versions up to this one are published."""
        return next((update.latest_published_version for update in self.updates if update.action == UPDATES[1]), None)


class OlderUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the older API, whose names have underscores: a commit, or a report of published versions."""

    table_id: str
    commit_info: dict[str, Any] | None = None
    latest_backfilled_version: int | None = None

    @property
    def update(self) -> TableUpdate:
        """The same request in the Delta API. Raises `msgspec.ValidationError` for an invalid commit."""
        updates = []
        if self.commit_info is not None:
            commit = {key.replace("_", "-"): value for key, value in self.commit_info.items()}
            updates.append(Update(action=UPDATES[0], commit=msgspec.convert(commit, ApiCommit)))
        if self.latest_backfilled_version is not None:
            updates.append(Update(action=UPDATES[1], latest_published_version=self.latest_backfilled_version))
        required = Requirement(type="assert-table-uuid", uuid=self.table_id)
        return TableUpdate(requirements=(required,), updates=tuple(updates))


class OlderCommits(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the older API for the unpublished commits of these versions, both ends included."""

    table_id: str
    start_version: int = 0
    end_version: int | None = None


class Config(_Document, frozen=True, kw_only=True):
    protocol_version: str


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    message: str | None = ""


class _ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    error: _Error


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The server rejected the request."""

    status: int
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.type}: {self.message}"


REFUSALS: Final = (400, 404, 409, 429)


class DeltaApi:
    """The calls for one schema. `reads` sends the requests that only read, `changes` the others. Safe for threads if
    both are."""

    def __init__(self, address: Address, reads: Transport, changes: Transport) -> None:
        self._address = address
        self._reads = reads
        self._changes = changes
        self._headers = {"Accept": "application/json"}
        if address.token is not None:
            self._headers["Authorization"] = f"Bearer {address.token}"

    def config(self) -> Config:
        """Raises `AdapterError` if the server has no such catalog, `NoConnectionError` if there is no server."""
        answer = self._asked("GET", self._address.config, Config)
        if isinstance(answer, Refused):
            raise AdapterError(
                f"no Delta API for the catalog {self._address.catalog!r} at {self._address.server}: {answer}"
            )
        return answer

    def load(self, table: str) -> Loaded | Refused:
        return self._asked("GET", self._table(table), Loaded)

    def stage(self, table: str) -> Staged | Refused:
        """The location for a table of that name. The name stays free until `create`."""
        return self._asked("POST", f"{self._address.schema_path}/staging-tables", Staged, {"name": table})

    def create(self, table: Mapping[str, Any]) -> Loaded | Refused:
        return self._asked("POST", self._address.tables, Loaded, table)

    def update(self, table: str, requirements: list[dict[str, Any]], updates: list[dict[str, Any]]) -> Refused | None:
        """None: the server applied all updates. The table's state in its answer is not needed."""
        body = {"requirements": requirements, "updates": updates}
        answer = self._asked("POST", self._table(table), Loaded, body)
        return answer if isinstance(answer, Refused) else None

    def drop(self, table: str) -> Refused | None:
        return self._asked("DELETE", self._table(table), None)

    def call(self, request: m.CallApi) -> m.ApiAnswer:
        """One request as it is. Raises `UnansweredError` if no answer arrives."""
        path = request.path.replace("{catalog}", quote(self._address.catalog, safe=""))
        path = path.replace("{schema}", quote(self._address.schema, safe=""))
        target = f"{urlsplit(self._address.server).path.rstrip('/')}{ROOT}{path}"
        content = None if request.body is None else request.body.encode("utf-8", "surrogatepass")
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        transport = self._reads if request.method in ("GET", "HEAD") else self._changes
        try:
            status, answer = transport.send(request.method, target, content, headers)
        except (TimeoutError, BrokenError) as error:
            raise UnansweredError(f"{request.method} {target}: {error or 'no answer in time'}") from error
        return m.ApiAnswer(status=status, body=answer.decode("utf-8", "replace"))

    def _table(self, table: str) -> str:
        return f"{self._address.tables}/{quote(table, safe='')}"

    def _asked(
        self, method: str, target: str, kind: type[T] | None, body: Mapping[str, Any] | None = None
    ) -> T | Refused | Any:
        """The answer, of the expected kind; None: an answer without content. Raises `UnansweredError`,
        `NoConnectionError`, `AdapterError`."""
        transport = self._reads if method == "GET" else self._changes
        content = None if body is None else msgspec.json.encode(body)
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        what = f"{method} {target}"
        try:
            status, answer = transport.send(method, target, content, headers)
        except TimeoutError as error:
            raise UnansweredError(f"{what}: no answer in time") from error
        except BrokenError as error:
            raise UnansweredError(f"{what}: {error}") from error
        if status >= 500 or (status == 429 and method == "GET"):
            raise UnansweredError(f"{what}: {_refusal(status, answer)}")
        if status in (401, 403):
            raise AdapterError(
                f"{what} was rejected: {_refusal(status, answer)}. The token comes from ${TOKEN_VARIABLE}"
                f"{', which is not set' if self._address.token is None else ''}"
            )
        if status in REFUSALS:
            return _refusal(status, answer)
        if kind is None and status in (200, 204):
            return None
        if kind is None or status != 200:
            raise AdapterError(f"{what} was answered {status} {wire.shown(answer)}, which the Delta API does not have")
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise AdapterError(f"{what} was answered {wire.shown(answer)}: {error}") from error


def _refusal(status: int, body: bytes) -> Refused:
    """The rejection. If the body has not the API's form, the status alone counts."""
    try:
        error = msgspec.json.decode(body, type=_ErrorDocument).error
    except msgspec.DecodeError:
        return Refused(status=status, type="", message=wire.shown(body))
    return Refused(status=status, type=error.type, message=error.message or "")
