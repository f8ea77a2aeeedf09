"""Crashes: whatever an owner was doing when it died, it was done or it was not.

The variations: dead between two requests, after every kind of operation, and at every point that the owner can be told
to die at (`crash_points`) while it commits, publishes, creates a table or resolves an attempt.
PROFILES.md#harness-control, PROFILES.md#durable-restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.checks.ownership_crashes import attempt_at, dies_at
from conformance.checks.registry import Family, check
from conformance.checks.restarts import goes_on, whole
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario import proposals
from conformance.scenario.ownership import crash, restart
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Told

DEADLY = (Profile.HARNESS_CONTROL, Profile.DURABLE_RESTART)
COMMITS_OF_A_BACKFILL = 4
"""An owner that publishes several commits at once has done so after as many."""


def points(s: Scenario) -> Iterator[tuple[int, str]]:
    """Where the subject can be told to die, numbered."""
    if not s.identity.crash_points:
        raise Inconclusive("the subject names no points at which it can die")
    return iter(enumerate(s.identity.crash_points))


@check(Family.RESTARTS, "PROFILE-HARNESS-01", needs=DEADLY)
def a_dead_owner_answers_nothing(s: Scenario) -> None:
    """Told to crash, the subject is dead: neither a commit nor a question is answered until it is started again. Then
    it answers both."""
    table = s.create()
    s.land(table)
    crash(s)
    for request in (m.GetCommits(table=table.reference), s.proposal(table, 2)):
        told = s.ask("writer", request)
        s.require(
            not isinstance(told.answer, (m.Commits, m.Ratified)), "PROFILE-HARNESS-01", told=(told,), table=table,
            expected="the subject was told to die: it answers nothing", observed="it answers as before",
        )  # fmt: skip
    restart(s)
    goes_on(s, table)


@check(
    Family.RESTARTS,
    "PROFILE-DURABLE-01",
    "PROFILE-DURABLE-03",
    "PROFILE-HARNESS-01",
    needs=DEADLY,
)
def what_was_answered_survives_a_crash(s: Scenario) -> None:
    """The owner dies after the creation, after a commit, after a backfill of a part, and after another commit; each
    time just after it answered. What it answered is so when it is back."""
    table = s.create()
    for step in range(3):
        crash(s)
        restart(s)
        whole(s, table, "PROFILE-DURABLE-01")
        told = goes_on(s, table)
        crash(s)
        restart(s)
        whole(s, table, "PROFILE-DURABLE-01")
        s.contend(table, table.versions - 1, client="other")
        if step == 1:
            s.backfill(table, 1)
    s.backfill(table, 3)
    s.require(attempt_at(s, table, 3) == getattr(told.request, "attempt", ""), "PROFILE-DURABLE-01", told=(told,),
              table=table, version=3, expected="version 3 is the attempt that was ratified",
              observed="it is another")  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03",
       "MC-COMMIT-05", "CM-COMMIT-05", "PROFILE-RETRY-01", needs=DEADLY)  # fmt: skip
def a_commit_that_a_crash_interrupts_landed_or_did_not(s: Scenario) -> None:
    """The owner dies while it commits a version. When it is back, another writer proposes the same version: it is
    ratified if the interrupted attempt did not land, and told of a conflict if it did, which a visible file proves.
    Nothing in between; the version after that is free, and the interrupted writer is told the same."""
    table = s.create()
    for _, point in points(s):
        request = s.proposal(table)
        told = dies_at(s, point, "writer", request)
        if isinstance(told.answer, m.Unknown):
            _landed_or_not(s, table, told, point)
        elif isinstance(told.answer, m.Ratified):
            table.versions += 1


def _landed_or_not(s: Scenario, table: TableHandle, told: Told, point: str) -> None:
    assert isinstance(told.request, m.Commit)
    version = told.request.version
    whole(s, table, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "PROFILE-DURABLE-01")
    visible = attempt_at(s, table, version) == told.request.attempt
    other = s.commit(table, version, client="other")
    landed = isinstance(other.answer, m.Conflict)
    if not landed:
        s.expect(
            other, m.Ratified, "PROFILE-DURABLE-03", "PROFILE-CORE-05", may_refuse=True, because=(told,),
            expected=f"the owner died at {point}: version {version} is the interrupted attempt's, or free",
        )  # fmt: skip
    s.require(
        landed or not visible, "MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", told=(other, told),
        table=table, version=version, observed="it is ratified again",
        expected=f"the owner died at {point}; version {version} is visible, so it is taken",
    )  # fmt: skip
    table.versions = version + 1
    whole(s, table, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "PROFILE-DURABLE-01")
    if landed and Profile.IDEMPOTENT_RETRY.value in s.identity.profiles:
        again = s.ask("writer", told.request)
        s.expect(again, m.Ratified, "PROFILE-RETRY-01", "MC-COMMIT-05", "CM-COMMIT-05", because=(told, other),
                 expected=f"version {version} is taken by nobody but this attempt: it landed")  # fmt: skip
    goes_on(s, table, "other")


@check(Family.RESTARTS, "MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-DURABLE-01",
       "PROFILE-DURABLE-03", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", needs=DEADLY,
       commit_modes=("staged", "inline"))  # fmt: skip
def a_commit_that_starts_a_backfill_and_is_interrupted_landed_or_did_not(s: Scenario) -> None:
    """The table is one that the owner publishes by itself: some of its commits start a backfill. The owner dies in one
    of them, at each point that it gets to. What is visible when it is back is ratified, and is nobody else's."""
    table = s.create(backfill="subject")
    for _, point in points(s):
        told = _commits_until_it_dies(s, table, point)
        if told is not None:
            _landed_or_not(s, table, told, point)


