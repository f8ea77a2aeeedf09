"""Readers: how a table is found, and what may be read without its owner."""

from __future__ import annotations

import json

from conformance.checks.reading import APPLIED
from conformance.checks.registry import Family, check
from conformance.checks.stale_reads_of_clients import FRESH, table_with
from conformance.interface import messages as m
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.ownership import drop
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import ask, is_snapshot, must_read, must_refuse, newest_told


@check(Family.READING, "MC-READ-03", "MC-READ-04", "MC-READ-01", "MC-READ-02", "MC-FILES-09", "MC-FILES-10",
       side="client", features=("managedCommit",))  # fmt: skip
def a_path_leads_to_the_published_prefix(s: ClientScenario) -> None:
    """A managedCommit table may be read by its path alone: the snapshot is that of the last published version, with
    nothing of any staged file."""
    log = table_with(s, 2)
    log.backfill(2)
    _read_by_path(log, 2)
    log.land(file("file-3"))
    log.land(file("file-4"))
    _read_by_path(log, log.published)


def _read_by_path(log: LogBuilder, version: int) -> None:
    s = log.s
    told, since = ask(log, path=log.location)
    if isinstance(told.answer, m.Rejected):
        raise Inconclusive(f"operation {told.number}: the reader reads no table by its path: {told.answer.reason}")
    read = s.expect(told, m.SnapshotRead, "MC-READ-04", expected=f"a snapshot of version {version}")
    beyond = max(version, newest_told(s, since))
    s.require(
        read.version <= beyond, "MC-READ-04", "MC-READ-03", told=(told,), table=log.table, version=read.version,
        expected=f"version {version} is the last one that is published: without its owner nobody knows of a later one",
        observed=f"a snapshot of version {read.version}",
    )  # fmt: skip
    s.require(
        read.version >= version, "MC-FILES-09", "MC-READ-04", told=(told,), table=log.table, version=version,
        expected=f"version {version} is published, and a listing shows it", observed=f"version {read.version}",
    )  # fmt: skip
    is_snapshot(log, told, read, "MC-READ-03", "MC-READ-04")


@check(Family.READING, "CM-ACCESS-01", "CM-READ-08", side="client", features=("catalogManaged",))
def a_catalog_managed_table_is_not_read_by_its_path(s: ClientScenario) -> None:
    """Whoever has nothing but the path of a catalog-managed table refuses it: there may be commits that only its
    catalog knows."""
    log = table_with(s, 1)
    log.backfill(1)
    must_read(log, 1, "CM-READ-08", expected="through its catalog the table is read")
    told, since = ask(log, path=log.location)
    if isinstance(told.answer, m.SnapshotRead):
        s.require(
            bool(s.owner.heard[since:]), "CM-ACCESS-01", told=(told,), table=log.table,
            expected="a reader that was given only a path refuses a table whose protocol lists catalogManaged, or asks "
            "its catalog",
            observed=f"a snapshot of version {told.answer.version}, and the catalog was not asked",
        )  # fmt: skip
        is_snapshot(log, told, told.answer, "CM-ACCESS-01")


@check(Family.READING, "CM-READ-08", "PROFILE-CLIENT-01", side="client")
def a_name_leads_to_the_table_that_has_it_now(s: ClientScenario) -> None:
    """A table is found through its owner every time: a name that was dropped is not found, and one that was given to
    a new table leads to that."""
    old = table_with(s, 1)
    must_read(old, 1, "CM-READ-08", expected="the table is found by its name")
    drop(s, old.table)
    must_refuse(old, "CM-READ-08", expected="the table was dropped: its name leads nowhere, though its files are there")
    new = LogBuilder.create(s, in_history="the new orders")
    new.land(file("new-1"))
    new.land(file("new-2"))
    must_read(new, 2, "CM-READ-08", "PROFILE-CLIENT-01",
              expected="the name leads to the new table, wherever the old one was")  # fmt: skip


@check(Family.READING, "CM-CATALOG-06", *APPLIED, side="client", features=("catalogManaged",))
def a_catalog_that_tells_metadata_tells_that_of_the_latest_version(s: ClientScenario) -> None:
    """A catalog may tell the latest protocol and metadata, and a reader may take them from there; for an older version
    they say nothing."""
    log = LogBuilder.create(s, properties={"delta.appendOnly": "false"})
    log.land(_metadata(log, "true"))
    log.land(file("file-2"))
    must_read(log, 2, *APPLIED, *FRESH, about=("properties",),
              expected="the properties of version 2, from its catalog or from its log")  # fmt: skip
    must_read(log, 0, *APPLIED, version=0, about=("properties",),
              expected="the properties of version 0: the catalog's are those of the latest version")  # fmt: skip


def _metadata(log: LogBuilder, append_only: str) -> str:
    body = next(each["metaData"] for each in log.actions[0] if "metaData" in each)
    return json.dumps(
        {"metaData": {**body, "configuration": {**body["configuration"], "delta.appendOnly": append_only}}}
    )
