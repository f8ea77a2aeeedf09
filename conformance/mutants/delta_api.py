"""Servers of Unity Catalog's Delta API: the kit's own server over the model owner, and small edits of its answers.

Each row of `FAULTS` is a server that answers some of its requests wrongly: the requests whose method, path and body
match. `Call.answer` is the correct answer.
"""

import json
import re
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from conformance.adapters.uc.api import UnansweredError
from conformance.adapters.uc.owner import table_name
from conformance.adapters.uc.server import CATALOG, DELTA, SCHEMA, DeltaApi
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models.client_owner import ClientOwner
from conformance.models.storage import FolderStorage
from conformance.mutants import good, mutant

Reply = tuple[int, Any]
"""The status, and the document; None: no body."""


class Call:
    """A request of the API."""

    def __init__(self, server: "ServesTheDeltaApi", client: str, request: m.CallApi) -> None:
        self._server = server
        self.client = client
        self.method = request.method
        self.path = request.path.replace("{catalog}", CATALOG).replace("{schema}", SCHEMA)
        self.body: Any = None if request.body is None else json.loads(request.body)

    def send(self, **changes: Any) -> Reply:
        """What the correct server answers to the request with the changes: `method`, `path` or `body`."""
        method, path, body = (changes.get(name, getattr(self, name)) for name in ("method", "path", "body"))
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Authorization": f"Bearer {self.client}"}
        status, answer = self._server.api.send(method, f"{DELTA.removesuffix('/v1')}{path}", content, headers)
        return status, json.loads(answer) if answer else None

    @cached_property
    def answer(self) -> Reply:
        return self.send()

    def load(self) -> Reply:
        """The table, as if nothing were wrong with the request."""
        return self.send(method="GET", path=re.sub(r"(/tables/[^/?]+).*", r"\1", self.path), body=None)

    def without(self, *actions: str) -> Reply:
        """The answer to the update without these actions; with no other action, a load."""
        rest = [update for update in self.body["updates"] if update["action"] not in actions]
        return self.send(body={**self.body, "updates": rest}) if rest else self.load()


@good()
class ServesTheDeltaApi(ClientOwner):
    """Serves Unity Catalog's Delta API."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-api-", ignore_cleanup_errors=True)
        super().__init__(FolderStorage(Path(self._folder.name)))
        self.api = DeltaApi(self._asked)

    def _asked(self, client: str, request: m.Request) -> m.Answer:
        answer: m.Answer = m.Unsupported()  # it is a server, so it does not judge its clients
        return answer if isinstance(request, m.CallApi) else getattr(self, name_of(request))(client, request)

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(
            identity,
            features=("catalogManaged",),
            commit_modes={"catalogManaged": ("staged",)},
            crash_points=(),
            promises=(),
            profiles=("core", "staged", "version-0-by-owner", "storage-access", "uc-delta-api"),
        )

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return super().create_table(client, msgspec.structs.replace(request, name=table_name(request.name)))

    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        name = None if request.name is None else table_name(request.name)
        return super().load_table(client, msgspec.structs.replace(request, name=name))

    def call_api(self, client: str, request: m.CallApi) -> m.Answer:
        try:
            status, document = self.replied(Call(self, client, request))
        except UnansweredError as error:
            return m.Unknown(reason=str(error))
        return m.ApiAnswer(status=status, body="" if document is None else json.dumps(document))

    def replied(self, call: Call) -> Reply:
        return call.answer

    def close(self) -> None:
        self._folder.cleanup()


@mutant("PROFILE-API-01")
class DoesNotCallItsApi(ServesTheDeltaApi):
    """Rejects the requests for its API."""

    def call_api(self, client: str, request: m.CallApi) -> m.Answer:
        return m.Rejected(reason="no access to the API")


class Fault(NamedTuple):
    """A server's fault: an edit of its answer to some requests."""

    violates: str
    title: str
    where: str
    """A pattern for `METHOD path body`."""
    reply: Callable[[Call], Reply]


def _edited(call: Call, *path: str, value: Any) -> Reply:
    """The correct answer with another value at the end of the path; `value` may be a function of the old one."""
    status, document = json.loads(json.dumps(call.answer))
    at = document
    for name in path[:-1]:
        at = at[name]
    if path[-1] in at:
        at[path[-1]] = value(at[path[-1]]) if callable(value) else value
    return status, document


