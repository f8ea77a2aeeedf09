"""Races on version 0: one of several creators of a table succeeds.

The variations: the creators (two, five, the same one again, one without an answer), the order in which their requests
arrive, the losers' requests (the same, another commit mode, another feature), and the requests that follow.
managed-commits, "Creating a new managed-commit table"; catalog-managed, "Creating and Dropping Catalog-managed
Tables".
"""

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from conformance.adapters.identity import COMMIT_MODES
from conformance.checks import check
from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.models import proposals
from conformance.oracle.contents import without_additions
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.ownership import write_file
from conformance.scenario.scenario import TRIES, Exchange, Inconclusive, Scenario, TableHandle, persist

ONE = ("MC-CREATE-02", "CM-COMMIT-08", "MC-COMMIT-02")
RACE = (*ONE, "PROFILE-CORE-04", "PROFILE-VERSION0-01")
TABLE = "orders"


def one_creator(s: Scenario, race: Sequence[Exchange]) -> tuple[TableHandle, Exchange]:
    """The table, and the winner among its creators. The owner may reject some for other reasons, but not all."""
    won = [call for call in race if isinstance(call.answer, m.Ratified)]
    if not won:
        if any(isinstance(call.answer, m.Rejected | m.Unknown) for call in race):
            raise Inconclusive("no create request was ratified; some were rejected, which the specification permits")
        s.fail("PROFILE-VERSION0-01", "PROFILE-CORE-05", evidence=race[:2],
               expected="the name was free: one creator makes the table",
               observed="no create request was ratified")  # fmt: skip
    first = won[0].answer
    assert isinstance(first, m.Ratified)
    table = s.created(TABLE, won[0], first)
    s.require(len(won) == 1, *ONE, evidence=won[:2], table=table, version=0,
              expected=f"exactly one of {len(race)} creators of one table succeeds",
              observed=f"{len(won)} create requests were ratified")  # fmt: skip
    for call in race:
        if call is not won[0]:
            lost(s, table, call, won[0])
    return table, won[0]


def lost(s: Scenario, table: TableHandle, call: Exchange, won: Exchange) -> None:
    """Another creator was first."""
    answer = s.expect(call, (m.Conflict, m.Rejected), *ONE, because=(won,),
                      expected="the table was created by another client: this creator did not create it")  # fmt: skip
    if isinstance(answer, m.Conflict) and answer.winner_table is not None:
        s.require(answer.winner_table == table.reference, "MC-CREATE-02", "PROFILE-CORE-05", evidence=(call, won),
                  table=table, version=0, expected=f"the table of that name is {table.reference}",
                  observed=f"the conflict names {answer.winner_table}")  # fmt: skip


def is_the_winners(s: Scenario, table: TableHandle, won: Exchange, *others: Exchange) -> None:
    """Version 0, if it is published, is the winner's."""
    assert isinstance(won.request, m.CreateTable)
    content = s.published(table).get(0)
    if content is not None:
        s.require(proposals.attempt_of(content) == won.request.attempt, *ONE, evidence=(won, *others), table=table,
                  version=0,
                  expected=f"version 0 is the commit of attempt {won.request.attempt}, which won",
                  observed=f"version 0 is that of {proposals.attempt_of(content)}")  # fmt: skip


@check(Family.VERSION_0, *RACE)
def two_creators_of_one_table_have_one_winner(s: Scenario) -> None:
    """Two creators propose version 0 under one name. The second is not answered as the creator, version 0 is the first
    one's, and both can commit version 1."""
    first = s.ask("first", s.creation(TABLE))
    second = s.ask("second", s.creation(TABLE))
    table, won = one_creator(s, (first, second))
    is_the_winners(s, table, won, second)
    s.land(table, client="second")
    s.land(table, client="first")


@check(Family.VERSION_0, "PROFILE-CORE-04", needs=(Profile.VERSION_0_BY_OWNER,))
def a_lost_creation_is_a_conflict(s: Scenario) -> None:
    """A creator whose name was taken gets a conflict, so that it continues with the existing table instead of
    failing."""
    table = s.create(TABLE)
    call = persist(lambda: s.ask("second", s.creation(TABLE)))
    s.expect(call, m.Conflict, *(ONE if isinstance(call.answer, m.Ratified) else ()), "PROFILE-CORE-04",
             expected="the table exists, created by another client: a conflict")  # fmt: skip
    s.land(table, client="second")


