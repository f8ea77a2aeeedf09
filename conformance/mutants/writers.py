"""Writers that lose, duplicate or misplace changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.owner import OWNER_PROPERTY
from conformance.models.reader import Refused, Resolved, State, Unsure
from conformance.models.storage import FolderStorage
from conformance.models.writer import ROW_IDS, Transaction
from conformance.mutants import mutant
from conformance.mutants.good_clients import Labels, PublishesBeforeAHandBack

UNKNOWN = ("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06")

# Unsupported tables


@mutant("LOG-47", side="client")
class IgnoresWriterFeatures(ModelClient):
    """Writes to tables with features that it does not know."""

    def _check_writable(self, protocol: dict[str, Any]) -> None:
        pass


# Unknown outcomes


@mutant(*UNKNOWN, bugs=("FB07",), side="client")
class RetriesAnUnknownOutcome(ModelClient):
    """Proposes the same changes again after an unknown outcome: they are committed twice."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        return False


@mutant(*UNKNOWN, bugs=("FB08",), side="client")
class ResolvesAttemptsAmongUnbackfilledCommits(ModelClient):
    """Searches for its commit among unbackfilled ones only: once backfilled, it is taken for a lost race."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        self._ask(client, transaction.table)
        names = [commit.file_name or str(commit.actions) for commit in transaction.table.commits]
        return any(request.attempt in name or transaction.request.marker in name for name in names)


@mutant("MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-UNKNOWN-01", side="client")
class ReportsUnknownAsFailed(ModelClient):
    """Reports a commit whose answer was lost as failed, although it landed."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        raise Refused("the owner did not answer")


@mutant(*UNKNOWN, side="client")
class ReadsALostLookupAsNotLanded(ModelClient):
    """Treats an attempt as not landed if its lookup gets no answer."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        answer = self.owner(client, m.AttemptOutcome(table=request.table, attempt=request.attempt))
        return isinstance(answer, m.Landed)


@mutant(*UNKNOWN, "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class TakesARefusalForTheOutcome(ModelClient):
    """Reports a commit whose answer was lost as failed when its lookup is refused, and deletes the data files."""

    def _outcome(self, reply: m.Answer) -> bool:
        if isinstance(reply, m.Rejected | m.NotFound):
            raise Refused(f"the owner refused: {reply}")
        return super()._outcome(reply)


@mutant("PROFILE-UNKNOWN-01", "PROFILE-UNKNOWN-03", side="client")
class TakesADroppedTableForTheOutcome(ModelClient):
    """Reports a commit whose answer was lost as failed when its table is unknown at the lookup."""

    def _outcome(self, reply: m.Answer) -> bool:
        if isinstance(reply, m.NotFound):
            raise Refused("there is no such table")
        return super()._outcome(reply)


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
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


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class TakesAFullBacklogForTheOutcome(ModelClient):
    """Sends a commit again whose answer was lost. If the backlog is full by then, it reports a failure and deletes the
    data files."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        reply = self.owner(client, request)
        if isinstance(reply, m.Rejected) and reply.retryable:
            raise Refused(f"the owner refused: {reply}")
        return isinstance(reply, m.Ratified) or super()._resolved(client, transaction, request)


@mutant("PROFILE-UNKNOWN-01", side="client")
class CommitsAgainAfterAFullBacklog(ModelClient):
    """Sends a commit again whose answer was lost. If the backlog is full by then, it requests a backfill, and commits
    the same changes a second time, as the next version."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        reply = self.owner(client, request)
        if isinstance(reply, m.Rejected) and reply.retryable:
            self._make_room(client, request)
            return False
        return isinstance(reply, m.Ratified) or super()._resolved(client, transaction, request)


@mutant("PROFILE-UNKNOWN-01", "LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class TakesACleanedUpVersionForALostRace(TakesAConflictForALostRace):
    """Sends a commit again whose answer was lost, and takes a conflict for a lost race if a newer checkpoint exists:
    it assumes that its own snapshot was too old."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        version = transaction.checked.version + 1
        try:
            super()._catch_up(client, transaction)
        except Refused as refused:
            newer = commit_file(version + 1).removesuffix("json") + "checkpoint.parquet"
            if (transaction.table.log / newer).exists():
                raise
            raise Unsure(str(refused)) from refused


