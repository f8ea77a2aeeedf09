"""Concurrent writers: one proposal of a version is ratified, after the previous version, and the others are rejected.

managed-commits, "Commit Protocol"; catalog-managed, "Commit Protocol".
"""

from collections.abc import Sequence
from functools import partial

from conformance.checks import check
from conformance.history import digests
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.formatting import in_words
from conformance.scenario.ownership import DELAYS, folder_of, put_while_asked
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

RACE = ("MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-CORE-04", "PROFILE-CORE-05")
"""The requirements that a race for one version tests."""


def one_winner(s: Scenario, table: TableHandle, version: int, race: Sequence[Exchange]) -> Exchange:
    """The winner among concurrent proposals of a version. The owner may reject some for other reasons, not all."""
    won = [call for call in race if isinstance(call.answer, m.Ratified)]
    if not won:
        if any(isinstance(call.answer, m.Rejected | m.Unknown) for call in race):
            raise Inconclusive(
                f"no proposal of version {version} was ratified; some were rejected, which the specification permits"
            )
        s.fail("PROFILE-CORE-05", "MC-API-03", "CM-CATALOG-03", evidence=race[:2], table=table, version=version,
               expected=f"version {version} was free: one of its {len(race)} proposals is ratified",
               observed=f"none of {len(race)} proposals of the free version {version} was ratified")  # fmt: skip
    s.require(len(won) == 1, "MC-COMMIT-02", "CM-COMMIT-08", evidence=won[:2], table=table, version=version,
              expected=f"exactly one of {len(race)} proposals of version {version} is ratified",
              observed=f"{len(won)} proposals of version {version} were answered `ratified`")  # fmt: skip
    for call in race:
        if call is not won[0]:
            s.expect(call, (m.Conflict, m.Rejected), "PROFILE-CORE-04", because=won,
                     expected=f"version {version} is taken: a conflict")  # fmt: skip
    table.versions += 1
    return won[0]


def burst(
    s: Scenario, table: TableHandle, clients: Sequence[str], order: Sequence[int] | None = None
) -> list[Exchange]:
    """All clients propose the next version before any request arrives; `order`: that of arrival (default: as sent)."""
    sent = [s.delay(client, s.proposal(table)) for client in clients]
    return [s.deliver(sent[index]) for index in (range(len(sent)) if order is None else order)]


