"""Replays: a writer that was not answered sends the same attempt again, and is told what became of it.

The variations: at once, after others committed, after a backfill, by a writer that went on in the wrong way (the same
attempt for another version, or with other actions), and a request that was refused and is sent again. What a replay of
a creation or of an ownership change must be answered stands with those families.
PROFILES.md#idempotent-retry: an attempt that landed is ratified for ever, a conflict is judged anew, a gap is not
remembered.
"""

from __future__ import annotations

import msgspec

from conformance.checks.registry import Family, check
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario import proposals
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Told

RETRY = (Profile.IDEMPOTENT_RETRY,)
REFUSALS = (m.Gap, m.Conflict, m.Rejected)
"""What a proposal out of turn may be answered; whether a conflict is true is for the history to say."""


def lose_one(s: Scenario, table: TableHandle, client: str = "writer") -> Told:
    """The next version is committed, and its writer never hears of it."""
    for _ in range(TRIES):
        sent = s.lose(client, s.proposal(table))
        if not isinstance(sent.answer, m.Rejected):
            break
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number} did not land, so there is nothing to replay")
    table.versions += 1
    return sent


@check(Family.REPLAYS, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-OUTCOME-01")
def an_attempt_is_of_one_table(s: Scenario) -> None:
    """An attempt that landed in one table has not landed in another one: whoever uses its id there again is ratified
    only if the commit is there, and it is not said to have landed before."""
    first, second, third = s.create("orders"), s.create("returns"), s.create("items")
    sent = s.land(first)
    assert isinstance(sent.request, m.Commit)
    if Profile.ATTEMPT_OUTCOME.value in s.identity.profiles:
        told = s.ask("writer", m.AttemptOutcome(table=third.reference, attempt=sent.request.attempt))
        s.require(
            not isinstance(told.answer, m.Landed), "PROFILE-OUTCOME-01", told=(told, sent), table=third,
            expected=f"nobody proposed anything to `{third.name}`: no attempt has landed there",
            observed="the attempt is said to have landed, as it has in another table",
        )  # fmt: skip
    again = s.ask("writer", msgspec.structs.replace(sent.request, table=second.reference))
    if isinstance(again.answer, m.Ratified):
        found = {witness.version: witness.attempt for witness in s.log_of(second)}
        s.require(
            found.get(again.answer.version) == sent.request.attempt, "MC-COMMIT-02", "CM-COMMIT-08",
            told=(again, sent), table=second, version=again.answer.version,
            expected=f"ratified in `{second.name}`: its version {again.answer.version} is that attempt",
            observed="it is not there: the attempt landed in another table",
        )  # fmt: skip
        second.versions += 1
    s.land(second, client="other")


def replay(s: Scenario, sent: Told, client: str = "writer", since: str = "") -> Told:
    """The same request again: it landed, and the answer says so."""
    assert isinstance(sent.request, m.Commit)
    again = s.ask(client, sent.request)
    version = sent.request.version
    expected = f"the attempt is version {version}{since}: sent again it is answered `ratified` as version {version}"
    ratified = s.expect(again, m.Ratified, "PROFILE-RETRY-01", expected=expected, because=(sent,))
    s.require(
        ratified.version == version,
        "PROFILE-CORE-06",
        "PROFILE-RETRY-01",
        told=(again, sent),
        expected=expected,
        observed=f"it is answered as version {ratified.version}",
    )
    return again


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=RETRY)
def a_commit_that_is_sent_again_at_once_is_ratified(s: Scenario) -> None:
    """A writer that was not answered sends its commit again, twice: it is told both times that it landed. Another
    attempt at the same version is told of a conflict, and the version after it is free."""
    table = s.create()
    sent = lose_one(s, table)
    replay(s, sent)
    replay(s, sent)
    s.contend(table, 1, client="other")
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-RETRY-01", needs=RETRY)
def a_commit_that_is_sent_again_after_others_committed_is_ratified(s: Scenario) -> None:
    """A writer that was not answered sends its commit again when three others have committed meanwhile: it is told
    that it landed, not that somebody took its version; that somebody was itself."""
    table = s.create()
    sent = lose_one(s, table)
    for client in ("second", "third", "fourth"):
        s.land(table, client=client)
    replay(s, sent, since=", and others committed since")
    s.contend(table, 1, client="second")


@check(Family.REPLAYS, "PROFILE-RETRY-01", needs=RETRY)
def a_commit_that_is_sent_again_after_its_backfill_is_ratified(s: Scenario) -> None:
    """Once a commit is backfilled its owner may forget where its staged file is, but not whose it was: the replay is
    told that it landed. Somebody else's attempt at that version is told of a conflict."""
    table = s.create()
    sent = lose_one(s, table)
    s.land(table, client="other")
    s.backfill(table, 2)
    replay(s, sent, since=", and is backfilled since")
    s.contend(table, 1, client="other")
    s.land(table)


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=RETRY)
def a_writer_that_hears_nothing_for_long_may_go_on_asking(s: Scenario) -> None:
    """Two writers lose every answer and send everything again, one after the other, while the table grows and is
    backfilled. Each attempt stays at its version and nothing is applied twice."""
    table = s.create()
    first = [lose_one(s, table, "first")]
    second = [lose_one(s, table, "second")]
    replay(s, first[0], "first")
    first.append(lose_one(s, table, "first"))
    s.backfill(table, 2)
    second.append(lose_one(s, table, "second"))
    for sent in (*first, *second):
        replay(s, sent, "first" if sent in first else "second")


