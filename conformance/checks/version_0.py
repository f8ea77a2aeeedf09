"""Race on version 0: of all who create one table, one does.

The variations: who creates (two, five, the same creator again, one that never heard of its success), how the requests
arrive, what the losers wanted (the same, another commit mode, another feature), and what they do next.
managed-commits, "Creating a new managed-commit table"; catalog-managed, "Creating and Dropping Catalog-managed
Tables".
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from conformance.checks.registry import COMMIT_MODES, Family, check
from conformance.interface.messages import Conflict, CreateTable, Ratified, Rejected, Unknown
from conformance.requirements.catalogue import Profile
from conformance.scenario import proposals, reads
from conformance.scenario.scenario import TRIES, Inconclusive, Scenario, TableHandle, Told

ONE = ("MC-CREATE-02", "CM-COMMIT-08", "MC-COMMIT-02")
RACE = (*ONE, "PROFILE-CORE-04", "PROFILE-VERSION0-01")
TABLE = "orders"


def one_creator(s: Scenario, race: Sequence[Told]) -> tuple[TableHandle, Told]:
    """Of those who proposed version 0 of one table: the table, and who made it. Some may have been refused, not all."""
    won = [told for told in race if isinstance(told.answer, Ratified)]
    if not won:
        if any(isinstance(told.answer, Rejected | Unknown) for told in race):
            raise Inconclusive("nobody made the table; some were refused, which its owner may do")
        s.fail("PROFILE-VERSION0-01", "PROFILE-CORE-05", told=race[:2],
               expected="the name was free: one creator makes the table", observed="none did")  # fmt: skip
    first = won[0].answer
    assert isinstance(first, Ratified)
    table = s.created(TABLE, won[0], first)
    s.require(len(won) == 1, *ONE, told=won[:2], table=table, version=0,
              expected=f"of {len(race)} creators of one table one succeeds",
              observed=f"{len(won)} were told so")  # fmt: skip
    for told in race:
        if told is not won[0]:
            lost(s, table, told, won[0])
    return table, won[0]


def lost(s: Scenario, table: TableHandle, told: Told, won: Told) -> None:
    """Another creator was first."""
    answer = s.expect(told, (Conflict, Rejected), *ONE, because=(won,),
                      expected="the table was created by another: this creator is not told that it did")  # fmt: skip
    if isinstance(answer, Conflict) and answer.winner_table is not None:
        s.require(answer.winner_table == table.reference, "MC-CREATE-02", "PROFILE-CORE-05", told=(told, won),
                  table=table, version=0, expected=f"the table that has the name is {table.reference}",
                  observed=f"the conflict names {answer.winner_table}")  # fmt: skip


def is_the_winners(s: Scenario, table: TableHandle, won: Told, *others: Told) -> None:
    """Version 0, if it is published, is the winner's."""
    assert isinstance(won.request, CreateTable)
    found = s.published(table).get(0)
    if found is not None:
        s.require(proposals.attempt_of(found) == won.request.attempt, *ONE, told=(won, *others), table=table, version=0,
                  expected=f"version 0 is the commit of attempt {won.request.attempt}, which won",
                  observed=f"it is that of {proposals.attempt_of(found)}")  # fmt: skip


@check(Family.VERSION_0, *RACE)
def of_two_creators_of_one_table_one_wins(s: Scenario) -> None:
    """Two creators propose version 0 under the same name. The second one is not told that it made the table; version 0
    is the first one's, and both can commit version 1 to it."""
    first = s.ask("first", s.creation(TABLE))
    second = s.ask("second", s.creation(TABLE))
    table, won = one_creator(s, (first, second))
    is_the_winners(s, table, won, second)
    s.land(table, client="second")
    s.land(table, client="first")


@check(Family.VERSION_0, "PROFILE-CORE-04", needs=(Profile.VERSION_0_BY_OWNER,))
def a_lost_creation_is_a_conflict(s: Scenario) -> None:
    """A creator whose name was taken by another is told of a conflict, so that it goes on with the table that is there
    instead of failing."""
    table = s.create(TABLE)
    for _ in range(TRIES):
        told = s.ask("second", s.creation(TABLE))
        if not isinstance(told.answer, Rejected):
            break
    s.expect(told, Conflict, *(ONE if isinstance(told.answer, Ratified) else ()), "PROFILE-CORE-04",
             expected="the table is there already, made by another: a conflict")  # fmt: skip
    s.land(table, client="second")


@check(Family.VERSION_0, *RACE)
def of_five_creators_at_once_one_wins(s: Scenario) -> None:
    """Five creators send their proposals before any of them arrives, and the last one that was sent arrives first. One
    makes the table, four do not; its version 0 is the winner's."""
    sent = [s.delay(f"creator {number}", s.creation(TABLE)) for number in range(1, 6)]
    race = [s.deliver(delayed) for delayed in reversed(sent)]
    table, won = one_creator(s, race)
    is_the_winners(s, table, won)
    s.land(table)


@check(Family.VERSION_0, *RACE)
def a_creation_that_arrives_late_changes_nothing(s: Scenario) -> None:
    """A creation is delayed on its way until another creator has made the table, and a writer has committed to it
    twice. When it arrives it makes no table, and replaces nothing."""
    late = s.delay("slow", s.creation(TABLE))
    first = s.ask("fast", s.creation(TABLE))
    table, won = one_creator(s, (first,))
    for _ in range(2):
        s.land(table)
    told = s.deliver(late)
    lost(s, table, told, won)
    is_the_winners(s, table, won, told)
    s.land(table)


