"""Ownership changes: taking over a filesystem table, handing it back, and crashes during both.

The owner stores its promise durably first; a put-if-absent is the commit point; an owner that loses deletes the
promise. managed-commits, "Converting an existing filesystem based table to managed-commit table" and "Converting a
managed-commit table to filesystem table".

Filesystem tables are taken over and handed back, with writers of the filesystem in between, and with crashes, lost
answers and foreign files during the change.

Why examples: a program has one owner. In the measured time programs found the mutants of the other checks not at all,
or under other requirements; or the course and the findings name them. The examples for clients are here because no
program cleans the log up before a client repeats a request whose answer was lost.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.checks import check, families, replays
from conformance.checks.backfill import blocked, glance
from conformance.checks.concurrent_writers import names_the_owner
from conformance.checks.lifecycle import resolves_to
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
from conformance.scenario.ownership import (
    ask_back,
    crash,
    filesystem_table,
    given_back,
    giving_back,
    hand_back,
    owned,
    put_beside,
    restart,
    take_over,
    taking_over,
    write_file,
)
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle, persist
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


def ratifies(s: Scenario, table: TableHandle, change: Exchange, client: str = "writer") -> None:
    """The owner that took the table over ratifies a commit."""
    s.must_land(
        table, "MC-CONVERT-06", because=(change,), client=client,
        expected=f"version {table.versions - 1} made the table this owner's, so it ratifies version {table.versions}",
    )  # fmt: skip


@check(Family.OWNERSHIP, "MC-CONVERT-09", needs=TRANSFER, features=MANAGED)
def a_lost_take_over_leaves_the_name_free(s: Scenario) -> None:
    """A take-over is lost, and another table is taken over under the same name. The ownership change is written to the
    second table's log only."""
    first = filesystem_table(s, "imports", versions=1)
    late = s.delay("migrator", taking_over(s, first), first)
    write_file(s, first, 1)
    lost = s.deliver(late)
    second = filesystem_table(s, "exports", versions=2)
    before = s.published(first)
    call = s.ask("migrator", taking_over(s, second, name=s.physical(first.name)), second)
    ratified = s.expect(
        call, m.Ratified, "MC-CONVERT-09", "PROFILE-TRANSFER-01", because=(lost,), may_refuse=True,
        expected="the take-over lost, so its name is free for another table",
    )  # fmt: skip
    after = s.published(first)
    s.require(
        after == before, "MC-CONVERT-09", evidence=(call,), table=first, version=2,
        expected=f"the table that was not taken over has versions {sorted(before)}, as before",
        observed=f"the first table has versions {sorted(after)}",
    )  # fmt: skip
    owned(s, second, call, ratified)
    s.land(second)


# Handing a table back

GIVEN = (Profile.OWNERSHIP_TRANSFER,)


def refused(s: Scenario, table: TableHandle, call: Exchange, because: Exchange) -> None:
    """A commit that arrives after the hand-back: the former owner may not ratify it."""
    version = getattr(call.request, "version", 0)
    s.require(
        not isinstance(call.answer, m.Ratified), "MC-RELEASE-04", evidence=(call, because), table=table,
        version=version,
        expected="the owner handed the table back, so it ratifies no further commit to it",
        observed=f"the former owner ratified version {version}",
    )  # fmt: skip


@check(Family.OWNERSHIP, "PROFILE-TRANSFER-01", "MC-RELEASE-05", "RULING-RELEASE-01", needs=GIVEN, features=MANAGED)
def an_owner_hands_back_a_table(s: Scenario) -> None:
    """Asked to hand a table back, the owner does so with the proposed version. It may reject some tables, but not all,
    and may require that every commit is backfilled first. A staged commit of the hand-back should be published at the
    latest on request."""
    table = s.create()
    s.land(table)
    call = ask_back(s, table)
    expected = "version 2 is the table's next: the table is handed back with it"
    ratified = s.expect(call, m.Ratified, "PROFILE-TRANSFER-01", expected=expected)
    s.require(ratified.version == 2, "PROFILE-TRANSFER-01", evidence=(call,), expected="handed back with version 2",
              observed=f"the table was handed back with version {ratified.version}")  # fmt: skip
    try:
        given_back(s, table, call)
    except Inconclusive:
        s.require(
            table.final is None, "RULING-RELEASE-01", evidence=(call,), table=table, version=2,
            expected="the commit that ends the ownership is published, because no client can write before",
            observed="the hand-back is staged, and the owner rejects requests to publish it",
        )  # fmt: skip
        raise


