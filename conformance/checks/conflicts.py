"""Conflicts: a transaction that lost a race is checked against the winners.

The examples are here because no program cleans winners up before they are checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file, gone, table_actions
from conformance.scenario.scenario import Exchange, TableHandle


@check(Family.CONFLICTS, *families.TRANSACTIONS, layer=Layer.MODEL, side="client", features=EVERY_TABLE)
def any_transaction_against_any_winners(g: Generation) -> None:
    """Generated transactions that lose races to generated winners: each one is committed, or fails, as its reads, its
    isolation level and the winners decide, and its commit has exactly its changes."""
    factors = {"transact": 4, "read": 0.3, "maintain": 0.1, "win": 1.5, "of_writers": 0.4, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


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
def a_blind_append_does_not_conflict_with_a_removal(s: ClientScenario) -> None:
    """A transaction that read nothing and only adds files is committed after another writer removed files."""
    race(s, prepare(s), [removed(s, "a")], adds=NEW).commits(
        "CONFLICT-FILES-02", why="a blind append does not conflict with files that others removed"
    )


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
