"""Finding, dropping and re-creating tables.

The variations: by name, by path, a name that nobody gave, one that begins like another; what the resolution tells of
the table when commits wait for their publication; a dropped table that somebody still commits to, by an old reference
or with a request that was on its way; a name that is given again. catalog-managed, "Table Discovery", "Getting Ratified
Commits from the Catalog", "Creating and Dropping Catalog-managed Tables".
"""

from __future__ import annotations

import json
from typing import Any

from conformance.checks.registry import check
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import create_again, drop, restart
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

FOUND = (Profile.DISCOVERY,)
CATALOG = ("catalogManaged",)
NOWHERE = (m.NotFound, m.Rejected)


def load(s: Scenario, table: TableHandle, client: str = "reader", name: str | None = None) -> Exchange:
    """Resolve a table, by its name unless another is given."""
    return s.ask(client, m.LoadTable(name=name or s.physical(table.name)), table)


def found(s: Scenario, table: TableHandle, told: Exchange) -> m.Table:
    """A table that exists was resolved."""
    return s.expect(told, m.Table, "PROFILE-DISCOVERY-01", expected=f"the table {table.name} exists: it is found")


def not_found(s: Scenario, told: Exchange, why: str, because: tuple[Exchange, ...] = ()) -> None:
    """A table that does not exist was resolved."""
    s.expect(told, NOWHERE, "PROFILE-DISCOVERY-01", because=because, expected=f"{why}: nothing is found")


def refused(s: Scenario, table: TableHandle, told: Exchange, dropped: Exchange, *requirements: str) -> None:
    """A commit of a table that was dropped before the owner heard of it."""
    s.require(
        not isinstance(told.answer, m.Ratified), "PROFILE-DISCOVERY-02", *requirements, evidence=(told, dropped),
        table=table, version=getattr(told.request, "version", None),
        expected=f"{table.name} is dropped: it accepts no commit any more",
        observed="a commit to a dropped table was ratified",
    )  # fmt: skip


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-01", needs=FOUND)
def a_table_is_found_by_its_name(s: Scenario) -> None:
    """Each of two tables is found by its name and accepts commits. An unknown name, even one that begins like theirs,
    finds nothing."""
    table, other = s.create("orders"), s.create("items")
    s.land(other)
    for each in (table, other):
        reference = found(s, each, load(s, each)).table
        told = s.ask("reader", m.GetCommits(table=reference), each)
        s.expect(told, m.Commits, "PROFILE-DISCOVERY-01", expected="what was found can be read")
        each.reference = reference
        s.land(each, client="finder")
    for name in (s.physical("order"), s.physical("orders-archive"), s.physical("customers")):
        not_found(s, s.ask("reader", m.LoadTable(name=name)), f"no table is called {name}")


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-01", needs=FOUND)
def a_path_finds_the_table_at_that_path(s: Scenario) -> None:
    """An owner that returns locations may find tables by path; if it does, it is the table at that path and no
    other."""
    table, other = s.create("orders"), s.create("items")
    s.land(other)
    location = found(s, table, load(s, table)).location
    if location is None:
        raise Inconclusive("the owner does not say where its tables are")
    told = s.ask("reader", m.LoadTable(path=location), table)
    if isinstance(told.answer, (*NOWHERE, m.Unsupported)):
        return
    reference = found(s, table, told).table
    sent = s.ask("finder", s.proposal(TableHandle(name="orders", reference=reference, versions=1)), table)
    s.expect(
        sent,
        m.Ratified,
        "PROFILE-DISCOVERY-01",
        may_refuse=True,
        because=(told,),
        expected=f"{location} is the table {table.name}, which has version 0 only: version 1 is free there",
    )
    table.versions = 2
    s.land(table)
    nowhere = s.ask("reader", m.LoadTable(path=f"{location}-elsewhere"))
    s.expect(
        nowhere, (*NOWHERE, m.Unsupported), "PROFILE-DISCOVERY-01", expected="there is no table at that path: not found"
    )


