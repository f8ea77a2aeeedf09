"""Writes of many tasks: all of a write is one commit, or none of it is.

delayed-commit-protocol: tasks write files, and tell the driver of them; the driver commits them together. Nobody sees
the tasks here. What they must not do shows in the log, and in what is proposed.
"""

from __future__ import annotations

import json
from functools import partial

from conformance.checks.conflicts import prepare, removed, win
from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.interface.messages import DataFile, Transact
from conformance.scenario.audit import Proposed
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TableHandle, Told
from conformance.scenario.words import in_words

FILES = ("one", "two", "three")
"""What the tasks of a write wrote."""
MOST_VERSIONS = 5
"""More than any of these tables gets."""


def of_the_write(s: ClientScenario, table: TableHandle) -> list[str]:
    """Files of the write that commits of the table add, published or not."""
    added = [body["path"] for version in range(MOST_VERSIONS) for body in s.actions_of(table, version, "add")]
    return sorted(set(FILES) & {s.decoded(path) for path in added})


def in_proposal(s: ClientScenario, proposed: Proposed) -> list[str]:
    """Files of the write that a proposal adds."""
    bodies = [json.loads(line).get("add") for line in proposed.lines or ()]
    return sorted(set(FILES) & {s.decoded(body["path"]) for body in bodies if body})


def write(s: ClientScenario, table: TableHandle, *, removes: tuple[str, ...] = (), base: int | None = None) -> Told:
    """One transaction with the files of all tasks."""
    adds = tuple(DataFile(path=path) for path in FILES)
    request = Transact(table=s.name_of(table), marker=s.attempt(), adds=adds, removes=removes, read_version=base)
    return s.act("writer", request)


@check(Family.WRITING, "DELAYED-01", "DELAYED-03", "DELAYED-02", "DELAYED-10", side="client")
def nothing_of_a_write_is_in_the_log_before_all_of_it(s: ClientScenario) -> None:
    """A write of three tasks loses a race and is proposed again: until all of it is ratified the log names none of its
    files, and whatever is proposed has all of them."""
    table = s.create()
    early: list[str] = []
    s.owner.on(m.Commit, before=partial(s.ask, "winner", s.proposal(table, 1)))
    s.owner.on(m.Commit, before=lambda: early.extend(of_the_write(s, table)), times=10)
    told = write(s, table)
    s.require(
        not early, "DELAYED-01", "DELAYED-03", told=(told,),
        expected="while the driver still proposes something, nothing of the write is in the log",
        observed=f"the log had {sorted(set(early))}",
    )  # fmt: skip
    for proposed in s.proposed:
        named = in_proposal(s, proposed)
        s.require(
            not named or len(named) == len(FILES), "DELAYED-03", "DELAYED-02", "DELAYED-10", told=(told,),
            expected=f"the driver proposes when all tasks have succeeded: {', '.join(FILES)} together",
            observed=f"{proposed.named()} has only {', '.join(named)}",
        )  # fmt: skip
    done = s.expect(told, m.Committed, "PROFILE-CLIENT-02", expected="a blind append that lost one race: version 2")
    s.require(done.version == 2, "PROFILE-CLIENT-02", told=(told,), expected="version 2", observed=in_words(done))
    table.versions = 3


@check(Family.WRITING, "DELAYED-11", "CONFLICT-CHECK-02", side="client")
def an_aborted_write_leaves_no_commit(s: ClientScenario) -> None:
    """A write that conflicts, and one that the owner refuses, end with an error: no commit names a file of theirs. The
    same write lands where nothing is in its way."""
    table = prepare(s)
    winner = win(s, table, [removed(s, "a")])
    conflicting = write(s, table, removes=("a",), base=1)
    _left_nothing(s, table, conflicting, winner, why="another transaction removed the file that it removes")
    refusing = s.owner.on(m.Commit, answer=m.Rejected(reason="not today"), times=100_000)
    refused = write(s, table)
    _left_nothing(s, table, refused, why="the owner refused it")
    refusing.times = 0
    again = write(s, table)
    s.expect(again, m.Committed, "PROFILE-CLIENT-02", expected="nothing stands in the way: version 3")
    table.versions = 4


def _left_nothing(s: ClientScenario, table: TableHandle, told: Told, *because: Told, why: str) -> None:
    expected = f"{why}: the write ends with an error, and no commit names a file of it"
    s.require(
        isinstance(told.answer, m.Conflict | m.Rejected), "CONFLICT-CHECK-02", told=(told, *because),
        expected=expected, observed=in_words(told.answer),
    )  # fmt: skip
    found = of_the_write(s, table)
    s.require(
        not found, "DELAYED-11", "CONFLICT-CHECK-02", told=(told, *because), expected=expected,
        observed=f"the log names {found}",
    )  # fmt: skip


@check(Family.WRITING, "DELAYED-05", "DELAYED-02", side="client")
def a_file_outside_the_table_is_refused_or_leads_there(s: ClientScenario) -> None:
    """A write with a file outside the table's folder is refused as a whole, or its path leads there; a write without
    such a file lands."""
    table = s.create()
    outside = "/elsewhere/one.parquet"
    adds = (DataFile(path="inside"), DataFile(path=outside))
    told = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=adds))
    if isinstance(told.answer, m.Committed):
        found = [s.decoded(body["path"]) for body in s.actions_of(table, 1, "add")]
        s.require(
            len(found) == 2 and any(path.removeprefix("file://") == outside for path in found), "DELAYED-05",
            told=(told,), expected=f"two files, one of them at {outside}", observed=f"version 1 adds {found}",
        )  # fmt: skip
        table.versions = 2
    after = s.act("writer", Transact(table=s.name_of(table), marker=s.attempt(), adds=(DataFile(path="inside-too"),)))
    done = s.expect(after, m.Committed, "PROFILE-CLIENT-02", expected=f"version {table.versions}")
    s.require(
        done.version == table.versions, "DELAYED-02", "PROFILE-CLIENT-02", told=(after, told),
        expected=f"what was refused left no commit: version {table.versions}", observed=in_words(done),
    )  # fmt: skip
    table.versions += 1
