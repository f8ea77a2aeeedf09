"""Conflicts: a transaction that lost a race is checked against the winners."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM, commit_file
from conformance.models import proposals
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import in_words
from conformance.scenario.log_builder import LogBuilder, file, gone, table_actions, vector
from conformance.scenario.scenario import Exchange, Inconclusive, TableHandle

COMMON = ("CONFLICT-CHECK-01", "CONFLICT-CHECK-02", "CONFLICT-ORDER-01")
"""What all of these scenarios test: a transaction that lost is checked, and commits nothing if the check fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A race of the client's transaction with one winner, and both answers."""

    s: ClientScenario
    table: TableHandle
    winner: Exchange
    exchange: Exchange

    def conflicts(self, *requirements: str, why: str) -> None:
        """The transaction ended with an error, and the log has none of its changes."""
        expected = f"{why}: the transaction ends with a conflict, and commits nothing"
        self.s.require(
            isinstance(self.exchange.answer, (m.Conflict, m.Rejected)), *requirements, *COMMON,
            evidence=(self.exchange, self.winner), expected=expected,
        )  # fmt: skip
        latest = latest_of(self.s, self.table)
        self.s.require(
            latest == 2, "CONFLICT-CHECK-02", evidence=(self.exchange,), expected=expected,
            observed=f"the table's latest version is {latest}, not 2",
        )  # fmt: skip

    def commits(self, *requirements: str, why: str) -> None:
        """The transaction was committed after the winner. `requirements`: by default, that a transaction without a
        conflict is proposed again."""
        done = self.exchange.answer
        self.s.require(
            isinstance(done, m.Committed) and done.version == 3, *(requirements or ("CONFLICT-RETRY-05",)),
            evidence=(self.exchange, self.winner), expected=f"{why}: the transaction is committed as version 3",
        )  # fmt: skip
        self.table.versions = 4


def latest_of(s: ClientScenario, table: TableHandle) -> int | None:
    """The table's latest version. The history does not record this request of the kit."""
    call = s.answer("kit", m.GetCommits(table=table.reference))
    return call.latest if isinstance(call, m.Commits) else None


def prepare(
    s: ClientScenario, name: str = "orders", *, partitioned: bool = False, domain: str | None = None,
    reader_features: tuple[str, ...] = (),
) -> TableHandle:  # fmt: skip
    """A table whose version 1 added the files `a` (partition x) and `b` (partition y)."""
    creation: dict[str, Any] = {}
    if partitioned or domain is not None:
        attempt = s.attempt()
        columns = ("part",) if partitioned else ()
        creation = {
            "attempt": attempt,
            "actions": proposals.version_0(s.feature, attempt, s.attempt(), partition_columns=columns),
        }
    if reader_features:
        attempt = s.attempt()
        actions = table_actions(s.feature, attempt, s.timestamp(0), reader_features=reader_features)
        creation = {"attempt": attempt, "actions": actions}
    table = s.create(name, **creation)
    files = [
        proposals.add("a", s.timestamp(1), "x", partitioned=partitioned),
        proposals.add("b", s.timestamp(1), "y", partitioned=partitioned),
    ]
    if domain is not None:
        files.append(proposals.line("domainMetadata", {"domain": domain, "configuration": "{}", "removed": False}))
    win(s, table, files)
    return table


def win(s: ClientScenario, table: TableHandle, actions: Sequence[str], *, blind: bool = False) -> Exchange:
    """Another writer commits the next version."""
    attempt = s.attempt()
    info = proposals.commit_info(attempt, s.timestamp(table.versions), isBlindAppend=blind)
    return s.land(table, client="winner", attempt=attempt, actions=(info, *actions))


def race(s: ClientScenario, table: TableHandle, winner: Sequence[str], *, blind: bool = False, **mine: Any) -> Race:
    """The winner commits version 2; then the client under test runs its transaction, which read version 1."""
    won = win(s, table, winner, blind=blind)
    call = s.transact(table, read_version=1, **mine)
    return Race(s=s, table=table, winner=won, exchange=call)


def added(s: ClientScenario, path: str, partition: str | None = None, *, partitioned: bool = False) -> str:
    return proposals.add(path, s.timestamp(2), partition, partitioned=partitioned)


