"""Replays of an attempt, and lookups of its outcome: both are final.

PROFILES.md#idempotent-retry: the replay of a landed attempt is ratified, a conflict is decided again, a gap is not
remembered. PROFILES.md#attempt-outcome: an attempt reported as not landed never lands, because its writer proposes its
changes again.
"""

import msgspec

from conformance.checks import check
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario import storage_access
from conformance.scenario.check import Family
from conformance.scenario.formatting import in_words
from conformance.scenario.scenario import Delayed, Exchange, Inconclusive, Scenario, TableHandle, persist

RETRY = (Profile.IDEMPOTENT_RETRY,)
REFUSALS = (m.Gap, m.Conflict, m.Rejected)
"""Valid answers to a proposal with a wrong version; the history checkers decide whether a conflict is true."""


def lose_one(s: Scenario, table: TableHandle, client: str = "writer") -> Exchange:
    """Commit the next version, and lose the answer to its writer."""
    sent = persist(lambda: s.lose(client, s.proposal(table)))
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number} did not land, so there is nothing to replay")
    table.versions += 1
    return sent


@check(Family.REPLAYS, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-OUTCOME-01")
def an_attempt_belongs_to_one_table(s: Scenario) -> None:
    """An attempt that landed in one table has not landed in another: its id is ratified there only if the commit
    exists, and lookup does not report it as landed before."""
    first, second, third = s.create("orders"), s.create("returns"), s.create("items")
    sent = s.land(first)
    assert isinstance(sent.request, m.Commit)
    if Profile.ATTEMPT_OUTCOME.value in s.identity.profiles:
        call = s.ask("writer", m.AttemptOutcome(table=third.reference, attempt=sent.request.attempt))
        s.require(
            not isinstance(call.answer, m.Landed), "PROFILE-OUTCOME-01", evidence=(call, sent), table=third,
            expected=f"no attempt was proposed to `{third.name}`: it has no landed attempt",
            observed="an attempt of another table was reported as landed",
        )  # fmt: skip
    again = s.ask("writer", msgspec.structs.replace(sent.request, table=second.reference))
    if isinstance(again.answer, m.Ratified):
        attempts = {witness.version: witness.attempt for witness in s.log_of(second)}
        s.require(
            attempts.get(again.answer.version) == sent.request.attempt, "MC-COMMIT-02", "CM-COMMIT-08",
            evidence=(again, sent), table=second, version=again.answer.version,
            expected=f"if ratified in `{second.name}`, version {again.answer.version} of it is that attempt",
            observed=f"an attempt of another table was ratified as version {again.answer.version}",
        )  # fmt: skip
        second.versions += 1
    s.land(second, client="other")


def replay(s: Scenario, sent: Exchange, client: str = "writer", since: str = "") -> Exchange:
    """Send the request of a landed attempt again: it is answered `ratified` with the same version."""
    assert isinstance(sent.request, m.Commit)
    again = s.ask(client, sent.request)
    version = sent.request.version
    expected = f"the attempt is version {version}{since}: its replay is answered `ratified` as version {version}"
    ratified = s.expect(again, m.Ratified, "PROFILE-RETRY-01", expected=expected, because=(sent,),
                        what="the replay of a landed attempt")  # fmt: skip
    s.require(
        ratified.version == version, "PROFILE-CORE-06", "PROFILE-RETRY-01", evidence=(again, sent), expected=expected,
        observed=f"the replay was answered as version {ratified.version}",
    )  # fmt: skip
    return again


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=RETRY)
def an_immediate_replay_is_ratified(s: Scenario) -> None:
    """A writer whose answer was lost sends its commit again, and so does another process after it: both replays are
    ratified. Another attempt at the same version gets a conflict, and the next version is free."""
    table = s.create()
    sent = lose_one(s, table)
    replay(s, sent)
    replay(s, sent, client="successor")
    s.contend(table, 1, client="other")
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-RETRY-01", needs=RETRY)
def a_replay_after_other_commits_is_ratified(s: Scenario) -> None:
    """A writer whose answer was lost sends its commit again after three other commits: it is ratified, not answered as
    a conflict with itself."""
    table = s.create()
    sent = lose_one(s, table)
    for client in ("second", "third", "fourth"):
        s.land(table, client=client)
    replay(s, sent, since=", and others committed later")
    s.contend(table, 1, client="second")


@check(Family.REPLAYS, "PROFILE-RETRY-01", needs=RETRY)
def a_replay_after_backfill_is_ratified(s: Scenario) -> None:
    """Once a commit is backfilled its owner may forget the staged file, but not the attempt: its replay is ratified.
    Another attempt at that version gets a conflict."""
    table = s.create()
    sent = lose_one(s, table)
    s.land(table, client="other")
    s.backfill(table, 2)
    replay(s, sent, since=", which was backfilled")
    s.contend(table, 1, client="other")
    s.land(table)


