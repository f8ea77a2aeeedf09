"""Writers that lose, duplicate or misplace changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, checkpoint_file, commit_file
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.owner import OWNER_PROPERTY
from conformance.models.reader import Refused, Resolved, State, Unsure
from conformance.models.storage import FolderStorage
from conformance.models.writer import ROW_IDS, Transaction
from conformance.mutants import mutant, mutant_functions, mutant_method, original
from conformance.mutants.good_clients import Labels, PublishesBeforeAHandBack

UNKNOWN = ("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06")

# Unsupported tables


@mutant_method("_check_writable", "LOG-47")
def ignores_writer_features(self: ModelClient, protocol: dict[str, Any]) -> None:
    """Writes to tables with features that it does not know."""


# Unknown outcomes


@mutant(*UNKNOWN, bugs=("FB07",))
class RetriesAnUnknownOutcome(ModelClient):
    """Proposes the same changes again after an unknown outcome: they are committed twice."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        return False


@mutant(*UNKNOWN, bugs=("FB08",))
class ResolvesAttemptsAmongUnbackfilledCommits(ModelClient):
    """Searches for its commit among unbackfilled ones only: once backfilled, it is taken for a lost race."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        self._ask(client, transaction.table)
        names = [commit.file_name or str(commit.actions) for commit in transaction.table.commits]
        return any(request.attempt in name or transaction.request.marker in name for name in names)


@mutant_method("_resolved", "MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-UNKNOWN-01")
def reports_unknown_as_failed(self: ModelClient, client: str, transaction: Transaction, request: m.Commit) -> bool:
    """Reports a commit whose answer was lost as failed, although it landed."""
    raise Refused("the owner did not answer")


@mutant_method("_outcome", *UNKNOWN, "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",))
def takes_a_refusal_for_the_outcome(self: ModelClient, reply: m.Answer) -> bool:
    """Reports a commit whose answer was lost as failed when its lookup is refused, and deletes the data files."""
    if isinstance(reply, m.Rejected | m.NotFound):
        raise Refused(f"the owner refused: {reply}")
    return original(self)._outcome(reply)


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",))
class TakesAConflictForALostRace(ModelClient):
    """Sends a commit again whose answer was lost, and takes a conflict for a lost race: if the owner then refuses to
    list the commits, it reports a failure and deletes the data files."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        reply = self.owner(client, request)
        if not isinstance(reply, m.Ratified | m.Conflict):
            raise Unsure(f"the repetition was answered {reply}")
        return isinstance(reply, m.Ratified)

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        try:
            super()._catch_up(client, transaction)
        except Unsure as unsure:
            raise Refused(str(unsure)) from unsure


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",))
class TakesAFullBacklogForTheOutcome(ModelClient):
    """Sends a commit again whose answer was lost. If the backlog is full by then, it reports a failure and deletes the
    data files."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        reply = self.owner(client, request)
        if isinstance(reply, m.Rejected) and reply.retryable:
            raise Refused(f"the owner refused: {reply}")
        return isinstance(reply, m.Ratified) or super()._resolved(client, transaction, request)


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",))
class TakesACleanedUpVersionForALostRace(TakesAConflictForALostRace):
    """Sends a commit again whose answer was lost, and takes a conflict for a lost race if a newer checkpoint exists:
    it assumes that its own snapshot was too old."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        version = transaction.checked.version + 1
        try:
            super()._catch_up(client, transaction)
        except Refused as refused:
            newer = checkpoint_file(version + 1)
            if (transaction.table.log / newer).exists():
                raise
            raise Unsure(str(refused)) from refused


@mutant_method("_resolved", "PROFILE-UNKNOWN-03", bugs=("FB40",))
def deletes_its_staged_file(self: ModelClient, client: str, transaction: Transaction, request: m.Commit) -> bool:
    """Deletes its staged file after an unknown outcome, although the commit may be ratified."""
    if request.staged_file is not None:
        (transaction.table.log / STAGING[transaction.table.feature or ""] / request.staged_file).unlink()
    return original(self)._resolved(client, transaction, request)


