"""Isolation, and transactions with nothing in them: what a writer may overlook, may leave out, and may not.

The races are those of `conformance.checks.conflicts`. Isolation changes one check only, that of added files.
"""

from __future__ import annotations

from typing import Any

from conformance.checks.conflicts import COMMON, NEW, Race, added, latest_of, prepare, race, removed
from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.interface.messages import DataFile, Isolation, Transact
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TableHandle, Told
from conformance.scenario.words import in_words

REWRITE: dict[str, Any] = {"reads": "*", "removes": ("a", "b"), "adds": NEW}
"""It read the whole table, and replaces all of it."""


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", *COMMON, side="client")
def write_serializable_looks_at_whoever_had_read_something(s: ClientScenario) -> None:
    """Only blind appends may be overlooked under WriteSerializable: files of a winner that had read something
    conflict."""
    race(s, prepare(s), [added(s, "theirs")], isolation=Isolation.WRITE_SERIALIZABLE, **REWRITE).conflicts(
        "CONFLICT-ORDER-08", why="it read the whole table before a transaction that is no blind append added a file"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", *COMMON, side="client")
def whoever_changes_the_metadata_overlooks_no_append(s: ClientScenario) -> None:
    """A transaction that read the whole table and changes its metadata conflicts with a blind append, under
    WriteSerializable too."""
    mine = {**REWRITE, "isolation": Isolation.WRITE_SERIALIZABLE, "set_properties": {"my.property": "1"}}
    race(s, prepare(s), [added(s, "theirs")], blind=True, **mine).conflicts(
        "CONFLICT-ORDER-08", why="it changes the metadata, and read the whole table before a file was added"
    )


@check(Family.CONFLICTS, "CONFLICT-ORDER-08", "CONFLICT-ISOLATION-04", *COMMON, side="client")
def a_new_partitioning_conflicts_with_an_append(s: ClientScenario) -> None:
    """A transaction that partitions the table anew, and replaces all its files, conflicts with a file that was added by
    the old partitioning. Under SnapshotIsolation this is advice."""
    mine = {**REWRITE, "partition_by": ("part",), "adds": (DataFile(path="mine", partition="x"),)}
    why = "the added file has no place in the new partitioning"
    for isolation in (Isolation.SERIALIZABLE, Isolation.WRITE_SERIALIZABLE):
        found = race(s, prepare(s, isolation.value), [added(s, "theirs")], blind=True, isolation=isolation, **mine)
        found.conflicts("CONFLICT-ORDER-08", why=why)
    table = prepare(s, Isolation.SNAPSHOT.value)
    found = race(s, table, [added(s, "theirs")], blind=True, isolation=Isolation.SNAPSHOT, **mine)
    s.require(
        isinstance(found.told.answer, (m.Conflict, m.Rejected)), "CONFLICT-ISOLATION-04",
        told=(found.told, found.winner), expected=f"under SnapshotIsolation too, {why}: a conflict",
        observed=in_words(found.told.answer),
    )  # fmt: skip


@check(Family.CONFLICTS, "CONFLICT-ORDER-09", *COMMON, side="client")
def no_isolation_overlooks_removed_files(s: ClientScenario) -> None:
    """Whatever the isolation, a transaction that read the whole table conflicts with a removal."""
    for isolation in Isolation:
        table = prepare(s, isolation.value)
        mine: dict[str, Any] = {"reads": "*", "removes": ("a",), "adds": NEW, "isolation": isolation}
        race(s, table, [removed(s, "b")], **mine).conflicts(
            "CONFLICT-ORDER-09", why=f"under {isolation.value} too, a file that it read was removed"
        )


@check(Family.CONFLICTS, "CONFLICT-RETRY-05", "CONFLICT-CHECK-02", "PROFILE-CLIENT-02", side="client")
def what_may_be_overlooked_is_a_conflict_or_a_commit(s: ClientScenario) -> None:
    """Blind appends under WriteSerializable, any appends under SnapshotIsolation, and appends beside a transaction that
    only rearranges data: a writer may overlook them or not, and does what it says."""
    races: list[tuple[bool, dict[str, Any]]] = [
        (True, {"isolation": Isolation.WRITE_SERIALIZABLE}),
        (True, {"isolation": Isolation.SNAPSHOT}),
        (False, {"isolation": Isolation.SNAPSHOT}),
        (False, {"data_change": False}),
    ]
    for number, (blind, mine) in enumerate(races):
        _either(race(s, prepare(s, f"table-{number}"), [added(s, "theirs")], blind=blind, **REWRITE, **mine))


def _either(found: Race) -> None:
    if isinstance(found.told.answer, m.Committed):
        found.commits(why="what it overlooked, it may overlook")
    else:
        found.conflicts(why="what it may overlook, it may look at too")


@check(Family.WRITING, "PROFILE-CLIENT-02", side="client")
def a_transaction_with_nothing_in_it_is_one_commit_or_none(s: ClientScenario) -> None:
    """A transaction without any change is an empty commit, or none; the client says which, and goes on."""
    table = s.create()
    for if_needed in (False, True):
        told = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), if_needed=if_needed))
        done = s.expect(told, m.Committed, "PROFILE-CLIENT-02", may_refuse=True, expected="an empty commit, or none")
        table.versions += done.version is not None
        _is(s, table, done, told)
    after = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=NEW))
    done = s.expect(after, m.Committed, "PROFILE-CLIENT-02", expected="nothing stands in the way")
    table.versions += 1
    _is(s, table, done, after)


def _is(s: ClientScenario, table: TableHandle, done: m.Committed, told: Told) -> None:
    """What the client told is so."""
    latest = latest_of(s, table)
    newest = table.versions - 1
    s.require(
        done.version in (None, newest) and latest == newest, "PROFILE-CLIENT-02", told=(told,),
        expected=f"the table's latest version is {newest} after `{done}`", observed=f"it is {latest}",
    )  # fmt: skip
