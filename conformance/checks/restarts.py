"""Restarts and crashes: every answer still holds afterwards, and an interrupted request took effect completely or not
at all.

PROFILES.md#durable-restart, PROFILES.md#harness-control.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from conformance.checks import check
from conformance.checks.backfill import ORDER, prefix
from conformance.checks.ownership import attempt_at, dies_at
from conformance.checks.replays import arrives_late, attempt_of, landed, lose_one, not_landed, replay
from conformance.history import digests
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import crash, restart
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle, persist

DURABLE = (Profile.DURABLE_RESTART,)


def latest(s: Scenario, table: TableHandle) -> tuple[Exchange, int]:
    """The latest version that the owner returns; -1 if none."""
    call = s.ask("reader", m.GetCommits(table=table.reference))
    commits = s.expect(
        call, m.Commits, "PROFILE-DURABLE-03", "PROFILE-CORE-03", expected="the commits and the latest version"
    )
    return call, -1 if commits.latest is None else commits.latest


def whole(s: Scenario, table: TableHandle, *requirements: str) -> None:
    """Every version up to the owner's latest is published or listed."""
    call, last = latest(s, table)
    assert isinstance(call.answer, m.Commits)
    listed = {commit.version for commit in call.answer.commits}
    log = s.published(table)
    missing = [v for v in range(max(last + 1, table.versions)) if v not in listed and v not in log]
    s.require(
        not missing, *requirements, evidence=(call,), table=table, version=missing[0] if missing else None,
        expected=f"versions 0 to {max(last, table.versions - 1)} are published or listed",
        observed=f"version {', '.join(map(str, missing))} is neither published nor listed",
    )  # fmt: skip


def goes_on(s: Scenario, table: TableHandle, client: str = "writer") -> Exchange:
    """The owner ratifies the next version."""
    return s.must_land(table, "PROFILE-DURABLE-03", "PROFILE-CORE-05", client=client,
                       expected=f"the owner ratifies version {table.versions} after the restart")  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-02", needs=DURABLE)
def ratified_commits_survive_a_restart(s: Scenario) -> None:
    """Of three commits one is published when the owner restarts. Afterwards it lists the other two and publishes them;
    each version is the ratified attempt."""
    table = s.create()
    sent = s.land_all(table, 3)
    s.backfill(table, 1)
    before, known = latest(s, table)
    restart(s)
    after, still = latest(s, table)
    s.require(
        still >= known, "PROFILE-DURABLE-02", evidence=(after, before), table=table, version=known,
        expected=f"{known} was the latest version before the restart, so it is at least that after it",
        observed=f"the latest version decreased to {still}",
    )  # fmt: skip
    whole(s, table, "PROFILE-DURABLE-01")
    s.backfill(table, 3)
    log = s.published(table)
    for call in sent:
        assert isinstance(call.request, m.Commit)
        content = log.get(call.request.version)
        said = digests.of_actions(call.request.actions or ())
        same = content is not None and digests.of_file(content.encode("utf-8", "surrogatepass")).actions == said
        s.require(
            same, "PROFILE-DURABLE-01", evidence=(call,), table=table, version=call.request.version,
            expected=f"version {call.request.version} was ratified before the restart: it has the proposed content",
            observed="a ratified commit is not published" if content is None else "a ratified commit has other content",
        )  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-02", needs=DURABLE)