@check(Family.CONCURRENT_WRITERS, *RACE)
def two_writers_of_one_version_have_one_winner(s: Scenario) -> None:
    """Two writers propose the same version: one is ratified, the other gets a conflict, and its next proposal, of the
    version after that, is ratified."""
    table = s.create()
    won = s.land(table, client="first")
    lost = s.commit(table, 1, client="second")
    s.expect(lost, (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", because=(won,),
             expected="version 1 is taken: it is not ratified again")  # fmt: skip
    s.land(table, client="second")


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-04")
def a_lost_race_is_a_conflict(s: Scenario) -> None:
    """A proposal that lost its version gets a conflict, not an error that ends the write: its writer rebases, proposes
    the next version, and is ratified."""
    table = s.create()
    s.land(table, client="first")
    s.contend(table, 1, client="second")
    s.land(table, client="second")
    s.contend(table, 2, client="first")
    s.land(table, client="first")


@check(Family.CONCURRENT_WRITERS, *RACE)
def five_concurrent_writers_have_one_winner(s: Scenario) -> None:
    """Five writers propose version 1 before any proposal arrives: one is ratified and four get a conflict. Then all
    five race for version 2."""
    table = s.create()
    writers = ["first", "second", "third", "fourth", "fifth"]
    one_winner(s, table, 1, burst(s, table, writers))
    one_winner(s, table, 2, burst(s, table, writers, order=[3, 1, 4, 0, 2]))


@check(Family.CONCURRENT_WRITERS, *RACE)
def requests_in_reverse_order_have_one_winner(s: Scenario) -> None:
    """Three writers send proposals of version 1, and the last one sent arrives first. One of them is ratified, and the
    next version is free."""
    table = s.create()
    one_winner(s, table, 1, burst(s, table, ["first", "second", "third"], order=[2, 1, 0]))
    s.land(table, client="first")


@check(Family.CONCURRENT_WRITERS, *RACE, "MC-FEATURE-02", "CM-FEATURE-01")
def three_writers_race_for_each_of_four_versions(s: Scenario) -> None:
    """Three writers race for each version, and another one arrives first each time. Every version has one winner, and
    the log holds the winners in order."""
    table = s.create()
    writers = ["first", "second", "third"]
    for start in range(4):
        order = [(start + index) % 3 for index in range(3)]
        one_winner(s, table, table.versions, burst(s, table, writers, order))
    s.get_commits(table)


@check(Family.CONCURRENT_WRITERS, "MC-API-03", "CM-CATALOG-03", "PROFILE-CORE-05")
def writers_taking_turns_all_land(s: Scenario) -> None:
    """Three writers take turns, each proposing the next version. All are ratified at the versions that they
    proposed."""
    table = s.create()
    for client in ("first", "second", "third", "first", "second", "third"):
        s.land(table, client=client)
    s.get_commits(table)


@check(Family.CONCURRENT_WRITERS, *RACE)
def a_late_proposal_replaces_nothing(s: Scenario) -> None:
    """A proposal of version 1 is delayed while another writer lands versions 1 to 3. It gets a conflict, version 1 is
    unchanged, and a new proposal of version 4 is ratified."""
    table = s.create()
    late = s.delay("slow", s.proposal(table, 1))
    fast = s.land_all(table, 3, client="fast")
    call = s.deliver(late)
    s.expect(call, (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", because=fast[:1],
             expected="version 1 was taken long before: it is not ratified again")  # fmt: skip
    s.get_commits(table)
    s.land(table, client="slow")


@check(Family.CONCURRENT_WRITERS, *RACE)
def late_proposals_in_reverse_order_all_lose(s: Scenario) -> None:
    """Delayed proposals of versions 1, 2 and 3 arrive after other writers landed these versions, the highest first. All
    get a conflict."""
    table = s.create()
    late = [s.delay(f"slow {version}", s.proposal(table, version)) for version in (1, 2, 3)]
    landed = s.land_all(table, 3, client="fast")
    for delayed, won in zip(reversed(late), reversed(landed), strict=True):
        s.expect(s.deliver(delayed), (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", because=(won,),
                 expected="its version is taken: it is not ratified again")  # fmt: skip
    s.land(table, client="slow 1")


@check(Family.CONCURRENT_WRITERS, *RACE)
def a_published_version_stays_taken(s: Scenario) -> None:
    """After versions 1 and 2 are published, a writer that has not seen them proposes version 1, then 2: both get a
    conflict. Version 3 is free."""
    table = s.create()
    s.land_all(table, 2)
    s.backfill(table, 2)
    for version in (1, 2):
        s.contend(table, version, client="late")
    s.land(table, client="late")


@check(Family.CONCURRENT_WRITERS, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-OUTCOME-02")
def attempts_that_look_alike_are_different(s: Scenario) -> None:
    """An attempt that differs from the winner of version 1 in one character, at its beginning, middle or end, is not a
    replay of it: it gets a conflict, and lookup does not report it as landed."""
    table = s.create()
    won = s.land(table)
    assert isinstance(won.request, m.Commit)
    attempt = won.request.attempt
    for position in (0, 9, len(attempt) - 1):
        other = attempt[:position] + ("7" if attempt[position] != "7" else "3") + attempt[position + 1 :]
        lost = s.commit(table, 1, client="other", attempt=other)
        s.expect(lost, (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", because=(won,),
                 expected=f"version 1 is attempt {attempt}: the different attempt {other} is not ratified")  # fmt: skip
        if Profile.ATTEMPT_OUTCOME.value in s.identity.profiles:
            outcome = s.ask("other", m.AttemptOutcome(table=table.reference, attempt=other))
            s.expect(outcome, m.NotLanded, "PROFILE-OUTCOME-02", because=(won, lost),
                     expected=f"attempt {other} lost: not landed")  # fmt: skip
    s.land(table, client="other")


@check(Family.CONCURRENT_WRITERS, *RACE)
def version_0_cannot_be_committed_again(s: Scenario) -> None:
    """A proposal of version 0 of an existing table is not ratified; version 1 is."""
    table = s.create()
    call = s.commit(table, 0)
    s.expect(call, (m.Conflict, m.Rejected), "MC-COMMIT-02", "CM-COMMIT-08", expected="version 0 exists: a conflict")
    s.land(table)


def _file_of(commits: Sequence[m.CommitEntry], version: int) -> str | None:
    """The file or the content that a list gives for a version; None if the list lacks it."""
    for commit in commits:
        if commit.version == version and commit.actions is not None:
            try:
                return digests.of_actions(commit.actions)
            except ValueError:
                return "\n".join(commit.actions)
        if commit.version == version:
            return commit.file_name
    return None


@check(Family.CONCURRENT_WRITERS, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03", "MC-FEATURE-02",
       "CM-FEATURE-01", commit_modes=("staged", "inline"))  # fmt: skip
def a_losing_proposal_leaves_the_winner_unchanged(s: Scenario) -> None:
    """After another writer loses version 1, the owner still lists the winner's commit with the winner's complete
    content."""
    table = s.create()
    won = s.land(table, client="first")
    before = s.get_commits(table)
    lost = s.contend(table, 1, client="second")
    after = s.get_commits(table, client="other reader")
    was, now = _file_of(before.commits, 1), _file_of(after.commits, 1)
    s.require(was is None or now is None or was == now, "MC-COMMIT-03", "CM-COMMIT-02", "CM-COMMIT-03",
              evidence=(won, lost), table=table, version=1,
              expected="version 1 is the winner's commit, unchanged by the lost race",
              observed=f"version 1 was listed as {was} before the lost race, and as {now} after it")  # fmt: skip
    s.backfill(table, 1)
    s.published(table)


@check(Family.CONCURRENT_WRITERS, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-CORE-06")
def a_winner_without_an_answer_keeps_its_version(s: Scenario) -> None:
    """The answer to the winner of version 1 is lost. Another proposal of version 1 gets a conflict, the next version is
    free, and the winner's attempt is in the log once."""
    table = s.create()
    sent = s.lose("unlucky", s.proposal(table, 1))
    if not isinstance(sent.answer, m.Ratified):
        raise Inconclusive(f"operation {sent.number} was not ratified: there is no answer to lose")
    table.versions += 1
    s.contend(table, 1, client="other")
    s.land(table, client="other")
    s.get_commits(table)


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-06")
def a_duplicated_request_is_applied_once(s: Scenario) -> None:
    """The network delivers a proposal of version 1 twice, the second time after version 2 landed. With any
    second answer, the attempt is in the log once, as version 1."""
    table = s.create()
    request = s.proposal(table, 1)
    twice = [s.delay("doubled", request), s.delay("doubled", request)]
    s.expect(
        s.deliver(twice[0]), m.Ratified, "PROFILE-CORE-05", may_refuse=True, expected="version 1 is free: ratified"
    )
    table.versions += 1
    s.land(table, client="other")
    again = s.deliver(twice[1])
    s.expect(again, (m.Ratified, m.Conflict, m.Rejected), "PROFILE-CORE-06",
             expected="`ratified` as version 1, or a conflict; in any case nothing is applied again")  # fmt: skip
    s.require(not isinstance(again.answer, m.Ratified) or again.answer.version == 1, "PROFILE-CORE-06",
              evidence=(again,), table=table, expected="the attempt is version 1 and no other version",
              observed=f"the duplicate was answered {in_words(again.answer)}")  # fmt: skip
    seen = reads.ask(s, table)
    s.require(seen.latest is None or seen.latest <= 2, "PROFILE-CORE-06", evidence=(again, seen.exchange), table=table,
              version=3, expected="nothing was applied twice: version 2 is the latest",
              observed=f"the duplicate was applied: version {seen.latest} is the latest")  # fmt: skip
    s.land(table, client="other")


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-05", "MC-FEATURE-02", "CM-FEATURE-01")
def versions_are_counted_per_table(s: Scenario) -> None:
    """Commits to one table neither take versions of another nor appear in it, even if name and version together read
    the same: version 11 of `orders`, version 1 of `orders1`."""
    first, second = s.create("orders"), s.create("orders1")
    s.land_all(first, 11)
    s.land(second)
    s.contend(second, 1)
    s.land(first)
    s.land(second)
    for table in (first, second):
        s.get_commits(table)


@check(Family.CONCURRENT_WRITERS, "PROFILE-CORE-05")
def an_earlier_loser_can_win(s: Scenario) -> None:
    """A writer that lost versions 1 and 2 is the first to propose version 3, and is ratified."""
    table = s.create()
    for version in (1, 2):
        s.land(table, client="lucky")
        s.contend(table, version, client="unlucky")
    s.land(table, client="unlucky")
    s.contend(table, 3, client="lucky")


# Direct commits: put-if-absent decides, with or without notification of the owner

DIRECT = ("direct",)
WHOLE = ("MC-COMMIT-04", "CM-COMMIT-04")
VISIBLE = ("MC-COMMIT-05", "CM-COMMIT-05")


@check(Family.CONCURRENT_WRITERS, *WHOLE, "PROFILE-DIRECT-01", commit_modes=DIRECT)
def a_ratified_direct_commit_is_visible_and_complete(s: Scenario) -> None:
    """A direct commit that was answered as ratified is visible in the log with all of its actions."""
    table = s.create()
    for version in (1, 2):
        won = s.land(table)
        seen = s.published(table)
        s.require(version in seen, "PROFILE-DIRECT-01", evidence=(won,), table=table, version=version,
                  expected=f"version {version} was ratified by publishing it: it is in the log",
                  observed=f"a listing shows versions {sorted(seen)}")  # fmt: skip
        actions = tuple(won.request.actions)  # type: ignore[union-attr,arg-type]
        same = digests.same_actions(actions, seen[version].splitlines())
        s.require(same, *WHOLE, evidence=(won,), table=table, version=version,
                  expected=f"the file of version {version} has the {len(actions)} actions that were proposed",
                  observed=f"version {version} has {len(seen[version].splitlines())}")  # fmt: skip


def published_by_a_client(s: Scenario, table: TableHandle) -> Exchange:
    """A commit by put-if-absent without notification of the owner."""
    made = storage_access.publish(s, table, s.proposal(table), client="silent")
    if not isinstance(made.answer, m.Done):
        raise Inconclusive(f"version {table.versions} could not be published by a client: {made.answer}")
    table.versions += 1
    s.published(table)
    return made


@check(Family.CONCURRENT_WRITERS, *WHOLE, *VISIBLE, needs=(Profile.STORAGE_ACCESS,), commit_modes=DIRECT)
def a_direct_commit_does_not_replace_a_file(s: Scenario) -> None:
    """A client published version 1 by put-if-absent without notifying the owner. A proposal of version 1 through the
    owner loses, and the file is unchanged."""
    table = s.create()
    made = published_by_a_client(s, table)
    before = s.published(table)
    lost = s.commit(table, 1, client="late")
    after = s.published(table)
    s.require(before.get(1) == after.get(1), *WHOLE, evidence=(made, lost), table=table, version=1,
              expected="the file of version 1 that existed first stays unchanged",
              observed=f"version 1 was {before.get(1, '')[:150]} and now is {after.get(1, '')[:150]}")  # fmt: skip
    s.expect(lost, (m.Conflict, m.Rejected), *WHOLE, because=(made,),
             expected="version 1 exists: it is not ratified again")  # fmt: skip


@check(Family.CONCURRENT_WRITERS, *VISIBLE, needs=(Profile.STORAGE_ACCESS,), commit_modes=DIRECT)
def a_visible_direct_commit_counts_without_notification(s: Scenario) -> None:
    """A client published one version by put-if-absent, or three, and did not notify the owner. They are committed: a
    proposal of the next version is ratified."""
    for name, count in (("orders", 1), ("items", 3)):
        table = s.create(name)
        made = [published_by_a_client(s, table) for _ in range(count)]
        call = s.commit(table, count + 1, client="next")
        expected = f"versions up to {count} are visible and therefore committed: version {count + 1} is ratified"
        s.expect(call, m.Ratified, *VISIBLE, because=made, may_refuse=True, expected=expected)
        table.versions += 1
        s.land(table)
        s.published(table)


@check(
    Family.CONCURRENT_WRITERS, *VISIBLE, "MC-COMMIT-02", "CM-COMMIT-08", needs=(Profile.STORAGE_ACCESS,),
    commit_modes=DIRECT,
)  # fmt: skip
def a_client_and_the_owner_publish_one_version(s: Scenario) -> None:
    """A proposal of version 1 is on its way to the owner while a client publishes version 1 itself. The file is first:
    the owner answers with a conflict, and the log has the client's commit."""
    table = s.create()
    late = s.delay("late", s.proposal(table))
    made = published_by_a_client(s, table)
    call = s.deliver(late)
    s.expect(call, (m.Conflict, m.Rejected), *WHOLE, "MC-COMMIT-02", "CM-COMMIT-08", because=(made,),
             expected="version 1 exists: it is not ratified again")  # fmt: skip
    s.published(table)


@check(Family.CONCURRENT_WRITERS, *WHOLE, needs=(Profile.STORAGE_ACCESS, Profile.DISCOVERY), commit_modes=DIRECT)
def a_direct_commit_races_with_a_clients_commit(s: Scenario) -> None:
    """A client creates the file of the version during a direct commit, a few milliseconds after the request. One of the
    two wins, and the file is the winner's."""
    for number, delay in enumerate(DELAYS):
        table = s.create(f"orders-{number}")
        answers: list[Exchange] = []
        folder, request = folder_of(s, table), s.proposal(table)
        race = partial(put_while_asked, s, table, request, delay, answers)
        made = storage_access.publish(s, table, s.proposal(table), "silent", put=race, folder=folder)
        both = isinstance(made.answer, m.Done) and isinstance(answers[0].answer, m.Ratified)
        s.require(not both, *WHOLE, evidence=answers, table=table, version=1,
                  expected="a client created the file of version 1: the commit through the owner loses",
                  observed="a commit was ratified as a version that a client had created")  # fmt: skip
        table.versions += 1
        s.published(table)


@check(
    Family.CONCURRENT_WRITERS, "PROFILE-OUTCOME-01", "PROFILE-RETRY-01", "PROFILE-CORE-07", *VISIBLE,
    needs=(Profile.STORAGE_ACCESS,), commit_modes=DIRECT,
)  # fmt: skip
def a_visible_direct_commit_is_known_as_landed(s: Scenario) -> None:
    """A client published a commit by put-if-absent, and did not notify the owner. The owner reports the attempt as
    landed, or no outcome, and recognizes it when the client repeats it; if it promises that, it knows the version when
    the table is resolved."""
    for name, profile in (("orders", Profile.ATTEMPT_OUTCOME), ("items", Profile.IDEMPOTENT_RETRY),
                          ("returns", Profile.DISCOVERY)):  # fmt: skip
        if profile.value not in s.identity.profiles:
            continue
        table = s.create(name)
        made = published_by_a_client(s, table)
        assert isinstance(made.request, m.Commit)
        if profile is Profile.ATTEMPT_OUTCOME:
            call = s.ask("silent", m.AttemptOutcome(table=table.reference, attempt=made.request.attempt))
            if not isinstance(call.answer, m.Rejected) and not s.declined(call):
                s.expect(call, m.Landed, "PROFILE-OUTCOME-01", *VISIBLE, because=(made,),
                         expected="the file of version 1 is visible, and is this attempt: landed")  # fmt: skip
        elif profile is Profile.IDEMPOTENT_RETRY:
            call = s.ask("silent", made.request)
            s.expect(call, m.Ratified, "PROFILE-RETRY-01", because=(made,), may_refuse=True,
                     expected="the file of version 1 is visible, and is this attempt: ratified")  # fmt: skip
        elif Promise.FRESH_DIRECT.value in s.identity.promises:
            seen = reads.resolve(s, table)
            s.require(seen.latest in (1, None), "PROFILE-CORE-07", evidence=(seen.exchange, made), table=table,
                      version=1, expected="the owner knows a direct commit when it is visible: version 1 is the latest",
                      observed=f"the resolution has latest version {seen.latest}")  # fmt: skip


# Versions are ratified in order

ORDER = ("MC-COMMIT-01", "CM-COMMIT-07", "MC-COMMIT-07")
EARLY = ("MC-COMMIT-07", "MC-COMMIT-01", "CM-COMMIT-07")
"""The requirements that an owner violates by ratifying a version too early; the first one covers direct commits."""
REFUSED = ("MC-FEATURE-03", "CM-COMMIT-01")


def too_early(s: Scenario, table: TableHandle, version: int) -> Exchange:
    """Propose a version whose predecessor is missing; every kind of rejection is valid."""
    call = s.commit(table, version, client="hasty")
    s.expect(call, (m.Gap, m.Rejected, m.Conflict), *EARLY,
             expected=f"version {table.versions - 1} is the latest: version {version} is not ratified before version "
             f"{version - 1} is")  # fmt: skip
    return call


@check(Family.CONCURRENT_WRITERS, *ORDER, "PROFILE-CORE-05")
def a_version_is_ratified_only_after_its_predecessor(s: Scenario) -> None:
    """The latest version is 1: a proposal of version 3 is rejected, and an external observer sees no version 3. After
    another writer landed version 2, version 3 is ratified."""
    table = s.create()
    s.land(table)
    early = too_early(s, table, 3)
    s.require(3 not in s.published(table), *EARLY, evidence=(early,), table=table, version=3,
              expected="version 3 is rejected, and not published", observed="version 3 was published")  # fmt: skip
    s.land(table)
    s.land(table, client="hasty")


@check(Family.CONCURRENT_WRITERS, *ORDER)
def the_first_commit_of_a_table_is_version_1(s: Scenario) -> None:
    """A new table has version 0, so its first commit is version 1: proposals of versions 5 and 2 are rejected, and so
    is one of version 3, whose predecessor is then staged but not ratified. Version 1 is ratified."""
    table = s.create()
    for version in (5, 2, 3):
        too_early(s, table, version)
    s.land(table)


@check(Family.CONCURRENT_WRITERS, *ORDER, "PROFILE-CORE-05")
def publishing_does_not_change_the_next_version(s: Scenario) -> None:
    """Versions 1 and 2 are published: version 4 is still too early, and version 3 is next."""
    table = s.create()
    s.land_all(table, 2)
    s.backfill(table, 2)
    too_early(s, table, 4)
    s.land(table)


@check(Family.CONCURRENT_WRITERS, *REFUSED, *ORDER)
def an_early_proposal_does_not_land_later(s: Scenario) -> None:
    """A proposal of version 3 is rejected because version 2 is missing. A rejection is final: after another writer
    landed version 2, version 3 is still free."""
    table = s.create()
    s.land(table)
    early = too_early(s, table, 3)
    s.land(table, client="other")
    seen = reads.ask(s, table)
    s.require(seen.latest is None or seen.latest <= 2, *REFUSED, evidence=(early, seen.exchange), table=table,
              version=3,
              expected="version 3 was rejected: version 2 is the latest",
              observed=f"a rejected proposal landed: the latest version is {seen.latest}")  # fmt: skip
    s.land(table, client="other")


@check(Family.CONCURRENT_WRITERS, *ORDER, *REFUSED)
def early_proposals_in_reverse_order_all_fail(s: Scenario) -> None:
    """Proposals of versions 4, 3 and 2 arrive, in this order, before any of version 1. None is ratified. Then other
    writers commit versions 1 to 4."""
    table = s.create()
    sent = [s.delay(f"hasty {version}", s.proposal(table, version)) for version in (2, 3, 4)]
    for delayed in reversed(sent):
        s.expect(s.deliver(delayed), (m.Gap, m.Rejected, m.Conflict), *EARLY,
                 expected="version 0 is the latest: only version 1 can be ratified")  # fmt: skip
    s.land_all(table, 4, client="patient")
    reads.ask(s, table)


@check(Family.CONCURRENT_WRITERS, *REFUSED, "MC-FEATURE-02", "CM-FEATURE-01")
def rejected_proposals_are_not_in_the_log(s: Scenario) -> None:
    """One writer loses version 1, another proposes version 3 too early. Neither proposal is listed or published, at
    once or after further commits and a backfill."""
    table = s.create()
    s.land(table, client="first")
    lost = s.contend(table, 1, client="second")
    early = too_early(s, table, 3)
    s.land_all(table, 2, client="first")
    refused = {lost.request.attempt, early.request.attempt}  # type: ignore[union-attr]
    seen = reads.ask(s, table)
    for version, commit in seen.commits.items():
        s.require(not any(attempt in (commit.file_name or "") for attempt in refused), *REFUSED,
                  evidence=(lost, seen.exchange),
                  table=table, version=version, expected="a rejected attempt is not in the log",
                  observed=f"a rejected attempt is listed: version {version} is {commit.file_name}")  # fmt: skip
    s.backfill(table, 3)
    s.published(table)


# Advice: a violation is a warning


@check(Family.CONCURRENT_WRITERS, "CM-COMMIT-09", features=("catalogManaged",), commit_modes=("staged", "inline"))
def a_conflict_tells_what_was_ratified(s: Scenario) -> None:
    """A writer loses version 1, and version 2 is ratified too: the conflict contains the missing commits, or at
    least the latest version, so that the writer need not request them."""
    table = s.create()
    s.land_all(table, 2)
    lost = s.contend(table, 1, client="other")
    if not isinstance(lost.answer, m.Conflict):
        raise Inconclusive(f"operation {lost.number}: expected a conflict, not {in_words(lost.answer)}")
    s.require(
        bool(lost.answer.winners) or lost.answer.latest is not None, "CM-COMMIT-09", evidence=(lost,), table=table,
        expected="the conflict names the latest ratified commits",
        observed="the conflict has neither the latest version nor the winners",
    )  # fmt: skip
