"""Owners with a wrong interface: their identity, their answers, and the kit's access to their files."""

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants import memory_of, mutant, mutant_functions, mutant_method, original


@mutant_method("hello", "PROFILE-CORE-01")
def profiles_change(self: ModelOwner, client: str, request: m.Hello) -> m.Identity:
    """Declares fewer profiles after its first commit."""
    identity = original(self).hello(client, request)
    busy = any(table.latest > 0 for table in self.tables.values())
    return msgspec.structs.replace(identity, profiles=("core",)) if busy else identity


@mutant_method("observe", "PROFILE-CORE-02")
def observe_shows_content_once(self: ModelOwner, client: str, request: m.Observe) -> m.Answer:
    """Shows the content of version 0 only in the first observation of a log."""
    shown = memory_of(self, set[str])
    answer = original(self).observe(client, request)
    if not isinstance(answer, m.Observation) or request.table not in shown:
        shown.add(request.table)
        return answer
    first = commit_file(0)
    files = [msgspec.structs.replace(f, content=None) if f.name == first else f for f in answer.files]
    return m.Observation(files=tuple(files))


@mutant_method("get_commits", "PROFILE-CORE-03")
def empty_range_lacks_latest_version(self: ModelOwner, client: str, request: m.GetCommits) -> m.Answer:
    """Answers an empty range without the latest version."""
    if request.start is not None and request.end is not None and request.start > request.end:
        return m.Done()
    return original(self).get_commits(client, request)


def _unsupported(client: str, request: m.Request) -> m.Answer:
    return m.Unsupported(reason="not yet")


mutant_functions(
    "maintenance_policy", ModelOwner, "PROFILE-CORE-07",
    policy_is_unsupported=("Declares a maintenance policy, and does not support the request.", _unsupported),
)  # fmt: skip
mutant_functions(
    "load_table", ModelOwner, "PROFILE-CORE-07",
    resolution_is_unsupported=("Declares discovery, and does not support the resolution of a table.", _unsupported),
)  # fmt: skip
mutant_functions(
    "attempt_outcome", ModelOwner, "PROFILE-CORE-07",
    outcome_is_unsupported=("Declares outcomes of attempts, and does not support the request.", _unsupported),
)  # fmt: skip
mutant_functions(
    "drop_table", ModelOwner, "PROFILE-CORE-07",
    drop_is_unsupported=("Declares discovery, and does not support the drop of a table.", _unsupported),
)  # fmt: skip


@mutant_method("plant", "PROFILE-STORAGE-01")
def planted_files_go_to_a_copy(self: ModelOwner, client: str, request: m.Plant) -> m.Answer:
    """Writes files that the kit plants to a copy of the log."""
    return m.Done()


# Owners with a wrong backlog limit.


@mutant("PROFILE-BACKLOG-01")
class BacklogLimitIsOffByOne(ModelOwner):
    """Checks the backlog limit before it counts the new commit."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        table.backfilled += 1
        answer = super()._refusal(table, request, staged)
        table.backfilled -= 1
        return answer


@mutant("PROFILE-BACKLOG-02", bugs=("FB46",))
class BacklogNeverShrinks(ModelOwner):
    """Counts ratified commits and never subtracts backfilled ones: once the limit is reached, it stays full."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        answer = super()._refusal(table, request, staged)
        full = table.backlog_limit is not None and len(table.landed) > table.backlog_limit
        return answer or (m.Rejected(reason="too many commits", retryable=True) if full else None)


@mutant_method("commit", "PROFILE-RETRY-01")
def full_backlog_rejects_replays(self: ModelOwner, client: str, request: m.Commit) -> m.Answer:
    """Checks its limit before anything else, and rejects the replay of a landed commit."""
    table = self.tables.get(request.table)
    if table is not None and table.latest - table.backfilled >= (table.backlog_limit or 1000):
        return m.Rejected(reason="too many unbackfilled commits", retryable=True)
    return original(self).commit(client, request)


@mutant_method("_restarted", "PROFILE-BACKLOG-01")
def restart_forgets_the_limit(self: ModelOwner, table: OwnedTable) -> None:
    """Keeps the backlog limits in memory: a restart removes them."""
    original(self)._restarted(table)
    table.backlog_limit = None