def the_latest_version_survives_restarts(s: Scenario) -> None:
    """A reader asks for the latest version before and after every restart of a growing table. It never decreases."""
    table = s.create()
    for _ in range(3):
        s.land(table)
        before, known = latest(s, table)
        restart(s)
        after, still = latest(s, table)
        s.require(
            still >= known, "PROFILE-DURABLE-02", evidence=(after, before), table=table, version=known,
            expected=f"{known} was the latest version before the restart",
            observed=f"the latest version decreased from {known} to {still} in a restart",
        )  # fmt: skip
    whole(s, table, "PROFILE-DURABLE-01")


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "PROFILE-DURABLE-01", needs=DURABLE)
def an_owner_continues_after_a_restart(s: Scenario) -> None:
    """After each of two restarts the owner ratifies the next version, rejects taken and early versions, and
    publishes."""
    table = s.create()
    s.land(table)
    for _ in range(2):
        restart(s)
        goes_on(s, table)
        s.contend(table, 1, client="other")
        early = s.commit(table, table.versions + 1, client="hasty")
        s.expect(early, (m.Gap, m.Rejected), "MC-COMMIT-01", "CM-COMMIT-07", expected="the previous version is missing")
        last = table.versions - 1
        call = s.ask_to_backfill(table, last)
        if s.feature == "catalogManaged" and isinstance(call.answer, m.Unsupported):
            continue
        s.require(
            last in s.published(table), "PROFILE-DURABLE-03", "MC-BACKFILL-05", evidence=(call,), table=table,
            version=last,
            expected=f"after the restart the owner publishes on request: version {last} is published",
            observed=f"version {last} is not published",
        )  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", needs=DURABLE)
def a_restart_after_every_step_changes_nothing(s: Scenario) -> None:
    """The owner restarts after the creation, a commit, a lost race, a partial backfill, and all of these. The table is
    the same as without restarts."""
    table = s.create()
    restart(s)
    goes_on(s, table, "first")
    restart(s)
    s.contend(table, 1, client="second")
    goes_on(s, table, "second")
    s.contend(table, 2, client="first")
    restart(s)
    s.backfill(table, 1)
    restart(s)
    whole(s, table, "PROFILE-DURABLE-01")
    goes_on(s, table, "first")
    s.backfill(table, 3)
    restart(s)
    whole(s, table, "PROFILE-DURABLE-01")
    goes_on(s, table, "second")


@check(Family.RESTARTS, "PROFILE-RETRY-01", "PROFILE-DURABLE-01", needs=(*DURABLE, Profile.IDEMPOTENT_RETRY))
def a_replay_is_ratified_after_a_restart(s: Scenario) -> None:
    """Two writers lost their answers, one for a commit that is published. After a restart both replays are ratified; an
    attempt that did not land gets a conflict."""
    table = s.create()
    first = lose_one(s, table, "first")
    s.backfill(table, 1)
    second = lose_one(s, table, "second")
    restart(s)
    replay(s, first, "first", since=", and the owner has restarted")
    s.contend(table, 2, client="third")
    replay(s, second, "second", since=", and the owner has restarted")
    goes_on(s, table)


@check(Family.RESTARTS, "PROFILE-RETRY-01", "PROFILE-CORE-06", needs=(*DURABLE, Profile.IDEMPOTENT_RETRY))
def a_creation_is_ratified_again_after_a_restart(s: Scenario) -> None:
    """The answer to a create request is lost, and the owner restarts. The repeated request is ratified with its table,
    not answered as a conflict with itself."""
    sent = persist(lambda: s.lose("creator", s.creation()))
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number}: no table was created")
    restart(s)
    again = s.ask("creator", sent.request)
    expected = "the creation is version 0 of its table: its replay is ratified"
    table = s.created(
        "orders", again, s.expect(again, m.Ratified, "PROFILE-RETRY-01", because=(sent,), expected=expected)
    )
    goes_on(s, table)


@check(Family.RESTARTS, "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02", needs=(*DURABLE, Profile.ATTEMPT_OUTCOME))
def an_outcome_is_the_same_after_a_restart(s: Scenario) -> None:
    """Lookup returns the same outcomes after a restart: of a published attempt, an unpublished one, and a rejected
    one."""
    table = s.create()
    first = lose_one(s, table)
    s.backfill(table, 1)
    second = s.land(table)
    refused = s.contend(table, 2, client="other")
    not_landed(s, table, attempt_of(refused))
    restart(s)
    landed(s, table, first)
    landed(s, table, second, "other")
    not_landed(s, table, attempt_of(refused))