def removed(s: ClientScenario, path: str) -> str:
    return proposals.remove(path, s.timestamp(2))


NEW = (m.DataFile(path="mine"),)


@check(Family.CONFLICTS, "CONFLICT-FILES-02", *COMMON, features=EVERY_TABLE)
def a_blind_append_does_not_conflict_with_an_append(s: ClientScenario) -> None:
    """A transaction that read nothing and only adds files is committed after another writer's append."""
    race(s, prepare(s), [added(s, "theirs")], adds=NEW).commits(
        "CONFLICT-FILES-02", why="a blind append does not conflict with files that others added"
    )


@check(Family.CONFLICTS, "CONFLICT-FILES-02", *COMMON, features=EVERY_TABLE)
def a_blind_append_does_not_conflict_with_a_removal(s: ClientScenario) -> None:
    """A transaction that read nothing and only adds files is committed after another writer removed files."""
    race(s, prepare(s), [removed(s, "a")], adds=NEW).commits(
        "CONFLICT-FILES-02", why="a blind append does not conflict with files that others removed"
    )


@check(
    Family.CONFLICTS, "CONFLICT-ORDER-08", "CONFLICT-FILES-03", "CONFLICT-ISOLATION-01", *COMMON, features=EVERY_TABLE
)
def a_full_read_conflicts_with_an_append(s: ClientScenario) -> None:
    """A serializable transaction that read the whole table conflicts with files that another writer added, even
    blindly."""
    race(s, prepare(s), [added(s, "theirs")], blind=True, reads="*", removes=("a", "b"), adds=NEW).conflicts(
        "CONFLICT-ISOLATION-01", "CONFLICT-FILES-03", "CONFLICT-ORDER-08",
        why="it read the whole table before a file was added, and its isolation is serializable",
    )  # fmt: skip


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", *COMMON, features=EVERY_TABLE)
def a_partition_read_conflicts_with_an_append_to_it(s: ClientScenario) -> None:
    """A transaction that read one partition conflicts with a file added to that partition."""
    table = prepare(s, partitioned=True)
    mine = (m.DataFile(path="mine", partition="x"),)
    race(s, table, [added(s, "theirs", "x", partitioned=True)], reads="x", removes=("a",), adds=mine).conflicts(
        "CONFLICT-ORDER-08", why="a file was added to the partition that it read"
    )


@check(Family.CONFLICTS, "CONFLICT-FILES-04", *COMMON, features=EVERY_TABLE)
def a_partition_read_does_not_conflict_with_another(s: ClientScenario) -> None:
    """A transaction that read one partition is committed after a file was added to another one."""
    table = prepare(s, partitioned=True)
    mine = (m.DataFile(path="mine", partition="x"),)
    race(s, table, [added(s, "theirs", "y", partitioned=True)], reads="x", removes=("a",), adds=mine).commits(
        "CONFLICT-FILES-04", why="no file was added to the partition that it read"
    )