@mutant("PROFILE-UNKNOWN-01", side="client")
class TakesARefusedRepetitionForTheOutcome(ModelClient):
    """Sends a creation or a take-over again whose answer was lost, and reports it as failed when that is refused."""

    def _ask_twice(self, client: str, request: m.Request) -> tuple[m.Answer, bool]:
        reply = self.owner(client, request)
        again = isinstance(reply, m.Unknown)
        return (self.owner(client, request) if again else reply), again


@mutant("PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class DeletesItsStagedFile(ModelClient):
    """Deletes its staged file after an unknown outcome, although the commit may be ratified."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        if request.staged_file is not None:
            (transaction.table.log / STAGING[transaction.table.feature or ""] / request.staged_file).unlink()
        return super()._resolved(client, transaction, request)


@mutant("LOG-37", "PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class DeletesItsDataFiles(ModelClient):
    """Deletes its data files after an unknown outcome, although the commit may be ratified."""

    def _keep_files(self, files: list[Path]) -> None:
        self._discard_files(files)


# Lost races, rejections, limits


@mutant("CONFLICT-RETRY-01", bugs=("FB35",), side="client")
class GivesUpAfterFifteenRaces(ModelClient):
    """Fails a transaction without conflicts after fifteen lost races."""

    most_tries = 15


@mutant("CONFLICT-RETRY-06", bugs=("FB48",), side="client")
class RetriesWithoutLimit(ModelClient):
    """Proposes again without limit while the owner returns conflicts without winners, one orphaned file per try."""

    most_tries = 1_000_000


@mutant("FIELD-04", bugs=("FB04",), side="client")
class SearchesWinnersInTheListing(ModelClient):
    """Fails if the winning commit is not published."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.attempts and self._list(transaction.table).newest < transaction.checked.version + 1:
            raise Refused("no winning commits found")
        super()._catch_up(client, transaction)


@mutant("FIELD-04", bugs=("FB04",), side="client")
class TakesPublishedWinnersForAll(ModelClient):
    """Rebases on the published winners, if there are any, and fails if a later winner is not published."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        listed = self._list(transaction.table)
        if not transaction.attempts or listed.newest <= transaction.base.version:
            super()._catch_up(client, transaction)
            return
        if listed.newest <= transaction.checked.version:
            raise Refused(f"the winners end before version {transaction.checked.version + 1}")
        for version in range(transaction.checked.version + 1, listed.newest + 1):
            winner = self._commit(transaction.table, listed, {}, version)
            self._check(transaction, winner)
            self._apply(transaction.checked, version, winner)


@mutant("CONFLICT-RETRY-05", side="client")
class FailsOnAnOldConflict(ModelClient):
    """Fails if a conflict names an older latest version than the one it proposed."""

    def _won(self, answer: m.Answer) -> bool:
        if isinstance(answer, m.Conflict) and answer.latest == 0:
            raise Refused("the owner contradicts itself")
        return super()._won(answer)


@mutant("CONFLICT-RETRY-05", "PROFILE-CLIENT-02", side="client")
class ProposesVersion0WithoutALatestVersion(ModelClient):
    """Proposes version 0 if the owner returns no latest version."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        super()._catch_up(client, transaction)
        if transaction.table.reference is not None and transaction.table.latest is None:
            transaction.checked.version = -1


@mutant("MC-FILES-11", "CONFLICT-RETRY-03", side="client")
class ChecksOnlyItsOwnFileName(ModelClient):
    """Commits to a table without an owner if the next file name is free, without checking later commits."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.table.reference is not None or transaction.attempts:
            super()._catch_up(client, transaction)


@mutant("CONFLICT-RETRY-02", side="client")
class RetriesRejections(ModelClient):
    """Retries a proposal that the owner rejected permanently."""

    def _refused(self, answer: m.Answer) -> None:
        pass


@mutant("PROFILE-BACKLOG-03", bugs=("FB46",), side="client")
class NeverBackfillsAFullBacklog(ModelClient):
    """Retries with a full backlog without requesting a backfill."""

    def _make_room(self, client: str, request: m.Commit) -> None:
        pass


@mutant("PROFILE-BACKLOG-03", side="client")
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


@mutant("MC-WRITE-03", "CM-WRITE-04", "MC-FILES-12", bugs=("FB28",), side="client")
class IgnoresTheOwnerWhenWriting(ModelClient):
    """Commits to an owned table by creating the next numbered file."""

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        return self._put(transaction.table, version, self._actions(transaction, version))


@mutant("CM-ACCESS-02", "MC-WRITE-03", "CM-WRITE-04", "MC-CONVERT-10", "CM-WRITE-01", side="client")
class WritesOwnedTablesByPath(ModelClient):
    """Writes to a path without checking whether the table has an owner."""

    def _open(self, client: str, name: str) -> Resolved:
        if "/" not in name:
            return self._resolve(client, name)
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(name) / LOG)


@mutant("MC-FILES-11", "CONFLICT-RETRY-03", side="client")
class OverwritesTheNextFile(ModelClient):
    """Writes the next file of a table without an owner, even if it exists."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.table.reference is not None:
            super()._catch_up(client, transaction)

    def _put(self, table: Resolved, version: int, actions: tuple[str, ...]) -> bool:
        FolderStorage(table.log.parent).put(str(table.log / f"{version:020}.json"), proposals.content(actions), 0)
        return True


@mutant("MC-WRITE-02", "CM-WRITE-03", side="client")
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


@mutant("DELAYED-05", side="client")
class EncodesPathsTwice(_Changed):
    """Encodes paths twice."""

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "path": quote(body["path"])}


