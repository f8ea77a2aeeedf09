"""Readers that misunderstand what a commit says."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from conformance.models.client import ModelClient
from conformance.models.reader import Actions, Refused, State
from conformance.mutants.registry import mutant

KNOWN = {
    "commitInfo",
    "protocol",
    "metaData",
    "add",
    "remove",
    "txn",
    "domainMetadata",
    "sidecar",
    "checkpointMetadata",
}


@mutant("MC-LOG-06", "CM-LOG-03", side="client")
class IgnoresRemovals(ModelClient):
    """Files that were removed stay in its snapshots."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "remove":
            super()._apply_action(state, kind, body)


@mutant("MC-LOG-06", "CM-LOG-03", side="client")
class RemovesForEver(ModelClient):
    """A file that was removed once never comes back, although a later commit adds it again."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and ("removed", body["path"]) in state.files:
            return
        super()._apply_action(state, kind, body)
        if kind == "remove":
            state.files["removed", body["path"]] = {}

    def _told(self, state: State, *, stale: bool) -> Any:
        state.files = {key: add for key, add in state.files.items() if add}
        return super()._told(state, stale=stale)


@mutant("LOG-29", side="client")
class RefusesUnknownActions(ModelClient):
    """An action of a kind that it does not know stops the read."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind not in KNOWN:
            raise Refused(f"unknown action {kind}")
        super()._apply_action(state, kind, body)


@mutant("LOG-29", side="client")
class RefusesUnknownFields(ModelClient):
    """A field that it does not know in an action that it does stops the read."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and "somethingNew" in body:
            raise Refused("unknown field in add")
        super()._apply_action(state, kind, body)


@mutant("LOG-30", side="client")
class KnowsFilesByTheirPaths(ModelClient):
    """Takes two files with the same path for one: removing it without its deletion vector removes it with one too."""

    def _apply(self, state: State, version: int, actions: Actions) -> None:
        super()._apply(state, version, actions)
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        state.files = {key: add for key, add in state.files.items() if key[0] not in removed}


@mutant("LOG-31", side="client")
class KeepsTheFirstTransaction(ModelClient):
    """Of an application's transactions it remembers the first one."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "txn" or body["appId"] not in state.applications:
            super()._apply_action(state, kind, body)


@mutant("LOG-31", side="client")
class KeepsRemovedDomains(ModelClient):
    """A metadata domain that was removed stays."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        super()._apply_action(state, kind, {**body, "removed": False} if kind == "domainMetadata" else body)


@mutant("LOG-31", side="client")
class AddsNewPropertiesToOldOnes(ModelClient):
    """New metadata add to the table's properties instead of replacing them."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "metaData":
            body = {**body, "configuration": {**state.properties, **body["configuration"]}}
        super()._apply_action(state, kind, body)


@mutant("LOG-32", side="client")
class TakesPathsAsTheyAreWritten(ModelClient):
    """Does not decode paths: it looks for a file named `with%20space.parquet`."""

    def _decoded(self, path: str) -> str:
        return path


@mutant("LOG-32", side="client")
class DecodesPathsTwice(ModelClient):
    """Decodes paths once too often: a percent sign in a folder's name is lost."""

    def _decoded(self, path: str) -> str:
        return unquote(unquote(path))


@mutant("LOG-32", side="client")
class PutsEveryFileIntoTheTable(ModelClient):
    """Takes the last part of an absolute path for a file in the table's folder."""

    def _decoded(self, path: str) -> str:
        return super()._decoded(path.rpartition("/")[2] if path.startswith("file:") else path)


@mutant("LOG-33", side="client")
class TellsEmptyFromNull(ModelClient):
    """An empty partition value is an empty string for it, and not null."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = (add.get("partitionValues") or {}).get("part")
        return None if value is None else str(value)


@mutant("LOG-33", side="client")
class TakesPartitionValuesForNumbers(ModelClient):
    """A partition value that looks like a number becomes one: 007 is 7."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = super()._partition(add)
        return str(int(value)) if value is not None and value.isdecimal() else value
