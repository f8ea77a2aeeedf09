"""Finding, dropping and re-creating tables.

The variations: a table is found by name or by path; a name is unknown, a prefix of another, or spelled differently; a
table is resolved while commits are unpublished; a client reads a dropped table, or commits to it by an old reference or
a delayed request; a name or a path is reused. catalog-managed, "Table Discovery", "Getting Ratified Commits from the
Catalog", "Creating and Dropping Catalog-managed Tables".

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from conformance.checks import check, families
from conformance.checks.backfill import DONE, complete
from conformance.checks.concurrent_writers import create_at, first_file, place
from conformance.interface import messages as m
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario.check import Family
from conformance.scenario.ownership import create_again, drop, restart, taking_over
from conformance.scenario.scenario import Exchange, Scenario, TableHandle, persist


@check(Family.LIFECYCLE, *families.DISCOVERY, *families.OUTCOMES, layer=Layer.MODEL, needs=(Profile.DISCOVERY,))
def any_sequence_of_drops(g: Generation) -> None:
    """Generated drops and re-creations under the same name, with late requests for the old table: none of them reaches
    the new one."""
    g.run(OwnerFamily(name=g.check.family, factors={"recreate": 8, "drop": 4, "load": 4, "unknown": 4, "deliver": 2}))


FOUND = (Profile.DISCOVERY,)
NOWHERE = (m.NotFound, m.Rejected)


def load(s: Scenario, table: TableHandle, client: str = "reader", name: str | None = None) -> Exchange:
    """Resolve a table, by its name unless another is given."""
    return s.ask(client, m.LoadTable(name=name or s.physical(table.name)), table)


def found(s: Scenario, table: TableHandle, call: Exchange) -> m.Table:
    """The answer to the resolution of a table that exists, which must be found."""
    return s.expect(call, m.Table, "PROFILE-DISCOVERY-01", expected=f"the table {table.name} exists: it is found")


def created_if_permitted(s: Scenario, name: str, path: str | None = None) -> tuple[Exchange, TableHandle] | None:
    """Create a table where the owner may reject that for its own reasons. The history does not record a rejection."""
    request = s.creation(name) if path is None else s.creation(name, path=path)
    answer = s.answer("creator", request)
    if not isinstance(answer, m.Ratified):
        return None
    call = s._ended(s.recording.invoke("creator", name, request), request, answer)
    return call, s.created(name, call, answer)


def leads_to(s: Scenario, table: TableHandle, call: Exchange, why: str) -> None:
    """The resolution returned this table and no other: the reference accepts the table's next version."""
    reference = found(s, table, call).table
    alias = TableHandle(name=table.name, reference=reference, versions=table.versions)
    sent = persist(lambda: s.ask("finder", s.proposal(alias), table))
    s.expect(
        sent, m.Ratified, "PROFILE-DISCOVERY-01", may_refuse=True, because=(call,),
        expected=f"{why} is the table {table.name}, whose next version is {table.versions}",
    )  # fmt: skip
    table.versions += 1


def not_found(s: Scenario, call: Exchange, why: str, because: tuple[Exchange, ...] = ()) -> None:
    """The resolution of a table that does not exist: nothing may be found."""
    s.expect(call, NOWHERE, "PROFILE-DISCOVERY-01", because=because, expected=f"{why}: nothing is found",
             what="the resolution of a table that does not exist")  # fmt: skip


def refused(s: Scenario, table: TableHandle, call: Exchange, dropped: Exchange, *requirements: str) -> None:
    """A commit that arrived after its table was dropped: the owner may not ratify it."""
    s.require(
        not isinstance(call.answer, m.Ratified), "PROFILE-DISCOVERY-02", *requirements, evidence=(call, dropped),
        table=table, version=getattr(call.request, "version", None),
        expected=f"{table.name} was dropped: it accepts no more commits",
        observed="a commit to a dropped table was ratified",
    )  # fmt: skip


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-01", "MC-CONVERT-02", "MC-CONVERT-05", "MC-CREATE-02",
       needs=(*FOUND, Profile.VERSION_0_BY_FILESYSTEM, Profile.STORAGE_ACCESS))  # fmt: skip
