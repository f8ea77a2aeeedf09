"""Clients that take a table to an owner, or back, and writers that are surprised by it."""

from __future__ import annotations

from typing import Any

from conformance.checks.registry import check
from conformance.interface import messages as m
from conformance.interface.messages import DataFile, Transact
from conformance.models import proposals
from conformance.models.client import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, TIMESTAMPS
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import in_words
from conformance.scenario.log_builder import LogBuilder
from conformance.scenario.scenario import Exchange, TableHandle

NEEDS = (Profile.OWNERSHIP_TRANSFER,)
LATE = 4_000_000_000_000
"""ms since the epoch: a modification time that no clock has reached."""


def unstamped(s: ClientScenario, *, modified: int = proposals.BASE_TIME) -> TableHandle:
    """A filesystem table of two versions that has no in-commit timestamps."""
    log = LogBuilder.filesystem(s)
    schema = {"minReaderVersion": 1, "minWriterVersion": 2}
    plain: dict[str, Any] = {
        "id": s.attempt(),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
    }
    body = {**plain, "schemaString": proposals.SCHEMA, "configuration": {"a.property": "1"}, "createdTime": 0}
    info = proposals.line("commitInfo", {"operation": "CREATE TABLE", "txnId": s.attempt()})
    log.write(info, proposals.line("protocol", schema), proposals.line("metaData", body), modified=modified - 1)
    more = proposals.line("commitInfo", {"operation": "WRITE", "txnId": s.attempt()})
    log.write(more, proposals.add("old", modified), modified=modified)
    assert log.table is not None
    log.table.versions = log.table.before = 2
    return log.table


def convert(s: ClientScenario, table: TableHandle) -> Exchange:
    """Ask the client under test to have the owner take the table over."""
    request = m.TakeOver(
        path=table.path or "", name=s.physical(table.name), feature=s.feature, commit_mode=s.commit_mode,
        version=table.versions, attempt=s.attempt(), actions=(),
    )  # fmt: skip
    call = s.act("migrator", request, table)
    if isinstance(call.answer, m.Ratified):
        table.reference = call.answer.table or table.reference
        table.ownership.append(request.attempt)
        table.versions = call.answer.version + 1
    return call


def enablement(s: ClientScenario, table: TableHandle, version: int, call: Exchange, *first: str) -> None:
    """The enabling commit says from which version and time on the timestamps count: its own."""
    [metadata] = s.actions_of(table, version, "metaData")
    [info] = s.actions_of(table, version, "commitInfo")
    properties = metadata["configuration"]
    s.require(
        properties.get(TIMESTAMPS) == "true" and properties.get(ENABLEMENT_VERSION) == str(version), *first, "ICT-10",
        evidence=(call,), expected=f"version {version} enables timestamps: {ENABLEMENT_VERSION} is {version}",
        observed=f"the properties are {properties}",
    )  # fmt: skip
    s.require(
        properties.get(ENABLEMENT_TIMESTAMP) == str(info["inCommitTimestamp"]), *first, "ICT-11", evidence=(call,),
        expected=f"{ENABLEMENT_TIMESTAMP} is the enabling commit's own time, {info['inCommitTimestamp']}",
        observed=f"the enablement timestamp is {properties.get(ENABLEMENT_TIMESTAMP)}",
    )  # fmt: skip


def not_lost(s: ClientScenario, call: Exchange) -> m.Ratified:
    return s.expect(call, m.Ratified, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner takes the table over")


@check(Family.OWNERSHIP, "ICT-10", "ICT-11", "ICT-12", "MC-ENABLE-02", "CM-ENABLE-02", side="client", needs=NEEDS)
def a_take_over_enables_timestamps(s: ClientScenario) -> None:
    """A take-over enables in-commit timestamps: it records the enabling version and time, and is later than the file of
    the previous commit."""
    table = unstamped(s, modified=LATE)
    call = convert(s, table)
    not_lost(s, call)
    [info] = s.actions_of(table, 2, "commitInfo")
    s.require(
        info["inCommitTimestamp"] > LATE, "ICT-12", evidence=(call,),
        expected=f"the enabling commit is later than {LATE}, the modification time of version 1",
        observed=f"the in-commit timestamp is {info['inCommitTimestamp']}",
    )  # fmt: skip
    enablement(s, table, 2, call)


@check(Family.OWNERSHIP, "ICT-15", "ICT-10", "ICT-11", side="client", needs=NEEDS)
def a_retried_take_over_has_a_new_enablement(s: ClientScenario) -> None:
    """A filesystem writer gets the version of the take-over: the retry records its own version and time as the
    enablement."""
    table = unstamped(s)
    s.owner.on(m.TakeOver, before=lambda: s.write_file(table))
    call = convert(s, table)
    ratified = not_lost(s, call)
    s.require(
        ratified.version == 3, "ICT-15", evidence=(call,),
        expected="version 2 was a filesystem writer's: the ownership change is version 3",
        observed=f"the take-over was ratified as version {ratified.version}",
    )  # fmt: skip
    enablement(s, table, 3, call, "ICT-15")


@check(Family.OWNERSHIP, "MC-CONVERT-10", "MC-FILES-12", "MC-WRITE-03", "CM-WRITE-04", side="client", needs=NEEDS)
def a_writer_uses_the_owner_after_a_take_over(s: ClientScenario) -> None:
    """After a take-over a transaction is committed through the owner."""
    table = s.filesystem_table("imports")
    not_lost(s, convert(s, table))
    call = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=(DataFile(path="mine"),)), table)
    s.expect(call, m.Committed, "MC-CONVERT-10", "PROFILE-CLIENT-02", expected="the owner ratifies it as version 2")
    s.require(
        any(each.operation == call.number for each in s.proposed), "MC-CONVERT-10", "MC-FILES-12", "MC-WRITE-03",
        "CM-WRITE-04", evidence=(call,),
        expected="the table has an owner since version 1: the commit is proposed to it",
        observed=f"the writer answered {in_words(call.answer)} without asking the owner",
    )  # fmt: skip
    table.versions += 1


