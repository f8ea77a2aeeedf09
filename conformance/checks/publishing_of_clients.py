"""Clients that publish commits themselves, where they may."""

from __future__ import annotations

import os
from pathlib import Path

from conformance.checks.registry import Family, check
from conformance.interface import messages as m
from conformance.models.storage import LOG
from conformance.requirements.catalogue import Profile
from conformance.scenario.client import ClientScenario, file_name

LONG_AGO = 1_500_000_000_000
"""ms since the epoch: a modification time that no file gets by being written."""


@check(
    Family.BACKFILL, "MC-RELEASE-09", side="client", needs=(Profile.OWNERSHIP_TRANSFER,), features=("managedCommit",),
    commit_modes=("staged",),
)  # fmt: skip
def what_is_published_is_not_published_again(s: ClientScenario) -> None:
    """A client gives back a table that has unbackfilled commits, and is told of them; then the owner backfills them. A
    client that publishes them itself too leaves the files that are there as they are."""
    table = s.create()
    s.land(table)
    s.land(table)
    files = [Path(s.location(table)) / LOG / file_name(version) for version in (1, 2)]

    def publish() -> None:
        s.backfill(table, 2)
        for file in files:
            os.utime(file, ns=(LONG_AGO * 1_000_000, LONG_AGO * 1_000_000))

    s.owner.on(m.GetCommits, after=publish)
    request = m.HandBack(table=s.name_of(table), version=3, attempt=s.attempt(), actions=())
    told = s.act("migrator", request, table)
    s.expect(told, m.Ratified, "PROFILE-CLIENT-02", may_refuse=True, expected="the owner gives the table back")
    table.ownership.append(request.attempt)
    table.versions = 4
    written = [file.name for file in files if file.exists() and file.stat().st_mtime_ns // 1_000_000 > LONG_AGO]
    s.require(
        not written, "MC-RELEASE-09", told=(told,),
        expected="versions 1 and 2 are published already: whoever puts a commit there if it is absent changes nothing",
        observed=f"{', '.join(written)} were written again",
    )  # fmt: skip
