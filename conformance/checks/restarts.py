"""Restarts and crashes: every answer still holds afterwards, and an interrupted request took effect completely or not
at all.

PROFILES.md#durable-restart, PROFILES.md#harness-control.

The owner crashes between requests and at its declared crash points; what was under way landed as a whole or not at all.

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The other examples are those that the course names.
"""

from collections.abc import Iterator

from conformance.checks import check, families
from conformance.checks.ownership import attempt_at
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.rounds import Rounds
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import crash, restart
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle


@check(Family.RESTARTS, *families.DURABLE, *families.REQUESTS, layer=Layer.MODEL,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def any_sequence_with_restarts(g: Generation) -> None:
    """Generated requests with crashes between and during them: everything ratified, resolved and published is kept."""
    g.run(OwnerFamily(name=g.check.family, factors={"restart": 4, "crash": 4, "disturbance": 2}))


@check(Family.RESTARTS, *families.DURABLE, *families.REQUESTS, layer=Layer.PROCESSES,
       needs=(Profile.DURABLE_RESTART,))  # fmt: skip
def killed_client_processes(rounds: Rounds) -> None:
    """Writers are killed during their commits: other writers continue, ratified commits stay, and each interrupted
    commit landed as a whole or not at all."""
    rounds.run(kills=True)


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
    return s.must_land(table, "PROFILE-DURABLE-03", client=client,
                       expected=f"the owner ratifies version {table.versions} after the restart")  # fmt: skip


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
COMMITS_OF_A_BACKFILL = 4
"""The number of commits after which an owner that publishes in batches has published one."""


def points(s: Scenario) -> Iterator[tuple[int, str]]:
    """The crash points of the subject, with their indices."""
    if not s.identity.crash_points:
        raise Inconclusive("the subject declares no crash points")
    return iter(enumerate(s.identity.crash_points))


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