@check(Family.VERSION_0, *RACE)
def five_concurrent_creators_have_one_winner(s: Scenario) -> None:
    """Five creators send proposals before any of them arrives, and the last one sent arrives first. One creates the
    table, and version 0 is its proposal."""
    sent = [s.delay(f"creator {number}", s.creation(TABLE)) for number in range(1, 6)]
    race = [s.deliver(delayed) for delayed in reversed(sent)]
    table, won = one_creator(s, race)
    is_the_winners(s, table, won)
    s.land(table)


@check(Family.VERSION_0, *RACE)
def a_late_creation_changes_nothing(s: Scenario) -> None:
    """A create request is delayed until another creator made the table and a writer committed to it twice. It creates
    no table and replaces nothing."""
    late = s.delay("slow", s.creation(TABLE))
    first = s.ask("fast", s.creation(TABLE))
    table, won = one_creator(s, (first,))
    s.land_all(table, 2)
    call = s.deliver(late)
    lost(s, table, call, won)
    is_the_winners(s, table, won, call)
    s.land(table)


@check(Family.VERSION_0, *RACE)
def a_creation_without_an_answer_counts(s: Scenario) -> None:
    """The answer to the first creator is lost. The table exists: a second creator does not create it, and finds the
    first one's version 0."""
    sent = s.lose("unlucky", s.creation(TABLE))
    call = s.ask("second", s.creation(TABLE))
    if isinstance(sent.answer, m.Ratified):
        table = s.created(TABLE, sent, sent.answer)
        lost(s, table, call, sent)
        is_the_winners(s, table, sent, call)
        s.land(table, client="second")


@check(Family.VERSION_0, *ONE, "PROFILE-RETRY-01", "PROFILE-CORE-06")
def a_repeated_creation_makes_no_second_table(s: Scenario) -> None:
    """A creator repeats its request, at once and after a commit. There is one table: where replays are ratified, the
    answer has the same reference; version 0 is unchanged."""
    request = s.creation(TABLE)
    table, won = one_creator(s, (s.ask("creator", request),))
    for commits in (0, 1):
        for _ in range(commits):
            s.land(table)
        again = s.ask("creator", request)
        answer = s.expect(
            again, (m.Ratified, m.Conflict, m.Rejected), "PROFILE-CORE-06", expected="the same table, or none"
        )
        if isinstance(answer, m.Ratified):
            s.require((answer.table, answer.version) == (table.reference, 0), *ONE, "PROFILE-CORE-06",
                      evidence=(won, again), table=table, version=0,
                      expected=f"the attempt created the table {table.reference}, and no other",
                      observed=f"the replay was answered as version {answer.version} of {answer.table}")  # fmt: skip
        elif isinstance(answer, m.Conflict) and "idempotent-retry" in s.identity.profiles:
            s.fail("PROFILE-RETRY-01", evidence=(again, won), table=table, version=0,
                   expected="the attempt is version 0: every replay is ratified",
                   observed="the creator's own replay was answered `conflict`")  # fmt: skip
        is_the_winners(s, table, won, again)
    seen = reads.ask(s, table)
    s.require(seen.latest is None or seen.latest <= 1, "PROFILE-CORE-06", evidence=(seen.exchange,), table=table,
              expected="version 1 is the latest: nothing was applied twice",
              observed=f"version {seen.latest} is the latest")  # fmt: skip


@check(Family.VERSION_0, *RACE)
def a_losing_creator_does_not_change_the_commit_mode(s: Scenario) -> None:
    """The second creator asks for another commit mode. It loses, and the table keeps the first one's commit mode."""
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
        raise Inconclusive("the first creator was rejected, and the second one succeeded")
    is_the_winners(s, table, won, second)
    s.land(table, client="first")
    s.land(table, client="second")
    s.backfill(table, 2)
    s.published(table)