@check(Family.RESTARTS, "PROFILE-OUTCOME-02", needs=(*DURABLE, Profile.ATTEMPT_OUTCOME))
def a_tombstone_survives_a_restart(s: Scenario) -> None:
    """A delayed attempt is resolved as not landed, and the owner restarts. The request arrives for a free version: it
    is rejected, before and after another commit."""
    table = s.create()
    late = s.delay("writer", s.proposal(table, 1))
    s.give_up(late)
    resolved = not_landed(s, table, attempt_of(late))
    restart(s)
    arrives_late(s, table, late, resolved)
    goes_on(s, table, "other")
    not_landed(s, table, attempt_of(late), "other")


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "MC-COMMIT-02", "CM-COMMIT-08", needs=DURABLE)
def requests_may_arrive_after_a_restart(s: Scenario) -> None:
    """Two proposals of version 2 are delayed until after a restart. One of them is ratified, the other is not."""
    table = s.create()
    s.land(table)
    late = [s.delay(client, s.proposal(table, 2)) for client in ("first", "second")]
    restart(s)
    call = [s.deliver(proposal) for proposal in late]
    won = [exchange for exchange in call if isinstance(exchange.answer, m.Ratified)]
    s.require(len(won) <= 1, "MC-COMMIT-02", "CM-COMMIT-08", evidence=won[:2], table=table, version=2,
              expected="one of the two is version 2",
              observed="two proposals of version 2 were answered `ratified`")  # fmt: skip
    table.versions += len(won)
    goes_on(s, table)


# Crashes, between requests and at each crash point

DEADLY = (Profile.HARNESS_CONTROL, Profile.DURABLE_RESTART)
BATCH = 12
"""More commits than an owner publishes one by one, if it publishes many of them concurrently."""
COMMITS_OF_A_BACKFILL = 4
"""The number of commits after which an owner that publishes in batches has published one."""


def points(s: Scenario) -> Iterator[tuple[int, str]]:
    """The crash points of the subject, with their indices."""
    if not s.identity.crash_points:
        raise Inconclusive("the subject declares no crash points")
    return iter(enumerate(s.identity.crash_points))


@check(Family.RESTARTS, "PROFILE-HARNESS-01", needs=DEADLY)
def a_crashed_owner_answers_nothing(s: Scenario) -> None:
    """After a simulated crash the subject answers neither a commit nor a request for commits until it is started again.
    Then it answers both."""
    table = s.create()
    s.land(table)
    crash(s)
    for request in (m.GetCommits(table=table.reference), s.proposal(table, 2)):
        call = s.ask("writer", request)
        s.require(
            not isinstance(call.answer, (m.Commits, m.Ratified)), "PROFILE-HARNESS-01", evidence=(call,), table=table,
            expected="the subject crashed: it does not answer", observed="the subject answered after a crash",
        )  # fmt: skip
    restart(s)
    goes_on(s, table)


@check(
    Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", "PROFILE-HARNESS-01", needs=DEADLY,
)  # fmt: skip
def every_answer_survives_a_crash(s: Scenario) -> None:
    """The owner crashes just after its answer to a create request, to a commit, to a partial backfill, and to another
    commit. Each answer holds after the restart."""
    table = s.create()
    for step in range(3):
        crash(s)
        restart(s)
        whole(s, table, "PROFILE-DURABLE-01")
        call = goes_on(s, table)
        crash(s)
        restart(s)
        whole(s, table, "PROFILE-DURABLE-01")
        s.contend(table, table.versions - 1, client="other")
        if step == 1:
            s.backfill(table, 1)
    s.backfill(table, 3)
    s.require(attempt_at(s, table, 3) == getattr(call.request, "attempt", ""), "PROFILE-DURABLE-01", evidence=(call,),
              table=table, version=3, expected="version 3 is the attempt that was ratified",
              observed="version 3 is another attempt")  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-01", "PROFILE-DURABLE-03", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03",
       "MC-COMMIT-05", "CM-COMMIT-05", "PROFILE-RETRY-01", needs=DEADLY)  # fmt: skip
