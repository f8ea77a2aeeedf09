"""Writers that stamp, name or label their commits wrongly: the kit's owner looks at all that they propose."""

from __future__ import annotations

import json
from typing import Any

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.owner import OWNER_PROPERTY
from conformance.models.reader import Resolved, State
from conformance.models.writer import Transaction
from conformance.mutants.registry import mutant

Actions = tuple[str, ...]


@mutant("ICT-08", bugs=("FB19",), side="client")
class StampsTheWallClock(ModelClient):
    """The in-commit timestamp is the clock's time, even where that is behind the commit before."""

    def _timestamp(self, newest: State) -> int:
        return self.now


@mutant("ICT-14", side="client")
class KeepsItsTimeAfterALostRace(ModelClient):
    """After a lost race the commit keeps the timestamp of its first attempt."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        actions = super()._actions(transaction, version)
        first = transaction.base.timestamp + 1
        info = json.loads(actions[0])
        info["commitInfo"]["inCommitTimestamp"] = first
        return (json.dumps(info), *actions[1:])


@mutant("ICT-05", side="client")
class WritesNoCommitInfo(ModelClient):
    """A commit without commitInfo, and so without a time."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        return super()._actions(transaction, version)[1:]


@mutant("ICT-06", side="client")
class WritesCommitInfoLast(ModelClient):
    """commitInfo stands behind the other actions."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        return (*others, first)


@mutant("ICT-07", side="client")
class WritesTimesAsText(ModelClient):
    """The in-commit timestamp is a string."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        info = json.loads(first)
        info["commitInfo"]["inCommitTimestamp"] = str(info["commitInfo"]["inCommitTimestamp"])
        return (json.dumps(info), *others)


@mutant("CM-TXNID-01", side="client")
class WritesNoTxnId(ModelClient):
    """A commit of a catalog-managed table without a txnId."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        info = json.loads(first)
        del info["commitInfo"]["txnId"]
        return (json.dumps(info), *others)


@mutant("CM-TXNID-02", side="client")
class HasOneTxnIdForAll(ModelClient):
    """All of its transactions have the same txnId."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        info = json.loads(first)
        info["commitInfo"]["txnId"] = "me"
        return (json.dumps(info), *others)


@mutant("CONFLICT-RETRY-07", "CM-LOG-06", side="client")
class ReusesItsAttempt(ModelClient):
    """A second try carries the id of the first."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: Actions) -> m.Commit:
        self._kept = getattr(self, "_kept", None) or attempt
        return super()._request(table, version, self._kept, actions)


@mutant("MC-ENABLE-02", "CM-ENABLE-02", side="client")
class DropsTheFeature(ModelClient):
    """Adding a feature to the protocol replaces the list of features."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        return {**newest.protocol, "writerFeatures": ["inCommitTimestamp", feature]}


@mutant("MC-ENABLE-01", "CM-ENABLE-01", "ICT-03", side="client")
class LowersTheWriterVersion(ModelClient):
    """Adding a feature to the protocol sets the writer version back."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        return {**super()._protocol(newest, feature), "minWriterVersion": 5}


@mutant("ICT-03", "MC-WRITE-01", "CM-WRITE-02", side="client")
class DropsTheTimestampFeature(ModelClient):
    """Adding a feature to the protocol loses the one of in-commit timestamps."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        protocol = super()._protocol(newest, feature)
        return {**protocol, "writerFeatures": [each for each in protocol["writerFeatures"] if "Timestamp" not in each]}


@mutant("ICT-04", "MC-WRITE-01", "CM-WRITE-02", bugs=("FB22",), side="client")
class UnsetsWhatItIsTold(ModelClient):
    """ALTER TABLE UNSET takes the enablement of in-commit timestamps away, and the owner with it."""

    def _refuse_protected(self, request: m.Transact) -> None:
        pass


@mutant("ICT-21", bugs=("FB21",), side="client")
class ReplacesAllProperties(ModelClient):
    """REPLACE TABLE keeps the owner and forgets since when the timestamps count."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        if request.replace_table:
            kept = {key: value for key, value in metadata["configuration"].items() if "Enablement" not in key}
            return {**metadata, "configuration": kept}
        return metadata


@mutant("MC-ENABLE-09", "MC-ENABLE-03", side="client")
class ReplacesTheOwner(ModelClient):
    """REPLACE TABLE forgets the property that names the owner, and keeps the feature."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        kept = {key: value for key, value in metadata["configuration"].items() if key != OWNER_PROPERTY}
        return {**metadata, "configuration": kept} if request.replace_table else metadata


@mutant("MC-ENABLE-07", side="client")
class RewritesTheOwnersConfiguration(ModelClient):
    """The owner's configuration is parsed and written anew."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        name = f"{OWNER_PROPERTY}Conf"
        if name not in metadata["configuration"]:
            return metadata
        written = json.dumps(json.loads(metadata["configuration"][name]), sort_keys=True)
        return {**metadata, "configuration": {**metadata["configuration"], name: written}}
