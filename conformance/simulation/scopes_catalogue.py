"""The scopes that are explored to their end, for both table features and every commit mode that each has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.simulation.scopes import (
    TABLE,
    Place,
    Requests,
    Scope,
    Start,
    attempt,
    creation,
    file_of,
    proposal,
    timestamp,
)

Asks = Mapping[str, tuple[m.Request, ...]]

COMMIT_MODES: Final = (
    ("managedCommit", "staged"),
    ("managedCommit", "direct"),
    ("catalogManaged", "staged"),
    ("catalogManaged", "inline"),
    ("catalogManaged", "direct"),
)


def _two_writers(start: Start) -> Asks:
    return {"alice": (proposal(start, 1, 11),), "bob": (proposal(start, 1, 12),)}


def _two_creators_of_a_name(start: Start) -> Asks:
    return {"alice": (creation(start, 11),), "bob": (creation(start, 12),)}


def _two_creators_of_a_file(start: Start) -> Asks:
    path = f"{start.identity.storage}/{TABLE}"
    return {
        "alice": (creation(start, 11, path=path),),
        "bob": (creation(start, 12, name=f"{TABLE}_again", path=path),),
    }


def _writer_backfiller_reader(start: Start) -> Asks:
    return {
        "writer": (proposal(start, 2, 11),),
        "backfiller": (m.BackfillToVersion(table=start.table, version=2),),
        "reader": (m.GetCommits(table=start.table), m.Observe(table=start.table)),
    }


def _looker_then_asker(start: Start) -> Asks:
    return {
        "writer": (proposal(start, 1, 11),),
        "reader": (m.Observe(table=start.table), m.GetCommits(table=start.table)),
    }


def _two_backfillers(start: Start) -> Asks:
    return {
        "alice": (m.BackfillToVersion(table=start.table, version=1),),
        "bob": (m.BackfillToVersion(table=start.table, version=2),),
        "reader": (m.Observe(table=start.table), m.Observe(table=start.table)),
    }


def _resolving_a_delayed_request(start: Start) -> Asks:
    delayed = proposal(start, 1, 11)
    return {
        "network": (delayed,),
        "resolver": (m.AttemptOutcome(table=start.table, attempt=delayed.attempt), proposal(start, 1, 12)),
    }


def _giving_back(start: Start, version: int, number: int) -> m.HandBack:
    own = attempt(number)
    actions = (
        proposals.commit_info(own, timestamp(version), "UNSET TBLPROPERTIES"),
        proposals.protocol(None),
        proposals.metadata(attempt(number + 50), timestamp(version)),
    )
    return m.HandBack(table=start.table, version=version, attempt=own, actions=actions)


def _writer_and_hand_back(start: Start) -> Asks:
    return {"writer": (proposal(start, 2, 11),), "migrator": (_giving_back(start, 2, 12),)}


def _taking_over(start: Start, number: int, name: str) -> m.TakeOver:
    own = attempt(number)
    actions = (
        proposals.commit_info(own, timestamp(1), "SET TBLPROPERTIES"),
        proposals.protocol(start.feature),
        proposals.metadata(attempt(number + 50), timestamp(1)),
    )
    return m.TakeOver(
        path=start.table,
        name=name,
        feature=start.feature,
        commit_mode=start.commit_mode,
        version=1,
        attempt=own,
        actions=actions,
    )


def _filesystem_writer_and_take_over(start: Start) -> Asks:
    actions = proposals.append(attempt(11), timestamp(1))
    plant = m.Plant(table=start.table, file=file_of(1), content=proposals.content(actions), if_absent=True)
    return {"writer": (plant,), "migrator": (_taking_over(start, 12, TABLE),)}


def _two_take_overs(start: Start) -> Asks:
    return {"alice": (_taking_over(start, 11, TABLE),), "bob": (_taking_over(start, 12, f"{TABLE}_again"),)}


def _backfiller_and_client(start: Start) -> Asks:
    return {
        "backfiller": (m.BackfillToVersion(table=start.table, version=1),),
        "reader": (m.Snapshot(table=start.table),),
    }


def _two_transactions(start: Start) -> Asks:
    def appending(number: int) -> m.Transact:
        return m.Transact(table=start.table, marker=attempt(number), adds=(m.DataFile(path=f"{number}.parquet"),))

    return {"alice": (appending(11),), "bob": (appending(12),)}


def _cleanup_and_reader(start: Start) -> Asks:
    return {
        "cleaner": (m.Cleanup(table=start.table, older_than=timestamp(2)),),
        "reader": (m.Snapshot(table=start.table),),
    }


def _published_with_a_checkpoint(start: Start) -> tuple[m.Request, ...]:
    return m.BackfillToVersion(table=start.table, version=3), m.Checkpoint(table=start.table, version=2)


_SCOPES: Final[tuple[tuple[str, str, Requests, Place, int], ...]] = (
    ("two-writers", "two writers of one version", _two_writers, Place.TABLE, 0),
    ("creators-of-a-name", "two creators of one name", _two_creators_of_a_name, Place.NOTHING, 0),
    ("creators-of-a-file", "two creators of one version 0", _two_creators_of_a_file, Place.NOTHING, 0),
    ("backfiller", "a writer, a backfiller, and a reader who asks and then looks", _writer_backfiller_reader,
     Place.TABLE, 1),
    ("looker", "a writer, and a reader who looks and then asks", _looker_then_asker, Place.TABLE, 0),
    ("two-backfillers", "two backfillers, and a reader who looks twice", _two_backfillers, Place.TABLE, 2),
    ("delayed", "an outcome that is resolved while its request is on the way", _resolving_a_delayed_request,
     Place.TABLE, 0),
    ("hand-back", "a writer, and the table is handed back", _writer_and_hand_back, Place.TABLE, 1),
    ("take-over", "a filesystem writer, and the table is taken over", _filesystem_writer_and_take_over,
     Place.FILESYSTEM, 0),
    ("reader", "a backfiller, and a client that reads the table", _backfiller_and_client, Place.TABLE, 1),
    ("transactions", "two clients that append what they can wherever they can", _two_transactions, Place.TABLE, 0),
    ("two-take-overs", "two take-overs of one table", _two_take_overs, Place.FILESYSTEM, 0),
)  # fmt: skip

NAMES: Final = (*(name for name, *_ in _SCOPES), "cleanup")
"""Of the scopes, each of which exists for every table feature and commit mode."""


QUICK: Final = tuple(name for name in NAMES if name not in ("creators-of-a-name", "transactions"))
"""Names of those whose space is small: the others have two thirds of all schedules."""


def scopes(wanted: Callable[[Scope], bool] = lambda _scope: True) -> list[Scope]:
    """Those of the scopes that are wanted, in their order."""
    found = [
        Scope(
            name=name,
            title=title,
            feature=feature,
            commit_mode=commit_mode,
            requests=requests,
            place=place,
            commits=commits,
        )
        for name, title, requests, place, commits in _SCOPES
        for feature, commit_mode in COMMIT_MODES
    ]
    found += [
        Scope(
            name="cleanup",
            title="the log is cleaned up while a reader reads the table",
            feature=feature,
            commit_mode=commit_mode,
            requests=_cleanup_and_reader,
            commits=3,
            prepared=_published_with_a_checkpoint,
        )
        for feature, commit_mode in COMMIT_MODES
    ]
    return [scope for scope in found if wanted(scope)]
