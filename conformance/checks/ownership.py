"""Ownership changes: taking over a filesystem table, handing it back, and crashes during both.

The owner stores its promise durably first; a put-if-absent is the commit point; an owner that loses deletes the
promise. managed-commits, "Converting an existing filesystem based table to managed-commit table" and "Converting a
managed-commit table to filesystem table".

Filesystem tables are taken over and handed back, with writers of the filesystem in between, and with crashes, lost
answers and foreign files during the change.

Why examples: no program writes the file of the next version of a staged table, or cleans the log up before a client
repeats a request whose answer was lost; and a stored finding names the last one.
"""

import json
from typing import Any

from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.ownership import giving_back
from conformance.scenario.scenario import Exchange, Scenario, TableHandle
from conformance.scenario.storage_access import publish


@check(Family.OWNERSHIP, *families.TRANSFERRED, *families.REQUESTS, layer=Layer.MODEL,
       features=("managedCommit",), needs=(Profile.OWNERSHIP_TRANSFER,))  # fmt: skip
def any_sequence_of_transfers(g: Generation) -> None:
    """Generated take-overs and hand-backs with writers in between: each one is the next version, visible at once."""
    factors = {"filesystem": 8, "take_over": 6, "hand_back": 6, "write": 3, "crash": 2, "block": 2}
    g.run(OwnerFamily(name=g.check.family, factors=factors))


@check(Family.OWNERSHIP, *families.OWNING, layer=Layer.MODEL, side="client")
def any_change_of_ownership(g: Generation) -> None:
    """Generated take-overs and hand-backs by the client, with lost answers and faster writers: the table keeps its
    features and properties, and the outcome is reported."""
    g.run(ClientFamily(name=g.check.family, factors={"transfer": 8, "create": 1, "maintain": 0.3}))


TRANSFER = (Profile.OWNERSHIP_TRANSFER, Profile.STORAGE_ACCESS)
MANAGED = ("managedCommit",)
"""Only this table feature has documented ownership changes."""


# Handing a table back

GIVEN = (Profile.OWNERSHIP_TRANSFER,)


@check(Family.OWNERSHIP, "MC-COMMIT-02", "MC-FILES-08", needs=TRANSFER, features=MANAGED, commit_modes=("staged",))
def a_hand_back_replaces_no_file(s: Scenario) -> None:
    """In a table with staged commits another writer created the file of the next version, which proves that this
    version is committed. A hand-back of that version is rejected, and the file stays."""
    table = s.create()
    s.land(table)
    s.backfill(table, 1)
    publish(s, table, s.proposal(table), "external writer")
    table.versions = 3
    before = s.published(table)
    call = s.ask("migrator", giving_back(s, table, 2))
    after = s.published(table)
    s.require(before == after, "MC-FILES-08", "MC-COMMIT-02", evidence=(call,), table=table, version=2,
              expected="the file of version 2 existed before the hand-back: it stays unchanged",
              observed="the file of version 2 was replaced or deleted")  # fmt: skip
    s.expect(call, (m.Conflict, m.Rejected), "MC-COMMIT-02", expected="version 2 exists: the hand-back is rejected")


# Clients that take a table over or hand it back, and writers whose table gets a new owner


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


@check(Family.OWNERSHIP, "PROFILE-UNKNOWN-01", needs=GIVEN)
def a_cleanup_does_not_undo_a_change_of_ownership(s: ClientScenario) -> None:
    """The answer to a take-over is lost, and that to a hand-back. Before the client asks again, another writer commits,
    and a cleanup deletes the file of the change; the owner answers the same request with a conflict. The client does
    not report a failure."""
    log = LogBuilder.filesystem(s)
    log.write(*proposals.version_0(None, s.attempt(), s.attempt()), modified=proposals.BASE_TIME)

    def taken_over() -> None:
        log.table.reference = next(iter(s.owner.owner.tables))
        log.table.versions = 2
        log.actions[1] = actions_in(s, log.table, 1)
        log.land(file("theirs"))
        log.backfill(2)
        cleaned_up(2)

    def handed_back() -> None:
        log.table.versions = 4
        s.write_file(log.table)
        log.actions |= {version: actions_in(s, log.table, version) for version in (3, 4)}
        cleaned_up(4)

    def cleaned_up(version: int) -> None:
        log.checkpoint(version)
        log.hide(*(commit_file(number) for number in range(version - 2, version)))

    s.owner.on(m.TakeOver, lose_answer=True, after=taken_over)
    s.owner.on(m.TakeOver, answer=m.Conflict())
    call = convert(s, log.table)
    log.table.ownership.append(s.markers[call.number])
    s.not_answered_as_failed(call)
    s.owner.on(m.HandBack, lose_answer=True, after=handed_back)
    s.owner.on(m.HandBack, answer=m.Conflict())
    request = m.HandBack(table=s.name_of(log.table), version=3, attempt=s.attempt(), actions=())
    call = s.act("migrator", request, log.table)
    log.table.ownership.append(s.markers[call.number])
    s.not_answered_as_failed(call)


def actions_in(s: ClientScenario, table: TableHandle, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in proposals.lines(s.content_of(table, version))]
