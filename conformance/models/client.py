"""The kit's own client: reader, writer and maintenance in one, as a subject of the client side."""

from __future__ import annotations

from typing import Final

from conformance.interface import messages as m
from conformance.models.maintenance import ModelMaintainer
from conformance.models.owner import COMMIT_MODES
from conformance.models.ownership import ModelMigrator
from conformance.models.writer import ModelWriter

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
