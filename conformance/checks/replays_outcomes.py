"""What became of an attempt: the answer is final, for everybody who asks, for ever.

The variations: asked by the writer, by another client, twice; at once, after others committed, after a backfill; of
attempts that landed, that were refused, that nobody ever sent, and whose request is still on its way: whoever is told
that such an attempt has not landed writes its changes again, so it must never land.
PROFILES.md#attempt-outcome.
"""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.checks.replays import lose_one
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario.scenario import Delayed, Scenario, TableHandle, Told

OUTCOME = (Profile.ATTEMPT_OUTCOME,)


def attempt_of(sent: Told | Delayed) -> str:
    """The attempt that a commit was sent as."""
    assert isinstance(sent.request, m.Commit)
    return sent.request.attempt


def outcome(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Told:
    """Ask what became of it."""
    return s.ask(client, m.AttemptOutcome(table=table.reference, attempt=attempt))


def landed(s: Scenario, table: TableHandle, sent: Told, client: str = "writer") -> None:
    """The outcome of an attempt that landed."""
    assert isinstance(sent.request, m.Commit)
    told = outcome(s, table, sent.request.attempt, client)
    version = sent.request.version
    expected = f"the attempt is version {version}, and everybody who asks is told so"
    answer = s.expect(told, m.Landed, "PROFILE-OUTCOME-01", expected=expected, because=(sent,))
    s.require(
        answer.version == version,
        "PROFILE-OUTCOME-01",
        told=(told, sent),
        table=table,
        version=version,
        expected=expected,
        observed=f"it is said to be version {answer.version}",
    )


def not_landed(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Told:
    """The outcome of an attempt that has not landed."""
    told = outcome(s, table, attempt, client)
    s.expect(
        told,
        m.NotLanded,
        "PROFILE-OUTCOME-02",
        "PROFILE-OUTCOME-01",
        expected=f"no version is attempt {attempt}: it is told that it has not landed, and never will",
    )
    return told


def arrives_late(s: Scenario, table: TableHandle, late: Delayed, resolved: Told) -> None:
    """The request of an attempt that was resolved as not landed arrives: it is refused."""
    assert isinstance(late.request, m.Commit)
    told = s.deliver(late)
    s.require(
        not isinstance(told.answer, m.Ratified),
        "PROFILE-OUTCOME-02",
        told=(told, resolved),
        table=table,
        version=late.request.version,
        expected=f"attempt {late.request.attempt} was said never to land, so its "
        f"request is refused when it arrives at last",
        observed="it is ratified",
    )


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def the_outcome_of_a_lost_answer_is_told_to_whoever_asks(s: Scenario) -> None:
    """A writer's answer is lost. It asks what became of its attempt, and so do two others, one of them twice: all are
    told that it landed, and at which version."""
    table = s.create()
    sent = lose_one(s, table)
    landed(s, table, sent)
    landed(s, table, sent, "other")
    landed(s, table, sent, "third")
    landed(s, table, sent, "other")
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_outcome_is_known_after_others_committed(s: Scenario) -> None:
    """Attempts that landed are said to have landed at their own versions, however many versions came after."""
    table = s.create()
    sent = lose_one(s, table)
    second = s.land(table, client="other")
    s.land(table, client="other")
    landed(s, table, sent)
    landed(s, table, second)


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_outcome_is_known_after_the_backfill(s: Scenario) -> None:
    """A writer that lost its answer comes back when its commit was backfilled and its owner has no reason any more to
    track the staged file: the outcome can be told all the same, for commits that are backfilled and others."""
    table = s.create()
    sent = lose_one(s, table)
    s.land(table, client="other")
    s.backfill(table, 1)
    landed(s, table, sent)
    s.backfill(table, 2)
    landed(s, table, sent, "other")
    s.land(table, client="other")
    landed(s, table, sent)


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def who_was_refused_has_not_landed(s: Scenario) -> None:
    """Attempts that lost a race or came too early have not landed; the winner has."""
    table = s.create()
    won = s.land(table, client="winner")
    lost = s.contend(table, 1, client="loser")
    not_landed(s, table, attempt_of(lost), "loser")
    landed(s, table, won, "loser")
    s.land(table, client="loser")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_attempt_that_nobody_sent_has_not_landed(s: Scenario) -> None:
    """Asked for an attempt that it never heard of, the owner says that it has not landed, again and again, whatever
    lands meanwhile."""
    table = s.create()
    unheard = s.attempt()
    not_landed(s, table, unheard)
    sent = s.land(table)
    not_landed(s, table, unheard, "other")
    landed(s, table, sent)


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def an_attempt_that_was_given_up_does_not_land_later(s: Scenario) -> None:
    """A request is held back by the network. Its writer gives it up, is told that it has not landed and never will, and
    writes its changes as a new attempt. The old request then arrives for the version that is next; it is refused."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 1))
    s.give_up(late)
    resolved = not_landed(s, table, attempt_of(late))
    arrives_late(s, table, late, resolved)
    s.land(table)
    not_landed(s, table, attempt_of(late), "other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def a_tombstone_outlives_other_commits(s: Scenario) -> None:
    """An attempt at version 3 is resolved as not landed while the table is at version 0. Others commit versions 1 and
    2 and backfill them; then the request arrives, and would be next. It is refused, and others go on."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 3))
    s.give_up(late)
    resolved = not_landed(s, table, attempt_of(late), "other")
    s.land(table, client="other")
    s.land(table, client="other")
    s.backfill(table, 2)
    arrives_late(s, table, late, resolved)
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def a_tombstone_holds_for_every_copy_of_a_request(s: Scenario) -> None:
    """The network delivers a resolved attempt three times: twice while its version is free, and once after it was taken
    by another. It never lands; the attempt of the other has."""
    table = s.create()
    request = s.proposal(table, 1)
    copies = [s.delay("writer", request) for _ in range(3)]
    for copy in copies:
        s.give_up(copy)
    resolved = not_landed(s, table, request.attempt, "other")
    arrives_late(s, table, copies[0], resolved)
    arrives_late(s, table, copies[1], resolved)
    won = s.land(table, client="other")
    arrives_late(s, table, copies[2], resolved)
    landed(s, table, won)


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02", needs=OUTCOME)
def a_request_that_arrives_before_the_question_has_landed(s: Scenario) -> None:
    """The twin of a tombstone: the request that was given up arrives before anybody asks. It landed, its writer is told
    so when it asks, and does not write its changes again."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 1))
    s.give_up(late)
    arrived = s.deliver(late)
    if not isinstance(arrived.answer, m.Ratified):  # refused by a policy: then it must not have landed
        not_landed(s, table, attempt_of(late))
        return
    table.versions = 2
    landed(s, table, arrived)
    landed(s, table, arrived, "other")
    s.land(table)


@check(Family.REPLAYS, "PROFILE-CORE-07", needs=OUTCOME)
def a_resolved_attempt_is_refused_as_resolved(s: Scenario) -> None:
    """Owners that promise `tombstone-first` refuse an attempt that was resolved as not landed before any look at
    versions: no conflict and no gap is computed for it any more. A new attempt at the same taken version is told of a
    conflict."""
    table = s.create()
    request = s.proposal(table, 1)
    resolved = not_landed(s, table, request.attempt)
    s.land(table, client="other")
    told = s.ask("writer", request)
    first = Promise.TOMBSTONE_FIRST.value in s.identity.promises
    allowed = (m.Rejected,) if first else (m.Rejected, m.Conflict)
    s.expect(
        told,
        allowed,
        "PROFILE-CORE-07",
        because=(resolved,),
        expected=f"attempt {request.attempt} was resolved as not landed: it is refused",
    )
    s.contend(table, 1)