def _error(status: int, kind: str) -> Reply:
    return status, {"error": {"message": "rejected", "type": kind, "code": status}}


def _changed(path: str, value: Any) -> Callable[[Call], Reply]:
    return lambda call: _edited(call, *path.split("/"), value=value) if call.answer[0] == 200 else call.answer


def _credentials(**fields: Any) -> Callable[[Call], Reply]:
    """Other values in each of the credentials."""
    return _changed("storage-credentials", lambda given: [{**one, **fields} for one in given])


def _if(status: int, reply: Callable[[Call], Reply] | Reply) -> Callable[[Call], Reply]:
    """Another answer instead of one with this status."""

    def replied(call: Call) -> Reply:
        if call.answer[0] != status:
            return call.answer
        return reply(call) if callable(reply) else reply

    return replied


def _always(reply: Reply) -> Callable[[Call], Reply]:
    return lambda _: reply


def _accepted(call: Call) -> Reply:
    return call.load() if call.answer[0] in (400, 409) else call.answer


def _fixed(**changes: Callable[[Any], Any]) -> Callable[[Call], Reply]:
    """Accept a rejected request, as if the client had sent these values of the body."""
    return _if(400, lambda call: call.send(body={**call.body, **{key: change(call.body.get(key))
                                                               for key, change in changes.items()}}))  # fmt: skip


def _first(entries: list[Any]) -> list[Any]:
    return list({entry.get("action", entry.get("type")): entry for entry in reversed(entries)}.values())


CREATE: Final = "^POST [^ ]*/tables "
UPDATE: Final = "^POST [^ ]*/tables/[^/ ]+ "
COMMIT: Final = f"{UPDATE}.*add-commit"
LOAD: Final = "^GET [^ ]*/tables/[^/ ?]+ "
STAGE: Final = "^POST [^ ]*/staging-tables "
OK: Final[Reply] = (204, None)
NO_ID: Final = "00000000-0000-4000-8000-00000000000b"
LATEST: Final = "latest-table-version"

