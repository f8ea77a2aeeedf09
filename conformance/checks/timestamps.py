"""Writers and in-commit timestamps, enablement and provenance. The kit's owner audits every proposal of every scenario
(`conformance.scenario.audit`); these scenarios are made so that a writer that is wrong shows it."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.interface.messages import DataFile, Transact
from conformance.scenario import proposals
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TableHandle, Told

SHAPE = ("ICT-05", "ICT-06", "ICT-07", "CM-TXNID-01")
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
CONF = "delta.managedCommit.commitOwnerConf"


def write(s: ClientScenario, table: TableHandle, file: str = "mine", **options: Any) -> Told:
    """One transaction of the client under test, which has to succeed."""
    adds = () if options.pop("no_file", False) else (DataFile(path=file),)
    told = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=adds, **options))
    s.expect(told, m.Committed, "PROFILE-CLIENT-02", expected="nothing stands in the way: the transaction is committed")
    table.versions += 1
    return told


def table_with(s: ClientScenario, properties: dict[str, str]) -> TableHandle:
    """A table that has these properties from the start."""
    attempt = s.attempt()
    actions = proposals.version_0(s.feature, attempt, s.attempt(), properties=properties)
    return s.create(attempt=attempt, actions=actions)


@check(Family.TIMESTAMPS, "ICT-08", *SHAPE, side="client")
def a_commit_is_later_than_the_one_before(s: ClientScenario) -> None:
    """The in-commit timestamp is greater than the previous one, also where that is ahead of the writer's clock."""
    table = s.create()
    attempt = s.attempt()
    ahead = 4_000_000_000_000
    s.land(table, attempt=attempt, actions=proposals.append(attempt, ahead))
    write(s, table)
    write(s, table, "another")


@check(Family.TIMESTAMPS, "ICT-14", "ICT-08", side="client")
def a_loser_stamps_itself_after_the_winner(s: ClientScenario) -> None:
    """A writer that lost a race for its version is stamped after the winner, however late the winner's time is."""
    table = s.create()
    attempt = s.attempt()
    ahead = 4_000_000_000_000
    winner = s.proposal(table, 1, attempt=attempt, actions=proposals.append(attempt, ahead))
    s.owner.on(m.Commit, before=lambda: s.ask("winner", winner))
    table.versions = 2
    write(s, table)


@check(Family.TIMESTAMPS, "CM-TXNID-02", "CM-TXNID-01", side="client", features=("catalogManaged",))
def every_transaction_has_its_own_txn_id(s: ClientScenario) -> None:
    """Two commits of one writer have different txnIds."""
    table = s.create()
    write(s, table)
    write(s, table, "another")


@check(
    Family.WRITING, "CONFLICT-RETRY-07", "CM-LOG-06", "MC-WRITE-02", "CM-WRITE-03", "MC-FILES-12",
    "MC-WRITE-03", "CM-WRITE-04", side="client",
)  # fmt: skip
def every_try_is_a_new_attempt(s: ClientScenario) -> None:
    """A writer that lost two races proposed three times, each time as a new attempt, through the owner."""
    table = s.create()
    for version in (1, 2):
        s.owner.on(m.Commit, before=partial(s.ask, "winner", s.proposal(table, version)))
    table.versions = 3
    told = write(s, table)
    tried = s.asked(m.Commit)
    s.require(
        len(tried) >= 1, "MC-FILES-12", "MC-WRITE-02", "CM-WRITE-03", told=(told,),
        expected="a commit is proposed to the owner", observed="the owner heard of none",
    )  # fmt: skip


@check(
    Family.WRITING, "MC-ENABLE-01", "MC-ENABLE-02", "CM-ENABLE-01", "CM-ENABLE-02", "ICT-03", "MC-WRITE-01",
    "CM-WRITE-02", side="client",
)  # fmt: skip
def a_new_feature_keeps_the_others(s: ClientScenario) -> None:
    """A transaction that adds a feature to the protocol keeps the features that say who owns the table and that its
    commits are stamped."""
    table = s.create()
    write(s, table, no_file=True, add_feature="appendOnly")
    write(s, table)


@check(
    Family.WRITING, "ICT-04", "MC-WRITE-01", "CM-WRITE-02", "MC-ENABLE-09", "MC-ENABLE-03", "ICT-21", side="client"
)  # fmt: skip
def what_the_owner_needs_cannot_be_unset(s: ClientScenario) -> None:
    """A user who unsets the enablement of timestamps, or the owner, is refused, or the table keeps them; other
    properties can be set and unset."""
    table = table_with(s, {"a.property": "1"})
    for name in ("delta.enableInCommitTimestamps", "delta.managedCommit.commitOwner"):
        request = Transact(table=s.name_of(table), marker=s.attempt(), unset_properties=(name,))
        told = s.act("writer", request)
        table.versions += isinstance(told.answer, m.Committed)
    write(s, table, no_file=True, unset_properties=("a.property",))
    write(s, table, no_file=True, set_properties={"another.property": "1"})


@check(Family.WRITING, "ICT-21", "MC-ENABLE-09", "MC-ENABLE-03", "MC-ENABLE-07", side="client")
def a_replaced_table_stays_what_it_is(s: ClientScenario) -> None:
    """REPLACE TABLE keeps the owner, its configuration as it is written, and since when the timestamps count."""
    kept = {ENABLEMENT_VERSION: "0", ENABLEMENT_TIMESTAMP: str(proposals.BASE_TIME)}
    if s.feature == "managedCommit":
        kept[CONF] = '{"b": "2",  "a": "1"}'
    table = table_with(s, kept)
    write(s, table)
    write(s, table, "new", replace_table=True)
    write(s, table, "more", set_properties={"a.property": "1"})