def _commits_until_it_dies(s: Scenario, table: TableHandle, point: str) -> Told | None:
    """The commit in which it died; None if it never gets to that point, which nothing waits for any more then."""
    crash(s, point)
    for _ in range(COMMITS_OF_A_BACKFILL):
        told = s.commit(table)
        if isinstance(told.answer, m.Unknown):
            restart(s)
            return told
        if isinstance(told.answer, m.Ratified):
            table.versions += 1
    restart(s)
    return None


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "MC-BACKFILL-01", needs=DEADLY,
       commit_modes=("staged", "inline"))  # fmt: skip
def a_backfill_that_a_crash_interrupts_is_finished_by_the_next(s: Scenario) -> None:
    """The owner dies while it publishes commits. What is published when it is back is a beginning of the log; the
    next request publishes the rest, and every version is the attempt that was ratified."""
    table = s.create()
    sent = [s.land(table) for _ in s.identity.crash_points for _ in range(2)]
    for number, point in points(s):
        last = 2 * number + 2
        told = dies_at(s, point, "publisher", m.BackfillToVersion(table=table.reference, version=last))
        if isinstance(told.answer, m.Unknown):
            _finished(s, table, sent[last - 2 : last], told, point)
            goes_on(s, table)


def _finished(s: Scenario, table: TableHandle, sent: Sequence[Told], told: Told, point: str) -> None:
    assert isinstance(told.request, m.BackfillToVersion)
    whole(s, table, "PROFILE-DURABLE-01")
    again = s.ask_to_backfill(table, told.request.version)
    log = s.published(table)
    for each in sent:
        assert isinstance(each.request, m.Commit)
        version, attempt = each.request.version, each.request.attempt
        found = None if version not in log else proposals.attempt_of(log[version])
        s.require(
            found == attempt, "PROFILE-DURABLE-03", "MC-BACKFILL-05", told=(again, told), table=table, version=version,
            expected=f"the owner died at {point} while it published: now it publishes the rest, and version {version} "
            f"is attempt {attempt}", observed=f"it is {found or 'not published'}",
        )  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "PROFILE-RETRY-01", "MC-CREATE-02",
       needs=(*DEADLY, Profile.IDEMPOTENT_RETRY))  # fmt: skip
def a_creation_that_a_crash_interrupts_can_be_sent_again(s: Scenario) -> None:
    """The owner dies while it creates a table. The creator sends the same again: whether the first try got anywhere or
    not, there is the table now, once, and it can be committed to."""
    for number, point in points(s):
        name = f"orders-{number}"
        request = s.creation(name)
        told = dies_at(s, point, "creator", request)
        if isinstance(told.answer, m.Ratified):
            s.created(name, told, told.answer)
        if not isinstance(told.answer, m.Unknown):
            continue
        for _ in range(TRIES):
            again = s.ask("creator", request)
            if not isinstance(again.answer, m.Rejected):
                break
        ratified = s.expect(
            again, m.Ratified, "PROFILE-DURABLE-03", "PROFILE-RETRY-01", because=(told,),
            expected=f"the owner died at {point}, and nobody else created the table: it is ratified now",
        )  # fmt: skip
        table = s.created(name, again, ratified)
        goes_on(s, table)


@check(Family.RESTARTS, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01", needs=(*DEADLY, Profile.ATTEMPT_OUTCOME))
def an_outcome_that_was_told_survives_a_crash(s: Scenario) -> None:
    """The owner dies just after it told that an attempt has not landed, and that another has. The request of the first
    arrives when the owner is back: it is refused; the second has landed still."""
    table = s.create()
    sent = s.land(table)
    late = s.delay("slow", s.proposal(table, 2))
    s.give_up(late)
    answers: list[Told] = []
    for each in (sent, late):
        question = m.AttemptOutcome(table=table.reference, attempt=getattr(each.request, "attempt", ""))
        answers.append(s.ask("writer", question))
    crash(s)
    restart(s)
    if isinstance(answers[1].answer, m.NotLanded):
        arrived = s.deliver(late)
        s.require(
            not isinstance(arrived.answer, m.Ratified), "PROFILE-OUTCOME-02", told=(arrived, answers[1]), table=table,
            version=2, expected="the attempt was said never to land: refused", observed="it is ratified",
        )  # fmt: skip
    still = s.ask("writer", answers[0].request)
    s.expect(still, m.Landed, "PROFILE-OUTCOME-01", because=(answers[0],), expected="the attempt is version 1: landed")
    goes_on(s, table)
