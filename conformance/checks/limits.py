"""Limits: an owner with a maximum number of unbackfilled commits.

The variations: the limit is reached and exceeded by one or two; another table has another limit; many commits.
PROFILES.md#backlog-limit: an owner with a full backlog rejects commits until some are backfilled. Commits that are
published directly do not count.

Why examples: to a program the rejection of one commit may be any policy. The other
examples are those that the course and a server's test name.
"""

from collections.abc import Callable
from contextlib import suppress

from conformance.checks import check, families
from conformance.checks.lifecycle import load, not_found
from conformance.checks.ownership import refused
from conformance.checks.replays import arrives_late, attempt_of, landed, lose_one, not_landed, replay
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import ask_back, drop, given_back, restart
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle, persist


@check(Family.LIMITS, *families.LIMITED, *families.COMMITTING, layer=Layer.MODEL, needs=(Profile.BACKLOG_LIMIT,))
def any_sequence_within_a_limit(g: Generation) -> None:
    """Generated commits of tables with and without a limit: no commit exceeds it, and a publication makes room."""
    g.run(OwnerFamily(name=g.check.family, factors={"create": 3, "many": 6, "backfill": 3, "resend": 2, "load": 0.5}))


BACKLOG = (Profile.BACKLOG_LIMIT,)
WAITING = ("staged", "inline")


def waiting(s: Scenario, table: TableHandle) -> int:
    """How many ratified commits are not published."""
    log = s.published(table)
    return sum(1 for version in range(table.versions) if version not in log)


def full(s: Scenario, limit: int) -> TableHandle:
    """A table whose backlog is full. Raises `Inconclusive` if the owner publishes commits without a request."""
    table = s.create(backlog_limit=limit)
    for _ in range(limit):
        s.land(table)
    if waiting(s, table) < limit:
        raise Inconclusive("the owner publishes commits without a request: its backlog does not fill")
    return table


def one_too_many(s: Scenario, table: TableHandle, limit: int, again: Exchange | None = None) -> Exchange:
    """Propose a commit, or repeat a rejected proposal, while the backlog is full."""
    call = s.commit(table) if again is None else s.ask("writer", again.request)
    if isinstance(call.answer, m.Ratified):
        table.versions += 1
        kept = waiting(s, table)
        if kept <= limit:
            raise Inconclusive(f"the owner made room: {kept} of at most {limit} commits are not published")
        s.fail(
            "PROFILE-BACKLOG-01", evidence=(call,), table=table, version=table.versions - 1,
            expected=f"{limit} commits are not backfilled, and the limit is {limit}: one more is rejected",
            observed=f"a commit was ratified above the limit: {kept} are not backfilled",
        )  # fmt: skip
    s.expect(
        call, m.Rejected, "PROFILE-BACKLOG-01", "PROFILE-CORE-05",
        expected=f"{limit} commits are not backfilled: version {table.versions} is rejected for the limit",
    )  # fmt: skip
    return call


def goes_on(s: Scenario, table: TableHandle, refused: Exchange, backfilled: int) -> None:
    """The backlog has room again: the owner ratifies. Another policy may reject a proposal or two before that."""
    s.must_land(
        table, "PROFILE-BACKLOG-02", because=(refused,), make_room=False,
        expected=f"versions up to {backfilled} are backfilled: the backlog has room for version {table.versions}",
    )  # fmt: skip


@check(Family.LIMITS, "PROFILE-BACKLOG-01", "PROFILE-BACKLOG-02", needs=BACKLOG, commit_modes=WAITING)
def a_full_backlog_rejects_until_a_backfill(s: Scenario) -> None:
    """With a limit of two unbackfilled commits the third is rejected, and so are a replay of that attempt and a new
    attempt. After a backfill the owner ratifies two more, and rejects again. Another table has a limit of its own."""
    table = full(s, 2)
    with suppress(Inconclusive):  # the owner may not offer that limit
        s.create("items", backlog_limit=9)
    one_too_many(s, table, 2, again=one_too_many(s, table, 2))
    refused = one_too_many(s, table, 2)
    s.backfill(table, 2)
    goes_on(s, table, refused, 2)
    goes_on(s, table, refused, 2)
    one_too_many(s, table, 2)


# Tables with many commits: pages, caches of recent attempts, versions sorted as text

MANY = 130
"""More commits than a page, or a list of recent attempts, of 100 entries holds."""
TABLES = 20
"""More tables than a small cache holds."""
VERY_MANY = 1_100
"""More commits than a page of 1,000 entries holds; in one commit mode of the subject, because all give the same."""


EARLY = ("PROFILE-RETRY-01", "PROFILE-CORE-06", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02", "PROFILE-DISCOVERY-01",
         "PROFILE-DURABLE-01", "MC-RELEASE-04")  # fmt: skip
"""What `early_answers` tests, of an owner that promises it."""