@check(Family.VERSION_0, *RACE)
def a_losing_creator_does_not_change_the_feature(s: Scenario) -> None:
    """The second creator asks for the other table feature under the same name. It loses, and the table keeps the
    protocol of the first one's version 0."""
    other = next(
        (other for other in s.identity.features if other != s.feature and s.identity.commit_modes.get(other)), None
    )
    first = s.ask("first", s.creation(TABLE))
    wanted = s.creation(TABLE)
    if other is not None:
        actions = proposals.version_0(other, wanted.attempt, s.attempt(), timestamp=s.timestamp(0))
        wanted = replace(wanted, feature=other, commit_mode=s.identity.commit_modes[other][0], actions=actions)
    second = s.ask("second", wanted)
    table, won = one_creator(s, (first, second))
    if won is not first:
        raise Inconclusive("the first creator was rejected, and the second one succeeded")
    is_the_winners(s, table, won, second)
    s.land(table)


@check(Family.VERSION_0, "MC-API-03", "CM-CATALOG-03", "PROFILE-VERSION0-01")
def creators_of_different_tables_do_not_interfere(s: Scenario) -> None:
    """Three creators create three tables concurrently. All succeed, each table has its own version 0, and a commit to
    one is not in another."""
    names = ("orders", "order", "orders2")
    sent = [s.delay(f"creator of {name}", s.creation(name)) for name in names]
    for name, delayed in reversed(list(zip(names, sent, strict=True))):
        call = s.deliver(delayed)
        ratified = s.expect(call, m.Ratified, "PROFILE-VERSION0-01", "MC-API-03", "CM-CATALOG-03", may_refuse=True,
                            expected="the name is free: the table is created")  # fmt: skip
        table = s.created(name, call, ratified)
        is_the_winners(s, table, call)
    references = {table.reference for table in s.tables}
    s.require(len(references) == len(names), "MC-API-03", "CM-CATALOG-03", expected="three tables",
              observed=f"the references are {sorted(references)}")  # fmt: skip
    s.land(s.tables[0])


# Content and location of version 0, and the race with a filesystem creator

OWNER = "delta.managedCommit.commitOwner"
CONF = "delta.managedCommit.commitOwnerConf"
MADE = ("MC-API-03", "CM-CATALOG-03")
RACE_NEEDS = (Profile.VERSION_0_BY_FILESYSTEM, Profile.STORAGE_ACCESS)
IN_PLACE = "PROFILE-VERSION0-03"
ONE_FILE = ("PROFILE-VERSION0-04", "MC-CREATE-02")


def version_0(s: Scenario, table: TableHandle) -> str:
    """The content of version 0, published or listed."""
    content = s.published(table).get(0)
    if content is not None:
        return content
    commit = reads.ask(s, table).commits.get(0)
    if commit is not None and commit.actions is not None:
        return proposals.content(commit.actions)
    files = storage_access.staged(s, table)
    name = "" if commit is None or commit.file_name is None else commit.file_name.rpartition("/")[2]
    s.require(name in files, *MADE, table=table, version=0,
              expected="version 0 is published, or its owner lists it",
              observed=f"the owner lists {commit}")  # fmt: skip
    return files[name]


def configuration(content: str) -> dict[str, Any]:
    """The table's properties, as version 0 sets them."""
    properties = (proposals.body_of(content, "metaData") or {}).get("configuration")
    return properties if isinstance(properties, dict) else {}


@check(Family.VERSION_0, "PROFILE-VERSION0-01", needs=(Profile.VERSION_0_BY_OWNER,))
def an_owner_creates_tables(s: Scenario) -> None:
    """A subject that declares table creation creates one under a free name. Its policies may reject some names, but not
    all."""
    for number in range(TRIES):
        name = f"orders{number}"
        call = s.ask("creator", s.creation(name))
        if not isinstance(call.answer, m.Rejected):
            break
    ratified = s.expect(call, m.Ratified, "PROFILE-VERSION0-01", expected="the name is free: the table is created")
    s.land(s.created(name, call, ratified))