@check(Family.OWNERSHIP, "MC-RELEASE-04", "PROFILE-RETRY-01", needs=GIVEN, features=MANAGED)
def a_former_owner_ratifies_nothing(s: Scenario) -> None:
    """Two writers do not know of the hand-back: one whose proposal is delayed, and one that proposes afterwards. Both
    are rejected, and so is a second hand-back; before the hand-back a commit was ratified. That commit arrives again:
    it is not a lost race."""
    table = s.create()
    sent = s.land(table)
    late = s.delay("slow", s.proposal(table, 3))
    call = hand_back(s, table)
    refused(s, table, s.deliver(late), call)
    refused(s, table, s.commit(table, 3, client="other"), call)
    refused(s, table, s.commit(table, 3, client="other"), call)
    refused(s, table, s.ask("other migrator", giving_back(s, table)), call)
    replays.known_without_the_table(s, table, sent, call)


@check(Family.OWNERSHIP, "MC-RELEASE-04", "MC-RELEASE-03", needs=TRANSFER, features=MANAGED)
def filesystem_writers_continue_after_a_hand_back(s: Scenario) -> None:
    """A table is taken over, committed to, and handed back. Filesystem writers commit the next versions, and the owner
    neither rejects nor replaces them."""
    table = filesystem_table(s, versions=1)
    take_over(s, table)
    s.land(table)
    call = hand_back(s, table)
    written = [write_file(s, table) for _ in range(2)]
    if not all(won for _, won in written):
        refused(s, table, written[0][0], call)
    before = s.published(table)
    for version in (6, 4):  # the former owner does not know versions 4 and 5: any rejection is fine, and not recorded
        late = s.delay("other", s.proposal(table, version))
        s.give_up(late)
        refused(s, table, s.deliver(late), call)
    s.require(
        s.published(table) == before and sorted(before) == [0, 1, 2, 3, 4, 5], "MC-RELEASE-04", evidence=(call,),
        table=table, expected="versions 4 and 5 are the filesystem writers', and stay unchanged",
        observed=f"the log has versions {sorted(before)}, or changed content",
    )  # fmt: skip


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


@check(Family.OWNERSHIP, "MC-RELEASE-03", "MC-BACKFILL-03", needs=TRANSFER, features=MANAGED, commit_modes=("staged",))
def a_hand_back_waits_for_all_publications(s: Scenario) -> None:
    """Version 1 cannot be published, because another file has its name. The table is not handed back, and its last
    commit is not published; when the file is gone, versions 1 and 2 can be published."""
    table = s.create()
    s.land_all(table, 2)
    with blocked(s, table, 1) as foreign:
        call = s.ask("migrator", giving_back(s, table))
        files = glance(s, table)
    early = isinstance(call.answer, m.Ratified) or commit_file(3) in files
    s.require(not (early and files.get(commit_file(1)) == foreign), "MC-RELEASE-03", "MC-BACKFILL-03", evidence=(call,),
              table=table, version=1, expected="version 1 is not published: the table is not handed back",
              observed="the table was handed back before version 1 was published")  # fmt: skip
    if not isinstance(call.answer, m.Ratified):
        s.backfill(table, 2)


@check(Family.OWNERSHIP, "PROFILE-TRANSFER-02", "MC-CONVERT-02", "MC-CONVERT-05", "PROFILE-DISCOVERY-03",
       "MC-ENABLE-10", "MC-BACKFILL-05", "PROFILE-RETRY-01", "PROFILE-OUTCOME-02",
       needs=TRANSFER, features=MANAGED)  # fmt: skip
def a_second_take_over_uses_the_current_log(s: Scenario) -> None:
    """A table is handed back, filesystem writers commit two versions, and the owner takes it over again: at the version
    after theirs, not at the one that it remembers. The table then has the metadata of this take-over, which names the
    owner, and its next commits are published. What the owner answered about attempts before still holds."""
    table = filesystem_table(s, versions=1)
    take_over(s, table)
    sent = s.land(table)
    late = s.delay("slow", s.proposal(table, 7), table)
    s.give_up(late)
    resolves = Profile.ATTEMPT_OUTCOME.value in s.identity.profiles
    resolved = replays.not_landed(s, table, replays.attempt_of(late)) if resolves else None
    hand_back(s, table)
    write_file(s, table)
    write_file(s, table)
    stale = s.ask("migrator", taking_over(s, table, 4), table)
    s.expect(stale, (m.Conflict, m.Rejected), "MC-CONVERT-05", "MC-CONVERT-02",
             expected="version 4 is a filesystem writer's: the take-over is rejected")  # fmt: skip
    change = persist(lambda: s.ask("migrator", taking_over(s, table), table))
    ratified = s.expect(
        change, m.Ratified, "PROFILE-TRANSFER-02",
        expected="the table was handed back, and version 6 is its next: it is taken over again",
    )  # fmt: skip
    owned(s, table, change, ratified)
    replays.known_without_the_table(s, table, sent, change)
    if resolved is not None:
        replays.arrives_late(s, table, late, resolved)
    names_the_owner(s, table, 6, s.published(table).get(6, ""), change)
    if Profile.DISCOVERY.value in s.identity.profiles:
        resolves_to(s, table, change, "metaData", "createdTime", s.timestamp(6))
    ratifies(s, table, change)
    s.contend(table, 5, client="other")
    done = s.ask_to_backfill(table, table.versions - 1)
    s.require(
        table.versions - 1 in s.published(table), "MC-BACKFILL-05", evidence=(change, done), table=table,
        version=table.versions - 1,
        expected=f"the owner publishes on request: version {table.versions - 1} is published",
        observed=f"version {table.versions - 1}, the first commit after the second take-over, is not published",
    )  # fmt: skip


