"""Writers that overlook what others did."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.reader import State
from conformance.models.writer import Conflicting, Transaction
from conformance.mutants.registry import mutant

Actions = list[dict[str, Any]]


@mutant("CONFLICT-CHECK-01", "CONFLICT-FILES-01", "CONFLICT-ORDER-01", side="client")
class RebasesBlindly(ModelClient):
    """After a lost race it proposes the same again, without looking at what the winner did."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        pass


@mutant("CONFLICT-RETRY-04", side="client")
class ChecksBeforeTheFirstTryOnly(ModelClient):
    """It checks what came since it read the table, proposes, loses, and then takes the next version unseen."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        if not transaction.attempts:
            super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-01", side="client")
class LooksAtTheNewestWinnerOnly(ModelClient):
    """Of several winners it checks the newest only."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        latest = transaction.table.latest
        if latest is None or transaction.checked.version + 1 == latest:
            super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-02", side="client")
class IgnoresAnUnknownFeature(ModelClient):
    """It goes on although the winner's protocol asks writers for a feature that it does not know."""

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        if request.add_feature is not None:
            raise Conflicting("the protocol changed")


@mutant("CONFLICT-ORDER-03", side="client")
class OverwritesTheProtocol(ModelClient):
    """It replaces the protocol of a winner by its own."""

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        if request.add_feature is None:
            super()._check_protocol(request, protocol, before)


@mutant("CONFLICT-ORDER-04", "CONFLICT-ORDER-05", side="client")
class IgnoresChangedMetadata(ModelClient):
    """It commits after a winner that changed schema, partitioning or properties."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        super()._check(transaction, [action for action in winner if "metaData" not in action])


@mutant("CONFLICT-ORDER-05", side="client")
class IgnoresMetadataUnderSnapshotIsolation(ModelClient):
    """Under SnapshotIsolation it does not look whether a winner changed the schema or the partitioning."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        if transaction.request.isolation is m.Isolation.SNAPSHOT:
            winner = [action for action in winner if "metaData" not in action]
        super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-06", side="client")
class IgnoresDomains(ModelClient):
    """It overwrites a metadata domain that a winner changed."""

    def _check_domains(self, request: m.Transact, domains: Actions) -> None:
        pass


@mutant("CONFLICT-ORDER-07", side="client")
class IgnoresApplications(ModelClient):
    """It commits a batch although a winner advanced the same application."""

    def _check_applications(self, request: m.Transact, applications: Actions) -> None:
        pass


@mutant("CONFLICT-REPEAT-01", side="client")
class WritesBatchesAgain(ModelClient):
    """It writes a batch that the table has recorded already."""

    def _recorded(self, base: State, request: m.Transact) -> bool:
        return False


@mutant(
    "CONFLICT-ORDER-08",
    "CONFLICT-FILES-03",
    "CONFLICT-ISOLATION-01",
    bugs=("FB34",),
    side="client",
)
class OverlooksAddedFiles(ModelClient):
    """Two overwrites at the same time both land: the rows of both stay."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        pass


@mutant("CONFLICT-ISOLATION-01", side="client")
class ForgivesBlindAppends(ModelClient):
    """Under serializable isolation it overlooks files that a blind append added."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if not any(action.get("commitInfo", {}).get("isBlindAppend") for action in winner):
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-FILES-03", side="client")
class TellsReadsApartWithoutPartitions(ModelClient):
    """It believes that a read of an unpartitioned table was of a part that nobody added to."""

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        return request.reads == "*" or (file["partitionValues"].get("part") or None) == request.reads


@mutant("CONFLICT-FILES-04", side="client")
class TakesEveryReadForEverything(ModelClient):
    """A read of one partition conflicts with files that were added to another."""

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        return request.reads is not None


@mutant("CONFLICT-FILES-02", side="client")
class ConflictsWithItself(ModelClient):
    """A blind append conflicts with every other append."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if added:
            raise Conflicting("files were added")


@mutant("CONFLICT-FILES-02", side="client")
class ConflictsWithEveryRemoval(ModelClient):
    """A blind append conflicts with whoever removes a file."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if removed:
            raise Conflicting("files were removed")


@mutant("CONFLICT-ORDER-09", side="client")
class OverlooksRemovedFiles(ModelClient):
    """It does not notice that files that it read were removed."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.reads is None:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-ORDER-10", side="client")
class RemovesTwice(ModelClient):
    """It removes a file that a winner removed already."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.reads is not None:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-ORDER-10", side="client")
class ComparesPathsAsTheyAreWritten(ModelClient):
    """It compares the encoded path of a file that a winner removed with the name of its own: a file whose name has a
    space is removed twice."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        plain = [body for body in removed if "%" not in body["path"]]
        super()._check_removed(request, base, plain)


@mutant("CONFLICT-RETRY-05", side="client")
class TakesTwoPathsForOne(ModelClient):
    """It decodes the paths of removed files once too often, and takes two files for one."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        super()._check_removed(request, base, [{**body, "path": unquote(body["path"])} for body in removed])


@mutant("CONFLICT-RETRY-05", side="client")
class GivesUpAfterALostRace(ModelClient):
    """A transaction without any conflict fails because its version was taken."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        before = transaction.checked.version
        super()._catch_up(client, transaction)
        if transaction.checked.version > before:
            raise Conflicting("somebody was faster")


@mutant("CONFLICT-CHECK-02", "DELAYED-11", "DELAYED-02", side="client")
class CommitsWhatItCan(ModelClient):
    """A write that fails its check reports the conflict, and commits the files that it added all the same."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        told = super().transact(client, request)
        if isinstance(told, m.Conflict) and request.adds:
            rest = m.Transact(table=request.table, marker=request.marker, adds=request.adds)
            super().transact(client, rest)
        return told


# Isolation


@mutant("CONFLICT-ORDER-08", side="client")
class TakesEveryAppendForBlind(ModelClient):
    """Under WriteSerializable it overlooks all added files, also those of a winner that had read something."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if request.isolation is not m.Isolation.WRITE_SERIALIZABLE:
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-ORDER-08", side="client")
class ForgetsThatItChangesTheMetadata(ModelClient):
    """It overlooks a blind append under WriteSerializable although it changes the metadata itself."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        unchanged = msgspec.structs.replace(
            request, set_properties={}, unset_properties=(), replace_table=False, partition_by=None
        )
        super()._check_added(unchanged, base, winner, added)


@mutant("CONFLICT-ISOLATION-04", side="client")
class PartitionsAnewBesideAnAppend(ModelClient):
    """Under SnapshotIsolation it changes the partitioning although a winner added a file by the old one: the table
    cannot be read any more."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if request.isolation is not m.Isolation.SNAPSHOT:
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-ORDER-09", side="client")
class ChecksNothingUnderSnapshotIsolation(ModelClient):
    """Under SnapshotIsolation it does not look at removed files either."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.isolation is not m.Isolation.SNAPSHOT:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-RETRY-04", side="client")
class ChecksTheFirstWinnersOnly(ModelClient):
    """After two lost races it takes every further winner for harmless."""

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        if len(transaction.attempts) <= 2:
            super()._check(transaction, winner)


@mutant("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", side="client")
class TakesSilenceForSuccess(ModelClient):
    """Where nobody tells what became of its commit it reports that it landed."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        told = self.owner(client, m.AttemptOutcome(table=request.table, attempt=request.attempt))
        return not isinstance(told, m.NotLanded)
