"""Clients with faults that show after many winners, with unusual names and numbers, or with two coincidences. Generated
programs find them; most are beyond what an example tries."""

import copy
import dataclasses
import json
import unicodedata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, unquote, unquote_plus

import msgspec

from conformance.interface import messages as m
from conformance.models import log_files, proposals
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.reader import Resolved, State, Unsure, file_of, physical_part
from conformance.models.writer import Transaction
from conformance.mutants import beyond, beyond_functions, beyond_method, memory, memory_of, mutant_method, original

Actions = list[dict[str, Any]]


# Many winners

WINNERS: Final = ("CONFLICT-ORDER-01", "CONFLICT-RETRY-04", "CONFLICT-CHECK-01")


def lost(transaction: Transaction) -> int:
    """The number of winners before the one that is checked now; -1 before the first proposal."""
    return transaction.checked.version - transaction.base.version if transaction.attempts else -1


@beyond_method("_check", *WINNERS)
def skips_the_winner_between_two_pages(self: ModelClient, transaction: Transaction, winner: Actions) -> None:
    """Checks winners in pages of five after a lost race, and skips the one between two pages."""
    if lost(transaction) < 0 or lost(transaction) % 6 != 5:
        original(self)._check(transaction, winner)


# A published prefix

READING: Final = ("MC-READ-07", "CM-READ-05", "CM-READ-09", "LOG-18", "LOG-09", "PROFILE-CLIENT-01")


@beyond_method("_replay", *READING, "LOG-08")
def applies_a_hundred_commits(self: ModelClient, table: Resolved, listed: log_files.Listing, target: int) -> State:
    """Reads at most 100 commits after a checkpoint."""
    return original(self)._replay(table, listed, min(target, max(self._start(listed, target).version, 0) + 100))


# Paths


@beyond_method("_decoded", "LOG-32")
def a_plus_is_a_blank(self: ModelClient, path: str) -> str:
    """Decodes paths like the fields of a form: a plus is a blank."""
    return unquote_plus(path)


@mutant_method("_add", "DELAYED-05", "LOG-32")
def a_blank_is_a_plus(
    self: ModelClient, file: m.DataFile, request: m.Transact, timestamp: int, *, partitioned: bool
) -> str:
    """Encodes paths like the fields of a form: a blank is a plus."""
    body = json.loads(original(self)._add(file, request, timestamp, partitioned=partitioned))["add"]
    return proposals.line("add", {**body, "path": quote_plus(file.path, safe="/")})


class _ComparesPaths(ModelClient):
    """Takes files with equal keys for one file."""

    def key(self, path: str) -> str:
        raise NotImplementedError

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind in ("add", "remove"):
            for path, vector in list(state.files):
                if path != body["path"] and self.key(path) == self.key(body["path"]):
                    del state.files[path, vector]
        super()._apply_action(state, kind, body)


beyond_functions(
    "key", _ComparesPaths, "LOG-30", "MC-LOG-06", "CM-LOG-03",
    paths_ignore_case=(
        "Takes two files whose paths differ in case for one.", lambda path: path.lower()),
    paths_are_normalized=(
        "Takes two files whose paths differ in their Unicode form for one.",
        lambda path: unicodedata.normalize("NFC", unquote(path))),
    paths_are_names=(
        "Takes two files of one name in different folders for one.", lambda path: path.rpartition("/")[2]),
)  # fmt: skip


# The size of numbers