@check(Family.LIFECYCLE, "CM-GET-05", "CM-GET-04", needs=FOUND, features=CATALOG)
def a_resolution_contains_the_commits(s: Scenario) -> None:
    """Resolving a table returns the latest version and all unpublished commits, now and after the next commit."""
    table = s.create()
    for _ in range(2):
        s.land(table)
        told = load(s, table)
        answer = found(s, table, told)
        last = table.versions - 1
        fresh = s.commit_mode != "direct" or Promise.FRESH_DIRECT.value in s.identity.promises
        s.require(
            answer.latest == last or not fresh,
            "CM-GET-05",
            "CM-GET-04",
            evidence=(told,),
            table=table,
            version=last,
            expected=f"the resolution tells that version {last} is the latest",
            observed=f"the resolution returned latest version {answer.latest}",
        )
        listed = {commit.version for commit in answer.commits or ()}
        missing = [v for v in range(table.versions) if v not in listed and v not in s.published(table)]
        s.require(
            answer.commits is not None and not missing,
            "CM-GET-05",
            evidence=(told,),
            table=table,
            version=missing[0] if missing else last,
            expected="the resolution tells the ratified commits, at least those that are not published",
            observed="the resolution returned no commits"
            if answer.commits is None
            else f"the resolution lacks version {missing}",
        )


@check(Family.LIFECYCLE, "CM-DISCOVER-01", needs=FOUND)
def a_resolution_contains_the_table_feature(s: Scenario) -> None:
    """Before it knows the protocol a client learns from the resolution the table feature and the commit mode."""
    table = s.create()
    told = load(s, table)
    answer = found(s, table, told)
    s.require(
        answer.feature == s.feature and answer.commit_mode == s.commit_mode,
        "CM-DISCOVER-01" if s.feature == "catalogManaged" else "PROFILE-DISCOVERY-01",
        evidence=(told,),
        table=table,
        expected=f"{s.feature}, with {s.commit_mode} commits, as the table was created",
        observed=f"the resolution returned {answer.feature}, with {answer.commit_mode} commits",
    )


def _inner(action: str | None, kind: str) -> dict[str, Any]:
    """The body of an action, whether or not its kind stands around it."""
    try:
        parsed = json.loads(action or "{}")
    except ValueError:
        return {}
    body = parsed.get(kind, parsed) if isinstance(parsed, dict) else {}
    return body if isinstance(body, dict) else {}


@check(Family.LIFECYCLE, "CM-CATALOG-05", needs=FOUND, features=CATALOG)
def a_resolution_contains_protocol_and_metadata(s: Scenario) -> None:
    """A catalog should return the protocol and metadata of the latest version, so that clients need not replay the log
    for them; a commit may have changed them."""
    table = s.create()
    told = load(s, table)
    answer = found(s, table, told)
    features = _inner(answer.protocol, "protocol").get("writerFeatures") or ()
    s.require(
        "catalogManaged" in features,
        "CM-CATALOG-05",
        evidence=(told,),
        table=table,
        version=0,
        expected="the protocol of version 0, with the feature `catalogManaged`",
        observed=f"the resolution returned the protocol {answer.protocol}",
    )
    attempt, time = s.attempt(), s.timestamp(1)
    before = _inner(answer.metadata, "metaData")
    had = before.get("configuration") or {}  # what is not changed stays: some of it may be the owner's
    first = (json.loads(line) for line in s.published(table).get(0, "").splitlines())
    logged: dict[str, Any] = next((action["metaData"] for action in first if "metaData" in action), {})
    table_id = before.get("id") or logged.get("id") or s.attempt()  # not every resolution tells the log's id
    changed = proposals.metadata(str(table_id), time, {**had, "kit.changed": "yes"})
    change = s.land(table, attempt=attempt, actions=(proposals.commit_info(attempt, time), changed))
    s.land(table)
    after = load(s, table)
    properties = _inner(found(s, table, after).metadata, "metaData").get("configuration") or {}
    s.require(
        properties.get("kit.changed") == "yes",
        "CM-CATALOG-05",
        evidence=(after, change),
        table=table,
        version=1,
        expected="version 1 set a property: the metadata that the resolution tells has it",
        observed=f"the resolution returned the properties {properties}",
    )


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-01", "PROFILE-DISCOVERY-02", needs=FOUND)
def a_dropped_table_is_gone(s: Scenario) -> None:
    """A dropped table is not found and accepts no commit, neither a new one nor a delayed one. Another table is
    unchanged."""
    table, other = s.create("orders"), s.create("items")
    s.land(table)
    late = s.delay("slow", s.proposal(table, 2))
    dropped = drop(s, table)
    not_found(s, load(s, table), "the table is dropped", (dropped,))
    refused(s, table, s.commit(table, 2, client="other"), dropped)
    refused(s, table, s.deliver(late), dropped)
    found(s, other, load(s, other))
    s.land(other)


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-01", "PROFILE-DISCOVERY-02", needs=FOUND)
def a_reused_name_is_a_new_table(s: Scenario) -> None:
    """The name of a dropped table is free. A new table of that name has its own version 0, without the commits of the
    old table or requests to it."""
    table = s.create()
    s.land(table)
    s.land(table)
    late = s.delay("slow", s.proposal(table, 1))
    dropped = drop(s, table)
    again = create_again(s, table)
    refused(s, table, s.deliver(late), dropped)
    s.land(again)
    told = s.ask("reader", m.LoadTable(name=s.physical(table.name)), again)
    reference = s.expect(told, m.Table, "PROFILE-DISCOVERY-01", expected="the new table is found by the name").table
    s.contend(again, 1, client="other")
    read = s.ask("reader", m.GetCommits(table=reference), again)
    s.expect(read, m.Commits, "PROFILE-DISCOVERY-01", expected="what is found by the name is the new table")
    refused(s, table, s.commit(table, 3), dropped)
    s.land(again)