FAULTS: Final[dict[str, Fault]] = {
    "names-another-protocol-version": Fault(
        "UC-CONFIG-01", "Negotiates a version that the client does not support.", "/config",
        _changed("protocol-version", "2.0")),
    "negotiates-without-a-common-version": Fault(
        "UC-CONFIG-02", "Answers with its version, whatever the client supports.", "/config",
        _if(400, lambda call: call.send(path=call.path.replace("99.0", "1.0")))),
    "rejects-a-version-without-naming-its-own": Fault(
        "UC-CONFIG-02", "Its error does not name the versions that it supports.", "/config",
        _if(400, _error(400, "InvalidParameterValueException"))),
    "needs-no-versions-of-the-client": Fault(
        "UC-CONFIG-03", "Assumes a catalog and a protocol version if the client names none.", "/config",
        _if(400, lambda call: call.send(path=f"/v1/config?catalog={CATALOG}&protocol-versions=1.0"))),
    "has-every-catalog": Fault(
        "UC-CONFIG-04", "Answers with its configuration for every catalog.", "/config",
        _if(404, lambda call: call.send(path=call.path.replace("no_such_catalog", CATALOG)))),
    "stages-one-table-for-a-name": Fault(
        "UC-STAGE-01", "Gives the second client the first one's id.", STAGE, _changed("table-id", NO_ID)),
    "stages-existing-names": Fault(
        "UC-STAGE-02", "Stages a table whose name exists.", STAGE,
        _if(409, lambda call: call.send(body={"name": f"{call.body['name']}_again"}))),
    "loads-staged-tables": Fault(
        "UC-STAGE-03", "Answers a load of a staged table as if its schema were wrong.", LOAD,
        _if(404, _error(400, "BadRequestException"))),
    "stages-for-reading": Fault(
        "UC-STAGE-04", "Gives credentials for reading a staged table.", "/staging-tables/.*/credentials",
        _credentials(operation="READ")),
    "stages-without-a-name": Fault(
        "UC-STAGE-05", "Stages a table without a name.", STAGE,
        _if(400, lambda call: call.send(body={"name": "nameless"}))),
    "has-every-staged-table": Fault(
        "UC-STAGE-06", "Gives no credentials, instead of an error, for an unknown staged table.",
        "/staging-tables/.*/credentials", _if(404, (200, {"storage-credentials": []}))),
    "creates-version-1": Fault(
        "UC-CREATE-01", "Shows a new table with version 1.", LOAD,
        lambda call: _edited(call, "latest-table-version", value=1)
        if call.answer[0] == 200 and call.answer[1]["latest-table-version"] == 0 else call.answer),
    "creates-anywhere": Fault(
        "UC-CREATE-02", "Calls a location without a staged table an invalid value.", CREATE,
        _if(404, _error(400, "InvalidParameterValueException"))),
    "creates-with-any-id": Fault(
        "UC-CREATE-03", "Accepts any table id among the properties.", f"{CREATE}.*tableId\": \"00000000",
        _always((200, {}))),
    "creates-without-features": Fault(
        "UC-CREATE-04", "Accepts a table without required features.", f"{CREATE}.*\"reader-features\": \\[\\]",
        _always((200, {}))),
    "creates-twice": Fault(
        "UC-CREATE-05", "Accepts a second creation at one location.", f"{CREATE}.*_2\"", _always((200, {}))),
    "creates-over-an-existing-name": Fault(
        "UC-CREATE-06", "Calls an existing name an invalid value.", CREATE,
        _if(409, _error(400, "InvalidParameterValueException"))),
    "creates-without-a-timestamp": Fault(
        "UC-CREATE-07", "Needs no timestamp of version 0.", CREATE,
        lambda call: call.answer if "last-commit-timestamp-ms" in call.body else (200, {})),
    "distinguishes-columns-by-case": Fault(
        "UC-COLUMNS-01", "Accepts two columns whose names differ in case.", "\"ID\"", _always((200, {}))),
    "loads-without-an-etag": Fault(
        "UC-LOAD-01", "Its load has no etag.", LOAD, _changed("metadata/etag", None)),
    "lists-commits-oldest-first": Fault(
        "UC-LOAD-02", "Lists commits in the order of their versions.", LOAD,
        _changed("commits", lambda commits: commits[::-1])),
    "lists-three-commits": Fault(
        "UC-LOAD-02", "Lists the newest three commits.", LOAD, _changed("commits", lambda commits: commits[:3])),
    "rewrites-times-of-commits": Fault(
        "UC-LOAD-03", "Shows the time at which it heard of a commit.", LOAD,
        _changed("commits", lambda commits: [{**commit, "timestamp": 1} for commit in commits])),
    "calls-each-commit-a-change": Fault(
        "UC-LOAD-04", "Its `last-commit-version` is the latest version.", LOAD,
        lambda call: _edited(call, "metadata", "last-commit-version", value=call.answer[1]["latest-table-version"])
        if call.answer[0] == 200 else call.answer),
    "changes-the-etag-with-each-commit": Fault(
        "UC-LOAD-05", "Its etag contains the latest version.", LOAD,
        lambda call: _edited(call, "metadata", "etag", value=lambda etag: f"{etag}-{call.answer[1][LATEST]}")
        if call.answer[0] == 200 else call.answer),
    "never-changes-the-etag": Fault(
        "UC-LOAD-05", "Has one etag for every table and version.", LOAD, _changed("metadata/etag", "etag")),
    "derives-no-features": Fault(
        "UC-LOAD-06", "Its properties are those of the log only.", LOAD,
        _changed("metadata/properties", lambda given: {
            key: value for key, value in given.items() if not key.startswith("delta.feature.")})),
    "has-every-schema": Fault(
        "UC-NAMES-01", "Answers for every schema that it has no such table.", "no_such_schema",
        _if(404, _error(404, "NoSuchTableException"))),
    "has-every-table": Fault(
        "UC-NOTABLE-01", "Calls a commit to a missing table a lost race.", COMMIT,
        _if(404, _error(409, "CommitVersionConflictException"))),
    "gives-credentials-for-all": Fault(
        "UC-CRED-01", "Gives each reader credentials for writing.", "/tables/.*/credentials",
        _credentials(operation="READ_WRITE")),
    "credentials-never-expire": Fault(
        "UC-CRED-01", "Its credentials do not say when they expire.", "/tables/.*/credentials",
        _credentials(**{"expiration-time-ms": None})),
    "gives-credentials-for-unknown-operations": Fault(
        "UC-CRED-02", "Gives credentials for reading, whatever the operation.", "/tables/.*/credentials",
        _if(400, lambda call: call.send(path=f"{call.path.partition('?')[0]}?operation=READ"))),
    "accepts-no-updates": Fault("UC-UPDATE-01", "Accepts an update without actions.", f"{UPDATE}.*\"updates\": \\[\\]",
                                lambda call: call.load()),
    "accepts-two-commits": Fault(
        "UC-UPDATE-02", "Uses the first of two actions of one type.", UPDATE, _fixed(updates=_first)),
    "accepts-two-requirements": Fault(
        "UC-UPDATE-03", "Uses the first of two requirements of one type.", UPDATE, _fixed(requirements=_first)),
    "needs-no-table-id": Fault(
        "UC-UPDATE-04", "Accepts an update without the table's id.", f"{UPDATE}.*\"requirements\": \\[\\]",
        lambda call: call.send(body={**call.body, "requirements": [
            {"type": "assert-table-uuid", "uuid": call.load()[1]["metadata"]["table-uuid"]}]})),
    "removes-what-it-sets": Fault(
        "UC-UPDATE-05", "Applies a contradiction in the order of the actions.", f"{UPDATE}.*remove-properties",
        _if(400, lambda call: call.without("set-properties", "remove-properties"))),
    "removes-domains-that-it-sets": Fault(
        "UC-UPDATE-06", "Applies contradictory domains in the order of the actions.", f"{UPDATE}.*remove-domain",
        _if(400, lambda call: call.without("set-domain-metadata", "remove-domain-metadata"))),
    "ignores-unknown-actions": Fault(
        "UC-UPDATE-07", "Ignores an action that it does not know.", f"{UPDATE}.*no-such-action",
        lambda call: call.without("no-such-action")),
    "needs-no-file-size": Fault(
        "UC-UPDATE-08", "Accepts a commit of version 0, or without bytes.", f"{COMMIT}.*\"(file-size|version)\": 0,",
        lambda call: call.load()),
    "cares-about-the-order": Fault(
        "UC-UPDATE-09", "Needs the table's id as the first requirement.", f"{UPDATE}.*\\[{{\"type\": \"assert-etag\"",
        _always(_error(400, "InvalidParameterValueException"))),
    "applies-the-rest-of-a-rejected-request": Fault(
        "UC-UPDATE-10", "Commits before it looks at the etag.", f"{COMMIT}",
        lambda call: (call.answer, call.send(body={**call.body, "requirements": call.body["requirements"][:1]}))[0]
        if "no-such-etag" in str(call.body) else call.answer),
    "accepts-underscores": Fault(
        "UC-UPDATE-11", "Accepts the field names of an earlier version.", f"{UPDATE}.*file_name",
        lambda call: call.send(body=json.loads(json.dumps(call.body).replace("file_", "file-")))),
    "begins-at-any-version": Fault(
        "UC-COMMIT-01", "Ratifies any version as the first commit.", f"{COMMIT}.*\"version\": 2",
        lambda call: call.load() if call.answer[0] == 400 and call.load()[1][LATEST] == 0 else call.answer),
    "calls-a-lost-race-invalid": Fault(
        "UC-COMMIT-02", "Answers a lost race as an invalid value.", COMMIT,
        _if(409, _error(400, "InvalidParameterValueException"))),
    "calls-another-id-invalid": Fault(
        "UC-COMMIT-03", "Answers another table's id as an invalid value.", UPDATE,
        _if(409, _error(400, "InvalidParameterValueException"))),
    "ignores-the-etag": Fault(
        "UC-COMMIT-04", "Ignores the etag.", "no-such-etag",
        lambda call: call.send(body={**call.body, "requirements": call.body["requirements"][:1]})),
    "calls-a-retry-a-conflict": Fault(
        "UC-COMMIT-05", "Answers a retry as a lost race.", COMMIT,
        lambda call: _error(409, "CommitVersionConflictException")
        if call.body["updates"][0].get("commit", {"version": 99})["version"] <= call.load()[1][LATEST]
        else call.answer),
    "forgets-published-commits": Fault(
        "UC-COMMIT-06", "Answers the retry of a published commit as a lost race.", COMMIT,
        lambda call: _error(409, "CommitVersionConflictException")
        if call.body["updates"][0].get("commit", {}).get("version", 99) <= call.load()[1][LATEST]
        and not call.load()[1]["commits"] else call.answer),
    "ignores-uniform": Fault(
        "UC-COMMIT-08", "Ignores `uniform` of a table that does not enable it.", f"{COMMIT}.*uniform",
        lambda call: call.send(body={**call.body, "updates": [
            {key: value for key, value in update.items() if key != "uniform"} for update in call.body["updates"]]})),
    "believes-every-report": Fault(
        "UC-BACKFILL-01", "Accepts a report of versions that do not exist.", f"{UPDATE}.*latest-published", _accepted),
    "rejects-repeated-reports": Fault(
        "UC-BACKFILL-02", "Rejects a report that says nothing new.", f"{UPDATE}.*latest-published-version\": 1}}",
        _always(_error(400, "InvalidParameterValueException"))),
    "lets-only-the-committer-report": Fault(
        "UC-BACKFILL-03", "Rejects a report of a client that did not commit.", f"{UPDATE}.*latest-published",
        lambda call: call.answer if call.client == "client" else _error(400, "BadRequestException")),
    "forgets-a-commit-too-many": Fault(
        "UC-BACKFILL-04", "Forgets one commit more than was reported.", LOAD,
        lambda call: _edited(call, "commits", value=lambda commits: commits[:-1])
        if call.answer[0] == 200 and 0 < len(call.answer[1]["commits"]) < call.answer[1][LATEST] else call.answer),
    "calls-a-full-backlog-a-conflict": Fault(
        "UC-LIMIT-01", "Answers a full backlog as a lost race.", COMMIT,
        lambda call: call.answer if len(call.load()[1].get("commits") or ()) < 5
        else _error(409, "CommitVersionConflictException")),
    "loses-removals-of-properties": Fault(
        "UC-META-01", "Keeps removed properties.", LOAD,
        _changed("metadata/properties", lambda given: {"delta.logRetentionDuration": "interval 60 days", **given})),
    "needs-a-commit-for-a-comment": Fault(
        "UC-META-02", "Rejects a comment without a commit.", f"{UPDATE}.*set-table-comment",
        _always(_error(400, "InvalidParameterValueException"))),
    "hides-clustering": Fault(
        "UC-META-03", "Derives no property from the clustering columns.", LOAD,
        _changed("metadata/properties/delta.clusteringColumns", "[]")),
    "replaces-the-table": Fault(
        "UC-REPLACE-01", "Gives a replaced table a new id.", f"{COMMIT}.*set-partition-columns",
        _changed("metadata/table-uuid", NO_ID)),
    "rejects-metrics": Fault("UC-METRICS-01", "Answers metrics with a document.", "/metrics", _if(204, (200, {}))),
    "accepts-metrics-of-any-table": Fault(
        "UC-METRICS-02", "Accepts metrics with another table's id.", "/metrics .*0000-4000", _always(OK)),
    "accepts-any-histogram": Fault(
        "UC-METRICS-03", "Accepts lists of different lengths.", "/metrics .*histogram", _always(OK)),
    "exists-with-a-document": Fault("UC-HEAD-01", "Answers HEAD with 200.", "^HEAD", _if(204, (200, None))),
    "drops-in-the-background": Fault(
        "UC-DROP-01", "Answers that it will drop the table.", "^DELETE", _if(204, (202, {}))),
    "renames-a-copy": Fault(
        "UC-RENAME-01", "Answers a rename with the table.", "/rename", _if(204, (200, {}))),
    "renames-over-tables": Fault(
        "UC-RENAME-02", "Calls a taken name an invalid value.", "/rename",
        _if(409, _error(400, "InvalidParameterValueException"))),
    "errors-without-a-code": Fault(
        "UC-ERROR-01", "Its errors have no code.", "",
        lambda call: _edited(call, "error", "code", value=0) if call.answer[0] >= 400 and call.answer[1] else
        call.answer),
}  # fmt: skip


def _server(identifier: str, fault: Fault) -> type[ServesTheDeltaApi]:
    pattern = re.compile(fault.where)

    def replied(self: ServesTheDeltaApi, call: Call) -> Reply:
        text = f"{call.method} {call.path} {'' if call.body is None else json.dumps(call.body)}"
        return fault.reply(call) if pattern.search(text) else call.answer

    name = "".join(word.capitalize() for word in f"api-{identifier}".split("-"))
    return type(name, (ServesTheDeltaApi,), {"replied": replied, "__doc__": fault.title, "__module__": __name__})


for _identifier, _fault in FAULTS.items():
    mutant(_fault.violates)(_server(_identifier, _fault))