@check(Family.REPLAYS, "PROFILE-CORE-06", needs=RETRY)
def a_late_replay_is_not_rebased(s: Scenario) -> None:
    """A writer's answer is lost, others backfill its commit and commit the next version; the writer then takes the
    conflict it reckons with for granted, and proposes the same attempt for the version after that. It is refused:
    its changes are in the table already, and would be there twice."""
    table = s.create()
    sent = lose_one(s, table)
    s.backfill(table, 1, client="other")
    s.land(table, client="other")
    assert isinstance(sent.request, m.Commit)
    moved = s.lose("writer", s.proposal(table, 3, attempt=sent.request.attempt))
    at_3 = isinstance(moved.answer, m.Ratified) and moved.answer.version != 1
    s.require(
        not at_3,
        "PROFILE-CORE-06",
        told=(moved, sent),
        table=table,
        version=3,
        expected=f"attempt {sent.request.attempt} is version 1: it is not ratified as version 3 too",
        observed="it is ratified once more",
    )
    s.land(table, client="other")
    replay(s, sent, since=", whatever was tried with it since")


@check(Family.REPLAYS, "MC-FEATURE-02", "CM-FEATURE-01", "CM-PUBLISH-03", "MC-API-03", "CM-CATALOG-03")
def a_replay_with_other_actions_changes_nothing(s: Scenario) -> None:
    """A broken writer sends its attempt once more, with other actions. Whatever it is told, what was ratified stays:
    the published version says what was proposed first."""
    table = s.create()
    first = s.land(table)
    assert isinstance(first.request, m.Commit)
    attempt = first.request.attempt
    other = s.proposal(
        table,
        1,
        attempt=attempt,
        actions=(*(first.request.actions or ()), proposals.add("second.parquet", s.timestamp(1))),
    )
    again = s.lose("writer", other)
    s.land(table, client="other")
    s.backfill(table, 2)
    published = s.published(table).get(1, "")
    s.require(
        "second.parquet" not in published,
        "MC-FEATURE-02",
        "CM-PUBLISH-03",
        told=(first, again),
        table=table,
        version=1,
        expected="version 1 says what was ratified",
        observed="it says what was sent later",
    )


@check(Family.REPLAYS, "PROFILE-RETRY-02", needs=RETRY)
def a_conflict_that_is_sent_again_is_judged_anew(s: Scenario) -> None:
    """A writer that lost a race sends the same proposal again when the table has grown. It is a conflict still, for
    the version stays taken; what it is told of the latest version is what is so now, if its owner promises that
    refusals are fresh, and never less than it was told before."""
    table = s.create()
    s.land(table, client="winner")
    lost = s.contend(table, 1, client="loser")
    s.land(table, client="winner")
    s.land(table, client="winner")
    again = s.ask("loser", lost.request)
    conflict = s.expect(
        again,
        m.Conflict,
        "PROFILE-RETRY-02",
        expected="version 1 stays taken: a conflict",
        may_refuse=True,
        because=(lost,),
    )
    fresh = Promise.FRESH_REFUSALS.value in s.identity.promises
    if fresh and conflict.latest is not None and conflict.latest >= 0:
        s.require(
            conflict.latest >= 3,
            "PROFILE-RETRY-02",
            told=(again, lost),
            table=table,
            version=3,
            expected="the conflict is judged anew: the latest version is 3 by now",
            observed=f"it tells {conflict.latest}, as if nothing had happened since",
        )
    s.land(table, client="loser")


@check(Family.REPLAYS, "PROFILE-RETRY-03", needs=RETRY)
def a_gap_is_not_remembered(s: Scenario) -> None:
    """A proposal of version 2 comes before version 1 is there, and is refused. When version 1 is there, the same
    attempt at version 2 is ratified."""
    table = s.create()
    early = s.commit(table, 2, client="hasty")
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 1 is missing: version 2 is refused")
    s.land(table, client="other")
    again = s.ask("hasty", early.request)
    ratified = s.expect(
        again,
        m.Ratified,
        "PROFILE-RETRY-03",
        may_refuse=True,
        because=(early,),
        expected="version 1 is there now: the same attempt is ratified as version 2",
    )
    table.versions = ratified.version + 1
    s.land(table, client="other")


@check(Family.REPLAYS, "MC-FEATURE-03", "CM-COMMIT-01")
def what_was_refused_does_not_land_later(s: Scenario) -> None:
    """Who is told that a proposal failed proposes its changes anew: so a refusal is the last word. Lost races and
    proposals out of turn stay out of the log, whatever the owner is asked afterwards."""
    table = s.create()
    s.land(table, client="first")
    s.contend(table, 1, client="second")
    s.land(table, client="second")
    s.contend(table, 1, client="third")
    early = s.commit(table, 5, client="third")
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 4 is missing: refused")
    s.land(table, client="third")
    s.get_commits(table)
    s.backfill(table, 3)
    s.land(table, client="first")
