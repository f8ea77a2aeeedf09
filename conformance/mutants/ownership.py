"""Owners that are wrong about which tables they own."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.proposals import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from conformance.models.reader import Resolved, State
from conformance.models.writer import Transaction
from conformance.mutants import good, memory, mutant, mutant_method, original
from conformance.mutants.good_owners import PublishesTheHandBackInTheBackground


@mutant_method("take_over", "PROFILE-TRANSFER-01")
def rejects_every_take_over(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Declares ownership transfer, and rejects every take-over."""
    return m.Rejected(reason="not this one")


@mutant("MC-CONVERT-06")
class RejectsCommitsAfterATakeOver(ModelOwner):
    """Takes a table over, and then rejects its commits."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        taken_over = not table.location.endswith(table.reference)
        return m.Rejected(reason="no credentials") if taken_over else super()._refusal(table, request, staged)


@mutant("MC-CONVERT-03", "MC-CONVERT-05", "MC-CONVERT-08")
class TakeOverIsPublishedLater(ModelOwner):
    """Publishes an ownership change later, like any other commit: filesystem writers continue."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        answer = super()._begin(table, version, attempt, actions)
        if version > 0 and isinstance(answer, m.Ratified):
            self.storage.remove(self._path(table, version))
        return answer


@mutant_method("_published", "MC-CONVERT-02", "MC-CONVERT-01")
def takes_over_at_any_version(self: ModelOwner, table: OwnedTable) -> int:
    """Takes a table over at any version, and leaves a gap in the log."""
    return 1000