def spellings_of_a_path_are_one_folder_or_two(s: Scenario) -> None:
    """A table is at a path with a space. The path with `%20`, or with a `/` at its end, may be one folder: then the
    owner neither creates nor takes over a table there. Or it is another folder, and each path finds its own table."""
    path = place(s, "a b")
    made = create_at(s, path, "first")
    table = s.created("first", made, s.expect(made, m.Ratified, "PROFILE-VERSION0-01", may_refuse=True,
                                            expected="the location is empty: the table is created"))  # fmt: skip
    tables = [(path, table)]
    for name, other in (("twin", path.replace(" ", "%20")), ("third", f"{path}/")):
        one_folder = first_file(s, other) is not None
        if Profile.OWNERSHIP_TRANSFER.value in s.identity.profiles:
            handle = TableHandle(name=name, reference=other, versions=1, path=other)
            taken = s.ask("migrator", taking_over(s, handle), table if one_folder else handle)
            s.expect(
                taken, (m.Gap, m.Conflict, *NOWHERE), "MC-CONVERT-02", "MC-CONVERT-05", "PROFILE-TRANSFER-01",
                because=(made,), expected=f"{other} is the folder of an owned table, or has no table",
                what="the take-over of an owned table by another spelling of its path",
            )  # fmt: skip
        if (created := created_if_permitted(s, name, other)) is not None:
            call, twin = created
            s.require(
                not one_folder, "MC-CREATE-02", "PROFILE-VERSION0-01", evidence=(made, call), table=table, version=0,
                expected=f"{other} is the folder of {table.name}: no other table is created there",
                observed="two tables were created in one folder",
            )  # fmt: skip
            s.land_all(twin, 2)
            tables.append((other, twin))
    for where, at_path in tables:
        if isinstance(located := load(s, at_path).answer, m.Table) and located.location == where:
            call = s.ask("reader", m.LoadTable(path=where), at_path)
            if not isinstance(call.answer, (*NOWHERE, m.Unsupported)):
                leads_to(s, at_path, call, where)


def _inner(action: str | None, kind: str) -> dict[str, Any]:
    """The body of an action, with or without its kind as the outer key."""
    try:
        parsed = json.loads(action or "{}")
    except ValueError:
        return {}
    body = parsed.get(kind, parsed) if isinstance(parsed, dict) else {}
    return body if isinstance(body, dict) else {}


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-03", "CM-CATALOG-05", needs=FOUND)
def a_resolution_contains_protocol_and_metadata(s: Scenario) -> None:
    """A catalog should return the protocol and metadata of the latest version, so that clients need not replay the log
    for them. They are those of the latest version, also after a commit changed them, after another one lost its
    version, and after a restart."""
    table = s.create()
    call = load(s, table)
    answer = found(s, table, call)
    features = _inner(answer.protocol, "protocol").get("writerFeatures") or ()
    if s.feature == "catalogManaged":
        s.require(
            "catalogManaged" in features, "CM-CATALOG-05", evidence=(call,), table=table, version=0,
            expected="the protocol of version 0, with the feature `catalogManaged`",
            observed=f"the protocol of the resolution is {answer.protocol or 'missing'}",
        )  # fmt: skip
    attempt, time = s.attempt(), s.timestamp(1)
    before = _inner(answer.metadata, "metaData")
    had = before.get("configuration") or {}  # the other properties stay: some may be the owner's
    logged = proposals.body_of(s.published(table).get(0, ""), "metaData") or {}
    table_id = before.get("id") or logged.get("id") or s.attempt()  # not every resolution has the id in the log
    changed = proposals.metadata(str(table_id), time, {**had, "kit.changed": "yes"})
    change = s.land(table, attempt=attempt, actions=(proposals.commit_info(attempt, time), changed))
    resolves_to(s, table, change, "metaData", "kit.changed")
    attempt = s.attempt()
    lost = proposals.metadata(str(table_id), time, {**had, "kit.lost": "yes"})
    s.contend(table, 1, client="loser", attempt=attempt, actions=(proposals.commit_info(attempt, time), lost))
    s.land(table)
    resolves_to(s, table, change, "metaData", "kit.changed")
    attempt, time = s.attempt(), s.timestamp(3)
    # The owner may have added features; not every resolution has the whole protocol.
    current = (proposals.body_of(s.published(table).get(0, ""), "protocol") or {}, _inner(answer.protocol, "protocol"))
    protocol = next((body for body in current if body.get("writerFeatures")), None)
    protocol = protocol or json.loads(proposals.protocol(s.feature))["protocol"]
    protocol["writerFeatures"] = [*protocol["writerFeatures"], "appendOnly"]
    actions = (proposals.commit_info(attempt, time), proposals.line("protocol", protocol))
    upgrade = s.land(table, attempt=attempt, actions=actions)
    resolves_to(s, table, upgrade, "protocol", "appendOnly")
    if Profile.DURABLE_RESTART.value in s.identity.profiles:
        restart(s)
        resolves_to(s, table, change, "metaData", "kit.changed")
        resolves_to(s, table, upgrade, "protocol", "appendOnly")


def resolves_to(
    s: Scenario, table: TableHandle, change: Exchange, kind: str, changed: str, value: object = None
) -> None:  # fmt: skip
    """If the resolution has that action, it contains the change: a property or a feature, or the `value` of a field,
    which it may omit. Only a catalog should return the action."""
    after = load(s, table)
    answer = found(s, table, after)
    action = answer.metadata if kind == "metaData" else answer.protocol
    assert isinstance(change.request, m.Commit | m.TakeOver)
    if answer.latest is None or answer.latest < change.request.version or (
        action is None and s.feature != "catalogManaged"
    ):  # fmt: skip
        return
    body = _inner(action, kind)
    changes = body.get("configuration") or body.get("writerFeatures") or ()
    s.require(
        changed in changes if value is None else body.get(changed, value) == value,
        *(("PROFILE-DISCOVERY-03",) if action is not None else ()), "CM-CATALOG-05",
        evidence=(after, change), table=table, version=change.request.version,
        expected=f"version {change.request.version} set `{changed}`: the {kind} of the resolution has it",
        observed=f"the {kind} in the resolution of version {answer.latest} has {body.get(changed, 'no')} `{changed}`"
        if action else f"the resolution of version {answer.latest} has no {kind}",
    )  # fmt: skip