@check(Family.REPLAYS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=RETRY)
def many_replays_are_ratified(s: Scenario) -> None:
    """Two writers lose every answer and repeat every request while the table grows and is backfilled. Each attempt
    keeps its version, and nothing is applied twice."""
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
def a_landed_attempt_cannot_be_rebased(s: Scenario) -> None:
    """A writer's answer is lost, its commit is backfilled, and version 2 is committed; the writer assumes a conflict
    and proposes the same attempt as version 3. It is rejected: its changes are already in the table."""
    table = s.create()
    sent = lose_one(s, table)
    s.backfill(table, 1, client="other")
    s.land(table, client="other")
    assert isinstance(sent.request, m.Commit)
    moved = s.lose("writer", s.proposal(table, 3, attempt=sent.request.attempt))
    at_3 = isinstance(moved.answer, m.Ratified) and moved.answer.version != 1
    s.require(
        not at_3, "PROFILE-CORE-06", evidence=(moved, sent), table=table, version=3,
        expected=f"attempt {sent.request.attempt} is version 1: it is not ratified as version 3 too",
        observed="a landed attempt was ratified again, as version 3",
    )  # fmt: skip
    s.land(table, client="other")
    replay(s, sent, since=", also after the other requests")


@check(Family.REPLAYS, "MC-FEATURE-02", "CM-FEATURE-01", "CM-PUBLISH-03", "MC-API-03", "CM-CATALOG-03")
def a_replay_with_other_actions_changes_nothing(s: Scenario) -> None:
    """A defective writer repeats its attempt with other actions. With any answer, version 1 keeps the
    content that was proposed first."""
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
        "second.parquet" not in published, "MC-FEATURE-02", "CM-PUBLISH-03", evidence=(first, again), table=table,
        version=1, expected="version 1 has the content that was ratified",
        observed="a replay replaced the content of version 1",
    )  # fmt: skip


@check(Family.REPLAYS, "PROFILE-RETRY-02", needs=RETRY)
def a_repeated_conflict_is_up_to_date(s: Scenario) -> None:
    """A writer that lost a race repeats its proposal after the table has grown. It gets a conflict whose latest version
    is current if the owner promises fresh refusals, and never lower than before."""
    table = s.create()
    s.land(table, client="winner")
    lost = s.contend(table, 1, client="loser")
    s.land_all(table, 2, client="winner")
    again = s.ask("loser", lost.request)
    conflict = s.expect(
        again, m.Conflict, "PROFILE-RETRY-02", expected="version 1 stays taken: a conflict", may_refuse=True,
        because=(lost,),
    )  # fmt: skip
    fresh = Promise.FRESH_REFUSALS.value in s.identity.promises
    if fresh and conflict.latest is not None and conflict.latest >= 0:
        s.require(
            conflict.latest >= 3, "PROFILE-RETRY-02", evidence=(again, lost), table=table, version=3,
            expected="the conflict is decided again: the latest version is now 3",
            observed=f"the repeated conflict has the old latest version {conflict.latest}",
        )  # fmt: skip
    s.land(table, client="loser")


@check(Family.REPLAYS, "PROFILE-RETRY-03", needs=RETRY)
def a_gap_is_not_remembered(s: Scenario) -> None:
    """A proposal of version 2 is rejected because version 1 is missing. After version 1 landed, the same attempt at
    version 2 is ratified."""
    table = s.create()
    early = s.commit(table, 2, client="hasty")
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 1 is missing: version 2 is rejected")
    s.land(table, client="other")
    again = s.ask("hasty", early.request)
    ratified = s.expect(
        again, m.Ratified, "PROFILE-RETRY-03", may_refuse=True, because=(early,),
        expected="version 1 exists now: the same attempt is ratified as version 2",
    )  # fmt: skip
    table.versions = ratified.version + 1
    s.land(table, client="other")


@check(Family.REPLAYS, "MC-API-03", "CM-CATALOG-03")
def an_early_attempt_may_change_its_actions(s: Scenario) -> None:
    """A proposal of version 2 is rejected because version 1 is missing. Its writer reads version 1, and proposes the
    same attempt with other actions. The owner may reject that; if it ratifies the attempt, version 2 has the new
    actions, not the ones that it rejected."""
    table = s.create()
    early = s.commit(table, 2, client="hasty")
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 1 is missing: version 2 is rejected")
    s.land(table, client="other")
    attempt = attempt_of(early)
    changed = proposals.append(attempt, s.timestamp(2), ["changed.parquet"])
    again = s.commit(table, client="hasty", attempt=attempt, actions=changed)
    if not isinstance(again.answer, m.Ratified):
        s.land(table, client="hasty")
        return
    table.versions = 3
    s.backfill(table, 2)
    s.require(
        "changed.parquet" in s.published(table).get(2, ""), "MC-API-03", "CM-CATALOG-03", evidence=(again, early),
        table=table, version=2, expected="version 2 has the actions that were ratified",
        observed="version 2 has the actions of an earlier proposal, which was rejected",
    )  # fmt: skip