@mutant_method("take_over", "PROFILE-CORE-05", "PROFILE-TRANSFER-01")
def take_over_counts_files(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Takes the number of JSON files in the log for the next version: a log compaction counts too."""
    files = sum(name.endswith(".json") for name in self.storage.list(f"{request.path}/{LOG}"))
    return m.Conflict() if 0 < request.version < files else original(self).take_over(client, request)


@mutant("MC-CONVERT-05")
class TakeOverOverwrites(ModelOwner):
    """Overwrites a filesystem writer's commit with the ownership change."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        self.storage.remove(self._path(table, version))
        return super()._begin(table, version, attempt, actions)


@mutant_method("_forget", "MC-CONVERT-09", "MC-CONVERT-03")
def lost_take_over_gives_ownership(self: ModelOwner, table: OwnedTable) -> None:
    """Considers itself the owner of a table whose take-over lost."""
    table.promised, table.latest = None, self._published(table)
    table.backfilled = table.latest


@mutant("MC-CONVERT-09")
class LostTakeOverKeepsItsLocation(ModelOwner):
    """Keeps the location of a lost take-over for the next table of the same name."""

    places: dict[str, str] = memory(dict)

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version > 0:
            table.location = self.places.setdefault(table.name, table.location)
        return super()._begin(table, version, attempt, actions)


@mutant_method("commit", "MC-CONVERT-01")
def adopts_any_table(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Takes ownership of every table that receives a proposal."""
    if request.table not in self.tables:
        table = OwnedTable(
            reference=request.table,
            name=request.table,
            feature="managedCommit",
            commit_mode="staged",
            location=request.table,
        )
        table.latest = table.backfilled = self._published(table)
        self.tables[request.table] = table
    return original(self).commit(client, request)


@mutant_method("take_over", "PROFILE-RETRY-01")
def replayed_take_over_is_rejected(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Rejects a repeated take-over because the table has an owner: itself."""
    if self._find(None, request.path) is not None:
        return m.Rejected(reason="that table has an owner")
    return original(self).take_over(client, request)


@mutant_method("take_over", "MC-API-03")
def take_over_drops_properties(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Writes a take-over with its own properties only, without the proposed ones."""
    actions = [json.loads(action) for action in request.actions]
    for action in actions:
        action.get("metaData", {})["configuration"] = {}
    return original(self).take_over(client, msgspec.structs.replace(request, actions=tuple(map(json.dumps, actions))))


class _ContinuesATable(ModelOwner):
    """Gives a table that it takes over again its old reference."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        self.before = next((table for table in self.tables.values() if table.location == request.path), None)
        return super().take_over(client, request)

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        if version == 0 or self.before is None:
            return super()._begin(table, version, attempt, actions)
        table.reference = self.before.reference
        self._continue(table, self.before)
        answer = super()._begin(table, version, attempt, actions)
        if not isinstance(answer, m.Ratified):
            self.tables[table.reference] = self.before
        return answer

    def _continue(self, table: OwnedTable, before: OwnedTable) -> None:
        table.landed, table.never = dict(before.landed), set(before.never)


@mutant_method("_continue", "PROFILE-RETRY-01")
def second_take_over_forgets_attempts(self: _ContinuesATable, table: OwnedTable, before: OwnedTable) -> None:
    """Forgets the attempts of a table when it takes it over again: their replays are conflicts."""
    table.never = set(before.never)


@mutant_method("_continue", "PROFILE-OUTCOME-02")
def second_take_over_forgets_tombstones(self: _ContinuesATable, table: OwnedTable, before: OwnedTable) -> None:
    """Forgets the tombstones of a table when it takes it over again."""
    table.landed = dict(before.landed)


@mutant("PROFILE-DISCOVERY-02", "MC-RELEASE-04")
class RecreatedTableKeepsTheReference(_ContinuesATable):
    """Gives a table the reference of the one that was in its folder before: late proposals to that one land in it."""


@good()
class ContinuesTheSameTable(_ContinuesATable):
    """Gives a table that it takes over again its old reference, unless another table was created in its folder."""

    ids: dict[str, str] = memory(dict)

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        own = proposals.table_id_in(actions)
        if version > 0 and self.before is not None and self.ids.get(self.before.reference) != own:
            self.before = None
        answer = super()._begin(table, version, attempt, actions)
        self.ids[table.reference] = own
        return answer


@mutant_method("_find", "MC-CONVERT-02", "MC-FEATURE-02")
def takes_over_a_table_twice(self: ModelOwner, name: str | None, path: str | None) -> str | None:
    """Takes a table over that it owns, and keeps two records of one log."""
    return original(self)._find(name, None)


@mutant_method("_save", "MC-CONVERT-06", "MC-CONVERT-07", "PROFILE-DURABLE-01")
def restart_forgets_take_overs(self: ModelOwner, table: OwnedTable) -> None:
    """Keeps take-overs in memory: after a restart the tables are unknown."""
    if table.location.endswith(table.reference):
        original(self)._save(table)


@mutant("MC-CONVERT-07", "MC-CONVERT-08")
class RecordsOwnershipAfterTheFile(ModelOwner):
    """Writes the ownership change before it records the ownership: a crash between leaves a table with an owner that
    does not know it."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        self.unsaved = table.reference
        answer = super()._begin(table, version, attempt, actions)
        self.unsaved = ""
        if isinstance(answer, m.Ratified):
            self._save(table)
        return answer

    def _save(self, table: OwnedTable) -> None:
        if table.reference != getattr(self, "unsaved", ""):
            super()._save(table)


@mutant_method("restart", "MC-CONVERT-08", "MC-CONVERT-07", "PROFILE-DURABLE-03")
def crash_forgets_unconfirmed_take_overs(self: ModelOwner, client: str, request: m.Restart) -> m.Answer:
    """Forgets take-overs without confirmation after a crash, although the ownership change was written."""
    for reference, saved in list(self.saved.items()):
        if msgspec.json.decode(saved, type=OwnedTable).promised is not None:
            del self.saved[reference]
    return original(self).restart(client, request)


@mutant_method("_recover", "MC-CONVERT-09", "MC-CONVERT-03", "MC-CONVERT-05")
def take_over_recovery_trusts_any_file(self: ModelOwner, table: OwnedTable) -> None:
    """After a crash in a take-over, considers any file of that version its ownership change."""
    if table.promised is not None:
        version, attempt, content = table.promised
        file = self.storage.read(self._path(table, version))
        table.promised = (version, attempt, content if file is None else file.content)
    original(self)._recover(table)


@mutant("MC-ENABLE-10")
class TakeOverNamesNoOwner(ModelOwner):
    """Takes a table over without its name in the metadata: clients do not find the owner."""

    def _begin(self, table: OwnedTable, version: int, attempt: str, actions: tuple[str, ...]) -> m.Answer:
        self.named = version == 0
        return super()._begin(table, version, attempt, actions)

    def _with_owner(self, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
        return super()._with_owner(actions, feature if self.named else "")


@mutant_method("take_over", "MC-API-03", "MC-LOG-01", "MC-COMMIT-04", found_by="programs")
def drops_other_properties_in_a_take_over(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Keeps in a take-over only the properties that owners need."""
    lines = [json.loads(action) for action in request.actions]
    for body in (line["metaData"] for line in lines if "metaData" in line):
        kept = {name: value for name, value in body["configuration"].items() if name != proposals.KEPT}
        body["configuration"] = kept
    return original(self).take_over(client, msgspec.structs.replace(request, actions=tuple(map(json.dumps, lines))))


@mutant_method("_with_owner", "MC-ENABLE-10")
def names_no_owner(self: ModelOwner, actions: tuple[str, ...], feature: str) -> tuple[str, ...]:
    """Creates tables, and takes them over, without its name in the metadata."""
    return actions


@mutant_method("_latest", "MC-FILES-08", "MC-GET-02")
def latest_is_the_greatest_number_in_the_log(self: ModelOwner, table: OwnedTable) -> int | None:
    """Returns the greatest version of a file in the log folder as the latest one, checkpoints included."""
    names = self.storage.list(f"{table.location}/{LOG}")
    return max([table.latest, *(int(name[:20]) for name in names if name[:20].isdecimal())])


# Owners that hand a table back wrongly, or do not.


@mutant_method("_recover", "MC-FEATURE-03", "MC-CONVERT-06")
def hand_back_recovery_trusts_any_file(self: ModelOwner, table: OwnedTable) -> None:
    """After a crash in a hand-back, considers any file of that version the end of its ownership."""
    original(self)._recover(table)
    file = self.storage.read(self._path(table, table.latest + 1))
    if table.leaving is not None and table.active and file is not None:
        table.leaving = json.loads(file.content.partition("\n")[0])["commitInfo"]["txnId"]


@mutant("MC-COMMIT-02")
class DirectCommitRecoveryTrustsAnyFile(ModelOwner):
    """After a crash in a direct commit, considers any file of that version the attempt's."""

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        table.promised = (request.version, request.attempt, "")
        self._save(table)
        self._reach("after-promise")
        table.promised = None
        return super()._publish_directly(table, request)

    def _recover(self, table: OwnedTable) -> None:
        if table.promised is None or table.promised[2]:
            super()._recover(table)
            return
        version, attempt, _ = table.promised
        table.promised = None
        if self.storage.read(self._path(table, version)) is not None:
            table.backfilled = version
            self._record(table, version, attempt)


@mutant("MC-COMMIT-02")
class HandBackOverwrites(ModelOwner):
    """Writes the commit of a hand-back over a direct commit that it does not know yet."""

    commit_mode = "direct"
    leaves = False

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self.tables.get(request.table)
        self.leaves = table is not None and table.commit_mode == self.commit_mode
        try:
            return super().hand_back(client, request)
        finally:
            self.leaves = False

    def _notice(self, table: OwnedTable) -> None:
        if not self.leaves:
            super()._notice(table)

    def _publish_directly(self, table: OwnedTable, request: m.Commit) -> m.Answer:
        if self.leaves:
            self.storage.remove(self._path(table, request.version))
        return super()._publish_directly(table, request)


@mutant("MC-COMMIT-02", "MC-FILES-08")
class HandBackOverwritesAnyFile(HandBackOverwrites):
    """Writes the commit of a hand-back over the file of another writer, in a table with staged commits."""

    commit_mode = "staged"


@mutant_method("_save", "MC-RELEASE-07", "MC-RELEASE-05")
def begun_hand_back_ends_ownership(self: ModelOwner, table: OwnedTable) -> None:
    """Ends its ownership when it begins a hand-back: after a crash the table has neither owner nor last commit."""
    original(self)._save(table)
    if table.leaving is not None:
        ended = msgspec.structs.replace(table, active=False)
        self.saved[table.reference] = msgspec.json.encode(ended)


@mutant_method("take_over", "PROFILE-TRANSFER-02")
def given_back_tables_are_not_taken_over_again(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Rejects the take-over of a table that it handed back, because it already knows the location."""
    known = any(table.location == request.path and not table.active for table in self.tables.values())
    return m.Rejected(reason="that location is registered") if known else original(self).take_over(client, request)


@mutant_method("hand_back", "PROFILE-TRANSFER-01")
def rejects_every_hand_back(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Declares ownership transfer, and rejects every hand-back."""
    return m.Rejected(reason="it is ours")


@mutant("MC-RELEASE-03", bugs=("FB38",))
class HandsBackWithoutBackfill(ModelOwner):
    """Hands a table back with unbackfilled commits: filesystem readers find a gap."""

    leaves = False

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        self.leaves = True
        answer = super().hand_back(client, request)
        self.leaves = False
        return answer

    def _backfill(self, table: OwnedTable, version: int) -> None:
        if not self.leaves:
            super()._backfill(table, version)


@mutant_method("hand_back", "MC-RELEASE-04")
def ratifies_after_a_hand_back(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Ratifies proposals after a hand-back."""
    answer = original(self).hand_back(client, request)
    if isinstance(answer, m.Ratified):
        self.tables[request.table].active = True
    return answer


@mutant_method("hand_back", "MC-RELEASE-05", "MC-RELEASE-07")
def hands_back_without_a_commit(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Answers a hand-back as ratified without writing its commit: filesystem writers still find an owner."""
    answer = original(self).hand_back(client, request)
    table = self.tables.get(request.table)
    if table is not None and isinstance(answer, m.Ratified):
        self.storage.remove(self._path(table, answer.version))
    return answer


@mutant_method("observe", "RULING-RELEASE-01")
def never_publishes_a_hand_back(self: PublishesTheHandBackInTheBackground, client: str, request: m.Observe) -> m.Answer:
    """Stages the commit of a hand-back, rejects requests to publish it, and never publishes it."""
    return ModelOwner.observe(self, client, request)


@mutant_method("hand_back", "MC-FEATURE-03", "MC-CONVERT-06")
def rejected_hand_back_ends_ownership(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Stops ratifying after a hand-back that it rejected."""
    answer = original(self).hand_back(client, request)
    if request.table in self.tables:
        self.tables[request.table].active = False
    return answer


@mutant_method("hand_back", "MC-RELEASE-03", "MC-BACKFILL-03")
def failed_backfill_does_not_stop_a_hand_back(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Hands a table back although an earlier commit cannot be published."""
    table = self.tables.get(request.table)
    answer = original(self).hand_back(client, request)
    if table is None or not isinstance(answer, m.Rejected) or not answer.retryable:
        return answer
    table.leaving = request.attempt
    proposal = m.Commit(table=request.table, version=request.version, attempt=request.attempt, actions=request.actions)
    answer = self._publish_directly(table, proposal)
    table.active = False
    return answer


@mutant_method("hand_back", "PROFILE-RETRY-01")
def replayed_hand_back_is_rejected(self: ModelOwner, client: str, request: m.HandBack) -> m.Answer:
    """Rejects a repeated hand-back because the table has no owner."""
    table = self.tables.get(request.table)
    if table is not None and not table.active:
        return m.Rejected(reason="not owned any more")
    return original(self).hand_back(client, request)


@mutant_method("take_over", "MC-CONVERT-02", "MC-CONVERT-05")
def second_take_over_uses_old_state(self: ModelOwner, client: str, request: m.TakeOver) -> m.Answer:
    """Takes over a table again with its state from the hand-back: commits of filesystem writers are overwritten."""
    for table in self.tables.values():
        if table.location == request.path and not table.active and request.version > table.latest:
            table.active, table.leaving = True, None
            self.storage.remove(self._path(table, request.version))
            return self._begin(table, request.version, request.attempt, request.actions)
    return original(self).take_over(client, request)


@mutant_method("_backfill", "MC-BACKFILL-05")
def second_take_over_publishes_nothing(self: ModelOwner, table: OwnedTable, version: int) -> None:
    """Takes over a table again, and continues to publish after the version of the hand-back: there it has no commit."""
    handed_back = any(other.location == table.location and other is not table for other in self.tables.values())
    if not handed_back:
        original(self)._backfill(table, version)


@mutant_method("_restarted", "MC-RELEASE-04", "PROFILE-DURABLE-01")
def restart_undoes_hand_back(self: ModelOwner, table: OwnedTable) -> None:
    """Forgets a hand-back in a restart and owns the table again."""
    original(self)._restarted(table)
    table.active = True


@mutant_method("_notice", "MC-RELEASE-04")
def crash_forgets_a_hand_back(self: ModelOwner, table: OwnedTable) -> None:
    """Crashes after it wrote the commit of a hand-back; after the restart it ratifies further commits."""
    table.leaving = None
    original(self)._notice(table)


@mutant_method("commit", "MC-RELEASE-04")
def deletes_commits_after_a_hand_back(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Deletes the commits of filesystem writers after a hand-back."""
    table = self.tables.get(request.table)
    if table is not None and table.leaving is not None:
        for version in range(table.latest + 1, self._published(table) + 1):
            self.storage.remove(self._path(table, version))
    return original(self).commit(client, request)


# Clients that change the owner of a table wrongly, or do not notice that it changed.


@mutant_method("_ownership_change", "ICT-10", "ICT-15")
def keeps_the_enablement_of_an_earlier_owner(
    self: ModelClient, request: m.TakeOver, state: State, listed: Listing
) -> tuple[str, ...]:
    """Takes a table over, and keeps the properties of an enablement that an earlier owner left."""
    left = {name: state.properties[name] for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
            if name in state.properties}  # fmt: skip
    lines = original(self)._ownership_change(request, state, listed)
    actions = [json.loads(line) for line in lines]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= left
    return tuple(json.dumps(action, separators=(",", ":")) for action in actions) if left else lines


@mutant_method("_enablement", "ICT-11")
def enablement_time_is_the_clocks(self: ModelClient, version: int, timestamp: int) -> dict[str, str]:
    """Records the clock's time as the enablement timestamp instead of the commit's."""
    return {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(self.now - 1)}


@mutant_method("_change_time", "ICT-12")
def ignores_modification_times(self: ModelClient, state: State, listed: Listing) -> int:
    """Gives the take-over an in-commit timestamp earlier than the previous commit's file."""
    return self.now


@mutant("ICT-15")
class KeepsItsEnablementAfterALostRace(ModelClient):
    """Proposes a take-over for the next version with the enablement of the lost one."""

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        self._first = getattr(self, "_first", None) or super()._enablement(version, timestamp)
        return self._first


@mutant_method("create_table", "ICT-13")
def new_tables_have_an_enablement(self: ModelClient, client: str, request: m.CreateTable) -> m.Answer:
    """Writes enablement properties to a new table."""
    actions = [json.loads(action) for action in request.actions]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= self._enablement(0, proposals.BASE_TIME)
    changed = tuple(json.dumps(action) for action in actions)
    return original(self).create_table(client, msgspec.structs.replace(request, actions=changed))


@mutant_method("_without", "MC-RELEASE-01")
def hand_back_keeps_the_feature(self: ModelClient, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
    """Leaves the table feature in the protocol after a hand-back."""
    return protocol


@mutant_method("_without", "LOG-42")
def hand_back_drops_features(self: ModelClient, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
    """Gives a table back with the protocol of a new table."""
    return proposals.PROTOCOLS[None]


@mutant_method("_without", "LOG-42")
def hand_back_lowers_the_writer_version(self: ModelClient, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
    """Gives a table back with its list of features, and a writer version that has no such list."""
    return {**original(self)._without(protocol, feature), "minWriterVersion": 2}


@mutant_method("_ownership_change", "LOG-43")
def take_over_forgets_the_creation(
    self: ModelClient, request: m.TakeOver, state: State, listed: Listing
) -> tuple[str, ...]:
    """Takes a table over without the time of its creation."""
    created = {name: value for name, value in state.metadata.items() if name != "createdTime"}
    return original(self)._ownership_change(request, dataclasses.replace(state, metadata=created), listed)


@mutant_method("_for_writers", "LOG-42")
def take_over_drops_implied_features(self: ModelClient, state: State) -> set[str]:
    """Turns versions into lists of features in a take-over without what the versions implied: an append-only table
    is no longer append-only."""
    return set(state.features)


@mutant("LOG-43")
class TakeOverResetsProperties(ModelClient):
    """Writes a take-over's metadata with the owner's properties only."""

    def _ownership_change(self, request: m.TakeOver, state: State, listed: Listing) -> tuple[str, ...]:
        metadata = {**state.metadata, "configuration": {}}
        return super()._ownership_change(request, dataclasses.replace(state, metadata=metadata), listed)


@mutant("MC-CONVERT-11", "MC-WRITE-03", "CM-WRITE-04", "CM-ACCESS-02")
class OverlooksATakeOver(ModelClient):
    """Creates the next file after it lost to a take-over."""

    def _open(self, client: str, name: str) -> Resolved:
        if "/" not in name:
            return self._resolve(client, name)
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(name) / LOG)

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        """Assumes that a blind append cannot conflict."""
        if transaction.table.reference is not None:
            super()._check(transaction, winner)


@mutant("MC-CONVERT-10", "MC-FILES-12", "MC-WRITE-03", "CM-WRITE-04")
class IgnoresItsOwnTakeOver(ModelClient):
    """Creates files in a table after an owner took it over at its request."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        self._mine = {**getattr(self, "_mine", {}), request.name: request.path}
        return super().take_over(client, request)

    def _resolve(self, client: str, name: str) -> Resolved:
        table = super()._resolve(client, name)
        if name in getattr(self, "_mine", {}):
            table.reference = None
        return table


@mutant("MC-CONVERT-04")
class AssumesARejectedTakeOver(ModelClient):
    """Treats a take-over as successful that the owner rejected, and uses that owner."""

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        answer = super().take_over(client, request)
        if not isinstance(answer, m.Ratified):
            self._given = {*getattr(self, "_given", set()), request.path}
        return answer

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        if request.table in getattr(self, "_given", ()):
            return m.Rejected(reason="the table is being taken over")
        return super().transact(client, request)


@mutant("PROFILE-UNKNOWN-01")
class TakesItsOwnChangeForALostRace(ModelClient):
    """Takes a conflict about its own change of ownership for a lost race, and reports that the change failed."""

    def _is_own(self, table: Resolved, version: int, attempt: str, *, repeated: bool) -> bool:
        return False


@mutant("PROFILE-UNKNOWN-01")
class TakesACleanedUpChangeForALostRace(ModelClient):
    """Reports that its change of ownership failed if the file of the change is missing after a lost answer, although
    a cleanup deleted it."""

    def _is_own(self, table: Resolved, version: int, attempt: str, *, repeated: bool) -> bool:
        return super()._is_own(table, version, attempt, repeated=False)


@mutant("PROFILE-CLIENT-02")
class NeverResolvesANameAgain(ModelClient):
    """Keeps the owner's first answer about a name for all its transactions."""

    _handles: dict[str, Resolved] = memory(dict)

    def _open(self, client: str, name: str) -> Resolved:
        if name not in self._handles:
            self._handles[name] = super()._open(client, name)
        return self._handles[name]