def keeps(s: Scenario, table: TableHandle, files: dict[int, str], *because: Exchange) -> None:
    """This table still has its published commits after another table was dropped."""
    now = s.published(table)
    lost = [version for version, content in files.items() if now.get(version) != content]
    s.require(
        not lost, "MC-FILES-08", "CM-FILES-07", evidence=because, table=table, version=0,
        expected=f"another table was dropped: the files of {table.name} stay",
        observed=f"published versions {lost} of {table.name} changed or disappeared",
    )  # fmt: skip


@check(Family.LIFECYCLE, "PROFILE-DISCOVERY-04", needs=FOUND)
def commits_of_a_dropped_table_are_not_listed(s: Scenario) -> None:
    """A reader that still has the reference of a dropped table should get an error, not the commits."""
    table = s.create()
    s.land(table)
    dropped = drop(s, table)
    call = s.ask("reader", m.GetCommits(table=table.reference))
    s.expect(
        call, (*NOWHERE, m.Unsupported), "PROFILE-DISCOVERY-04", because=(dropped,),
        expected=f"{table.name} is dropped: its commits are not listed",
    )  # fmt: skip


@check(Family.LIFECYCLE, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-OUTCOME-01", "MC-FILES-08", "CM-FILES-07",
       *DONE, needs=FOUND)  # fmt: skip
def a_reused_name_shares_nothing_with_the_dropped_table(s: Scenario) -> None:
    """A published table is dropped, and another is created with its name. The attempts of the old table have not landed
    in the new one, which keeps its files and publishes its own commits."""
    table = s.create()
    sent = s.land_all(table, 2)
    s.ask_to_backfill(table, 2)
    dropped = drop(s, table)
    shares_nothing(s, create_again(s, table), sent, dropped)


@check(Family.LIFECYCLE, "MC-COMMIT-02", "CM-COMMIT-08", "PROFILE-OUTCOME-01", "MC-FILES-08", "CM-FILES-07",
       *DONE, needs=(*FOUND, Profile.VERSION_0_BY_FILESYSTEM, Profile.STORAGE_ACCESS))  # fmt: skip
def a_reused_path_shares_nothing_with_the_dropped_table(s: Scenario) -> None:
    """A table is dropped, and another name is created at its path. An owner that kept the files rejects that; otherwise
    the attempts of the old table have not landed in the new one, which keeps its files. Late requests to the old table
    write no file there."""
    path = place(s, "orders")
    made = create_at(s, path, "orders")
    table = s.created("orders", made, s.expect(made, m.Ratified, "PROFILE-VERSION0-01", may_refuse=True,
                                               expected="the location is empty: the table is created"))  # fmt: skip
    sent = s.land_all(table, 2)
    late = s.delay("slow", s.proposal(table, 3))
    s.give_up(late)
    dropped = drop(s, table)
    again = created_if_permitted(s, "returns", path)
    if again is not None:
        refused(s, table, s.deliver(late), dropped)
        s.answer("slow publisher", m.BackfillToVersion(table=table.reference, version=2))
        shares_nothing(s, again[1], sent, dropped)


def shares_nothing(s: Scenario, table: TableHandle, old: Sequence[Exchange], dropped: Exchange) -> None:
    """The old table's attempts are unknown in the new one. `old`: two commits of the dropped table, of which the first
    has a version that the new one has, or the next one."""
    before = s.published(table)
    first, second = (commit.request for commit in old)
    assert isinstance(first, m.Commit) and isinstance(second, m.Commit)
    call = s.ask("writer", msgspec.structs.replace(first, table=table.reference))
    if isinstance(call.answer, m.Ratified):
        landed = {witness.version: witness.attempt for witness in s.log_of(table)}
        s.require(
            landed.get(first.version) == first.attempt, "MC-COMMIT-02", "CM-COMMIT-08",
            evidence=(call, old[0], dropped), table=table, version=first.version,
            expected=f"if ratified in the new table, version {first.version} of it is that attempt",
            observed="an attempt of the old table was answered as ratified in the new one",
        )  # fmt: skip
        table.versions += 1
    if Profile.ATTEMPT_OUTCOME.value in s.identity.profiles:
        lookup = s.ask("writer", m.AttemptOutcome(table=table.reference, attempt=second.attempt))
        s.require(
            not isinstance(lookup.answer, m.Landed), "PROFILE-OUTCOME-01", evidence=(lookup, old[1], dropped),
            table=table,
            expected=f"the attempt is version {second.version} of the old table: it has not landed in the new one",
            observed="an attempt of the old table was reported as landed in the new one",
        )  # fmt: skip
    s.land(table, client="other")
    keeps(s, table, before, dropped, call)
    complete(s, table, s.backfill(table, table.versions - 1))