@check(Family.CONFLICTS, "CONFLICT-FILES-03", "CONFLICT-ORDER-08", *COMMON, features=EVERY_TABLE)
def any_read_of_an_unpartitioned_table_is_full(s: ClientScenario) -> None:
    """In an unpartitioned table any read conflicts with any added file."""
    race(s, prepare(s), [added(s, "theirs")], reads="x", removes=("a",), adds=NEW).conflicts(
        "CONFLICT-FILES-03", "CONFLICT-ORDER-08", why="the table has no partitions that limit its read"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-09", *COMMON, features=EVERY_TABLE)
def a_full_read_conflicts_with_a_removal(s: ClientScenario) -> None:
    """A transaction that read the whole table conflicts with the removal of any file."""
    race(s, prepare(s), [removed(s, "b")], reads="*", removes=("a",), adds=NEW).conflicts(
        "CONFLICT-ORDER-09", why="a file of the table that it read was removed"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-09", *COMMON, features=EVERY_TABLE)
def a_read_file_conflicts_with_its_removal(s: ClientScenario) -> None:
    """A transaction that read a partition conflicts with the removal of a file in it, and of no file elsewhere."""
    table = prepare(s, partitioned=True)
    mine = (m.DataFile(path="mine", partition="x"),)
    race(s, table, [removed(s, "a")], reads="x", adds=mine).conflicts(
        "CONFLICT-ORDER-09", why="a file of the partition that it read was removed"
    )
    other = prepare(s, "twin", partitioned=True)
    race(s, other, [removed(s, "b")], reads="x", adds=mine).commits(
        "CONFLICT-ORDER-09", why="only a file of another partition was removed"
    )


@check(Family.CONFLICTS, "CONFLICT-FILES-01", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10", *COMMON, features=EVERY_TABLE)
def of_two_rewrites_one_lands(s: ClientScenario) -> None:
    """Two transactions read the same files and replace them: the second one fails, and the table has the result of the
    first."""
    theirs = [removed(s, "a"), removed(s, "b"), added(s, "theirs")]
    race(s, prepare(s), theirs, reads="*", removes=("a", "b"), adds=NEW).conflicts(
        "CONFLICT-FILES-01", "CONFLICT-ORDER-09", "CONFLICT-ORDER-10",
        why="another transaction has replaced the files `a` and `b` that it read and replaces",
    )  # fmt: skip


@check(Family.CONFLICTS, "CONFLICT-ORDER-10", *COMMON, features=EVERY_TABLE)
def no_file_is_removed_twice(s: ClientScenario) -> None:
    """Two transactions that remove the same file conflict, independent of what they read."""
    table = prepare(s, partitioned=True)
    race(s, table, [removed(s, "a")], isolation=m.Isolation.SNAPSHOT, removes=("a",), adds=()).conflicts(
        "CONFLICT-ORDER-10", why="both remove the file `a`"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-10", *COMMON, features=EVERY_TABLE)
def of_two_overwrites_one_lands(s: ClientScenario) -> None:
    """Two transactions replace all files of the table without reading them. The second one fails: otherwise the table
    has the rows twice."""
    theirs = [removed(s, "a"), removed(s, "b"), added(s, "theirs")]
    race(s, prepare(s), theirs, isolation=m.Isolation.SNAPSHOT, removes=("a", "b"), adds=NEW).conflicts(
        "CONFLICT-ORDER-10", why="another transaction has replaced the files `a` and `b` that it replaces"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-10", "CONFLICT-FILES-05", *COMMON, features=EVERY_TABLE)
def paths_are_compared_decoded_once(s: ClientScenario) -> None:
    """Paths in actions are URL-encoded once. Two transactions that remove the same file conflict if its path needs
    encoding; two files whose paths only look alike are different."""
    mine: dict[str, Any] = {"isolation": m.Isolation.SNAPSHOT, "removes": ("two words",), "adds": ()}
    same, alike = "two%20words", "two%2520words"
    for name, theirs in (("orders", same), ("returns", alike)):
        table = s.create(name)
        win(s, table, [added(s, same), added(s, alike)])
        outcome = race(s, table, [removed(s, theirs)], **mine)
        if theirs == same:
            outcome.conflicts("CONFLICT-ORDER-10", why=f"both remove the file `two words`, written as `{same}`")
        else:
            outcome.commits("CONFLICT-FILES-05", why=f"`{alike}` is the file `two%20words`, and not `two words`")


@check(Family.CONFLICTS, "CONFLICT-ORDER-04", *COMMON, features=EVERY_TABLE)
def two_metadata_changes_conflict(s: ClientScenario) -> None:
    """Two transactions that change the metadata conflict; so does any transaction with a changed schema or
    partitioning."""
    table = prepare(s)
    theirs = proposals.metadata("t", s.timestamp(2), owner_properties(s, {"their.property": "1"}))
    race(s, table, [theirs], set_properties={"my.property": "1"}).conflicts(
        "CONFLICT-ORDER-04", why="both change the table's metadata"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-05", *COMMON, features=EVERY_TABLE)
def an_append_conflicts_with_a_new_partitioning(s: ClientScenario) -> None:
    """A transaction that added files without partitions conflicts with a change that partitions the table, at every
    isolation level."""
    for isolation in m.Isolation:
        table = prepare(s, isolation.value)
        theirs = proposals.metadata("t", s.timestamp(2), owner_properties(s), partition_columns=("part",))
        gone = [removed(s, "a"), removed(s, "b")]
        race(s, table, [theirs, *gone], adds=NEW, isolation=isolation).conflicts(
            "CONFLICT-ORDER-05", why=f"under {isolation.value} too: the partitioning changed after it wrote its file"
        )


@check(Family.CONFLICTS, "CONFLICT-ORDER-05", *COMMON, features=EVERY_TABLE)
def an_append_conflicts_with_a_new_type(s: ClientScenario) -> None:
    """A transaction that added files conflicts with a change of a column's type: no reader could read both the files
    of the old type and those of the new one."""
    table = prepare(s)
    theirs = proposals.metadata("t", s.timestamp(2), owner_properties(s), schema=proposals.OTHER_TYPE)
    race(s, table, [theirs, removed(s, "a"), removed(s, "b")], adds=NEW).conflicts(
        "CONFLICT-ORDER-05", why="the type of a column changed after it wrote its file"
    )


def owner_properties(s: ClientScenario, more: dict[str, str] | None = None) -> dict[str, str]:
    """The properties that name the owner, which a change of the metadata must keep."""
    owner = {"delta.managedCommit.commitOwner": s.owner.owner.name} if s.feature == "managedCommit" else {}
    plain = {proposals.TIMESTAMPS: "false"} if s.feature == FILESYSTEM else {}
    return {**owner, **plain, **(more or {})}


@check(Family.CONFLICTS, "CONFLICT-ORDER-03", *COMMON, features=EVERY_TABLE)
def two_protocol_changes_conflict(s: ClientScenario) -> None:
    """A transaction that adds a table feature conflicts with a winner that added one."""
    table = prepare(s)
    theirs = proposals.with_features(s.feature, "appendOnly")
    race(s, table, [proposals.line("protocol", theirs)], add_feature="domainMetadata").conflicts(
        "CONFLICT-ORDER-03", why="both change the table's protocol"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-02", *COMMON, features=EVERY_TABLE)
def an_unsupported_protocol_of_the_winner_stops_a_writer(s: ClientScenario) -> None:
    """A writer that does not support a feature that the winner added does not commit."""
    table = prepare(s)
    theirs = proposals.with_features(s.feature, "anUnknownFeature")
    race(s, table, [proposals.line("protocol", theirs)], adds=NEW).conflicts(
        "CONFLICT-ORDER-02", why="the winner's protocol requires a writer feature that no client supports"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-06", *COMMON, features=EVERY_TABLE)
def two_changes_of_one_domain_conflict(s: ClientScenario) -> None:
    """Two transactions that change the same metadata domain conflict; two that change different ones do not."""
    with_domains = proposals.with_features(s.feature, "domainMetadata")
    for domain, agrees in (("d", False), ("e", True)):
        table = s.create(f"table-{domain}")
        win(s, table, [proposals.line("protocol", with_domains), added(s, "a")])
        theirs = proposals.line("domainMetadata", {"domain": "d", "configuration": "theirs", "removed": False})
        outcome = race(s, table, [theirs], domain=(domain, "mine"))
        if not agrees:
            outcome.conflicts("CONFLICT-ORDER-06", why="both change the domain `d`")
            continue
        again = s.transact(table, domain=(domain, "mine")) if isinstance(outcome.exchange.answer, m.Rejected) else None
        if again is not None and isinstance(again.answer, m.Rejected):
            raise Inconclusive(f"operation {again.number}: the client rejects every change of this domain")
        outcome.commits("CONFLICT-ORDER-06", why="they change different domains")


@check(Family.CONFLICTS, "CONFLICT-ORDER-07", *COMMON, features=EVERY_TABLE)
def two_batches_of_one_application_conflict(s: ClientScenario) -> None:
    """A transaction that relies on an application's last batch conflicts with a winner that recorded another one."""
    table = prepare(s)
    theirs = proposals.line("txn", {"appId": "stream", "version": 5})
    race(s, table, [theirs, added(s, "theirs")], application=("stream", 6), adds=NEW).conflicts(
        "CONFLICT-ORDER-07", why="the application's transaction version advanced after it was read"
    )


@check(Family.CONFLICTS, "CONFLICT-REPEAT-01", features=EVERY_TABLE)
def a_recorded_batch_is_not_written_again(s: ClientScenario) -> None:
    """Writing a batch that the table has recorded changes nothing; the next batch is written."""
    table = prepare(s)
    win(s, table, [proposals.line("txn", {"appId": "stream", "version": 5}), added(s, "theirs")])
    call = s.transact(table, application=("stream", 5), adds=NEW)
    latest = latest_of(s, table)
    s.require(
        latest == 2, "CONFLICT-REPEAT-01", evidence=(call,),
        expected="the table recorded batch 5 of `stream` at version 2: nothing is committed",
        observed=f"the latest version is {latest}",
    )  # fmt: skip
    following = m.Transact(table=s.name_of(table), marker=s.attempt(), application=("stream", 6), adds=NEW)
    done = s.expect(s.act("writer", following), m.Committed, "CONFLICT-REPEAT-01", expected="batch 6 is new: version 3")
    s.require(done.version == 3, "CONFLICT-REPEAT-01", evidence=(call,), expected="batch 6 is new: version 3",
              observed=f"the transaction was answered {in_words(done)}")  # fmt: skip
    table.versions = 4


@check(Family.CONFLICTS, "CONFLICT-ORDER-01", features=EVERY_TABLE)
def every_winner_is_checked(s: ClientScenario) -> None:
    """Only the oldest of several winners conflicts, so a client that checks just the newest one misses it."""
    table = prepare(s)
    first = win(s, table, [removed(s, "a")])
    for _ in range(3):
        win(s, table, [added(s, f"theirs-{table.versions}")])
    call = s.transact(table, read_version=1, removes=("a",), adds=())
    s.require(
        isinstance(call.answer, (m.Conflict, m.Rejected)), "CONFLICT-ORDER-01", evidence=(call, first),
        expected="version 2, the oldest of four winners, removed the file that the transaction removes: a conflict",
    )  # fmt: skip


@check(Family.CONFLICTS, "CONFLICT-RETRY-01", "CONFLICT-RETRY-05", features=EVERY_TABLE)
def many_winners_fail_no_append(s: ClientScenario) -> None:
    """A transaction that only adds files is committed although twenty versions followed the one that it read."""
    table = prepare(s)
    for _ in range(20):
        win(s, table, [added(s, f"theirs-{table.versions}")])
    call = s.transact(table, read_version=1, adds=NEW)
    expected = f"twenty winners only added files: the transaction is committed as version {table.versions}"
    done = s.expect(call, m.Committed, "CONFLICT-RETRY-01", expected=expected)
    s.require(done.version == table.versions, "CONFLICT-RETRY-05", evidence=(call,), expected=expected)  # fmt: skip
    table.versions += 1


@check(Family.CONFLICTS, "CONFLICT-RETRY-04", "CONFLICT-CHECK-01", "CONFLICT-CHECK-02")
def a_lost_race_is_checked_before_the_retry(s: ClientScenario) -> None:
    """A transaction passes its check, then loses its version to another one that removes the same file: it fails.
    A transaction that loses to an append is proposed again."""
    table = prepare(s, "taken")
    _loses(s, table, removed(s, "a")).conflicts(
        "CONFLICT-RETRY-04", why="the winner, which came after the check, removed the file `a`"
    )
    table = prepare(s, "passed")
    _loses(s, table, added(s, "theirs")).commits("CONFLICT-RETRY-04", why="the winner only added a file")


def _loses(s: ClientScenario, table: TableHandle, theirs: str) -> Race:
    """The client under test removes `a`, and loses version 2 at the moment of its proposal."""
    attempt = s.attempt()
    winner = s.proposal(table, attempt=attempt, actions=(proposals.commit_info(attempt, s.timestamp(2)), theirs))
    won: list[Exchange] = []
    s.owner.on(m.Commit, before=lambda: won.append(s.ask("winner", winner)))
    call = s.transact(table, removes=("a",), isolation=m.Isolation.SNAPSHOT)
    table.versions += len(won)
    return Race(s=s, table=table, winner=won[0] if won else call, exchange=call)


# Isolation levels, and empty transactions

REWRITE: dict[str, Any] = {"reads": "*", "removes": ("a", "b"), "adds": NEW}
"""A transaction that read the whole table and replaces all files."""


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", *COMMON, features=EVERY_TABLE)
def write_serializable_checks_winners_that_read(s: ClientScenario) -> None:
    """Under WriteSerializable only blind appends may be ignored: files that a winner added after reading conflict."""
    race(s, prepare(s), [added(s, "theirs")], isolation=m.Isolation.WRITE_SERIALIZABLE, **REWRITE).conflicts(
        "CONFLICT-ORDER-08", why="it read the whole table before a transaction that is not a blind append added a file"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", *COMMON, features=EVERY_TABLE)
def a_metadata_change_conflicts_with_a_blind_append(s: ClientScenario) -> None:
    """A transaction that read the whole table and changes its metadata conflicts with a blind append, under
    WriteSerializable too."""
    mine = {**REWRITE, "isolation": m.Isolation.WRITE_SERIALIZABLE, "set_properties": {"my.property": "1"}}
    race(s, prepare(s), [added(s, "theirs")], blind=True, **mine).conflicts(
        "CONFLICT-ORDER-08", why="it changes the metadata, and read the whole table before a file was added"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", "CONFLICT-ISOLATION-04", *COMMON, features=EVERY_TABLE)
def a_new_partitioning_conflicts_with_an_append(s: ClientScenario) -> None:
    """A transaction that changes the partitioning and replaces all files conflicts with a file added under the old
    partitioning. Under SnapshotIsolation this is advice."""
    mine = {**REWRITE, "partition_by": ("part",), "adds": (m.DataFile(path="mine", partition="x"),)}
    why = "the added file does not fit the new partitioning"
    for isolation in (m.Isolation.SERIALIZABLE, m.Isolation.WRITE_SERIALIZABLE):
        outcome = race(s, prepare(s, isolation.value), [added(s, "theirs")], blind=True, isolation=isolation, **mine)
        outcome.conflicts("CONFLICT-ORDER-08", why=why)
    table = prepare(s, m.Isolation.SNAPSHOT.value)
    outcome = race(s, table, [added(s, "theirs")], blind=True, isolation=m.Isolation.SNAPSHOT, **mine)
    s.require(
        isinstance(outcome.exchange.answer, (m.Conflict, m.Rejected)), "CONFLICT-ISOLATION-04",
        evidence=(outcome.exchange, outcome.winner), expected=f"under SnapshotIsolation too: {why}",
    )  # fmt: skip


@check(Family.CONFLICTS, "CONFLICT-ORDER-10", "CONFLICT-FILES-01", *COMMON, features=EVERY_TABLE)
def an_update_by_deletion_vector_conflicts_with_a_rewrite(s: ClientScenario) -> None:
    """The winner deletes rows of a file: it removes the file, and adds it with a deletion vector. A transaction that
    rewrites the same file would restore the rows. A transaction that rewrites another file is committed, or fails
    if the writer does not support deletion vectors."""
    update = [removed(s, "a"), file("a", deletionVector=vector("first"))]
    table = prepare(s, reader_features=("deletionVectors",))
    race(s, table, update, removes=("a",), adds=NEW, isolation=m.Isolation.SNAPSHOT).conflicts(
        "CONFLICT-ORDER-10", "CONFLICT-FILES-01", why="rows of the file that it rewrites were deleted"
    )
    table = prepare(s, "twin", reader_features=("deletionVectors",))
    _either(race(s, table, update, removes=("b",), adds=NEW, isolation=m.Isolation.SNAPSHOT))


@check(Family.CONFLICTS, "CONFLICT-ORDER-10", *COMMON, features=EVERY_TABLE)
def a_rearrangement_conflicts_with_a_removal(s: ClientScenario) -> None:
    """A transaction that only rearranges data conflicts if the winner removed a file that it rewrites, because it would
    restore the rows."""
    race(s, prepare(s), [removed(s, "a")], reads="*", removes=("a",), adds=NEW, data_change=False).conflicts(
        "CONFLICT-ORDER-10", why="the file that it rewrites was removed"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-09", *COMMON, features=EVERY_TABLE)
def no_isolation_ignores_removed_files(s: ClientScenario) -> None:
    """At every isolation level a transaction that read the whole table conflicts with a removal."""
    for isolation in m.Isolation:
        table = prepare(s, isolation.value)
        mine: dict[str, Any] = {"reads": "*", "removes": ("a",), "adds": NEW, "isolation": isolation}
        race(s, table, [removed(s, "b")], **mine).conflicts(
            "CONFLICT-ORDER-09", why=f"under {isolation.value} too: a file that it read was removed"
        )


@check(Family.CONFLICTS, "CONFLICT-RETRY-05", "CONFLICT-CHECK-02", "PROFILE-CLIENT-02", features=EVERY_TABLE)
def appends_that_may_be_ignored(s: ClientScenario) -> None:
    """A writer may ignore a winner, or fail, if the winner is a blind append (WriteSerializable), any append
    (SnapshotIsolation), or an append and its own transaction only rearranges data. It reports which of the two."""
    races: list[tuple[bool, dict[str, Any]]] = [
        (True, {"isolation": m.Isolation.WRITE_SERIALIZABLE}),
        (True, {"isolation": m.Isolation.SNAPSHOT}),
        (False, {"isolation": m.Isolation.SNAPSHOT}),
        (False, {"data_change": False}),
    ]
    for number, (blind, mine) in enumerate(races):
        _either(race(s, prepare(s, f"table-{number}"), [added(s, "theirs")], blind=blind, **REWRITE, **mine))


def _either(outcome: Race) -> None:
    if isinstance(outcome.exchange.answer, m.Committed):
        outcome.commits(why="it may ignore this winner")
    else:
        outcome.conflicts(why="it may also check a winner that it may ignore")


@check(Family.WRITING, "PROFILE-CLIENT-02", features=EVERY_TABLE)
def an_empty_transaction_is_one_commit_or_none(s: ClientScenario) -> None:
    """A transaction without changes is an empty commit or no commit; the client reports which, and continues."""
    table = s.create()
    for if_needed in (False, True):
        call = s.transact(table, if_needed=if_needed)
        done = s.expect(call, m.Committed, "PROFILE-CLIENT-02", may_refuse=True, expected="one commit or none")
        table.versions += done.version is not None
        _is(s, table, done, call)
    after = s.transact(table, adds=NEW)
    done = s.expect(after, m.Committed, "PROFILE-CLIENT-02", expected="there is no conflict")
    table.versions += 1
    _is(s, table, done, after)


def _is(s: ClientScenario, table: TableHandle, done: m.Committed, call: Exchange) -> None:
    """The version that the client reports exists."""
    latest = latest_of(s, table)
    newest = table.versions - 1
    s.require(
        done.version in (None, newest) and latest == newest, "PROFILE-CLIENT-02", evidence=(call,),
        expected=f"the table's latest version is {newest} after `{done}`", observed=f"the latest version is {latest}",
    )  # fmt: skip


# Winners in every position, and the client's state after a conflict. The writer reads the newest version; others commit
# before its first proposal arrives.


def fails(s: ClientScenario, call: Exchange, *requirements: str, why: str) -> None:
    """The transaction ends with an error."""
    s.require(
        isinstance(call.answer, m.Conflict | m.Rejected), *requirements, "CONFLICT-CHECK-02", evidence=(call,),
        expected=f"{why}: the transaction ends with an error, and commits nothing",
    )  # fmt: skip


def lands(s: ClientScenario, table: TableHandle, call: Exchange, version: int, *requirements: str, why: str) -> None:
    """The transaction is committed as this version."""
    s.commits_as(call, version, *requirements, "PROFILE-CLIENT-02", expected=f"{why}: version {version}")
    table.versions = version + 1


@check(
    Family.CONFLICTS, "CONFLICT-ORDER-01", "CONFLICT-RETRY-04", "CONFLICT-ORDER-10", "CONFLICT-CHECK-02", "FIELD-04",
    "CONFLICT-RETRY-05", commit_modes=("staged", "inline"),
)  # fmt: skip
def published_and_unpublished_winners_are_checked(s: ClientScenario) -> None:
    """Four other transactions are faster; two of them are published, two are not. The writer checks all four, and fails
    if one of them removed the file that it removes. A blind append is committed after them."""
    for name, position in (("published", 1), ("unpublished", 2), ("none", None)):
        table = prepare(s, name)

        def others(table: TableHandle = table, position: int | None = position) -> None:
            for number in range(4):
                win(s, table, [removed(s, "a") if number == position else added(s, f"theirs-{number}")])
            s.backfill(table, 3)

        s.owner.on(m.Commit, before=others)
        changes: dict[str, Any] = {"adds": NEW} if position is None else {"removes": ("a",)}
        call = s.transact(table, **changes)
        if position is None:
            lands(s, table, call, 6, "CONFLICT-RETRY-05", "FIELD-04", why="a blind append after four others")
        else:
            where = f"version {position + 2}, which is {name},"
            fails(s, call, "CONFLICT-ORDER-01", "CONFLICT-ORDER-10", why=f"{where} removed the file `a`")


@check(Family.CONFLICTS, "CONFLICT-ORDER-01", "CONFLICT-ORDER-10", "CONFLICT-CHECK-02")
def winners_that_were_cleaned_up_are_not_skipped(s: ClientScenario) -> None:
    """During a transaction that removes file `a`, version 2 removes `a`, versions 3 to 5 add files, version 5 gets a
    checkpoint, and all earlier commits are deleted. The transaction fails. A blind append instead of it fails, or is
    version 6; the next transaction is committed."""
    for name, blind in (("removal", False), ("append", True)):
        log = LogBuilder.create(s, name)
        log.land(file("a"), file("b"))
        s.owner.on(m.Commit, before=partial(_go_on_and_clean_up, log))
        adds = (m.DataFile(path="mine"),)
        call = s.transact(log.table, adds=adds, removes=() if blind else ("a",))
        if blind and isinstance(call.answer, m.Committed):
            lands(s, log.table, call, 6, why="a blind append after five others")
        elif not blind:
            fails(s, call, "CONFLICT-ORDER-01", "CONFLICT-ORDER-10", why="version 2 removed the file `a` too")
        s.owner.rules.clear()
        call = s.transact(log.table, adds=(m.DataFile(path="next"),))
        lands(s, log.table, call, log.table.versions, why="no conflict on the newest version")


def _go_on_and_clean_up(log: LogBuilder) -> None:
    """Commit versions 2 to 5, and delete all commits before the checkpoint of version 5."""
    log.land(gone("a"))
    for version in (3, 4, 5):
        log.land(file(f"theirs-{version}"))
    log.backfill(5)
    log.checkpoint(5)
    log.hint(5)
    log.hide(*(commit_file(version) for version in range(5)))


@check(Family.CONFLICTS, "CONFLICT-CHECK-02", "PROFILE-CLIENT-02", "CONFLICT-RETRY-05", "DELAYED-11")
def a_transaction_after_a_lost_race_starts_anew(s: ClientScenario) -> None:
    """A client's append loses a race, and is committed after the winner; a later transaction of the client loses a race
    and ends with a conflict. After each of these, its next transactions start from the newest version and commit only
    their own changes. A client that declares that it does not retry may give up after the first race."""
    table = prepare(s)
    steps: tuple[tuple[str, dict[str, Any], list[str], int | None], ...] = (
        ("an append that loses to another one", {"adds": (m.DataFile(path="one"),)}, [added(s, "theirs")], 1),
        ("an append that follows", {"adds": (m.DataFile(path="two"),)}, [], 1),
        (
            "a transaction that removes file `a`, as the winner does",
            {"reads": "*", "removes": ("a",), "adds": (m.DataFile(path="lost"),)}, [removed(s, "a")], None,
        ),
        ("an append after the conflict", {"adds": (m.DataFile(path="three"),)}, [], 1),
        ("a transaction that reads the whole table and removes file `b`", {"reads": "*", "removes": ("b",)}, [], 0),
    )  # fmt: skip
    for what, changes, winner, adds in steps:
        if winner:
            s.owner.on(m.Commit, before=partial(win, s, table, winner))
        call = s.transact(table, **changes)
        version = table.versions
        if adds is None:
            fails(s, call, why=what)
            continue
        if s.gave_up(call):
            continue
        lands(s, table, call, version, "CONFLICT-RETRY-05" if winner else "PROFILE-CLIENT-02", why=what)
        removes = list(changes.get("removes", ()))
        added_files = len(s.actions_of(table, version, "add"))
        gone_files = [s.decoded(body["path"]) for body in s.actions_of(table, version, "remove")]
        s.require(
            (added_files, gone_files) == (adds, removes), "CONFLICT-CHECK-02", "DELAYED-11", evidence=(call,),
            version=version, observed=f"it adds {added_files} and removes {gone_files}",
            expected=f"version {version} is {what}: it adds {adds} file(s) and removes {removes}",
        )  # fmt: skip
