"""The kit's own client as a subject: reader, writer, maintenance and the change of a table's owner."""

from __future__ import annotations

import uuid
from typing import Any, Final

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.log_files import Listing
from conformance.models.maintenance import ModelMaintainer
from conformance.models.owner import COMMIT_MODES, OWNER_PROPERTY
from conformance.models.reader import ModelReader, Refused, State, Unsure
from conformance.models.writer import ModelWriter

TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


class ModelMigrator(ModelReader):
    """Takes filesystem tables to an owner, and back."""

    now: int = proposals.BASE_TIME
    most_tries: int = 100

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        try:
            return self._take_over(client, request)
        except Refused as refused:
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            return m.Unknown(reason=str(unsure))

    def _take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        """For the version after the newest, anew for every race that a filesystem writer won."""
        table = self._by_path(request.path)
        for _ in range(self.most_tries):
            listed = self._list(table)
            state = self._replay(table, listed, listed.newest)
            reply = self._ask_twice(client, m.TakeOver(
                path=request.path, name=request.name, feature=request.feature, commit_mode=request.commit_mode,
                version=state.version + 1, attempt=str(uuid.uuid4()),
                actions=self._ownership_change(request, state, listed),
            ))  # fmt: skip
            if not isinstance(reply, m.Conflict | m.Gap):
                return reply
        raise Refused(f"{self.most_tries} races lost")

    def _ownership_change(self, request: m.TakeOver, state: State, listed: Listing) -> tuple[str, ...]:
        timestamp = self._change_time(state, listed)
        stamped = state.properties.get(TIMESTAMPS) == "true"
        properties = {**state.properties, TIMESTAMPS: "true"}
        if not stamped:
            properties |= self._enablement(state.version + 1, timestamp)
        reader = {"readerFeatures": [request.feature]} if request.feature == "catalogManaged" else {}
        known = set(state.protocol.get("writerFeatures", ()))
        protocol = {
            "minReaderVersion": 3 if reader else state.protocol.get("minReaderVersion", 1),
            "minWriterVersion": 7,
            **reader,
            "writerFeatures": sorted({*known, request.feature, "inCommitTimestamp"}),
        }
        return (
            proposals.commit_info(request.attempt, timestamp, "SET TBLPROPERTIES"),
            proposals.line("protocol", protocol),
            proposals.line("metaData", {**state.metadata, "configuration": properties}),
        )

    def _change_time(self, state: State, listed: Listing) -> int:
        """Greater than the time of the commit before: where that has none, its file's modification time."""
        modified = listed.commits[state.version].stat().st_mtime_ns // 1_000_000
        return max(self.now, state.timestamp + 1, modified + 1)

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        return {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)}

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        try:
            return self._hand_back(client, request)
        except Refused as refused:
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            return m.Unknown(reason=str(unsure))

    def _hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        for _ in range(self.most_tries):
            table = self._resolve(client, request.table)
            state = self._read(client, table, None, None)
            reply = self._ask_twice(client, m.HandBack(
                table=table.reference or "", version=state.version + 1, attempt=str(uuid.uuid4()),
                actions=self._release(request, state, table.feature or ""),
            ))  # fmt: skip
            if not isinstance(reply, m.Conflict | m.Gap):
                return reply
        raise Refused(f"{self.most_tries} races lost")

    def _release(self, request: m.HandBack, state: State, feature: str) -> tuple[str, ...]:
        """The owner and the feature go together; the timestamps stay."""
        return (
            proposals.commit_info(request.attempt, max(self.now, state.timestamp + 1), "UNSET TBLPROPERTIES"),
            proposals.line("protocol", self._without(state.protocol, feature)),
            proposals.line("metaData", {**state.metadata, "configuration": self._unowned(state)}),
        )

    def _without(self, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
        left = {**protocol, "writerFeatures": [each for each in protocol["writerFeatures"] if each != feature]}
        if "readerFeatures" in left:
            left["readerFeatures"] = [each for each in left["readerFeatures"] if each != feature]
        return left

    def _unowned(self, state: State) -> dict[str, str]:
        return {name: value for name, value in state.properties.items() if not name.startswith(OWNER_PROPERTY)}

    def _ask_twice(self, client: str, request: m.Request) -> m.Answer:
        """After a lost answer the identical request once more: the owner knows it again."""
        reply = self.owner(client, request)
        return self.owner(client, request) if isinstance(reply, m.Unknown) else reply


CLIENT_PROFILES: Final = ("core", "staged", "inline", "direct-publish", "maintenance-policy", "ownership-transfer",
                          "backlog-limit", "discovery")  # fmt: skip


class ModelClient(ModelWriter, ModelMaintainer, ModelMigrator):
    """Answers the client side of the shared interface."""

    name = "model-client"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=self.name, version="1", interface_version=m.INTERFACE_VERSION, side="client",
            profiles=CLIENT_PROFILES, commit_modes=dict(COMMIT_MODES), promises=("fresh-snapshots",),
        )  # fmt: skip
