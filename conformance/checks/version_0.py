"""Races on version 0: one of several creators of a table succeeds.

The variations: the creators (two, five, the same one again, one without an answer), the order in which their requests
arrive, the losers' requests (the same, another commit mode, another feature), and the requests that follow.
managed-commits, "Creating a new managed-commit table"; catalog-managed, "Creating and Dropping Catalog-managed
Tables".

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The course names the others.
"""

from typing import Any

from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

ONE = ("MC-CREATE-02", "CM-COMMIT-08", "MC-COMMIT-02")


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
MADE = ("MC-API-03", "CM-CATALOG-03")


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


def names_the_owner(s: Scenario, table: TableHandle, version: int, content: str, *evidence: Exchange) -> None:
    """A table with the feature and without the owner's name is invalid. managed-commits, "Managed Commit
    Enablement"."""
    name = configuration(content).get(OWNER)
    s.require(isinstance(name, str) and name != "", "MC-ENABLE-10", evidence=evidence, table=table, version=version,
              expected=f"the owner adds its name to the metadata of version {version}, as `{OWNER}`",
              observed=f"`{OWNER}` is {'missing' if name is None else repr(name)}")  # fmt: skip


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


@check(Family.VERSION_0, "MC-CREATE-01", needs=(Profile.VERSION_0_BY_OWNER,), features=("managedCommit",))
def version_0_needs_no_backfill(s: Scenario) -> None:
    """Version 0 of a new table is a published commit at once, so that creators with and without the owner meet."""
    table = s.create()
    s.require(
        0 in s.published(table), "MC-CREATE-01", table=table, version=0,
        expected="version 0 is written directly as a backfilled commit",
        observed="a new table has no published version 0",
    )  # fmt: skip
