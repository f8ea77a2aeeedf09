"""The reference's Delta client with its remote owner: the kit's own owner behind the Delta API, as a server shows it.

Only the network is missing: `DeltaApi` stands where the connection is. Requests and answers are the API's bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from conformance.adapters.delta_api import CATALOG, SCHEMA, DeltaApi
from conformance.adapters.reference.asked_owner import Ask, AskedOwner
from conformance.adapters.reference.client import ReferenceClient
from conformance.adapters.uc.api import UnansweredError
from conformance.interface import messages as m
from refimpl.commit_owner import Backfilled, ResolvedTable
from refimpl.commits import AttemptId, AttemptOutcome, CommitsAnswer, Outcome, Proposal
from refimpl.environment import Environment
from refimpl.log_path import Version
from refimpl.remote_owner.connection import Address, NoAnswerError, Reply
from refimpl.remote_owner.owner import RemoteOwner
from refimpl.table_feature import CATALOG_MANAGED

PROFILES: Final = ("core", "staged", "backlog-limit", "discovery", "change-data", "row-tracking")
_ADDRESS: Final = Address(scheme="http", host="kit", port=80, path="", catalog=CATALOG, schema=SCHEMA)


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
        self._remote = RemoteOwner(_ADDRESS, environment, connection=_Connection(DeltaApi(ask), client))

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


class _Connection:
    """Stands where the remote owner's connection is, with no network."""

    def __init__(self, api: DeltaApi, client: str) -> None:
        self._api = api
        self._headers = {"Authorization": f"Bearer {client}"}

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        try:
            status, content = self._api.send(method, target, body, self._headers)
        except UnansweredError as error:
            raise NoAnswerError(str(error)) from error
        return Reply(status=status, body=content)

    def close(self) -> None:
        """Nothing is kept."""
