"""Stale reads: a client that asks the owner gets every commit ratified before, and no other; each range is complete.

Owners may list published commits too. managed-commits, "Getting Un-backfilled Commits from Commit Owner";
catalog-managed, "Getting Ratified Commits from the Catalog".

Ranges have every combination of bounds, and tables are found by name and path between commits. A client under test
reads with an old and a new handle while other writers commit and publish.

Why examples: stored findings name them, or programs find their mutants under other requirements.
"""

from conformance.checks import check, families
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file, staged_file
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import ask, does_without_its_owner, must_read


@check(Family.STALE_READS, *families.READING, *families.COMMITTING, layer=Layer.MODEL)
def any_sequence_of_reads(g: Generation) -> None:
    """Generated reads of every range between commits, publications and restarts: each one shows one fresh state, and
    none is older than an earlier one."""
    g.run(
        OwnerFamily(
            name=g.check.family, factors={"read": 5, "load": 3, "look": 2, "backfill": 2, "resend": 0.5, "together": 2}
        )
    )


@check(Family.STALE_READS, *families.LOGS, layer=Layer.MODEL, side="client")
def any_read_by_the_client(g: Generation) -> None:
    """Generated reads by an old and a new reader, while other writers commit and publish: each one has everything that
    was ratified before, and none is older than an earlier one."""
    factors = {"read": 5, "again": 4, "backfill": 2, "of_readers": 2, "maintain": 0.1, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


# Clients: a reader that asks the owner sees every commit ratified before, wherever its content is

SEEN = ("MC-READ-07", "CM-READ-05")


def table_with(s: ClientScenario, versions: int) -> LogBuilder:
    """A table whose commits add one file each; they are unpublished, except in direct commit mode."""
    log = LogBuilder.create(s)
    for number in range(1, versions + 1):
        log.land(file(f"file-{number}"))
    return log


@check(Family.STALE_READS, "LOG-13", *SEEN, commit_modes=("staged",))
def a_removed_staged_file_was_published(s: ClientScenario) -> None:
    """The owner names a staged file; before the reader opens it, it is published and removed. The reader reads the
    published commit."""
    log = table_with(s, 2)
    must_read(log, 2, *SEEN, expected="version 2 was ratified before the read began")

    def published_and_removed() -> None:
        log.backfill(2)
        log.hide(*log.staged())

    s.owner.after_commits_are_read(published_and_removed)
    must_read(
        log, 2, "LOG-13",
        expected="a staged file is removed only after its commit is published: a reader that does not find it reads "
        "<version>.json instead",
    )  # fmt: skip


@check(Family.STALE_READS, "CM-READ-02", *SEEN, features=("catalogManaged",), commit_modes=("staged",))
def a_commit_that_the_catalog_forgot_is_read_from_the_log(s: ClientScenario) -> None:
    """The catalog lists no published commit, and the staged files of all commits are deleted. The reader reads the
    published commits."""
    log = table_with(s, 2)
    log.backfill(2)
    log.hide(*log.staged())
    must_read(log, 2, "CM-READ-02", *SEEN, expected="versions 1 and 2 are published")


@check(Family.STALE_READS, "CM-FILES-04", "LOG-17", *SEEN, features=("catalogManaged",), commit_modes=("staged",))
def a_staged_file_beside_a_published_commit_is_ignored(s: ClientScenario) -> None:
    """The catalog lists no published commit. The only staged file of a published version is that of an attempt that
    lost. The reader reads the published commit."""
    log = table_with(s, 1)
    log.backfill(1)
    log.hide(*log.staged())
    lost = s.attempt()
    content = proposals.content(proposals.append(lost, s.timestamp(1), ["lost"]))
    log.plant(f"{STAGING[s.feature]}/{staged_file(1, lost)}", content.encode())
    must_read(log, 1, "CM-FILES-04", "LOG-17", *SEEN, expected="version 1 is published: the staged file is no commit")


@check(Family.STALE_READS, "LOG-27", *SEEN)
def a_commit_missing_from_the_listing_fails_the_read(s: ClientScenario) -> None:
    """Some storages list new files late. A reader that knows of version 3 from the owner, and does not find it, fails
    instead of reading version 2 as the newest."""
    log = table_with(s, 3)
    log.backfill(3)
    must_read(log, 3, *SEEN, expected="version 3 was ratified before the read began")
    s.owner.after_commits_are_read(lambda: log.hide(commit_file(3)))
    call, _ = ask(log)
    log.restore()
    if not isinstance(call.answer, m.SnapshotRead):
        return
    if does_without_its_owner(s) or (call.answer.stale and s.feature == "managedCommit"):
        raise Inconclusive("the reader did not ask the owner, so it cannot know of version 3")
    s.require(
        call.answer.version == 3, "LOG-27", *SEEN, evidence=(call, log.committed[3]), table=log.table, version=3,
        expected="the owner returned latest version 3, and the listing lacked it: version 3, found in another "
        "way, or an error",
        observed=f"the read returned a snapshot of version {call.answer.version}",
    )  # fmt: skip
