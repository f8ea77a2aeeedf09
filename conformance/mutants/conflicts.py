"""Writers that overlook conflicts with other writers."""

from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.reader import Refused, State
from conformance.models.writer import Conflicting, Transaction
from conformance.mutants import memory, memory_of, mutant, mutant_method, original

Actions = list[dict[str, Any]]


@mutant_method("_check", "CONFLICT-CHECK-01", "CONFLICT-FILES-01", "CONFLICT-ORDER-01")
def rebases_blindly(self: ModelClient, transaction: Transaction, winner: Actions) -> None:
    """Retries after a lost race without checking the winner."""


@mutant_method("_check", "CONFLICT-RETRY-04")
def checks_conflicts_only_once(self: ModelClient, transaction: Transaction, winner: Actions) -> None:
    """Checks for conflicts only before its first proposal, not after a lost race."""
    if not transaction.attempts:
        original(self)._check(transaction, winner)


@mutant("CONFLICT-ORDER-02")
class IgnoresUnsupportedFeatures(ModelClient):
    """Commits although the winner's protocol requires an unsupported feature."""

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        if request.add_feature is not None:
            raise Conflicting("the protocol changed")


@mutant_method("_check_protocol", "CONFLICT-ORDER-03")
def overwrites_the_protocol(self: ModelClient, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
    """Replaces a winner's protocol with its own."""
    if request.add_feature is None:
        original(self)._check_protocol(request, protocol, before)


@mutant_method("_check", "CONFLICT-ORDER-04", "CONFLICT-ORDER-05")
def ignores_changed_metadata(self: ModelClient, transaction: Transaction, winner: Actions) -> None:
    """Commits after a winner that changed schema, partitioning or properties."""
    original(self)._check(transaction, [action for action in winner if "metaData" not in action])


@mutant_method("_check_domains", "CONFLICT-ORDER-06")
def ignores_domains(self: ModelClient, request: m.Transact, domains: Actions) -> None:
    """Overwrites a metadata domain that a winner changed."""


@mutant_method("_check_applications", "CONFLICT-ORDER-07")
def ignores_applications(self: ModelClient, request: m.Transact, applications: Actions) -> None:
    """Commits a batch although a winner advanced the same application."""


@mutant_method("_recorded", "CONFLICT-REPEAT-01")
def writes_batches_again(self: ModelClient, base: State, request: m.Transact) -> bool:
    """Writes a batch that the table has recorded."""
    return False


@mutant_method("_check_added",
    "CONFLICT-ORDER-08", "CONFLICT-FILES-03", "CONFLICT-ISOLATION-01", bugs=("FB34",),
)  # fmt: skip
def ignores_added_files(self: ModelClient, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
    """Lets two concurrent overwrites land: the rows of both stay."""


@mutant("CONFLICT-ISOLATION-01")
class IgnoresBlindAppendsUnderSerializable(ModelClient):
    """Ignores files of a blind append under Serializable isolation."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if not any(action.get("commitInfo", {}).get("isBlindAppend") for action in winner):
            super()._check_added(request, base, winner, added)


@mutant("CONFLICT-FILES-03")
class PartialReadsOfUnpartitionedTables(ModelClient):
    """Assumes that no added file can match a read of an unpartitioned table."""

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        return request.reads == "*" or (file["partitionValues"].get("part") or None) == request.reads


@mutant_method("_was_read", "CONFLICT-FILES-04")
def treats_every_read_as_full(self: ModelClient, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
    """Lets a read of one partition conflict with files added to another."""
    return request.reads is not None


@mutant("CONFLICT-FILES-02")
class BlindAppendsConflict(ModelClient):
    """Lets a blind append conflict with every other append."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if added:
            raise Conflicting("files were added")


@mutant_method("_check_removed", "CONFLICT-FILES-02")
def conflicts_with_every_removal(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Lets a blind append conflict with every removal."""
    if removed:
        raise Conflicting("files were removed")


@mutant_method("_check_removed", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10", "CONFLICT-FILES-05", found_by="programs")
def ignores_removals_without_data_change(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Ignores the removals of a winner that only rearranged data: a DELETE of such a file deletes nothing."""
    original(self)._check_removed(request, base, [body for body in removed if body.get("dataChange")])


@mutant_method("_check_removed", "CONFLICT-ORDER-09")
def ignores_removed_files(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Ignores that a winner removed files that it read."""
    if request.reads is None:
        original(self)._check_removed(request, base, removed)


@mutant_method("_check_removed", "CONFLICT-ORDER-10")
def removes_twice(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Removes a file that a winner removed."""
    if request.reads is not None:
        original(self)._check_removed(request, base, removed)


@mutant_method("_check_removed", "CONFLICT-ORDER-10", bugs=("FB51",))
def compares_encoded_paths(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Compares the encoded path of a removed file with its decoded name: a file whose name has a space is removed
    twice."""
    plain = [body for body in removed if "%" not in body["path"]]
    original(self)._check_removed(request, base, plain)


@mutant_method("_check_removed", "CONFLICT-FILES-05")
def decodes_removed_paths_twice(self: ModelClient, request: m.Transact, base: State, removed: Actions) -> None:
    """Decodes the paths of removed files twice, and treats two files as one."""
    original(self)._check_removed(request, base, [{**body, "path": unquote(body["path"])} for body in removed])


@mutant_method("_catch_up", "CONFLICT-RETRY-05")
def gives_up_after_a_lost_race(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Fails a transaction without conflicts after one lost race."""
    before = transaction.checked.version
    original(self)._catch_up(client, transaction)
    if transaction.checked.version > before:
        raise Conflicting("another writer was faster")


# Isolation


@mutant_method("_check_added", "CONFLICT-ORDER-08")
def ignores_all_appends(self: ModelClient, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
    """Ignores all added files under WriteSerializable, even those of a winner that read something."""
    if request.isolation is not m.Isolation.WRITE_SERIALIZABLE:
        original(self)._check_added(request, base, winner, added)


@mutant("CONFLICT-ISOLATION-04")
class IgnoresAppendsWhenRepartitioning(ModelClient):
    """Changes the partitioning under SnapshotIsolation although a winner added a file under the old one."""

    def _check_added(self, request: m.Transact, base: State, winner: Actions, added: Actions) -> None:
        if request.isolation is not m.Isolation.SNAPSHOT:
            super()._check_added(request, base, winner, added)


@mutant_method("_check", "CONFLICT-ORDER-10", "CONFLICT-FILES-01", bugs=("FB49",))
def updates_by_deletion_vector_are_no_removals(self: ModelClient, transaction: Transaction, winner: Actions) -> None:
    """Ignores that a winner deleted rows of a file by a deletion vector, because the file still exists."""
    kept = {action["add"]["path"] for action in winner if action.get("add", {}).get("deletionVector")}
    original(self)._check(
        transaction, [action for action in winner if action.get("remove", {}).get("path") not in kept]
    )


@mutant_method("_resolved", "PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02")
def reads_no_answer_as_success(self: ModelClient, client: str, transaction: Transaction, request: m.Commit) -> bool:
    """Reports a commit as landed if neither it nor any lookup is answered."""
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


@mutant_method("_looks", "CONFLICT-ORDER-01")
def checks_published_winners_only(self: _ChecksSomeWinners, version: int) -> bool:
    """Checks the winners that the listing shows, and ignores unpublished ones."""
    return version in self._visible


@mutant_method("_looks", "CONFLICT-ORDER-01")
def checks_unpublished_winners_only(self: _ChecksSomeWinners, version: int) -> bool:
    """Checks the winners that its owner lists, and ignores published ones."""
    return version not in self._visible


@mutant_method("_catch_up", "CONFLICT-ORDER-01", "CONFLICT-ORDER-10")
def skips_missing_winners(self: ModelClient, client: str, transaction: Transaction) -> None:
    """Ignores winners whose commits were cleaned up."""
    try:
        original(self)._catch_up(client, transaction)
    except Refused:
        transaction.checked = self._read(client, transaction.table, None, None)


@mutant_method("transact", "CONFLICT-CHECK-02", "DELAYED-11")
def commits_leftovers_of_a_conflict(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Adds the files of a failed transaction to the next one on the same table."""
    leftovers = memory_of(self, dict[str, tuple[m.DataFile, ...]])
    left = leftovers.pop(request.table, ())
    answer = original(self).transact(client, msgspec.structs.replace(request, adds=(*left, *request.adds)))
    if isinstance(answer, m.Conflict):
        leftovers[request.table] = request.adds
    return answer


@mutant("PROFILE-CLIENT-02")
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