@check(Family.VERSION_0, "PROFILE-VERSION0-02", needs=(Profile.VERSION_0_BY_OWNER,))
def a_new_table_has_version_0(s: Scenario) -> None:
    """The latest version of a new table is 0 for every client, before and after the first commit of another table."""
    table = s.create()
    for reader in ("first", "second"):
        seen = reads.ask(s, table, client=reader)
        s.require(seen.latest == 0, "PROFILE-VERSION0-02", evidence=(seen.exchange,), table=table, version=0,
                  expected="the owner created the table, which has version 0: 0 is the latest version",
                  observed=f"the latest version was returned as {seen.exchange.answer.latest}")  # type: ignore[union-attr]  # fmt: skip
        s.land(s.create(f"other-{reader}"))
    s.land(table)


@check(Family.VERSION_0, "PROFILE-VERSION0-02", needs=(Profile.VERSION_0_BY_OWNER,))
def a_table_without_commits_can_be_read(s: Scenario) -> None:
    """Two new tables have no commit yet. For each reader of each of them 0 is the latest version."""
    for table in (s.create(), s.create("returns")):
        for reader in ("first", "second"):
            seen = reads.ask(s, table, client=reader)
            s.require(seen.latest == 0, "PROFILE-VERSION0-02", evidence=(seen.exchange,), table=table, version=0,
                      expected="the table has no other commit: 0 is the latest version",
                      observed=f"the latest version was returned as {seen.latest}")  # fmt: skip


@check(Family.VERSION_0, *MADE)
def version_0_is_what_the_creator_proposed(s: Scenario) -> None:
    """Version 0 has the proposed commitInfo, protocol, schema and properties. The owner may add properties of its own
    and table features that it requires of all tables, and nothing else."""
    attempt = s.attempt()
    actions = proposals.version_0(s.feature, attempt, s.attempt(), timestamp=s.timestamp(0),
                                  properties={"delta.appendOnly": "false", "purpose": "a test, nothing else"},
                                  partition_columns=("part",))  # fmt: skip
    call, table = s.creating(attempt=attempt, actions=actions)
    is_proposed(s, table, call, 0, actions, version_0(s, table))
    s.land(table)


def is_proposed(
    s: Scenario, table: TableHandle, call: Exchange, version: int, actions: Sequence[str], content: str
) -> None:
    """The commit that made the table the owner's is what was proposed, except for the owner's additions."""
    stored = proposals.lines(content)
    s.require(without_additions(actions, stored) == digests.of_actions(actions), *MADE, evidence=(call,), table=table,
              version=version,
              expected=f"version {version} is what was proposed, except for the owner's permitted additions",
              observed=f"version {version} is {stored}"[:900])  # fmt: skip


@check(Family.VERSION_0, "MC-ENABLE-05", "MC-ENABLE-10", features=("managedCommit",))
def the_owners_name_and_configuration_are_valid(s: Scenario) -> None:
    """Version 0 names the owner. A configuration that the owner stores in the table's properties is a JSON object with
    string values, so that clients can keep it without interpreting it."""
    table = s.create()
    content = version_0(s, table)
    names_the_owner(s, table, 0, content)
    conf = configuration(content).get(CONF)
    if conf is not None:
        s.require(is_a_map_of_strings(conf), "MC-ENABLE-05", table=table, version=0,
                  expected=f"`{CONF}` is a JSON object whose values are strings",
                  observed=f"the configuration is {conf!r}"[:300])  # fmt: skip
    s.land(table)


def names_the_owner(s: Scenario, table: TableHandle, version: int, content: str, *evidence: Exchange) -> None:
    """A table with the feature and without the owner's name is invalid. managed-commits, "Managed Commit
    Enablement"."""
    name = configuration(content).get(OWNER)
    s.require(isinstance(name, str) and name != "", "MC-ENABLE-10", evidence=evidence, table=table, version=version,
              expected=f"the owner adds its name to the metadata of version {version}, as `{OWNER}`",
              observed=f"`{OWNER}` is {'missing' if name is None else repr(name)}")  # fmt: skip


