"""Writers that lose, double or misplace what they commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.owner import OWNER_PROPERTY, STAGING
from conformance.models.reader import Refused, Resolved, State
from conformance.models.storage import LOG, FolderStorage
from conformance.models.writer import Transaction
from conformance.mutants.good_clients import PublishesBeforeItGivesBack
from conformance.mutants.registry import mutant

UNKNOWN = ("PROFILE-UNKNOWN-01", "MC-COMMIT-06", "CM-COMMIT-06")

# Unknown outcomes


@mutant(*UNKNOWN, bugs=("FB07",), side="client")
class TakesUnknownForFailed(ModelClient):
    """After an unknown outcome it proposes the same changes again: they are committed twice."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        return False


@mutant(*UNKNOWN, bugs=("FB08",), side="client")
class LooksForItsCommitAmongTheUnbackfilled(ModelClient):
    """After an unknown outcome it looks for its file among the commits that the owner still stores: once others
    backfilled it, it takes its own commit for a lost race."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        self._ask(client, transaction.table)
        names = [commit.file_name or str(commit.actions) for commit in transaction.table.commits]
        return any(request.attempt in name or transaction.request.marker in name for name in names)


@mutant("MC-COMMIT-06", "CM-COMMIT-06", "PROFILE-UNKNOWN-01", side="client")
class ReportsUnknownAsFailed(ModelClient):
    """A commit whose answer was lost is reported as failed, although it landed."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        raise Refused("the owner did not answer")


@mutant(*UNKNOWN, side="client")
class TakesNoAnswerForNotLanded(ModelClient):
    """Its question about an attempt is lost, too: it goes on as if the attempt had not landed."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        told = self.owner(client, m.AttemptOutcome(table=request.table, attempt=request.attempt))
        return isinstance(told, m.Landed)


@mutant("PROFILE-UNKNOWN-03", bugs=("FB40",), side="client")
class DeletesItsStagedFile(ModelClient):
    """After an unknown outcome it removes the file that it staged; the commit was live."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        if request.staged_file is not None:
            (transaction.table.log / STAGING[transaction.table.feature or ""] / request.staged_file).unlink()
        return super()._resolved(client, transaction, request)


# Lost races, refusals, limits


@mutant("CONFLICT-RETRY-01", bugs=("FB35",), side="client")
class GivesUpAfterFifteenRaces(ModelClient):
    """A transaction without any conflict fails after fifteen lost races."""

    most_tries = 15


@mutant("CONFLICT-RETRY-06", bugs=("FB48",), side="client")
class TriesForEver(ModelClient):
    """The owner says conflict and lists nothing: it proposes again without end, one orphan file a try."""

    most_tries = 1_000_000


@mutant("FIELD-04", bugs=("FB04",), side="client")
class LooksForWinnersInTheListing(ModelClient):
    """The winner is ratified and not published: it finds no winning commit, and fails."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.attempts and self._list(transaction.table).newest < transaction.checked.version + 1:
            raise Refused("no winning commits found")
        super()._catch_up(client, transaction)


@mutant("CONFLICT-RETRY-05", side="client")
class BelievesWhatAConflictTells(ModelClient):
    """A conflict that names an older latest version than the one that it proposed is an error to it."""

    def _won(self, told: m.Answer) -> bool:
        if isinstance(told, m.Conflict) and told.latest == 0:
            raise Refused("the owner contradicts itself")
        return super()._won(told)


@mutant("CONFLICT-RETRY-05", "PROFILE-CLIENT-02", side="client")
class TakesNothingToldForAnEmptyTable(ModelClient):
    """An owner that tells no latest version has an empty table: it proposes version 0."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        super()._catch_up(client, transaction)
        if transaction.table.reference is not None and transaction.table.latest is None:
            transaction.checked.version = -1


@mutant("MC-FILES-11", "CONFLICT-RETRY-03", side="client")
class LooksOnlyForItsOwnFileName(ModelClient):
    """On a table without an owner a free file name is enough to it: it creates the file after the version that it
    read, and looks at what others did only if that name is taken."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.table.reference is not None or transaction.attempts:
            super()._catch_up(client, transaction)


@mutant("CONFLICT-RETRY-02", side="client")
class TriesRefusalsAgain(ModelClient):
    """A proposal that the owner refuses for good is tried again."""

    def _refused(self, told: m.Answer) -> None:
        pass


@mutant("PROFILE-BACKLOG-03", bugs=("FB46",), side="client")
class WaitsForRoom(ModelClient):
    """A full backlog is taken for a passing trouble: it tries again, and never backfills."""

    def _make_room(self, client: str, request: m.Commit) -> None:
        pass


@mutant("PROFILE-BACKLOG-03", side="client")
class MakesRoomOnce(ModelClient):
    """It has a full backlog backfilled once; when others fill it again, it gives up."""

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
class CreatesTheNextFile(ModelClient):
    """It commits to an owned table by creating the next numbered file."""

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        return self._put(transaction.table, version, self._actions(transaction, version))


@mutant("CM-ACCESS-02", "MC-WRITE-03", "CM-WRITE-04", "MC-CONVERT-10", "CM-WRITE-01", side="client")
class WritesOwnedTablesByPath(ModelClient):
    """It is given a path, and does not look whether the table has an owner."""

    def _open(self, client: str, name: str) -> Resolved:
        if "/" not in name:
            return self._resolve(client, name)
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(name) / LOG)


@mutant("MC-FILES-11", "CONFLICT-RETRY-03", side="client")
class RenamesOverTheWinner(ModelClient):
    """On a table without an owner it writes the version that it read plus one, whoever has it."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        if transaction.table.reference is not None:
            super()._catch_up(client, transaction)

    def _put(self, table: Resolved, version: int, actions: tuple[str, ...]) -> bool:
        FolderStorage(table.log.parent).put(str(table.log / f"{version:020}.json"), proposals.content(actions), 0)
        return True