@check(Family.VERSION_0, *RACE)
def a_creator_that_never_heard_of_it_made_the_table(s: Scenario) -> None:
    """The first creator's answer is lost. The table is made all the same: a second creator does not make it, and finds
    the first one's version 0."""
    sent = s.lose("unlucky", s.creation(TABLE))
    told = s.ask("second", s.creation(TABLE))
    if isinstance(sent.answer, Ratified):
        table = s.created(TABLE, sent, sent.answer)
        lost(s, table, told, sent)
        is_the_winners(s, table, sent, told)
        s.land(table, client="second")


@check(Family.VERSION_0, *ONE, "PROFILE-RETRY-01", "PROFILE-CORE-06")
def a_creation_that_is_sent_again_makes_no_second_table(s: Scenario) -> None:
    """A creator sends the same proposal again, at once and after a commit. Whatever it is answered, there is one table:
    where replays are ratified, the answer names the same one, and version 0 stays what it is."""
    request = s.creation(TABLE)
    table, won = one_creator(s, (s.ask("creator", request),))
    for commits in (0, 1):
        for _ in range(commits):
            s.land(table)
        again = s.ask("creator", request)
        answer = s.expect(again, (Ratified, Conflict, Rejected), "PROFILE-CORE-06", expected="the same table, or none")
        if isinstance(answer, Ratified):
            s.require((answer.table, answer.version) == (table.reference, 0), *ONE, "PROFILE-CORE-06",
                      told=(won, again), table=table, version=0,
                      expected=f"the attempt made the table {table.reference}, and no other",
                      observed=f"version {answer.version} of {answer.table}")  # fmt: skip
        elif isinstance(answer, Conflict) and "idempotent-retry" in s.identity.profiles:
            s.fail("PROFILE-RETRY-01", told=(again, won), table=table, version=0,
                   expected="the attempt is version 0: it is ratified whenever it is sent again",
                   observed="a conflict")  # fmt: skip
        is_the_winners(s, table, won, again)
    seen = reads.ask(s, table)
    s.require(seen.latest is None or seen.latest <= 1, "PROFILE-CORE-06", told=(seen.told,), table=table,
              expected="version 1 is the latest: nothing was applied twice",
              observed=f"version {seen.latest} is")  # fmt: skip


@check(Family.VERSION_0, *RACE)
def a_loser_that_wanted_another_commit_mode_gets_what_is_there(s: Scenario) -> None:
    """The second creator wants the table to be committed to in another way. It loses like any other, and the table is
    what the first one made: commits go on in its way."""
    others = [
        commit_mode
        for commit_mode in COMMIT_MODES
        if commit_mode in s.identity.commit_modes.get(s.feature, ()) and commit_mode != s.commit_mode
    ]
    first = s.ask("first", s.creation(TABLE))
    wanted = s.creation(TABLE)
    second = s.ask("second", replace(wanted, commit_mode=others[0] if others else s.commit_mode))
    table, won = one_creator(s, (first, second))
    if won is not first:
        raise Inconclusive("the first creator was refused, and the second one got what it wanted")
    is_the_winners(s, table, won, second)
    s.land(table, client="first")
    s.land(table, client="second")
    s.backfill(table, 2)
    s.published(table)


@check(Family.VERSION_0, *RACE)
def a_loser_that_wanted_another_feature_changes_nothing(s: Scenario) -> None:
    """The second creator wants a table of the other feature under the same name. It loses, and the table keeps the
    protocol of the first one's version 0."""
    other = next(
        (each for each in s.identity.features if each != s.feature and s.identity.commit_modes.get(each)), None
    )
    first = s.ask("first", s.creation(TABLE))
    wanted = s.creation(TABLE)
    if other is not None:
        actions = proposals.version_0(other, wanted.attempt, s.attempt(), timestamp=s.timestamp(0))
        wanted = replace(wanted, feature=other, commit_mode=s.identity.commit_modes[other][0], actions=actions)
    second = s.ask("second", wanted)
    table, won = one_creator(s, (first, second))
    if won is not first:
        raise Inconclusive("the first creator was refused, and the second one got what it wanted")
    is_the_winners(s, table, won, second)
    s.land(table)


@check(Family.VERSION_0, "MC-API-03", "CM-CATALOG-03", "PROFILE-VERSION0-01")
def creators_of_different_tables_are_in_nobodys_way(s: Scenario) -> None:
    """Three creators make three tables at the same time. All succeed, each table has its own version 0, and what is
    committed to one is not in another."""
    names = ("orders", "order", "orders2")
    sent = [s.delay(f"creator of {name}", s.creation(name)) for name in names]
    for name, delayed in reversed(list(zip(names, sent, strict=True))):
        told = s.deliver(delayed)
        ratified = s.expect(told, Ratified, "PROFILE-VERSION0-01", "MC-API-03", "CM-CATALOG-03", may_refuse=True,
                            expected="nobody else wants that name: the table is made")  # fmt: skip
        table = s.created(name, told, ratified)
        is_the_winners(s, table, told)
    references = {table.reference for table in s.tables}
    s.require(len(references) == len(names), "MC-API-03", "CM-CATALOG-03", expected="three tables",
              observed=f"{sorted(references)}")  # fmt: skip
    s.land(s.tables[0])