def is_a_map_of_strings(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(isinstance(value, str) for value in parsed.values())


@check(Family.VERSION_0, IN_PLACE, needs=(Profile.VERSION_0_BY_FILESYSTEM,))
def version_0_is_published_at_once(s: Scenario) -> None:
    """Version 0 is written as a published commit at once, where every creator would write it, and has no staged
    file."""
    call, table = s.creating()
    assert isinstance(call.request, m.CreateTable)
    attempt = call.request.attempt
    s.require(0 in s.published(table), IN_PLACE, evidence=(call,), table=table, version=0,
              expected=f"version 0 is published as {commit_file(0)} at once",
              observed="version 0 is not published")  # fmt: skip
    staged = [name for name, content in storage_access.staged(s, table).items() if attempt in name + content]
    s.require(not staged, IN_PLACE, evidence=(call,), table=table, version=0,
              expected="version 0 is not staged", observed=f"the staging folder has {staged}")  # fmt: skip
    s.land(table)


def place(s: Scenario, name: str) -> str:
    """A folder for a table, below the folder to which the kit may write."""
    if s.identity.storage is None:
        raise Inconclusive("the subject declares no folder (`storage`) to which the kit may write")
    return f"{s.identity.storage.rstrip('/')}/{s.physical(name)}"


def create_at(s: Scenario, path: str, name: str) -> Exchange:
    """Create a table at a path. Raises `Inconclusive` if the subject always chooses the location."""
    call = s.ask("creator", s.creation(name, path=path))
    if isinstance(call.answer, m.Unsupported):
        raise Inconclusive(f"operation {call.number}: the subject does not create tables at a given path")
    return call


def first_file(s: Scenario, path: str) -> str | None:
    answer = s.answer("external observer", m.Observe(table=path))
    files = answer.files if isinstance(answer, m.Observation) else ()
    return next((file.content for file in files if file.name == commit_file(0)), None)


@check(Family.VERSION_0, *ONE_FILE, needs=RACE_NEEDS)
def an_earlier_filesystem_table_is_kept(s: Scenario) -> None:
    """A filesystem writer created version 0 at the location before the owner gets the create request. The owner does
    not answer that it created the table, and leaves the file unchanged."""
    path = place(s, "orders")
    table = TableHandle(name="orders", reference=path, versions=0, path=path)
    s.tables.append(table)
    planted, won = write_file(s, table, 0, client="filesystem creator")
    s.require(won, "PROFILE-STORAGE-01", evidence=(planted,), expected="the folder is empty: the file is written",
              observed="put-if-absent of a new file was answered `conflict`")  # fmt: skip
    before = first_file(s, path)
    call = create_at(s, path, "orders")
    stands = first_file(s, path)
    s.require(stands == before, *ONE_FILE, evidence=(planted, call), version=0,
              expected="the file of version 0 that existed first stays unchanged",
              observed="version 0 was deleted" if stands is None else f"version 0 is {stands[:200]}")  # fmt: skip
    s.expect(call, (m.Conflict, m.Rejected), *ONE_FILE, because=(planted,),
             expected="the location has another creator's version 0: this one lost")  # fmt: skip


@check(Family.VERSION_0, *ONE_FILE, needs=RACE_NEEDS)
def a_later_filesystem_creator_loses(s: Scenario) -> None:
    """The owner created a table at a given location. The put-if-absent of a filesystem writer's version 0 fails there,
    and the owner's table accepts commits."""
    path = place(s, "orders")
    call = create_at(s, path, "orders")
    ratified = s.expect(call, m.Ratified, "PROFILE-VERSION0-01", *ONE_FILE, may_refuse=True,
                        expected="the location is empty: the table is created")  # fmt: skip
    table = s.created("orders", call, ratified)
    table.path = path
    planted, won = write_file(s, table, 0, client="filesystem creator")
    s.require(not won, *ONE_FILE, evidence=(call, planted), table=table, version=0,
              expected=f"{commit_file(0)} exists: no other client can create the table",
              observed="a filesystem creator could replace version 0")  # fmt: skip
    s.land(table)


@check(Family.VERSION_0, "MC-CREATE-01", needs=(Profile.VERSION_0_BY_OWNER,), features=("managedCommit",))
def version_0_needs_no_backfill(s: Scenario) -> None:
    """Version 0 of a new table is a published commit at once, so that creators with and without the owner meet."""
    table = s.create()
    s.require(
        0 in s.published(table), "MC-CREATE-01", table=table, version=0,
        expected="version 0 is written directly as a backfilled commit",
        observed="a new table has no published version 0",
    )  # fmt: skip