@mutant_method("_keep_files", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",))
def deletes_its_data_files(self: ModelClient, files: list[Path]) -> None:
    """Deletes its data files after an unknown outcome, although the commit may be ratified."""
    self._discard_files(files)


# Lost races, rejections, limits


@mutant("CONFLICT-RETRY-01", bugs=("FB35",))
class GivesUpAfterFifteenRaces(ModelClient):
    """Fails a transaction without conflicts after fifteen lost races."""

    most_tries = 15


@mutant("CONFLICT-RETRY-06", bugs=("FB48",))
class RetriesWithoutLimit(ModelClient):
    """Proposes again without limit while the owner returns conflicts without winners, one orphaned file per try."""

    most_tries = 1_000_000


@mutant_method("_catch_up", "FIELD-04", bugs=("FB04",))
def searches_winners_in_the_listing(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Fails if the winning commit is not published."""
    if transaction.attempts and self._list(transaction.table).newest < transaction.checked.version + 1:
        raise Refused("no winning commits found")
    original(self)._catch_up(client, transaction)


@mutant_method("_catch_up", "FIELD-04", bugs=("FB04",))
def takes_published_winners_for_all(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Rebases on the published winners, if there are any, and fails if a later winner is not published."""
    listed = self._list(transaction.table)
    if not transaction.attempts or listed.newest <= transaction.base.version:
        original(self)._catch_up(client, transaction)
        return
    if listed.newest <= transaction.checked.version:
        raise Refused(f"the winners end before version {transaction.checked.version + 1}")
    for version in range(transaction.checked.version + 1, listed.newest + 1):
        winner = self._commit(transaction.table, listed, {}, version)
        self._check(transaction, winner)
        self._apply(transaction.checked, version, winner)


@mutant_method("_catch_up", "MC-FILES-11", "CONFLICT-RETRY-03")
def checks_only_its_own_file_name(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Commits to a table without an owner if the next file name is free, without checking later commits."""
    if transaction.table.reference is not None or transaction.attempts:
        original(self)._catch_up(client, transaction)


@mutant_method("_refused", "CONFLICT-RETRY-02")
def retries_rejections(self: ModelClient, reply: m.Answer) -> None:
    """Retries a proposal that the owner rejected permanently."""


@mutant_method("_make_room", "PROFILE-BACKLOG-03", bugs=("FB46",))
def never_backfills_a_full_backlog(self: ModelClient, client: str, request: m.Commit) -> None:
    """Retries with a full backlog without requesting a backfill."""


@mutant("PROFILE-BACKLOG-03")
class BackfillsAFullBacklogOnce(ModelClient):
    """Requests one backfill of a full backlog; if it fills again, gives up."""

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        self._made = False
        return super()._transact(client, transaction)

    def _make_room(self, client: str, request: m.Commit) -> None:
        if self._made:
            raise Refused("the backlog is full")
        self._made = True
        super()._make_room(client, request)


# Past the owner


@mutant_method("_propose", "MC-WRITE-03", "CM-WRITE-04", "MC-FILES-12", bugs=("FB28",))
def ignores_the_owner_when_writing(self: ModelClient, client: str, transaction: Transaction, version: int) -> bool:
    """Commits to an owned table by creating the next numbered file."""
    return self._put(transaction.table, version, self._actions(transaction, version))


@mutant_method("_open", "CM-ACCESS-02", "MC-WRITE-03", "CM-WRITE-04", "MC-CONVERT-10", "CM-WRITE-01")
def writes_owned_tables_by_path(self: ModelClient, client: str, name: str) -> Resolved:
    """Writes to a path without checking whether the table has an owner."""
    if "/" not in name:
        return self._resolve(client, name)
    return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(name) / LOG)


@mutant("MC-FILES-11", "CONFLICT-RETRY-03")
class OverwritesTheNextFile(ModelClient):
    """Writes the next file of a table without an owner, even if it exists."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.table.reference is not None:
            super()._catch_up(client, transaction)

    def _put(self, table: Resolved, version: int, actions: tuple[str, ...]) -> bool:
        FolderStorage(table.log.parent).put(str(table.log / commit_file(version)), proposals.content(actions), 0)
        return True


@mutant("MC-WRITE-02", "CM-WRITE-03")
class StagesInTheWrongFolder(ModelClient):
    """Writes its staged files to the other table feature's folder."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: tuple[str, ...]) -> m.Commit:
        other = "catalogManaged" if table.feature == "managedCommit" else "managedCommit"
        wrong = Resolved(**{**vars(table), "feature": other})
        return super()._request(wrong, version, attempt, actions)


# Files


class _Changed(ModelClient):
    """Edits the add actions of its commits."""

    def _add(self, file: m.DataFile, request: m.Transact, timestamp: int, *, partitioned: bool) -> str:
        body = json.loads(super()._add(file, request, timestamp, partitioned=partitioned))["add"]
        return proposals.line("add", self._edited(body))

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return body


mutant_functions(
    "_edited", _Changed,
    encodes_paths_twice=(
        "Encodes paths twice.", lambda body: {**body, "path": quote(body["path"])}, "DELAYED-05"),
    writes_null_partitions_as_text=(
        "Writes a null partition value as the text `null`.",
        lambda body: {**body, "partitionValues": {
            name: value or "null" for name, value in body["partitionValues"].items()}}, "DELAYED-05"),
    keeps_the_change_data_marker=(
        "Keeps the marker of change data among the partition values.",
        lambda body: {**body, "partitionValues": {**body["partitionValues"], "__is_cdc": "false"}}, "DELAYED-08"),
)  # fmt: skip


@mutant("ROW-05")
class RemovesWithoutRowIds(ModelClient):
    """Removes a file without its row ids: readers of the removal cannot tell which rows went."""

    def _removal(self, file: dict[str, Any], request: m.Transact, timestamp: int) -> dict[str, Any]:
        body = super()._removal(file, request, timestamp)
        return {name: value for name, value in body.items() if name not in ROW_IDS}


@mutant("LOG-30")
class RemovesWithoutDeletionVectors(ModelClient):
    """Removes a file without naming its deletion vector: that is another logical file, and the file stays."""

    def _removal(self, file: dict[str, Any], request: m.Transact, timestamp: int) -> dict[str, Any]:
        body = super()._removal(file, request, timestamp)
        return {name: value for name, value in body.items() if name != "deletionVector"}


@mutant_method("transact", "DELAYED-10")
def forgets_a_task(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Leaves the files of the last task out of the commit."""
    kept = request.adds[:-1] if len(request.adds) > 1 else request.adds
    return original(self).transact(client, msgspec.structs.replace(request, adds=kept))


@mutant_method("transact", "DELAYED-03", "DELAYED-01", "DELAYED-02", "DELAYED-10")
def commits_before_the_last_task(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Commits while the last task still writes, and commits that task's files later."""
    answer = original(self).transact(client, msgspec.structs.replace(request, adds=request.adds[:-1] or request.adds))
    if len(request.adds) < 2 or not isinstance(answer, m.Committed):
        return answer
    return original(self).transact(client, msgspec.structs.replace(request, adds=request.adds[-1:]))


@mutant_method("transact", "DELAYED-02", "DELAYED-05", "DELAYED-10")
def omits_files_outside(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Omits a file outside the table's folder silently, and commits the rest of the write."""
    inside = tuple(file for file in request.adds if not file.path.startswith("/"))
    return original(self).transact(client, msgspec.structs.replace(request, adds=inside))


@mutant_method("_actions", "DELAYED-04", "DELAYED-10", "DELAYED-02")
def commits_data_as_change_data(self: ModelClient, transaction: Transaction, version: int) -> tuple[str, ...]:
    """Commits data files as change data: no snapshot has them."""
    return tuple(action.replace('{"add":', '{"cdc":') for action in original(self)._actions(transaction, version))


@mutant_method("_removal", "PROFILE-CLIENT-02")
def removals_change_no_data(
    self: ModelClient, file: dict[str, Any], request: m.Transact, timestamp: int
) -> dict[str, Any]:
    """Removes rows as if another file of the commit had them."""
    return {**original(self)._removal(file, request, timestamp), "dataChange": False}


@mutant_method("_changes", "DELAYED-05", "PROFILE-CHANGES-01")
def change_data_has_no_partition(self: ModelClient, transaction: Transaction, *, partitioned: bool) -> list[str]:
    """Commits the change data of a partitioned table without partition values."""
    return original(self)._changes(transaction, partitioned=False)


# Row ids


@mutant_method("_with_row_ids", "ROW-01", "ROW-02")
def ignores_row_tracking(self: ModelClient, adds: list[str], transaction: Transaction, version: int) -> list[str]:
    """Adds files without row ids to a table with row tracking."""
    return adds


@mutant_method("_with_row_ids", "ROW-01")
def starts_each_file_at_the_same_row_id(
    self: ModelClient, adds: list[str], transaction: Transaction, version: int
) -> list[str]:
    """Gives all new files of a commit the row ids from the same number on."""
    actions = [json.loads(line) for line in original(self)._with_row_ids(adds, transaction, version)]
    first = min((action["add"]["baseRowId"] for action in actions if "add" in action), default=0)
    for action in actions:
        if "add" in action:
            action["add"]["baseRowId"] = first
    return [json.dumps(action, separators=(",", ":")) for action in actions]


@mutant_method("_row_version", "ROW-02", "ROW-04")
def keeps_the_row_version_after_a_lost_race(self: ModelClient, transaction: Transaction, version: int) -> int:
    """Records the version that it proposed first as the version of its rows, although it lost that one."""
    return transaction.base.version + 1


@mutant_method("_mark", "ROW-03")
def keeps_the_high_water_mark(self: ModelClient, mark: int) -> list[str]:
    """Assigns row ids without recording the highest one."""
    return []


# Reported versions


@mutant_method("_transact", "PROFILE-CLIENT-02", "CONFLICT-RETRY-05")
def reports_its_first_version(self: ModelClient, client: str, transaction: Transaction) -> m.Answer:
    """Reports the version that it proposed first, which it lost."""
    wanted = transaction.base.version + 1
    answer = original(self)._transact(client, transaction)
    return m.Committed(version=wanted) if isinstance(answer, m.Committed) and answer.version is not None else answer


@mutant_method("_propose", "PROFILE-CLIENT-02")
def takes_every_answer_for_success(self: ModelClient, client: str, transaction: Transaction, version: int) -> bool:
    """Reports its transaction as committed after any answer of the owner."""
    original(self)._propose(client, transaction, version)
    return True


@mutant_method("_transact", "PROFILE-CLIENT-02")
def reports_missing_empty_commits(self: ModelClient, client: str, transaction: Transaction) -> m.Answer:
    """Reports an empty transaction as the next version without proposing it."""
    if transaction.request == m.Transact(table=transaction.request.table, marker=transaction.request.marker):
        return m.Committed(version=transaction.base.version + 1)
    return original(self)._transact(client, transaction)


# Version 0


def _judged_by_name(
    self: ModelClient, client: str, request: m.CreateTable, judge: Callable[[m.Table], m.Answer]
) -> m.Answer:
    """The answer to a creation; if it was lost, `judge` of the table that has the name."""
    answer = self.owner(client, request)
    if not isinstance(answer, m.Unknown):
        return answer
    resolved = self.owner(client, m.LoadTable(name=request.name))
    return judge(resolved) if isinstance(resolved, m.Table) else self.owner(client, request)


@mutant_method("create_table", "PROFILE-UNKNOWN-02", bugs=("FB24",))
def fails_on_its_own_version_0(self: ModelClient, client: str, request: m.CreateTable) -> m.Answer:
    """Reports that the table already exists after its own creation, whose answer was lost."""
    return _judged_by_name(self, client, request, lambda _: m.Conflict())


@mutant_method("create_table", "PROFILE-UNKNOWN-02", bugs=("FB25",))
def takes_its_own_table_for_anothers(self: ModelClient, client: str, request: m.CreateTable) -> m.Answer:
    """Reports that its own creation failed, because the repetition of the request was answered with a conflict."""
    return self._ask_twice(client, request)[0]


@mutant_method("create_table", "PROFILE-UNKNOWN-02", bugs=("FB25",))
def accepts_another_version_0(self: ModelClient, client: str, request: m.CreateTable) -> m.Answer:
    """Reports success for another creator's version 0 after its own answer was lost."""
    return _judged_by_name(self, client, request, lambda table: m.Ratified(version=0, table=table.table))


# Publishing


@mutant("MC-RELEASE-09")
class PublishingOverwritesFiles(PublishesBeforeAHandBack):
    """Overwrites existing files when it publishes commits."""

    def _place(self, storage: FolderStorage, path: str, content: str, modified: int) -> None:
        storage.put(path, content, modified)


# Writers with wrong timestamps, names or commitInfo: the kit's owner checks every proposal.

Actions = tuple[str, ...]


@mutant_method("_timestamp", "ICT-08", bugs=("FB19",))
def stamps_the_wall_clock(self: ModelClient, newest: State) -> int:
    """Uses the clock's time as the in-commit timestamp, even if it is before the previous commit."""
    return self.now


@mutant_method("_timestamp", "ICT-09")
def clock_is_at_the_epoch(self: ModelClient, newest: State) -> int:
    """Has a clock that stands at the epoch: each commit is one ms after the previous one."""
    return newest.timestamp + 1


@mutant_method("_actions", "ICT-14")
def keeps_its_time_after_a_lost_race(self: ModelClient, transaction: Transaction, version: int) -> Actions:
    """Keeps the in-commit timestamp of its first attempt after a lost race."""
    actions = original(self)._actions(transaction, version)
    first = transaction.base.timestamp + 1
    info = json.loads(actions[0])
    info["commitInfo"]["inCommitTimestamp"] = first
    return (json.dumps(info), *actions[1:])


@mutant_method("_actions", "ICT-05")
def writes_no_commit_info(self: ModelClient, transaction: Transaction, version: int) -> Actions:
    """Writes commits without commitInfo, and so without a time."""
    return original(self)._actions(transaction, version)[1:]


@mutant_method("_actions", "ICT-06")
def writes_commit_info_last(self: ModelClient, transaction: Transaction, version: int) -> Actions:
    """Writes commitInfo after the other actions."""
    first, *others = original(self)._actions(transaction, version)
    return (*others, first)


@mutant_method("_labelled", "ICT-07")
def writes_times_as_text(self: Labels, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
    """Writes the in-commit timestamp as a string."""
    return {**body, "inCommitTimestamp": str(body["inCommitTimestamp"])}


@mutant_method("_labelled", "CM-TXNID-01")
def writes_no_txn_id(self: Labels, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
    """Writes commits of a catalog-managed table without a txnId."""
    return {name: value for name, value in body.items() if name != "txnId"}


@mutant_method("_labelled", "CM-TXNID-02")
def reuses_its_txn_id(self: Labels, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
    """Uses the same txnId for all transactions."""
    return {**body, "txnId": "me"}


@mutant("CONFLICT-RETRY-07", "CM-LOG-06")
class ReusesItsAttempt(ModelClient):
    """Uses the attempt id of its first proposal for a retry at another version."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: Actions) -> m.Commit:
        self._kept = getattr(self, "_kept", None) or attempt
        return super()._request(table, version, self._kept, actions)


@mutant_method("_protocol", "MC-ENABLE-02", "CM-ENABLE-02")
def drops_other_features(self: ModelClient, newest: State, feature: str) -> dict[str, Any]:
    """Replaces the list of table features when it adds one."""
    return {**newest.protocol, "writerFeatures": ["inCommitTimestamp", feature]}


@mutant_method("_protocol", "LOG-42")
def lists_features_of_writers_only(self: ModelClient, newest: State, feature: str) -> dict[str, Any]:
    """Adds a table feature, and drops those of readers that no owner needs."""
    protocol = original(self)._protocol(newest, feature)
    owners = [name for name in protocol.get("readerFeatures", ()) if name == "catalogManaged"]
    return {**protocol, "readerFeatures": owners} if "readerFeatures" in protocol else protocol


@mutant_method("_protocol", "MC-ENABLE-01", "CM-ENABLE-01", "ICT-03")
def lowers_the_writer_version(self: ModelClient, newest: State, feature: str) -> dict[str, Any]:
    """Lowers the writer version when it adds a table feature."""
    return {**original(self)._protocol(newest, feature), "minWriterVersion": 5}


@mutant_method("_protocol", "ICT-03", "MC-WRITE-01", "CM-WRITE-02")
def drops_the_timestamp_feature(self: ModelClient, newest: State, feature: str) -> dict[str, Any]:
    """Removes the in-commit timestamp feature when it adds another one."""
    protocol = original(self)._protocol(newest, feature)
    return {**protocol, "writerFeatures": [name for name in protocol["writerFeatures"] if "Timestamp" not in name]}


@mutant_method("_refuse_protected", "ICT-04", "MC-WRITE-01", "CM-WRITE-02", bugs=("FB22",))
def unsets_required_properties(self: ModelClient, request: m.Transact) -> None:
    """Removes the enablement of in-commit timestamps, and the owner, in ALTER TABLE UNSET."""


@mutant_method("_metadata", "PROFILE-CLIENT-02")
def properties_reset_the_partitioning(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Changes properties, and writes metadata without partition columns."""
    metadata = original(self)._metadata(newest, request)
    return {**metadata, "partitionColumns": list(request.partition_by or ())}


@mutant_method("_metadata", "ICT-21", bugs=("FB21",))
def replace_table_drops_the_enablement(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Keeps the owner in REPLACE TABLE, and drops the enablement of timestamps."""
    metadata = original(self)._metadata(newest, request)
    if request.replace_table:
        kept = {key: value for key, value in metadata["configuration"].items() if "Enablement" not in key}
        return {**metadata, "configuration": kept}
    return metadata


@mutant_method("_metadata", "MC-ENABLE-09", "MC-ENABLE-03")
def replace_table_drops_the_owner(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Drops the owner's property in REPLACE TABLE, and keeps the table feature."""
    metadata = original(self)._metadata(newest, request)
    kept = {key: value for key, value in metadata["configuration"].items() if key != OWNER_PROPERTY}
    return {**metadata, "configuration": kept} if request.replace_table else metadata


@mutant_method("_metadata", "MC-ENABLE-07")
def rewrites_the_owners_configuration(self: ModelClient, newest: State, request: m.Transact) -> dict[str, Any]:
    """Parses and reformats the owner's configuration."""
    metadata = original(self)._metadata(newest, request)
    name = f"{OWNER_PROPERTY}Conf"
    if name not in metadata["configuration"]:
        return metadata
    written = json.dumps(json.loads(metadata["configuration"][name]), sort_keys=True)
    return {**metadata, "configuration": {**metadata["configuration"], name: written}}