@mutant("DELAYED-05", side="client")
class WritesNullPartitionsAsText(_Changed):
    """Writes a null partition value as the text `null`."""

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "partitionValues": {name: value or "null" for name, value in body["partitionValues"].items()}}


@mutant("ROW-05", side="client")
class RemovesWithoutRowIds(ModelClient):
    """Removes a file without its row ids: readers of the removal cannot tell which rows went."""

    def _removal(self, file: dict[str, Any], request: m.Transact, timestamp: int) -> dict[str, Any]:
        body = super()._removal(file, request, timestamp)
        return {name: value for name, value in body.items() if name not in ROW_IDS}


@mutant("LOG-30", side="client")
class RemovesWithoutDeletionVectors(ModelClient):
    """Removes a file without naming its deletion vector: that is another logical file, and the file stays."""

    def _removal(self, file: dict[str, Any], request: m.Transact, timestamp: int) -> dict[str, Any]:
        body = super()._removal(file, request, timestamp)
        return {name: value for name, value in body.items() if name != "deletionVector"}


@mutant("DELAYED-08", side="client")
class KeepsTheChangeDataMarker(_Changed):
    """Keeps the marker of change data among the partition values."""

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "partitionValues": {**body["partitionValues"], "__is_cdc": "false"}}


@mutant("DELAYED-10", side="client")
class ForgetsATask(ModelClient):
    """Leaves the files of the last task out of the commit."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        kept = request.adds[:-1] if len(request.adds) > 1 else request.adds
        return super().transact(client, msgspec.structs.replace(request, adds=kept))


@mutant("DELAYED-01", "DELAYED-02", "DELAYED-10", side="client")
class CommitsTaskByTask(ModelClient):
    """Commits the files of each task separately."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer: m.Answer = m.Committed(version=None)
        for one in request.adds or (None,):
            answer = super().transact(client, msgspec.structs.replace(request, adds=() if one is None else (one,)))
        return answer


@mutant("DELAYED-03", "DELAYED-01", "DELAYED-02", "DELAYED-10", side="client")
class CommitsBeforeTheLastTask(ModelClient):
    """Commits while the last task still writes, and commits that task's files later."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, msgspec.structs.replace(request, adds=request.adds[:-1] or request.adds))
        if len(request.adds) < 2 or not isinstance(answer, m.Committed):
            return answer
        return super().transact(client, msgspec.structs.replace(request, adds=request.adds[-1:]))


@mutant("DELAYED-02", "DELAYED-05", "DELAYED-10", side="client")
class OmitsFilesOutside(ModelClient):
    """Omits a file outside the table's folder silently, and commits the rest of the write."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        inside = tuple(file for file in request.adds if not file.path.startswith("/"))
        return super().transact(client, msgspec.structs.replace(request, adds=inside))


@mutant("DELAYED-04", "DELAYED-10", "DELAYED-02", side="client")
class CommitsDataAsChangeData(ModelClient):
    """Commits data files as change data: no snapshot has them."""

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        return tuple(each.replace('{"add":', '{"cdc":') for each in super()._actions(transaction, version))