# Crashes at each of the crash points

DEADLY = (Profile.HARNESS_CONTROL, Profile.DURABLE_RESTART, Profile.IDEMPOTENT_RETRY)


def attempt_at(s: Scenario, table: TableHandle, version: int) -> str | None:
    """The attempt that published the version."""
    content = s.published(table).get(version)
    return None if content is None else proposals.attempt_of(content)


def dies_at(
    s: Scenario, point: str, client: str, request: m.Request, table: TableHandle | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Exchange:  # fmt: skip
    """Send a request to a subject that crashes at the point, and restart it: also if it answered, because it may have
    crashed afterwards, or has to forget the point. `meanwhile` runs between a crash and the restart."""
    crash(s, point)
    call = s.ask(client, request, table)
    if isinstance(call.answer, m.Unknown):
        meanwhile()
    restart(s)
    return call


@check(Family.OWNERSHIP, "MC-CONVERT-09", "MC-CONVERT-03", "MC-CONVERT-05", "MC-COMMIT-02", "MC-FEATURE-03",
       "MC-CONVERT-06", needs=(*TRANSFER, *DEADLY), features=MANAGED)  # fmt: skip
def a_request_that_lost_while_the_owner_was_dead(s: Scenario) -> None:
    """The owner crashes during a take-over or, where commits are direct, during a hand-back or a commit. Before it
    restarts, another writer creates the file of that version. Recovery checks which attempt wrote the file: the
    interrupted request is not ratified, and the ownership is unchanged."""
    kinds = (taking_over, giving_back, Scenario.proposal) if s.commit_mode == "direct" else (taking_over,)
    points = s.identity.crash_points
    for kind in kinds:
        many = 1 if kind is Scenario.proposal else len(points)  # one table takes many commits
        tables = [filesystem_table(s, f"{kind.__name__}-{number}") for number in range(many)]
        for table in () if kind is taking_over else tables:
            take_over(s, table)
        for number, point in enumerate(points):
            table = tables[number % many]
            _loses_while_dead(s, table, kind(s, table), point)


def _loses_while_dead(s: Scenario, table: TableHandle, request: m.TakeOver | m.HandBack | m.Commit, point: str) -> None:
    version = table.versions
    wins: list[bool] = []

    def meanwhile() -> None:
        wins.append(write_file(s, table, version, put=partial(put_beside, s))[1])

    call = dies_at(s, point, "migrator", request, table, meanwhile)
    if wins != [True]:  # it did not crash, or crashed after its own file was visible
        table.versions = max(table.versions, version + isinstance(request, m.Commit))
        return
    again = s.ask("migrator", request, table)
    broken = ("MC-CONVERT-09", "MC-CONVERT-05") if isinstance(request, m.TakeOver) else ("MC-COMMIT-02",)
    s.require(
        not isinstance(again.answer, m.Ratified), *broken, evidence=(again, call), table=table, version=version,
        expected=f"version {version} was another writer's when the owner restarted after {point}: not ratified",
        observed=f"the interrupted request was ratified, although version {version} is another writer's",
    )  # fmt: skip
    if isinstance(request, m.TakeOver):
        _is_no_owner(s, table, call, point)
        return
    s.must_land(
        table, "MC-CONVERT-06", "MC-FEATURE-03", because=(call,),
        expected=f"the owner crashed at {point}, and version {version} is a direct commit of another writer: "
        f"the owner still owns the table, and ratifies version {table.versions}",
    )  # fmt: skip


def _is_no_owner(s: Scenario, table: TableHandle, interrupted: Exchange, point: str) -> None:
    again = persist(lambda: s.ask("migrator", taking_over(s, table), table))
    ratified = s.expect(
        again, m.Ratified, "MC-CONVERT-03", "MC-CONVERT-09", because=(interrupted,),
        expected=f"the owner crashed at {point}, before its ownership change was visible, and version 1 is a "
        f"filesystem writer's: the owner does not own the table, and can take it over with version {table.versions}",
    )  # fmt: skip
    owned(s, table, again, ratified)
    ratifies(s, table, again)


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


@check(Family.OWNERSHIP, "MC-RELEASE-01", needs=GIVEN)
def a_hand_back_is_one_commit(s: ClientScenario) -> None:
    """The commit that ends the ownership removes the table feature and the owner's properties together."""
    table = s.create()
    s.land(table)
    request = m.HandBack(table=s.name_of(table), version=2, attempt=s.attempt(), actions=())
    call = s.act("migrator", request, table)
    s.expect(call, m.Ratified, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner hands the table back")
    table.ownership.append(request.attempt)
    table.versions = 3