@check(Family.LIFECYCLE, "PROFILE-CORE-06", needs=(*FOUND, Profile.IDEMPOTENT_RETRY))
def a_duplicated_creation_after_the_drop_is_ignored(s: Scenario) -> None:
    """The network delivers a create request twice, the second time after the table was dropped. It creates no table; a
    new attempt does."""
    created = s.ask("creator", s.creation("orders"))
    table = s.created(
        "orders",
        created,
        s.expect(created, m.Ratified, "PROFILE-VERSION0-01", "PROFILE-CORE-05", may_refuse=True, expected="created"),
    )
    s.land(table)
    dropped = drop(s, table)
    s.lose("creator", created.request, table)
    told = load(s, table)
    s.expect(
        told,
        NOWHERE,
        "PROFILE-CORE-06",
        because=(created, dropped),
        expected="the creation is the one of the table that was dropped: it makes no second one, so nothing is found",
    )
    again = create_again(s, table)
    s.land(again)


@check(Family.LIFECYCLE, "PROFILE-OUTCOME-01", needs=(*FOUND, Profile.ATTEMPT_OUTCOME))
def a_drop_does_not_change_outcomes(s: Scenario) -> None:
    """After a drop the owner may not know the table, or report that an attempt landed; it must not report the landed
    attempt as not landed."""
    table = s.create()
    sent = s.land(table)
    assert isinstance(sent.request, m.Commit)
    question = m.AttemptOutcome(table=table.reference, attempt=sent.request.attempt)
    before = s.ask("writer", question)
    s.expect(before, m.Landed, "PROFILE-OUTCOME-01", because=(sent,), expected="the attempt is version 1: landed")
    drop(s, table)
    after = s.ask("writer", question)
    s.expect(
        after,
        (m.Landed, m.NotFound, m.Rejected),
        "PROFILE-OUTCOME-01",
        because=(before,),
        expected="the attempt landed, and was said to have: a drop does not undo that",
    )


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-02", "PROFILE-DISCOVERY-01", "PROFILE-DURABLE-01",
       needs=(*FOUND, Profile.DURABLE_RESTART))  # fmt: skip
def a_drop_survives_a_restart(s: Scenario) -> None:
    """After a restart a dropped table stays dropped, and other tables stay."""
    table, other = s.create("orders"), s.create("items")
    dropped = drop(s, table)
    restart(s)
    refused(s, table, s.commit(table, 1), dropped, "PROFILE-DISCOVERY-01", "PROFILE-DURABLE-01")
    not_found(s, load(s, table), "the table was dropped before the restart", (dropped,))
    found(s, other, load(s, other))
    s.land(other)