@mutant("DELAYED-04", side="client")
class CommitsChangeDataLater(ModelClient):
    """Commits the change data of an update in a separate commit."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, msgspec.structs.replace(request, changes=()))
        if request.changes and isinstance(answer, m.Committed):
            super().transact(client, msgspec.structs.replace(request, adds=(), removes=()))
        return answer


@mutant("DELAYED-04", side="client")
class DropsChangeDataAfterALostRace(ModelClient):
    """Commits change data only with its first proposal."""

    def _changes(self, transaction: Transaction, *, partitioned: bool) -> list[str]:
        return super()._changes(transaction, partitioned=partitioned) if len(transaction.attempts) == 1 else []


# Row ids


@mutant("ROW-01", "ROW-02", side="client")
class IgnoresRowTracking(ModelClient):
    """Adds files without row ids to a table with row tracking."""

    def _with_row_ids(self, adds: list[str], transaction: Transaction, version: int) -> list[str]:
        return adds


@mutant("ROW-01", "ROW-04", side="client")
class KeepsRowIdsAfterALostRace(ModelClient):
    """Assigns row ids after those of the version that it read, although a winner used the same ones."""

    def _high_water_mark(self, transaction: Transaction) -> int:
        checked, transaction.checked = transaction.checked, transaction.base
        try:
            return super()._high_water_mark(transaction)
        finally:
            transaction.checked = checked


@mutant("ROW-02", "ROW-04", side="client")
class KeepsTheRowVersionAfterALostRace(ModelClient):
    """Records the version that it proposed first as the version of its rows, although it lost that one."""

    def _row_version(self, transaction: Transaction, version: int) -> int:
        return transaction.base.version + 1


@mutant("ROW-03", side="client")
class KeepsTheHighWaterMark(ModelClient):
    """Assigns row ids without recording the highest one."""

    def _mark(self, mark: int) -> list[str]:
        return []


# Reported versions


@mutant("PROFILE-CLIENT-02", "CONFLICT-RETRY-05", side="client")
class ReportsItsFirstVersion(ModelClient):
    """Reports the version that it proposed first, which it lost."""

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        wanted = transaction.base.version + 1
        answer = super()._transact(client, transaction)
        return m.Committed(version=wanted) if isinstance(answer, m.Committed) and answer.version is not None else answer


@mutant("PROFILE-CLIENT-02", side="client")
class TakesEveryAnswerForSuccess(ModelClient):
    """Reports its transaction as committed after any answer of the owner."""

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        super()._propose(client, transaction, version)
        return True


@mutant("PROFILE-CLIENT-02", side="client")
class ReportsMissingEmptyCommits(ModelClient):
    """Reports an empty transaction as the next version without proposing it."""

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        if transaction.request == m.Transact(table=transaction.request.table, marker=transaction.request.marker):
            return m.Committed(version=transaction.base.version + 1)
        return super()._transact(client, transaction)


# Version 0


@mutant("PROFILE-UNKNOWN-02", bugs=("FB24",), side="client")
class FailsOnItsOwnVersion0(ModelClient):
    """Reports that the table already exists after its own creation, whose answer was lost."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = self.owner(client, request)
        if not isinstance(answer, m.Unknown):
            return answer
        found = self.owner(client, m.LoadTable(name=request.name))
        return m.Conflict() if isinstance(found, m.Table) else self.owner(client, request)


@mutant("PROFILE-UNKNOWN-02", bugs=("FB25",), side="client")
class TakesItsOwnTableForAnothers(ModelClient):
    """Reports that its own creation failed, because the repetition of the request was answered with a conflict."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        return self._ask_twice(client, request)[0]


@mutant("PROFILE-UNKNOWN-02", bugs=("FB25",), side="client")
class AcceptsAnotherVersion0(ModelClient):
    """Reports success for another creator's version 0 after its own answer was lost."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        answer = self.owner(client, request)
        if not isinstance(answer, m.Unknown):
            return answer
        found = self.owner(client, m.LoadTable(name=request.name))
        if isinstance(found, m.Table):
            return m.Ratified(version=0, table=found.table)
        return self.owner(client, request)


# Publishing


@mutant("MC-RELEASE-09", side="client")
class PublishingOverwritesFiles(PublishesBeforeAHandBack):
    """Overwrites existing files when it publishes commits."""

    def _place(self, storage: FolderStorage, path: str, content: str, modified: int) -> None:
        storage.put(path, content, modified)


# Writers with wrong timestamps, names or commitInfo: the kit's owner checks every proposal.

Actions = tuple[str, ...]


@mutant("ICT-08", bugs=("FB19",), side="client")
class StampsTheWallClock(ModelClient):
    """Uses the clock's time as the in-commit timestamp, even if it is before the previous commit."""

    def _timestamp(self, newest: State) -> int:
        return self.now