def grow(s: Scenario, table: TableHandle, versions: int, client: str = "writer") -> Exchange:
    """Commit until the table has this many versions, and return the last answer. If the owner rejects a commit because
    its backlog is full, backfill all commits; if it rejects the commit again, stop."""
    expected = "the next version, which no other client proposed, is ratified"
    while True:
        call = persist(lambda: s.commit(table, client=client))
        if isinstance(call.answer, m.Rejected) and table.versions > 1:
            done = s.ask_to_backfill(table, table.versions - 1)
            call = persist(lambda: s.commit(table, client=client)) if isinstance(done.answer, m.Done) else call
            if isinstance(call.answer, m.Rejected):
                return done
        s.expect(call, m.Ratified, "PROFILE-CORE-05", "MC-API-03", "CM-CATALOG-03", may_refuse=True, expected=expected)
        table.versions += 1
        if table.versions >= versions:
            return call


def large_table(s: Scenario) -> TableHandle:
    """A new table with the largest backlog limit that the kit needs, or without one if the owner does not offer it."""
    with suppress(Inconclusive):
        if Profile.BACKLOG_LIMIT.value in s.identity.profiles:
            return s.create(backlog_limit=2 * VERY_MANY)
    return s.create("unlimited")


def early_answers(s: Scenario, table: TableHandle, free: int) -> Callable[[], None]:
    """A writer and a creator whose answers were lost, a delayed proposal of version `free` that is resolved as not
    landed, a dropped table, and one that was handed back. Returns the test that all of it holds after other commits,
    and after a restart. An owner that shortens its journal, or keeps the newest entries of a list, forgets the oldest
    answers."""
    promised = s.identity.profiles
    sent = lose_one(s, table)
    made = late = resolved = gone = left = None
    if Profile.IDEMPOTENT_RETRY.value in promised:
        made = persist(lambda: s.lose("creator", s.creation("kept")))
    if Profile.ATTEMPT_OUTCOME.value in promised:
        late = s.delay("delayed writer", s.proposal(table, free))
        s.give_up(late)
        resolved = not_landed(s, table, attempt_of(late))
    if Profile.DISCOVERY.value in promised:
        gone = s.create("gone")
        dropped = drop(s, gone)
    if s.feature == "managedCommit" and Profile.OWNERSHIP_TRANSFER.value in promised:
        left = s.create("left")
        change = ask_back(s, left)
        if isinstance(change.answer, m.Ratified):
            with suppress(Inconclusive):  # the owner may publish the hand-back later
                given_back(s, left, change)
        else:
            left = None

    def known(since: str) -> None:
        if Profile.IDEMPOTENT_RETRY.value in promised:
            replay(s, sent, since=since)
        else:
            s.ask("writer", sent.request)
        if Profile.ATTEMPT_OUTCOME.value in promised:
            landed(s, table, sent)

    def still_holds() -> None:
        since = f", and {table.versions - 2} others committed since"
        known(since)
        if isinstance(s.ask_to_backfill(table, MANY // 2).answer, m.Done):
            since += ", half of them are published"
            known(since)
        if Profile.DURABLE_RESTART.value in promised:
            restart(s)
            since += ", and the owner has restarted"
            known(since)
        for number in range(TABLES):
            created = s.answer("creator", s.creation(f"other{number}"))
            if isinstance(created, m.Ratified) and created.table is not None:
                s.answer("reader", m.GetCommits(table=created.table))
        if made is not None and isinstance(made.answer, m.Ratified):
            again = s.ask("creator", made.request)
            expected = f"the creation is version 0 of its table{since}: its replay is ratified"
            s.created("kept", again, s.expect(again, m.Ratified, "PROFILE-RETRY-01", because=(made,), expected=expected,
                                              what="the replay of a creation"))  # fmt: skip
        if late is not None and resolved is not None:
            arrives_late(s, table, late, resolved)
        if gone is not None:
            not_found(s, load(s, gone), f"the table was dropped{since}", (dropped,))
        if left is not None:
            refused(s, left, s.commit(left), change)
            if Profile.IDEMPOTENT_RETRY.value in promised:
                again = s.ask("migrator", change.request)
                s.expect(again, m.Ratified, "PROFILE-RETRY-01", because=(change,), what="the replay of a hand-back",
                         expected=f"this attempt handed the table back{since}: ratified")  # fmt: skip

    return still_holds


@check(Family.REPLAYS, *EARLY)
def attempts_are_known_after_many_commits(s: Scenario) -> None:
    """A writer whose answer was lost repeats its commit after 130 others, after the backfill of half of them, and after
    a restart. An owner that recognizes replays ratifies it with its version, an owner that reports outcomes reports
    that version, and no owner applies it twice. An attempt that was resolved as not landed still never lands, a dropped
    table stays dropped, and a table that was handed back has no owner."""
    table = large_table(s)
    still_holds = early_answers(s, table, MANY)
    grow(s, table, MANY, client="other")
    still_holds()
