"""Writers and in-commit timestamps, enablement and provenance. The kit's owner audits every proposal of every scenario
(`conformance.scenario.audit`); these scenarios are made so that a writer that is wrong shows it."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.checks.registry import check
from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.messages import DataFile, Transact
from conformance.models import proposals
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import Exchange, Scenario, TableHandle

SHAPE = ("ICT-05", "ICT-06", "ICT-07", "CM-TXNID-01")
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
CONF = "delta.managedCommit.commitOwnerConf"


def write(s: ClientScenario, table: TableHandle, file: str = "mine", **options: Any) -> Exchange:
    """One transaction of the client under test, which has to succeed."""
    adds = () if options.pop("no_file", False) else (DataFile(path=file),)
    call = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=adds, **options))
    s.expect(call, m.Committed, "PROFILE-CLIENT-02", expected="there is no conflict: the transaction is committed")
    table.versions += 1
    return call


def table_with(s: ClientScenario, properties: dict[str, str]) -> TableHandle:
    """A table that has these properties from the start."""
    attempt = s.attempt()
    actions = proposals.version_0(s.feature, attempt, s.attempt(), properties=properties)
    return s.create(attempt=attempt, actions=actions)


@check(Family.TIMESTAMPS, "ICT-08", *SHAPE, side="client")
def a_commit_is_later_than_its_predecessor(s: ClientScenario) -> None:
    """The in-commit timestamp is greater than the previous one, even if that is ahead of the writer's clock."""
    table = s.create()
    attempt = s.attempt()
    ahead = 4_000_000_000_000
    s.land(table, attempt=attempt, actions=proposals.append(attempt, ahead))
    write(s, table)
    write(s, table, "another")


@check(Family.TIMESTAMPS, "ICT-14", "ICT-08", side="client")
def a_retried_commit_is_later_than_the_winner(s: ClientScenario) -> None:
    """The retry of a writer that lost its version has an in-commit timestamp after the winner's, however late that
    is."""
    table = s.create()
    attempt = s.attempt()
    ahead = 4_000_000_000_000
    winner = s.proposal(table, 1, attempt=attempt, actions=proposals.append(attempt, ahead))
    s.owner.on(m.Commit, before=lambda: s.ask("winner", winner))
    table.versions = 2
    write(s, table)


@check(Family.TIMESTAMPS, "CM-TXNID-02", "CM-TXNID-01", side="client", features=("catalogManaged",))
def every_transaction_has_a_unique_txn_id(s: ClientScenario) -> None:
    """Two commits of one writer have different txnIds."""
    table = s.create()
    write(s, table)
    write(s, table, "another")


@check(
    Family.WRITING, "CONFLICT-RETRY-07", "CM-LOG-06", "MC-WRITE-02", "CM-WRITE-03", "MC-FILES-12",
    "MC-WRITE-03", "CM-WRITE-04", side="client",
)  # fmt: skip
def every_retry_is_a_new_attempt(s: ClientScenario) -> None:
    """A writer that lost two races proposed three times through the owner, each time as a new attempt."""
    table = s.create()
    for version in (1, 2):
        s.owner.on(m.Commit, before=partial(s.ask, "winner", s.proposal(table, version)))
    table.versions = 3
    call = write(s, table)
    tried = s.asked(m.Commit)
    s.require(
        len(tried) >= 1, "MC-FILES-12", "MC-WRITE-02", "CM-WRITE-03", evidence=(call,),
        expected="a commit is proposed to the owner", observed="no proposal reached the owner",
    )  # fmt: skip


@check(
    Family.WRITING, "MC-ENABLE-01", "MC-ENABLE-02", "CM-ENABLE-01", "CM-ENABLE-02", "ICT-03", "MC-WRITE-01",
    "CM-WRITE-02", side="client",
)  # fmt: skip
def adding_a_feature_keeps_the_others(s: ClientScenario) -> None:
    """A transaction that adds a table feature to the protocol keeps the features of ownership and in-commit
    timestamps."""
    table = s.create()
    write(s, table, no_file=True, add_feature="appendOnly")
    write(s, table)


@check(
    Family.WRITING, "ICT-04", "MC-WRITE-01", "CM-WRITE-02", "MC-ENABLE-09", "MC-ENABLE-03", "ICT-21", side="client"
)  # fmt: skip
def required_properties_cannot_be_unset(s: ClientScenario) -> None:
    """Unsetting the enablement of timestamps, or the owner, is rejected or has no effect; other properties can be set
    and unset."""
    table = table_with(s, {"a.property": "1"})
    for name in ("delta.enableInCommitTimestamps", "delta.managedCommit.commitOwner"):
        request = Transact(table=s.name_of(table), marker=s.attempt(), unset_properties=(name,))
        call = s.act("writer", request)
        table.versions += isinstance(call.answer, m.Committed)
    write(s, table, no_file=True, unset_properties=("a.property",))
    write(s, table, no_file=True, set_properties={"another.property": "1"})