def an_interrupted_commit_landed_or_did_not(s: Scenario) -> None:
    """The owner crashes during a commit. After the restart another proposal of the version is ratified if the
    interrupted attempt did not land, and gets a conflict if it did, which a visible file proves. The next version is
    free, and the interrupted writer gets the same outcome."""
    table = s.create()
    for _, point in points(s):
        request = s.proposal(table)
        call = dies_at(s, point, "writer", request)
        if isinstance(call.answer, m.Unknown):
            _landed_or_not(s, table, call, point)
        elif isinstance(call.answer, m.Ratified):
            table.versions += 1


def _landed_or_not(s: Scenario, table: TableHandle, call: Exchange, point: str) -> None:
    assert isinstance(call.request, m.Commit)
    version = call.request.version
    whole(s, table, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "PROFILE-DURABLE-01")
    visible = attempt_at(s, table, version) == call.request.attempt
    other = s.commit(table, version, client="other")
    landed = isinstance(other.answer, m.Conflict)
    if not landed:
        s.expect(
            other, m.Ratified, "PROFILE-DURABLE-03", "PROFILE-CORE-05", may_refuse=True, because=(call,),
            expected=f"the owner crashed at {point}: version {version} is the interrupted attempt's, or free",
        )  # fmt: skip
    s.require(
        landed or not visible, "MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", evidence=(other, call),
        table=table, version=version, observed="a visible version was ratified again",
        expected=f"the owner crashed at {point}; version {version} is visible, so it is taken",
    )  # fmt: skip
    table.versions = version + 1
    whole(s, table, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "PROFILE-DURABLE-01")
    if landed and Profile.IDEMPOTENT_RETRY.value in s.identity.profiles:
        again = s.ask("writer", call.request)
        s.expect(again, m.Ratified, "PROFILE-RETRY-01", "MC-COMMIT-05", "CM-COMMIT-05", because=(call, other),
                 expected=f"version {version} is taken by this attempt: it landed")  # fmt: skip
    goes_on(s, table, "other")


@check(Family.RESTARTS, "MC-COMMIT-05", "CM-COMMIT-05", "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-DURABLE-01",
       "PROFILE-DURABLE-03", "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", needs=DEADLY,
       commit_modes=("staged", "inline"))  # fmt: skip
def an_interrupted_commit_with_a_backfill(s: Scenario) -> None:
    """The owner backfills on its own after some commits, and crashes in one of these, at each crash point. Every
    visible version is ratified for its attempt, and for no other."""
    table = s.create(backfill="subject")
    for _, point in points(s):
        call = _commits_until_it_dies(s, table, point)
        if call is not None:
            _landed_or_not(s, table, call, point)


def _commits_until_it_dies(s: Scenario, table: TableHandle, point: str) -> Exchange | None:
    """The commit during which the owner crashed; None if no commit reaches the point, which is then cancelled."""
    crash(s, point)
    for _ in range(COMMITS_OF_A_BACKFILL):
        call = s.commit(table)
        if isinstance(call.answer, m.Unknown):
            restart(s)
            return call
        if isinstance(call.answer, m.Ratified):
            table.versions += 1
    restart(s)
    return None


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "MC-BACKFILL-01", *ORDER, needs=DEADLY,
       commit_modes=("staged", "inline"))  # fmt: skip