@check(Family.OWNERSHIP, "MC-CONVERT-11", "MC-WRITE-03", "CM-WRITE-04", side="client", needs=NEEDS)
def a_filesystem_writer_respects_a_take_over(s: ClientScenario) -> None:
    """A writer read a table without an owner; then the table was taken over. The writer creates no file."""
    table = s.filesystem_table("imports")
    path = table.reference
    not_lost(s, convert(s, table))
    call = s.act(
        "writer", Transact(table=path, marker=s.attempt(), read_version=0, adds=(DataFile(path="late"),)), table
    )
    if isinstance(call.answer, m.Committed):
        table.versions += 1
    heard = any(each.operation == call.number for each in s.proposed)
    s.require(
        heard or not isinstance(call.answer, m.Committed), "MC-CONVERT-11", "MC-WRITE-03", "CM-WRITE-04",
        evidence=(call,),
        expected="the ownership change is what it lost to: it gives up, or proposes its commit to the owner",
        observed=f"the writer answered {in_words(call.answer)} without asking the owner",
    )  # fmt: skip


@check(Family.OWNERSHIP, "MC-CONVERT-04", side="client", needs=NEEDS, features=("managedCommit",))
def a_rejected_take_over_leaves_a_filesystem_table(s: ClientScenario) -> None:
    """The owner rejected the take-over: clients commit through the filesystem as before."""
    table = s.filesystem_table("imports")
    s.owner.on(m.TakeOver, answer=m.Rejected(reason="not this table"), times=10)
    call = convert(s, table)
    s.require(
        not isinstance(call.answer, m.Ratified), "MC-CONVERT-04", evidence=(call,),
        expected="the owner refused: no ownership change",
        observed=f"the transaction was answered {in_words(call.answer)}",
    )  # fmt: skip
    after = s.act("writer", Transact(table=table.reference, marker=s.attempt(), adds=(DataFile(path="mine"),)), table)
    done = s.expect(
        after, m.Committed, "MC-CONVERT-04", expected="the table has no owner: the writer creates the file of version 1"
    )
    s.require(
        done.version == 1,
        "MC-CONVERT-04",
        evidence=(after, call),
        expected="version 1",
        observed=f"the transaction was answered {in_words(done)}",
    )
    table.versions = 2


@check(Family.OWNERSHIP, "MC-RELEASE-01", side="client", needs=NEEDS)
def a_hand_back_is_one_commit(s: ClientScenario) -> None:
    """The commit that ends the ownership removes the table feature and the owner's properties together."""
    table = s.create()
    s.land(table)
    request = m.HandBack(table=s.name_of(table), version=2, attempt=s.attempt(), actions=())
    call = s.act("migrator", request, table)
    s.expect(call, m.Ratified, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner gives the table back")
    table.ownership.append(request.attempt)
    table.versions = 3


@check(Family.TIMESTAMPS, "ICT-13", side="client")
def timestamps_from_version_0_need_no_enablement(s: ClientScenario) -> None:
    """A table with in-commit timestamps from version 0 on has no enablement properties."""
    creation = s.creation("created")
    call = s.act("creator", creation)
    table = s.created("created", call, s.expect(call, m.Ratified, "PROFILE-CLIENT-02", expected="the name is free"))
    [metadata] = s.actions_of(table, 0, "metaData")
    named = [name for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP) if name in metadata["configuration"]]
    s.require(
        not named, "ICT-13", evidence=(call,), expected="timestamps count from version 0 on: nothing says since when",
        observed=f"the properties {named} are still set",
    )  # fmt: skip