@check(Family.REPLAYS, "MC-FEATURE-03", "CM-COMMIT-01")
def a_rejected_proposal_never_lands(s: Scenario) -> None:
    """A rejection is final, because the client proposes its changes again: lost races and early proposals stay out of
    the log, whichever requests follow."""
    table = s.create()
    s.land(table, client="first")
    s.contend(table, 1, client="second")
    s.land(table, client="second")
    s.contend(table, 1, client="third")
    early = s.commit(table, 5, client="third")
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 4 is missing: version 5 is rejected")
    s.land(table, client="third")
    s.get_commits(table)
    s.backfill(table, 3)
    s.land(table, client="first")


# Lookup of outcomes

OUTCOME = (Profile.ATTEMPT_OUTCOME,)


def attempt_of(sent: Exchange | Delayed) -> str:
    """The attempt as which a proposal was sent."""
    assert isinstance(sent.request, m.Commit | m.CreateTable | m.TakeOver | m.HandBack)
    return sent.request.attempt


def outcome(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Exchange:
    """Look up the outcome of the attempt."""
    return s.ask(client, m.AttemptOutcome(table=table.reference, attempt=attempt))


def known_without_the_table(s: Scenario, table: TableHandle, sent: Exchange, because: Exchange) -> None:
    """A commit that landed arrives again after the owner gave its table up: it may be unknown then, but it did not lose
    its version, which would make its writer commit the changes again."""
    if Profile.IDEMPOTENT_RETRY.value in s.identity.profiles:
        again = s.ask("writer", sent.request, table)
        s.require(
            not isinstance(again.answer, m.Conflict | m.Gap), "PROFILE-RETRY-01", evidence=(again, sent, because),
            table=table, expected=f"attempt {attempt_of(sent)} has landed: `ratified`, or the table is unknown",
            observed=f"the replay of a landed attempt was answered {in_words(again.answer)}",
        )  # fmt: skip


def known_as_version_1(s: Scenario, table: TableHandle, sent: Exchange) -> Exchange:
    """The owner reports that this commit landed."""
    lookup = outcome(s, table, attempt_of(sent))
    s.expect(lookup, m.Landed, "PROFILE-OUTCOME-01", because=(sent,), expected="the attempt is version 1: landed")
    return lookup


def landed(s: Scenario, table: TableHandle, sent: Exchange, client: str = "writer") -> None:
    """The outcome of an attempt that landed."""
    call = outcome(s, table, attempt_of(sent), client)
    version = getattr(sent.request, "version", 0)
    expected = f"the attempt landed as version {version}, for every client"
    answer = s.expect(call, m.Landed, "PROFILE-OUTCOME-01", expected=expected, because=(sent,))
    s.require(
        answer.version == version, "PROFILE-OUTCOME-01", evidence=(call, sent), table=table, version=version,
        expected=expected, observed=f"the attempt was reported as version {answer.version}",
    )  # fmt: skip


def not_landed(s: Scenario, table: TableHandle, attempt: str, client: str = "writer") -> Exchange:
    """The outcome of an attempt that has not landed."""
    call = outcome(s, table, attempt, client)
    s.expect(
        call, m.NotLanded, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01",
        expected=f"no version is attempt {attempt}: it has not landed, and never lands",
    )  # fmt: skip
    return call


def arrives_late(s: Scenario, table: TableHandle, late: Delayed, resolved: Exchange) -> None:
    """The request of an attempt that was resolved as not landed arrives: it is rejected."""
    assert isinstance(late.request, m.Commit)
    call = s.deliver(late)
    s.require(
        not isinstance(call.answer, m.Ratified), "PROFILE-OUTCOME-02", evidence=(call, resolved), table=table,
        version=late.request.version,
        expected=f"attempt {late.request.attempt} was reported as not landed: its request is rejected",
        observed="an attempt reported as not landed was ratified",
    )  # fmt: skip


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def every_client_can_look_up_an_outcome(s: Scenario) -> None:
    """A writer's answer is lost. The writer and two other clients look up the attempt, one of them twice: all learn
    that it landed, and at which version."""
    table = s.create()
    sent = lose_one(s, table)
    landed(s, table, sent)
    landed(s, table, sent, "other")
    landed(s, table, sent, "third")
    landed(s, table, sent, "other")
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_outcome_is_known_after_other_commits(s: Scenario) -> None:
    """Attempts that landed, the creation among them, are reported at their own versions after any number of later
    commits."""
    created, table = s.creating()
    landed(s, table, created)
    sent = lose_one(s, table)
    second = s.land(table, client="other")
    s.land(table, client="other")
    landed(s, table, sent)
    landed(s, table, second)
    landed(s, table, created)


@check(Family.REPLAYS, "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_outcome_is_known_after_backfill(s: Scenario) -> None:
    """Lookup reports the outcome of an attempt whose commit was backfilled, and of one that was not."""
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
def rejected_attempts_have_not_landed(s: Scenario) -> None:
    """Lookup reports attempts that lost a race or were too early as not landed, and the winner as landed. It is final
    for rejected attempts too: the early one arrives again when its version is free, and is rejected."""
    table = s.create()
    won = s.land(table, client="winner")
    lost = s.contend(table, 1, client="loser")
    not_landed(s, table, attempt_of(lost), "loser")
    landed(s, table, won, "loser")
    request = s.proposal(table, 3)
    again = s.delay("hasty", request)
    early = s.ask("hasty", request)
    s.expect(early, REFUSALS, "MC-COMMIT-01", "CM-COMMIT-07", expected="version 2 is missing: version 3 is rejected")
    resolved = not_landed(s, table, request.attempt, "hasty")
    s.land(table, client="loser")
    arrives_late(s, table, again, resolved)
    s.land(table, client="loser")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01", needs=OUTCOME)
def an_unknown_attempt_has_not_landed(s: Scenario) -> None:
    """Every lookup of an attempt that the owner never received reports it as not landed, also after other commits."""
    table = s.create()
    unheard = s.attempt()
    not_landed(s, table, unheard)
    sent = s.land(table)
    not_landed(s, table, unheard, "other")
    landed(s, table, sent)


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def an_attempt_resolved_as_not_landed_never_lands(s: Scenario) -> None:
    """A delayed request is looked up by its writer and reported as not landed; the writer proposes its changes as a new
    attempt. The old request then arrives for the next version, and is rejected. So is one that names a staged file."""
    table = s.create()
    if s.commit_mode == "staged" and Profile.STORAGE_ACCESS.value in s.identity.profiles:
        staged = s.delay("writer", storage_access.stage(s, table))
        s.give_up(staged)
        arrives_late(s, table, staged, not_landed(s, table, attempt_of(staged)))
    late = s.delay("writer", s.proposal(table, 1))
    s.give_up(late)
    resolved = not_landed(s, table, attempt_of(late))
    arrives_late(s, table, late, resolved)
    s.land(table)
    not_landed(s, table, attempt_of(late), "other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def a_tombstone_survives_other_commits(s: Scenario) -> None:
    """An attempt at version 3 is resolved as not landed while the table is at version 0. Versions 1 and 2 are committed
    and backfilled; then the request arrives as the next version, and is rejected."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 3))
    s.give_up(late)
    resolved = not_landed(s, table, attempt_of(late), "other")
    s.land_all(table, 2, client="other")
    s.backfill(table, 2)
    arrives_late(s, table, late, resolved)
    s.land(table, client="other")


@check(Family.REPLAYS, "PROFILE-OUTCOME-02", needs=OUTCOME)
def a_tombstone_rejects_every_copy_of_a_request(s: Scenario) -> None:
    """The network delivers a resolved attempt three times: twice while its version is free, and once after the version
    was taken. It never lands."""
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
def an_attempt_that_arrives_before_the_lookup_has_landed(s: Scenario) -> None:
    """A delayed request arrives before the lookup, not after it as in the checks of tombstones: it is reported as
    landed."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 1))
    s.give_up(late)
    arrived = s.deliver(late)
    if not isinstance(arrived.answer, m.Ratified):  # rejected by a policy: then it must not have landed
        not_landed(s, table, attempt_of(late))
        return
    table.versions = 2
    landed(s, table, arrived)
    landed(s, table, arrived, "other")
    s.land(table)


@check(Family.REPLAYS, "PROFILE-CORE-07", needs=OUTCOME)
def a_resolved_attempt_is_rejected_before_version_checks(s: Scenario) -> None:
    """Owners that promise `tombstone-first` reject an attempt that was resolved as not landed before they look at
    versions: no conflict and no gap. A new attempt at the same taken version gets a conflict."""
    table = s.create()
    request = s.proposal(table, 1)
    resolved = not_landed(s, table, request.attempt)
    s.land(table, client="other")
    call = s.ask("writer", request)
    first = Promise.TOMBSTONE_FIRST.value in s.identity.promises
    allowed = (m.Rejected,) if first else (m.Rejected, m.Conflict)
    s.expect(
        call, allowed, "PROFILE-CORE-07", because=(resolved,),
        expected=f"attempt {request.attempt} was resolved as not landed: it is rejected",
    )  # fmt: skip
    s.contend(table, 1)
