"""The reference's Delta client with its remote owner: the kit's own owner behind the Delta API, as a server shows it.

Only the network is missing: `KitServer` stands where the connection is. Requests and answers are the API's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from conformance.adapters.reference.asked_owner import Ask, AskedOwner
from conformance.adapters.reference.client import ReferenceClient
from conformance.interface import messages as m
from refimpl.catalog_messages import (
    FEATURE_PREFIX,
    AddCommit,
    ErrorAnswer,
    ErrorBody,
    LoadedMetadata,
    LoadedTable,
    SetLatestBackfilledVersion,
    UpdateTable,
    WireCommit,
)
from refimpl.commit_owner import Backfilled, ResolvedTable
from refimpl.commits import AttemptId, AttemptOutcome, CommitsAnswer, Outcome, Proposal
from refimpl.environment import Environment
from refimpl.log_path import LOG_FOLDER, Version, parse_staged
from refimpl.remote_owner.connection import Address, NoAnswerError, Reply
from refimpl.remote_owner.owner import RemoteOwner
from refimpl.table_feature import CATALOG_MANAGED

PROFILES: Final = ("core", "staged", "backlog-limit", "discovery")
_ADDRESS: Final = Address(scheme="http", host="kit", port=80, path="", catalog="kit", schema="kit")


class RemoteReferenceClient(ReferenceClient):
    """Answers the client side of the shared interface, for catalog-managed tables with staged commits.

    Tables are created and dropped as the shared interface does it; everything after that goes through the API.
    """

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(
            super().hello(client, request),
            name="reference-client-remote",
            profiles=PROFILES,
            features=(CATALOG_MANAGED.name,),
            commit_modes={CATALOG_MANAGED.name: ("staged",)},
        )

    def _owner_of(self, ask: Ask, client: str, name: str) -> AskedOwner:
        return _OverTheApi(ask, client, name, self._environment)


class _OverTheApi(AskedOwner):
    def __init__(self, ask: Ask, client: str, name: str, environment: Environment) -> None:
        super().__init__(ask, client, name)
        self._remote = RemoteOwner(_ADDRESS, environment, connection=KitServer(ask, client))

    def resolve(self, reference: str | Path) -> ResolvedTable:
        return super().resolve(reference) if isinstance(reference, Path) else self._remote.resolve(reference)

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        return self._remote.commit(table_id, version, proposal)

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        return self._remote.attempt_outcome(table_id, attempt)

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        return self._remote.get_commits(table_id, start, end)

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> Backfilled:
        return self._remote.backfill_to_version(table_id, version)

    def report_published(self, table_id: str, through: Version) -> None:
        self._remote.report_published(table_id, through)


class KitServer:
    """The calls of the API that a client of an existing table makes, answered by the kit's owner."""

    def __init__(self, ask: Ask, client: str) -> None:
        self._ask = ask
        self._client = client
        self._found: dict[str, m.Table] = {}

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        name = unquote(target.rpartition("/")[2])
        if body is None:
            return self._loaded(name)
        return self._updated(name, msgspec.json.decode(body, type=UpdateTable))

    def close(self) -> None:
        """Nothing is kept."""

    def _asked(self, request: m.Request) -> m.Answer:
        answer = self._ask(self._client, request)
        if isinstance(answer, m.Unknown):
            raise NoAnswerError(answer.reason)
        return answer

    def _loaded(self, name: str) -> Reply:
        """The kit tells resolving a table from asking for its commits; the API has one call for both."""
        found = self._found.get(name)
        if found is not None:
            answer = self._asked(m.GetCommits(table=found.table))
            if isinstance(answer, m.Commits):
                return _described(found, answer.commits, answer.latest)
            del self._found[name]
        resolved = self._asked(m.LoadTable(name=name))
        if not isinstance(resolved, m.Table) or resolved.location is None:
            return _refused_by(resolved)
        self._found[name] = resolved
        return (
            self._loaded(name) if resolved.commits is None else _described(resolved, resolved.commits, resolved.latest)
        )

    def _updated(self, name: str, request: UpdateTable) -> Reply:
        (required,) = request.requirements or ()
        table = required.uuid if hasattr(required, "uuid") else ""
        for update in request.updates:
            answer: m.Answer | None = None
            if isinstance(update, AddCommit):
                attempt = parse_staged(update.commit.file_name)
                answer = self._asked(
                    m.Commit(
                        table=table,
                        version=update.commit.version,
                        attempt="" if attempt is None or attempt.uuid is None else attempt.uuid,
                        staged_file=update.commit.file_name,
                    )
                )
            elif isinstance(update, SetLatestBackfilledVersion):
                answer = self._asked(m.BackfillToVersion(table=table, version=update.latest_published_version))
            if answer is not None and not isinstance(answer, m.Ratified | m.Done):
                return _refused_by(answer)
        return self._loaded(name)


def _described(found: m.Table, commits: Iterable[m.CommitEntry], latest: Version | None) -> Reply:
    location = Path(found.location or "")
    folder = location / LOG_FOLDER / CATALOG_MANAGED.staging_folder
    loaded = LoadedTable(
        metadata=LoadedMetadata(
            table_uuid=found.table,
            location=location.as_uri(),
            properties={f"{FEATURE_PREFIX}{found.feature}": "supported"},
        ),
        commits=tuple(_listed(entry, folder) for entry in commits if entry.file_name is not None),
        latest_table_version=latest,
    )
    return Reply(status=HTTPStatus.OK, body=msgspec.json.encode(loaded))


def _listed(entry: m.CommitEntry, folder: Path) -> WireCommit:
    """What the kit's owner does not tell of the staged file, the file itself does."""
    name = entry.file_name or ""
    path = folder / name
    status = path.stat() if path.is_file() else None
    return WireCommit(
        version=entry.version,
        timestamp=entry.in_commit_timestamp or 0,
        file_name=name,
        file_size=1 if status is None else status.st_size,
        file_modification_timestamp=0 if status is None else status.st_mtime_ns // 1_000_000,
    )


def _refused_by(answer: m.Answer) -> Reply:
    match answer:
        case m.Conflict():
            return _refusal(HTTPStatus.CONFLICT, "CommitVersionConflictException", "the version is taken")
        case m.NotFound():
            return _refusal(HTTPStatus.NOT_FOUND, "NoSuchTableException", "no such table")
        case m.Rejected(retryable=True, reason=reason):
            return _refusal(HTTPStatus.TOO_MANY_REQUESTS, "ResourceExhaustedException", reason)
    return _refusal(HTTPStatus.BAD_REQUEST, "InvalidParameterValueException", str(answer))


def _refusal(status: HTTPStatus, kind: str, message: str) -> Reply:
    error = ErrorAnswer(error=ErrorBody(message=message, type=kind, code=int(status)))
    return Reply(status=status, body=msgspec.json.encode(error))