@mutant("MC-WRITE-02", "CM-WRITE-03", side="client")
class StagesInTheWrongFolder(ModelClient):
    """Its staged files stand in the other feature's folder."""

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
    """Paths are encoded twice: they lead nowhere."""

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "path": quote(body["path"])}


@mutant("DELAYED-08", side="client")
class KeepsTheChangeDataMarker(_Changed):
    """The marker that tells change data from data stays among the partition values."""

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "partitionValues": {**body["partitionValues"], "__is_cdc": "false"}}


@mutant("DELAYED-10", side="client")
class ForgetsATask(ModelClient):
    """The files of the last task are not in the commit."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        kept = request.adds[:-1] if len(request.adds) > 1 else request.adds
        return super().transact(client, msgspec.structs.replace(request, adds=kept))


@mutant("DELAYED-01", "DELAYED-02", "DELAYED-10", side="client")
class CommitsTaskByTask(ModelClient):
    """Every task commits its own files."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        told: m.Answer = m.Committed(version=None)
        for one in request.adds or (None,):
            told = super().transact(client, msgspec.structs.replace(request, adds=() if one is None else (one,)))
        return told


@mutant("DELAYED-03", "DELAYED-01", "DELAYED-02", "DELAYED-10", side="client")
class CommitsBeforeTheLastTask(ModelClient):
    """The driver commits while the last task still writes, and commits what that wrote when it is done."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        told = super().transact(client, msgspec.structs.replace(request, adds=request.adds[:-1] or request.adds))
        if len(request.adds) < 2 or not isinstance(told, m.Committed):
            return told
        return super().transact(client, msgspec.structs.replace(request, adds=request.adds[-1:]))


@mutant("DELAYED-02", "DELAYED-05", "DELAYED-10", side="client")
class DropsFilesOutside(ModelClient):
    """A file outside the table's folder is left out without a word; the rest of the write lands."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        inside = tuple(file for file in request.adds if not file.path.startswith("/"))
        return super().transact(client, msgspec.structs.replace(request, adds=inside))


@mutant("DELAYED-04", "DELAYED-10", "DELAYED-02", side="client")
class CommitsDataAsChangeData(ModelClient):
    """Data files are committed as change data: no snapshot has them."""

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        return tuple(each.replace('{"add":', '{"cdc":') for each in super()._actions(transaction, version))


# What it reports


@mutant("PROFILE-CLIENT-02", "CONFLICT-RETRY-05", side="client")
class ReportsTheVersionThatItWanted(ModelClient):
    """After a lost race it reports the version that it proposed first: there is another's commit."""

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        wanted = transaction.base.version + 1
        told = super()._transact(client, transaction)
        return m.Committed(version=wanted) if isinstance(told, m.Committed) and told.version is not None else told


@mutant("PROFILE-CLIENT-02", side="client")
class TakesEveryAnswerForSuccess(ModelClient):
    """Whatever the owner answers, it reports that its transaction was committed."""

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        super()._propose(client, transaction, version)
        return True


@mutant("PROFILE-CLIENT-02", side="client")
class ReportsEmptyCommitsThatAreNotThere(ModelClient):
    """A transaction without any change is reported as the next version, and never proposed."""

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        if transaction.request == m.Transact(table=transaction.request.table, marker=transaction.request.marker):
            return m.Committed(version=transaction.base.version + 1)
        return super()._transact(client, transaction)


# Version 0


@mutant("PROFILE-UNKNOWN-02", bugs=("FB24",), side="client")
class FailsOnItsOwnVersion0(ModelClient):
    """The answer to its creation was lost: it finds version 0, and says that the table exists already."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        told = self.owner(client, request)
        if not isinstance(told, m.Unknown):
            return told
        found = self.owner(client, m.LoadTable(name=request.name))
        return m.Conflict() if isinstance(found, m.Table) else self.owner(client, request)


@mutant("PROFILE-UNKNOWN-02", bugs=("FB25",), side="client")
class TakesAnothersVersion0ForItsOwn(ModelClient):
    """The answer to its creation was lost: it finds version 0 of another creator, and reports success."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        told = self.owner(client, request)
        if not isinstance(told, m.Unknown):
            return told
        found = self.owner(client, m.LoadTable(name=request.name))
        if isinstance(found, m.Table):
            return m.Ratified(version=0, table=found.table)
        return self.owner(client, request)


# Publishing


@mutant("MC-RELEASE-09", side="client")
class PublishesOverWhatIsThere(PublishesBeforeItGivesBack):
    """It publishes commits by writing their files, whether these are there or not."""

    def _place(self, storage: FolderStorage, path: str, content: str, modified: int) -> None:
        storage.put(path, content, modified)


# Writers that stamp, name or label their commits wrongly: the kit's owner looks at all that they propose.

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