@mutant("ICT-08", side="client")
class TakesTheFilesTimeForTheCommits(ModelClient):
    """Uses the modification time of the previous commit's published file as the time of that commit."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        published = transaction.table.log / commit_file(version - 1)
        if published.exists():
            transaction.checked.timestamp = published.stat().st_mtime_ns // 1_000_000
        return super()._actions(transaction, version)


@mutant("ICT-14", side="client")
class KeepsItsTimeAfterALostRace(ModelClient):
    """Keeps the in-commit timestamp of its first attempt after a lost race."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        actions = super()._actions(transaction, version)
        first = transaction.base.timestamp + 1
        info = json.loads(actions[0])
        info["commitInfo"]["inCommitTimestamp"] = first
        return (json.dumps(info), *actions[1:])


@mutant("ICT-05", side="client")
class WritesNoCommitInfo(ModelClient):
    """Writes commits without commitInfo, and so without a time."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        return super()._actions(transaction, version)[1:]


@mutant("ICT-06", side="client")
class WritesCommitInfoLast(ModelClient):
    """Writes commitInfo after the other actions."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        return (*others, first)


@mutant("ICT-07", side="client")
class WritesTimesAsText(Labels):
    """Writes the in-commit timestamp as a string."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return {**body, "inCommitTimestamp": str(body["inCommitTimestamp"])}


@mutant("CM-TXNID-01", side="client")
class WritesNoTxnId(Labels):
    """Writes commits of a catalog-managed table without a txnId."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return {name: value for name, value in body.items() if name != "txnId"}


@mutant("CM-TXNID-02", side="client")
class ReusesItsTxnId(Labels):
    """Uses the same txnId for all transactions."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return {**body, "txnId": "me"}


@mutant("CONFLICT-RETRY-07", "CM-LOG-06", side="client")
class ReusesItsAttempt(ModelClient):
    """Uses the attempt id of its first proposal for a retry at another version."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: Actions) -> m.Commit:
        self._kept = getattr(self, "_kept", None) or attempt
        return super()._request(table, version, self._kept, actions)


@mutant("MC-ENABLE-02", "CM-ENABLE-02", side="client")
class DropsOtherFeatures(ModelClient):
    """Replaces the list of table features when it adds one."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        return {**newest.protocol, "writerFeatures": ["inCommitTimestamp", feature]}


@mutant("MC-ENABLE-01", "CM-ENABLE-01", "ICT-03", side="client")
class LowersTheWriterVersion(ModelClient):
    """Lowers the writer version when it adds a table feature."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        return {**super()._protocol(newest, feature), "minWriterVersion": 5}


@mutant("ICT-03", "MC-WRITE-01", "CM-WRITE-02", side="client")
class DropsTheTimestampFeature(ModelClient):
    """Removes the in-commit timestamp feature when it adds another one."""

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        protocol = super()._protocol(newest, feature)
        return {**protocol, "writerFeatures": [each for each in protocol["writerFeatures"] if "Timestamp" not in each]}


@mutant("ICT-04", "MC-WRITE-01", "CM-WRITE-02", bugs=("FB22",), side="client")
class UnsetsRequiredProperties(ModelClient):
    """Removes the enablement of in-commit timestamps, and the owner, in ALTER TABLE UNSET."""

    def _refuse_protected(self, request: m.Transact) -> None:
        pass


@mutant("ICT-21", bugs=("FB21",), side="client")
class ReplaceTableDropsTheEnablement(ModelClient):
    """Keeps the owner in REPLACE TABLE, and drops the enablement of timestamps."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        if request.replace_table:
            kept = {key: value for key, value in metadata["configuration"].items() if "Enablement" not in key}
            return {**metadata, "configuration": kept}
        return metadata


@mutant("MC-ENABLE-09", "MC-ENABLE-03", side="client")
class ReplaceTableDropsTheOwner(ModelClient):
    """Drops the owner's property in REPLACE TABLE, and keeps the table feature."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        kept = {key: value for key, value in metadata["configuration"].items() if key != OWNER_PROPERTY}
        return {**metadata, "configuration": kept} if request.replace_table else metadata


@mutant("MC-ENABLE-07", side="client")
class RewritesTheOwnersConfiguration(ModelClient):
    """Parses and reformats the owner's configuration."""

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        metadata = super()._metadata(newest, request)
        name = f"{OWNER_PROPERTY}Conf"
        if name not in metadata["configuration"]:
            return metadata
        written = json.dumps(json.loads(metadata["configuration"][name]), sort_keys=True)
        return {**metadata, "configuration": {**metadata["configuration"], name: written}}