def an_interrupted_backfill_is_completed(s: Scenario) -> None:
    """The owner crashes during a backfill of two commits, and of a batch. The published versions are a prefix; the next
    request publishes the rest, and every version is the ratified attempt."""
    table = s.create()
    interrupted = None
    sent = [s.land(table) for _ in s.identity.crash_points for _ in range(2)]
    for number, point in points(s):
        last = 2 * number + 2
        call = dies_at(s, point, "publisher", m.BackfillToVersion(table=table.reference, version=last))
        if isinstance(call.answer, m.Unknown):
            _finished(s, table, sent[last - 2 : last], call, point)
            goes_on(s, table)
            interrupted = point
    if interrupted is not None:
        batch = s.land_all(table, BATCH)
        request = m.BackfillToVersion(table=table.reference, version=table.versions - 1)
        call = dies_at(s, interrupted, "publisher", request)
        if isinstance(call.answer, m.Unknown):
            _finished(s, table, batch, call, interrupted)


def _finished(s: Scenario, table: TableHandle, sent: Sequence[Exchange], call: Exchange, point: str) -> None:
    assert isinstance(call.request, m.BackfillToVersion)
    whole(s, table, "PROFILE-DURABLE-01")
    prefix(s, table, call)
    again = s.ask_to_backfill(table, call.request.version)
    log = s.published(table)
    for exchange in sent:
        assert isinstance(exchange.request, m.Commit)
        version, attempt = exchange.request.version, exchange.request.attempt
        published = None if version not in log else proposals.attempt_of(log[version])
        s.require(
            published == attempt, "PROFILE-DURABLE-03", "MC-BACKFILL-05", evidence=(again, call), table=table,
            version=version,
            expected=f"the owner crashed at {point} in a backfill: the repeated backfill publishes the rest, and "
            f"version "
            f"{version} is attempt {attempt}", observed=f"version {version} is {published or 'not published'}",
        )  # fmt: skip


@check(Family.RESTARTS, "PROFILE-DURABLE-03", "PROFILE-RETRY-01", "MC-CREATE-02",
       needs=(*DEADLY, Profile.IDEMPOTENT_RETRY))  # fmt: skip
def an_interrupted_creation_can_be_repeated(s: Scenario) -> None:
    """The owner crashes while it creates a table. The repeated request succeeds: one table exists, and accepts
    commits."""
    for number, point in points(s):
        name = f"orders-{number}"
        request = s.creation(name)
        call = dies_at(s, point, "creator", request)
        if isinstance(call.answer, m.Ratified):
            s.created(name, call, call.answer)
        if not isinstance(call.answer, m.Unknown):
            continue
        again = persist(partial(s.ask, "creator", request))
        ratified = s.expect(
            again, m.Ratified, "PROFILE-DURABLE-03", "PROFILE-RETRY-01", because=(call,),
            expected=f"the owner crashed at {point}, and no other client created the table: the replay is ratified",
        )  # fmt: skip
        table = s.created(name, again, ratified)
        goes_on(s, table)


@check(Family.RESTARTS, "PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01", needs=(*DEADLY, Profile.ATTEMPT_OUTCOME))
def a_reported_outcome_survives_a_crash(s: Scenario) -> None:
    """The owner crashes just after it reported one attempt as not landed and another as landed. After the restart the
    delayed request of the first is rejected; the second has landed."""
    table = s.create()
    sent = s.land(table)
    late = s.delay("slow", s.proposal(table, 2))
    s.give_up(late)
    answers: list[Exchange] = []
    for exchange in (sent, late):
        question = m.AttemptOutcome(table=table.reference, attempt=getattr(exchange.request, "attempt", ""))
        answers.append(s.ask("writer", question))
    crash(s)
    restart(s)
    if isinstance(answers[1].answer, m.NotLanded):
        arrived = s.deliver(late)
        s.require(
            not isinstance(arrived.answer, m.Ratified), "PROFILE-OUTCOME-02", evidence=(arrived, answers[1]),
            table=table,
            version=2, expected="the attempt was reported as not landed: rejected",
            observed="an attempt reported as not landed was ratified",
        )  # fmt: skip
    still = s.ask("writer", answers[0].request)
    s.expect(still, m.Landed, "PROFILE-OUTCOME-01", because=(answers[0],), expected="the attempt is version 1: landed")
    goes_on(s, table)
