"""Writers that overlook conflicts with other writers."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.reader import Refused, State
from conformance.models.writer import Conflicting, Transaction
from conformance.mutants import memory, mutant

Actions = list[dict[str, Any]]


@mutant("CONFLICT-CHECK-01", "CONFLICT-FILES-01", "CONFLICT-ORDER-01", side="client")
class RebasesBlindly(ModelClient):
    """Retries after a lost race without checking the winner."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        pass


@mutant("CONFLICT-RETRY-04", side="client")
class ChecksConflictsOnlyOnce(ModelClient):
    """Checks for conflicts only before its first proposal, not after a lost race."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        if not transaction.attempts:
            super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-01", side="client")
class ChecksTheNewestWinnerOnly(ModelClient):
    """Checks only the newest of several winners."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        latest = transaction.table.latest
        if latest is None or transaction.checked.version + 1 == latest:
            super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-02", side="client")
class IgnoresUnsupportedFeatures(ModelClient):
    """Commits although the winner's protocol requires an unsupported feature."""

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        if request.add_feature is not None:
            raise Conflicting("the protocol changed")


@mutant("CONFLICT-ORDER-03", side="client")
class OverwritesTheProtocol(ModelClient):
    """Replaces a winner's protocol with its own."""

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        if request.add_feature is None:
            super()._check_protocol(request, protocol, before)


@mutant("CONFLICT-ORDER-04", "CONFLICT-ORDER-05", side="client")
class IgnoresChangedMetadata(ModelClient):
    """Commits after a winner that changed schema, partitioning or properties."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        super()._check(transaction, [action for action in winner if "metaData" not in action])


@mutant("CONFLICT-ORDER-05", side="client")
class ComparesOnlyThePartitioning(ModelClient):
    """Commits after a winner that changed the schema: readers cannot read both its files and the winner's."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        columns, request = transaction.base.metadata.get("partitionColumns"), transaction.request
        if not (request.set_properties or request.partition_by):
            winner = [a for a in winner if "metaData" not in a or a["metaData"].get("partitionColumns") != columns]
        super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-05", side="client")
class IgnoresMetadataUnderSnapshotIsolation(ModelClient):
    """Ignores a winner's schema or partitioning change under SnapshotIsolation."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        if transaction.request.isolation is m.Isolation.SNAPSHOT:
            winner = [action for action in winner if "metaData" not in action]
        super()._check(transaction, winner)


@mutant("CONFLICT-ORDER-06", side="client")
class IgnoresDomains(ModelClient):
    """Overwrites a metadata domain that a winner changed."""

    def _check_domains(self, request: m.Transact, domains: Actions) -> None:
        pass


@mutant("CONFLICT-ORDER-07", side="client")
class IgnoresApplications(ModelClient):
    """Commits a batch although a winner advanced the same application."""

    def _check_applications(self, request: m.Transact, applications: Actions) -> None:
        pass


@mutant("CONFLICT-REPEAT-01", side="client")
class WritesBatchesAgain(ModelClient):
    """Writes a batch that the table has recorded."""

    def _recorded(self, base: State, request: m.Transact) -> bool:
        return False


@mutant(
    "CONFLICT-ORDER-08", "CONFLICT-FILES-03", "CONFLICT-ISOLATION-01", bugs=("FB34",), side="client",
)  # fmt: skip
class IgnoresAddedFiles(ModelClient):
    """Lets two concurrent overwrites land: the rows of both stay."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        pass


@mutant("CONFLICT-ISOLATION-01", side="client")
class IgnoresBlindAppendsUnderSerializable(ModelClient):
    """Ignores files of a blind append under Serializable isolation."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if not any(action.get("commitInfo", {}).get("isBlindAppend") for action in winner):
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-FILES-03", side="client")
class PartialReadsOfUnpartitionedTables(ModelClient):
    """Assumes that no added file can match a read of an unpartitioned table."""

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        return request.reads == "*" or (file["partitionValues"].get("part") or None) == request.reads


@mutant("CONFLICT-FILES-04", side="client")
class TreatsEveryReadAsFull(ModelClient):
    """Lets a read of one partition conflict with files added to another."""

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        return request.reads is not None


@mutant("CONFLICT-FILES-02", side="client")
class BlindAppendsConflict(ModelClient):
    """Lets a blind append conflict with every other append."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if added:
            raise Conflicting("files were added")


@mutant("CONFLICT-FILES-02", side="client")
class ConflictsWithEveryRemoval(ModelClient):
    """Lets a blind append conflict with every removal."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if removed:
            raise Conflicting("files were removed")


@mutant("CONFLICT-ORDER-09", side="client")
class IgnoresRemovedFiles(ModelClient):
    """Ignores that a winner removed files that it read."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.reads is None:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-ORDER-10", side="client")
class RemovesTwice(ModelClient):
    """Removes a file that a winner removed."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.reads is not None:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-ORDER-10", side="client")
class ComparesEncodedPaths(ModelClient):
    """Compares the encoded path of a removed file with its decoded name: a file whose name has a space is removed
    twice."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        plain = [body for body in removed if "%" not in body["path"]]
        super()._check_removed(request, base, plain)


@mutant("CONFLICT-FILES-05", side="client")
class DecodesRemovedPathsTwice(ModelClient):
    """Decodes the paths of removed files twice, and treats two files as one."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        super()._check_removed(request, base, [{**body, "path": unquote(body["path"])} for body in removed])


@mutant("CONFLICT-RETRY-05", side="client")
class GivesUpAfterALostRace(ModelClient):
    """Fails a transaction without conflicts after one lost race."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        before = transaction.checked.version
        super()._catch_up(client, transaction)
        if transaction.checked.version > before:
            raise Conflicting("another writer was faster")