@beyond_method("_apply_action", "CONFLICT-REPEAT-01", "LOG-31")
def applications_have_doubles(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Reads the versions of applications as doubles: above 2^53 they are rounded."""
    body = {**body, "version": int(float(body["version"]))} if kind == "txn" else body
    original(self)._apply_action(state, kind, body)


@beyond_method("_held", "LOG-34")
def checkpoints_have_doubles(self: ModelClient, state: State) -> list[dict[str, Any]]:
    """Writes the versions of applications into its checkpoints as doubles."""
    applications = {name: int(float(version)) for name, version in state.applications.items()}
    return original(self)._held(dataclasses.replace(state, applications=applications))


# Reads without a result


@beyond_method("_actions", "CONFLICT-ORDER-08", "CONFLICT-FILES-01", "CONFLICT-ISOLATION-01")
def empty_reads_are_blind(self: ModelClient, transaction: Transaction, version: int) -> tuple[str, ...]:
    """Calls itself a blind append if its condition matched no file."""
    first, *others = original(self)._actions(transaction, version)
    request, base = transaction.request, transaction.base
    if request.removes or any(self._was_read(request, base, file) for file in base.files.values()):
        return (first, *others)
    return (proposals.line("commitInfo", {**json.loads(first)["commitInfo"], "isBlindAppend": True}), *others)


# The policy, over time

POLICY: Final = ("CM-MAINT-05", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04")


@beyond_method("_ask_for", *POLICY)
def a_permission_stays(self: ModelClient, client: str, table: Resolved, job: str) -> None:
    """Does not ask again for a job that was once permitted on a table; asks again after a refusal."""
    permitted = memory_of(self, set[tuple[str | None, str]])
    if (table.reference, job) not in permitted:
        original(self)._ask_for(client, table, job)
        permitted.add((table.reference, job))


# Changes that are proposed again


@beyond("LOG-43", "CONFLICT-ORDER-04", "CONFLICT-ORDER-05", "CONFLICT-CHECK-01")
class TakesOverWithItsFirstMetadata(ModelClient):
    """Proposes a take-over again, after a lost race, with the metadata that it read first: the winner's change is
    undone."""

    first: dict[str, dict[str, Any]] = memory(dict)

    def _ownership_change(self, request: m.TakeOver, state: State, listed: log_files.Listing) -> tuple[str, ...]:
        state.metadata = self.first.setdefault(request.attempt, state.metadata)
        return super()._ownership_change(request, state, listed)


@beyond("LOG-42", "CONFLICT-ORDER-03", "CONFLICT-CHECK-01")
class TakesOverWithItsFirstProtocol(ModelClient):
    """Proposes a take-over again, after a lost race, with the protocol that it read first."""

    first: dict[str, dict[str, Any]] = memory(dict)

    def _ownership_change(self, request: m.TakeOver, state: State, listed: log_files.Listing) -> tuple[str, ...]:
        state.protocol = self.first.setdefault(request.attempt, state.protocol)
        return super()._ownership_change(request, state, listed)


# Several winners that assign row ids


@beyond_method("_high_water_mark", "ROW-01", "ROW-04", "ROW-03")
def row_ids_follow_the_files(self: ModelClient, transaction: Transaction) -> int:
    """Begins row ids after the highest one of the files in the table: those of removed files are assigned again."""
    files = transaction.checked.files.values()
    return max(
        (body["baseRowId"] + json.loads(body.get("stats") or "{}").get("numRecords", 1) - 1 for body in files
         if "baseRowId" in body), default=-1,
    )  # fmt: skip


# Columns as newer and older writers describe them


@beyond_method("_stored_name", "LOG-51", bugs=("FB50",))
def stale_physical_names_count(self: ModelClient, state: State) -> str:
    """Reads partition values by physical names, also after column mapping was turned off."""
    return physical_part(state)


@beyond_method("_stored_name", "LOG-51", bugs=("FB50",))
def a_mapping_of_readers_is_overlooked(self: ModelClient, state: State) -> str:
    """Reads partition values by the names of columns unless the protocol lists column mapping for writers, too."""
    return original(self)._stored_name(state) if "columnMapping" in state.features else "part"


@beyond_method("_metadata", "PROFILE-CLIENT-02")
def void_columns_are_dropped(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Leaves columns of the type void out of new metadata."""
    body = original(self)._metadata(newest, request)
    schema = json.loads(body["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["type"] != "void"]
    return {**body, "schemaString": json.dumps(schema)}


@beyond_method("_metadata", "PROFILE-CLIENT-02", "MC-WRITE-01", "CM-WRITE-02")
def the_codec_is_dropped(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Leaves properties about Parquet files, which it does not know, out of new metadata."""
    body = original(self)._metadata(newest, request)
    kept = {name: value for name, value in body["configuration"].items() if not name.startswith("delta.parquet.")}
    return {**body, "configuration": kept}


@beyond_method("_with_column", "LOG-54")
def partition_values_are_written_by_logical_names(self: ModelClient, line: str, column: str) -> str:
    """Writes partition values by the logical names of columns to a table with column mapping."""
    return line


@beyond_method("_check_removable", "LOG-53")
def append_only_tables_lose_files(self: ModelClient, base: State, request: m.Transact) -> None:
    """Removes data from append-only tables."""


@beyond_method("_held", "LOG-34", "LOG-41")
def removals_in_checkpoints_lose_vectors(self: ModelClient, state: State) -> Actions:
    """Omits the deletion vectors of removals in checkpoints."""
    held = original(self)._held(state)
    return [{kind: _without_vector(body) if kind == "remove" else body} for row in held for kind, body in row.items()]


def _without_vector(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "deletionVector"}


@beyond_method("_is_recent", "LOG-40")
def vacuum_deletes_vectors_of_removed_files(self: ModelClient, remove: dict[str, Any], since: float) -> bool:
    """Keeps recently removed files in VACUUM, but not their deletion vectors."""
    recent = original(self)._is_recent(remove, since)
    remove.pop("deletionVector", None)
    return recent


@beyond_method("_actions", "CONFLICT-ISOLATION-05")
def blind_removals(self: ModelClient, transaction: Transaction, version: int) -> tuple[str, ...]:
    """Calls itself a blind append if it has read nothing, even if it removes files."""
    first, *others = original(self)._actions(transaction, version)
    info = {**json.loads(first)["commitInfo"], "isBlindAppend": transaction.request.reads is None}
    return (proposals.line("commitInfo", info), *others)


# What lies in several pieces, and what changes back


@beyond_method("_checkpointed", "LOG-18", "MC-LOG-06", "CM-LOG-03")
def the_first_sidecar_is_all(self: ModelClient, checkpoint: log_files.Checkpoint) -> Actions:
    """Reads only the first sidecar of a V2 checkpoint."""
    actions = log_files.rows_of(checkpoint.files[0])
    names = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
    if not names:
        return original(self)._checkpointed(checkpoint)
    return [*actions, *log_files.rows_of(checkpoint.files[0].parent / log_files.SIDECARS / names[0])]


@beyond_method("_checkpointed", "LOG-18", "MC-LOG-06", "CM-LOG-03")
def the_first_row_group_is_all(self: ModelClient, checkpoint: log_files.Checkpoint) -> Actions:
    """Reads the files of a checkpoint from the first row group only."""
    import pyarrow.parquet as pq  # slow to import, and each process that serves a mutant imports this module

    actions = original(self)._checkpointed(checkpoint)
    path = checkpoint.files[0]
    first = len(actions) if path.suffix == ".json" else pq.ParquetFile(path).metadata.row_group(0).num_rows
    return actions[:first] + [action for action in actions[first:] if "add" not in action]


@beyond_method("_check_domains", "CONFLICT-ORDER-06")
def removed_domains_do_not_conflict(
    self: ModelClient, request: m.Transact, domains: list[dict[str, Any]]
) -> None:  # fmt: skip
    """Writes a metadata domain that a winner has just removed."""
    original(self)._check_domains(request, [body for body in domains if not body.get("removed")])


@beyond_method("_check_applications", "CONFLICT-ORDER-07", "CONFLICT-REPEAT-01")
def earlier_batches_do_not_conflict(
    self: ModelClient, request: m.Transact, applications: list[dict[str, Any]]
) -> None:  # fmt: skip
    """Ignores a winner that recorded an earlier batch of the same application."""
    batch = -1 if request.application is None else request.application[1]
    original(self)._check_applications(request, [body for body in applications if body["version"] >= batch])


@beyond_method("_apply_action", "LOG-31")
def the_greatest_batch_counts(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Takes the greatest batch of an application, not the latest one."""
    if kind != "txn" or body["version"] >= state.applications.get(body["appId"], -1):
        original(self)._apply_action(state, kind, body)


@beyond_method("_ask", "CM-READ-05", "CM-READ-09", "MC-READ-07", "MC-LOG-03")
def a_silent_owner_has_no_commits(self: ModelClient, client: str, table: Resolved) -> None:
    """Reads what is published if the owner does not answer, and does not say that newer versions may exist."""
    try:
        original(self)._ask(client, table)
    except Unsure:
        table.latest, table.commits = None, ()


@beyond_method("_ask_for", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04")
def a_silent_owner_allows_every_job(self: ModelClient, client: str, table: Resolved, job: str) -> None:
    """Runs maintenance if the owner does not answer what its policy is."""
    if table.reference is None or isinstance(
        self.owner(client, m.MaintenancePolicy(table=table.reference)), m.Policy
    ):  # fmt: skip
        original(self)._ask_for(client, table, job)


@beyond_method("_is_empty", "PROFILE-CLIENT-02")
def a_batch_without_rows_is_skipped(self: ModelClient, request: m.Transact) -> bool:
    """Leaves out a commit that has nothing but the batch of an application."""
    return original(self)._is_empty(msgspec.structs.replace(request, application=None))


@beyond_method("_publish_all", "CM-PUBLISH-08")
def publishes_the_newest_first(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Publishes the newest commit first, so that readers of the log find it early."""
    self._gather(client, table)
    for commit in sorted(table.commits, key=lambda commit: -commit.version):
        if commit.version <= version:
            self._publish_one(table, commit)


# What two versions, or two tables, have in common


@beyond_method("_replay", "CM-READ-08", "PROFILE-CLIENT-01")
def caches_versions_by_name_and_files(self: ModelClient, table: Resolved, listed: Listing, target: int) -> State:
    """Caches versions by the table's name and the names and sizes of the commits: a new table may have the same."""
    read = memory_of(self, dict[Any, State])
    sizes = tuple((path.name, path.stat().st_size) for path in listed.commits.values())
    state = original(self)._replay(table, listed, target)
    return copy.deepcopy(read.setdefault((table.name, target, sizes), copy.deepcopy(state)))


@beyond_method("_opened", "LOG-31", "MC-LOG-06", "LOG-18", "PROFILE-CLIENT-01", "CM-LOG-03")
def reads_the_first_batch_of_a_commit(self: ModelClient, path: Path) -> Actions:
    """Reads only the first 1,024 actions of a file."""
    return original(self)._opened(path)[:1024]


@beyond_method("_metadata", "LOG-52")
def the_description_is_dropped(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Changes a property, and writes only the members of the metadata that it knows."""
    body = original(self)._metadata(newest, request)
    return {key: body[key] for key in body.keys() - {"name", "description"}}


@beyond("DELAYED-01", "DELAYED-03")
class WritesDataFilesLast(ModelClient):
    """Writes its data files after the commit that names them."""

    last: Transaction

    def _write_files(self, transaction: Transaction) -> list[Path]:
        self.last = transaction
        return []

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        if isinstance(answer, m.Committed):
            super()._write_files(self.last)
        return answer


@beyond_method("_catch_up", "LOG-47", "PROFILE-CLIENT-02", "CM-READ-08")
def resolves_the_name_before_each_proposal(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Resolves the table's name again for each proposal: it commits to a new table what is about the old one."""
    transaction.table = self._resolve(client, transaction.request.table)
    original(self)._catch_up(client, transaction)


# Kinds of faults from a round of clients that were written without knowledge of the kit


@beyond("LOG-31")
class LargerBatchesWinAfterACheckpoint(ModelClient):
    """Keeps the largest batch of an application, not the last one, among the commits after a checkpoint."""

    checkpointed: bool = False

    def _start(self, listed: log_files.Listing, target: int) -> State:
        state = super()._start(listed, target)
        self.checkpointed = state.version >= 0
        return state

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        earlier = kind == "txn" and body["version"] < state.applications.get(body["appId"], -1)
        if not (earlier and self.checkpointed):
            super()._apply_action(state, kind, body)


@beyond("CONFLICT-ORDER-08", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10", "CONFLICT-FILES-03", "CONFLICT-FILES-01")
class NullPartitionsNeverConflict(ModelClient):
    """Overlooks the files of winners whose partition value is null."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        def is_null(action: dict[str, Any]) -> bool:
            body = action.get("add") or transaction.base.files.get(file_of(action.get("remove") or {"path": ""})) or {}
            return "part" in body.get("partitionValues", {}) and not body["partitionValues"]["part"]

        super()._check(transaction, [action for action in winner if not is_null(action)])


@beyond_method("_checkpoints", "LOG-19", "LOG-20", "FIELD-03", "LOG-18")
def takes_the_last_part_for_the_whole(
    self: ModelClient, listed: log_files.Listing, target: int
) -> list[log_files.Checkpoint]:
    """Takes a checkpoint in several parts for complete if its last part exists."""

    def whole(checkpoint: log_files.Checkpoint) -> log_files.Checkpoint:
        parts = checkpoint.parts
        last = parts > 1 and f".{parts:010}.{parts:010}." in checkpoint.files[-1].name
        return dataclasses.replace(checkpoint, parts=len(checkpoint.files)) if last else checkpoint

    checkpoints = [whole(checkpoint) for checkpoint in listed.checkpoints]
    return original(self)._checkpoints(dataclasses.replace(listed, checkpoints=checkpoints), target)
