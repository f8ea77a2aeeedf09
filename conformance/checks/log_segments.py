"""Readers: checkpoints, compactions, checksums and hints, both usable and unusable ones.

The rules are those of the log, and hold for every owner. Fixtures are made by `LogBuilder`; the expected snapshots are
computed from the actions as they were committed. Every read is that of a new reader, and reads that must fail come
before reads that succeed, because a client may cache what it has read.

Not generated: no program's owner lists an old commit alone, and none has a readable checksum with wrong figures.
"""

from typing import Any

from conformance.adapters.identity import EVERY_TABLE
from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, application, domain, file, gone
from conformance.scenario.snapshots import may_read, must_read, must_refuse, must_report


def history(s: ClientScenario, *, published: int = 4, **options: Any) -> LogBuilder:
    """Five versions in which files are added and removed, an application commits and a domain changes; the last one is
    unpublished, except in direct commit mode."""
    log = LogBuilder.create(s, **options)
    log.readers = 0
    log.land(file("a"), file("b"), application("loader", 1), domain("owners", "first"))
    log.land(gone("a"), file("c"), application("loader", 2))
    log.land(file("d"), domain("owners", "second"))
    log.land(gone("b"), file("a"))
    log.backfill(published)
    return log


@check(Family.READING, "LOG-18")
def a_checkpoint_replaces_listed_commits(s: ClientScenario) -> None:
    """An owner may list an old, published commit. If a later checkpoint contains it, it is not applied again. A reader
    may demand a list that ends at the latest version."""
    log = history(s, published=0)
    listed = s.listed(log.table) or (m.CommitEntry(version=1),)
    log.backfill(4)
    must_read(log, 3, "LOG-18", version=3, expected="all commits exist, and no checkpoint")
    log.checkpoint(3)
    s.owner.override_commits(lambda _, latest: (listed[:1], latest))
    must_read(
        log, 3, "LOG-18", version=3, may_refuse=True,
        expected="the checkpoint of version 3; the owner also lists version 1, which changes nothing",
    )  # fmt: skip
    must_read(log, 4, "LOG-18", may_refuse=True, expected="the checkpoint of version 3, and commit 4")


@check(Family.READING, "LOG-20", "LOG-19", features=EVERY_TABLE)
def one_of_several_checkpoints_of_a_version_is_used(s: ClientScenario) -> None:
    """One version has a checkpoint in two parts and one in three: their parts are not mixed."""
    log = history(s)
    three = log.checkpoint(3, parts=3)
    log.checkpoint(3, parts=2)
    must_read(log, 4, "LOG-20", expected="either checkpoint of version 3, and commit 4")
    log.hide(three[2], *(commit_file(version) for version in range(3)))
    must_read(
        log, 4, "LOG-20", "LOG-19",
        expected="the checkpoint of version 3 in two parts; the other one lacks its third part, and its parts "
        "complete no other one",
    )  # fmt: skip
    log.checkpoint(3)
    must_read(log, 4, "LOG-20", expected="the checkpoint in one file, or the one in two parts")


@check(Family.READING, "LOG-21", features=EVERY_TABLE)
def the_checkpoint_hint_may_be_wrong(s: ClientScenario) -> None:
    """`_last_checkpoint` may name a deleted checkpoint, an older one, or be missing."""
    log = history(s)
    checkpoint = log.checkpoint(3)
    log.hint(3)
    must_read(log, 4, "LOG-18", expected="the hint is right: the checkpoint of version 3, and commit 4")
    log.hide(*checkpoint)
    must_read(log, 4, "LOG-21", expected="the hint names a deleted checkpoint; the commits 0 to 4 exist")
    log.checkpoint(2)
    log.hide(commit_file(0), commit_file(1))
    must_read(log, 4, "LOG-21", expected="the hint names a deleted checkpoint; that of version 2 exists")
    log.plant("_last_checkpoint", b'{"version":')
    must_read(log, 4, "LOG-21", expected="the hint is truncated and cannot be read; the checkpoint of version 2 exists")


@check(Family.READING, "LOG-26", features=EVERY_TABLE)
def a_checksum_mismatch_is_reported(s: ClientScenario) -> None:
    """If the log and the checksum of the requested version differ, the reader reports it by a warning or an error."""
    log = history(s)
    log.checksum(4, numFiles=7, domainMetadata=[])
    must_report(
        log, 4, "LOG-26",
        expected="a warning or an error: the checksum of version 4 counts 7 files and no domain, which differs from "
        "its commits",
    )  # fmt: skip
    log.checksum(4)
    must_read(log, 4, "LOG-25", expected="the checksum of version 4 is right")


@check(Family.READING, "LOG-28", "LOG-38", features=EVERY_TABLE)
def a_malformed_commit_fails_the_read(s: ClientScenario) -> None:
    """A truncated commit, or one that is not JSON, is an error, not a commit without actions and not a missing one. For
    an empty file this is advice, because no document requires it."""
    log = history(s)
    name = commit_file(4)
    whole = (log.folder / name).read_bytes()
    for content, what in ((whole[: len(whole) // 2], "is truncated"), (b"not JSON\n", "is not JSON")):
        log.plant(name, content)
        must_refuse(log, "LOG-28", expected=f"{name} {what}: an error, and not a snapshot without it")
    log.restore()
    must_read(log, 4, "LOG-18", expected="the commit is whole again")
    log.plant(name, b"")
    must_refuse(log, "LOG-38", expected=f"{name} is empty: an error, and not a snapshot without it")
    log.plant(name, b"not JSON\n")
    may_read(log, 3, "LOG-28")


@check(Family.READING, "FIELD-03", features=EVERY_TABLE)
def a_corrupt_checkpoint_is_skipped(s: ClientScenario) -> None:
    """An unreadable checkpoint is skipped where an older one, or the commits, are complete."""
    log = history(s)
    (name,) = log.checkpoint(3)
    whole = (log.folder / name).read_bytes()
    must_read(log, 4, "LOG-18", expected="the checkpoint of version 3, and commit 4")
    for content, what in ((b"", "is empty"), (whole[: len(whole) // 2], "is truncated"), (b"PAR1", "is not Parquet")):
        log.plant(name, content)
        must_read(log, 4, "FIELD-03", expected=f"{name} {what}; the commits 0 to 4 all exist")
    log.checkpoint(1)
    log.hide(commit_file(0))
    must_read(
        log, 4, "FIELD-03", expected=f"{name} is not Parquet; the checkpoint of version 1 and the commits after it"
    )