@mutant("CONFLICT-CHECK-02", "DELAYED-11", "DELAYED-02", side="client")
class CommitsPartOfAConflict(ModelClient):
    """Reports a conflict, and commits the added files of the transaction anyway."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        if isinstance(answer, m.Conflict) and request.adds:
            rest = m.Transact(table=request.table, marker=request.marker, adds=request.adds)
            super().transact(client, rest)
        return answer


# Isolation


@mutant("CONFLICT-ORDER-08", side="client")
class IgnoresAllAppends(ModelClient):
    """Ignores all added files under WriteSerializable, even those of a winner that read something."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if request.isolation is not m.Isolation.WRITE_SERIALIZABLE:
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-ORDER-08", side="client")
class IgnoresAppendsInAMetadataChange(ModelClient):
    """Ignores a blind append under WriteSerializable although it changes the metadata."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        unchanged = msgspec.structs.replace(
            request, set_properties={}, unset_properties=(), replace_table=False, partition_by=None
        )
        super()._check_added(unchanged, base, winner, added)


@mutant("CONFLICT-ISOLATION-04", side="client")
class IgnoresAppendsWhenRepartitioning(ModelClient):
    """Changes the partitioning under SnapshotIsolation although a winner added a file under the old one."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if request.isolation is not m.Isolation.SNAPSHOT:
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-ORDER-09", side="client")
class ChecksNothingUnderSnapshotIsolation(ModelClient):
    """Ignores removed files under SnapshotIsolation."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.isolation is not m.Isolation.SNAPSHOT:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-ORDER-10", "CONFLICT-FILES-01", side="client")
class UpdatesByDeletionVectorAreNoRemovals(ModelClient):
    """Ignores that a winner deleted rows of a file by a deletion vector, because the file still exists."""

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        kept = {each["add"]["path"] for each in winner if each.get("add", {}).get("deletionVector")}
        super()._check(transaction, [each for each in winner if each.get("remove", {}).get("path") not in kept])


@mutant("CONFLICT-ORDER-10", "CONFLICT-ORDER-09", side="client")
class RearrangesRemovedFiles(ModelClient):
    """Checks no removals in a transaction that only rearranges data."""

    def _check_removed(self, request: m.Transact, base: State, removed: Actions) -> None:
        if request.data_change:
            super()._check_removed(request, base, removed)


@mutant("CONFLICT-RETRY-04", side="client")
class ChecksTwoWinnersOnly(ModelClient):
    """Ignores every winner after two lost races."""

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        if len(transaction.attempts) <= 2:
            super()._check(transaction, winner)


@mutant("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02", side="client")
class ReadsNoAnswerAsSuccess(ModelClient):
    """Reports a commit as landed if neither it nor any lookup is answered."""

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        answer = self.owner(client, m.AttemptOutcome(table=request.table, attempt=request.attempt))
        return not isinstance(answer, m.NotLanded)


# The location of the winners, and the state after a conflict


class _ChecksSomeWinners(ModelClient):
    """Checks only winners for which `_looks` is true."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        self._visible = set(self._list(transaction.table).commits)
        super()._catch_up(client, transaction)

    def _check(self, transaction: Transaction, winner: Actions) -> None:
        if self._looks(transaction.checked.version + 1):
            super()._check(transaction, winner)

    def _looks(self, version: int) -> bool:
        raise NotImplementedError


@mutant("CONFLICT-ORDER-01", side="client")
class ChecksPublishedWinnersOnly(_ChecksSomeWinners):
    """Checks the winners that the listing shows, and ignores unpublished ones."""

    def _looks(self, version: int) -> bool:
        return version in self._visible


@mutant("CONFLICT-ORDER-01", side="client")
class ChecksUnpublishedWinnersOnly(_ChecksSomeWinners):
    """Checks the winners that its owner lists, and ignores published ones."""

    def _looks(self, version: int) -> bool:
        return version not in self._visible


@mutant("CONFLICT-ORDER-01", "CONFLICT-ORDER-10", side="client")
class SkipsMissingWinners(ModelClient):
    """Ignores winners whose commits were cleaned up."""

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        try:
            super()._catch_up(client, transaction)
        except Refused:
            transaction.checked = self._read(client, transaction.table, None, None)


@mutant("CONFLICT-CHECK-02", "DELAYED-11", side="client")
class CommitsLeftoversOfAConflict(ModelClient):
    """Adds the files of a failed transaction to the next one on the same table."""

    _left: dict[str, tuple[m.DataFile, ...]] = memory(dict)

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        left = self._left.pop(request.table, ())
        answer = super().transact(client, msgspec.structs.replace(request, adds=(*left, *request.adds)))
        if isinstance(answer, m.Conflict):
            self._left[request.table] = request.adds
        return answer


@mutant("PROFILE-CLIENT-02", side="client")
class KeepsTheSnapshotOfAConflict(ModelClient):
    """Bases transactions after a conflict on the snapshot of the failed one, so that they fail too."""

    _bases: dict[str, int] = memory(dict)

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        try:
            return super()._transact(client, transaction)
        except Conflicting:
            self._bases[transaction.request.table] = transaction.base.version
            raise

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        base = self._bases.get(request.table, request.read_version)
        return super().transact(client, msgspec.structs.replace(request, read_version=base))