@check(Family.WRITING, "ICT-21", "MC-ENABLE-09", "MC-ENABLE-03", "MC-ENABLE-07", side="client")
def replace_table_keeps_the_owner(s: ClientScenario) -> None:
    """REPLACE TABLE keeps the owner, its configuration byte for byte, and the enablement of timestamps."""
    kept = {ENABLEMENT_VERSION: "0", ENABLEMENT_TIMESTAMP: str(proposals.BASE_TIME)}
    if s.feature == "managedCommit":
        kept[CONF] = '{"b": "2",  "a": "1"}'
    table = table_with(s, kept)
    write(s, table)
    write(s, table, "new", replace_table=True)
    write(s, table, "more", set_properties={"a.property": "1"})


# The owner does not change the times that writers choose, but may reject them (RULINGS.md#validation).

CENTURY = 100 * 365 * 86_400_000
CONTENT = ("MC-API-03", "CM-CATALOG-03", "CM-PUBLISH-03")


def timed(s: Scenario, table: TableHandle, time: int) -> m.Commit:
    """A proposal of the next version with this in-commit timestamp."""
    attempt = s.attempt()
    return s.proposal(table, attempt=attempt, actions=proposals.append(attempt, time))


def time_of(content: str) -> int | None:
    """The in-commit timestamp of a published commit."""
    info = proposals.body_of(content.partition("\n")[0], "commitInfo") or {}
    found = info.get("inCommitTimestamp")
    return found if isinstance(found, int) else None


def unchanged(s: Scenario, table: TableHandle, sent: list[Exchange]) -> None:
    """What was ratified is published as it was proposed, its time included."""
    s.backfill(table, table.versions - 1)
    log = s.published(table)
    for call in sent:
        assert isinstance(call.request, m.Commit)
        version, actions = call.request.version, call.request.actions or ()
        content = log.get(version, "")
        wanted = time_of(proposals.content(actions))
        same = digests.of_file(content.encode("utf-8", "surrogatepass")).actions == digests.of_actions(actions)
        s.require(
            same, *CONTENT, evidence=(call,), table=table, version=version,
            expected=f"version {version} says what was proposed, at the time {wanted}",
            observed=f"the commit was changed; its time is {time_of(content) if content else None}",
        )  # fmt: skip


@check(Family.TIMESTAMPS, *CONTENT)
def times_far_from_the_wall_clock_are_kept(s: Scenario) -> None:
    """Writers' clocks may be wrong by a century. The owner may reject such a time; if it ratifies the commit, the time
    is unchanged."""
    table = s.create()
    sent = []
    for step in (1, 2):
        call = s.ask("writer", timed(s, table, proposals.BASE_TIME + CENTURY + step))
        s.expect(call, m.Ratified, "PROFILE-CORE-05", may_refuse=True, expected=f"version {table.versions} is the next")
        table.versions += 1
        sent.append(call)
    unchanged(s, table, sent)


@check(Family.TIMESTAMPS, *CONTENT, "MC-FEATURE-03", "CM-COMMIT-01")
def a_time_that_does_not_increase_is_rejected_or_kept(s: Scenario) -> None:
    """A defective writer proposes a time that is not later than the previous version's. The owner may reject it or not
    check it, but does not change it. The next commit, with a later time, is unchanged too."""
    table = s.create()
    first = s.land(table)
    assert isinstance(first.request, m.Commit)
    call = s.ask("writer", timed(s, table, s.timestamp(1)))
    s.expect(
        call, (m.Ratified, m.Rejected), "PROFILE-CORE-05", "PROFILE-CORE-03",
        expected="version 2: ratified, or rejected",
    )  # fmt: skip
    sent = [first]
    if isinstance(call.answer, m.Ratified):
        table.versions += 1
        sent.append(call)
    sent.append(s.land(table))
    unchanged(s, table, sent)


@check(Family.TIMESTAMPS, "MC-API-04", "CM-CATALOG-04")
def the_owners_times_are_those_of_the_commits(s: Scenario) -> None:
    """If the owner returns times with its list of commits, they are the in-commit timestamps to the millisecond, not
    the times of ratification."""
    table = s.create()
    times = {version: s.timestamp(version) + 7 for version in (1, 2)}
    for time in times.values():
        attempt = s.attempt()
        s.land(table, attempt=attempt, actions=proposals.append(attempt, time))
    call = s.ask("reader", m.GetCommits(table=table.reference))
    listed = s.expect(call, m.Commits, "PROFILE-CORE-03", expected="the commits and the latest version")
    for commit in listed.commits:
        wanted = times.get(commit.version, s.timestamp(commit.version))
        s.require(
            commit.in_commit_timestamp in (None, wanted), "MC-API-04", "CM-CATALOG-04", evidence=(call,), table=table,
            version=commit.version, expected=f"the in-commit timestamp of version {commit.version} is {wanted}",
            observed=f"the owner returned the time {commit.in_commit_timestamp}",
        )  # fmt: skip
