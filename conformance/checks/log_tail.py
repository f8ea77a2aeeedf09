"""Stale reads of clients: a reader that asks the owner sees every commit ratified before, wherever its content is."""

from collections.abc import Callable

from conformance.checks import check
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.log_builder import LogBuilder, file
from conformance.scenario.scenario import Inconclusive
from conformance.scenario.snapshots import ask, does_without_its_owner, must_read

FRESH = ("MC-READ-07", "CM-READ-05")
MOST_MOMENTS = 6
"""The number of requests of one read at which the scenario intervenes; it ignores further ones."""


def table_with(s: ClientScenario, versions: int) -> LogBuilder:
    """A table whose commits add one file each; they are unpublished, except in direct commit mode."""
    log = LogBuilder.create(s)
    for number in range(1, versions + 1):
        log.land(file(f"file-{number}"))
    return log


@check(Family.STALE_READS, *FRESH, "MC-GET-03", commit_modes=("staged", "inline"))
def a_backfill_after_each_answer(s: ClientScenario) -> None:
    """Commits are published just after each answer to a reader, in turn: it sees every ratified commit."""
    _at_every_moment(s, lambda log, moment: s.owner.on(object, after=lambda: log.backfill(log.latest), skip=moment))


def _at_every_moment(s: ClientScenario, interfere: Callable[[LogBuilder, int], object]) -> None:
    log = table_with(s, 1)
    for moment in range(MOST_MOMENTS):
        log.land(file(f"moment-{moment}"))
        heard = len(s.owner.exchanges)
        s.owner.rules.clear()
        interfere(log, moment)
        must_read(
            log, log.latest, *FRESH, "CM-READ-01", "MC-GET-03",
            expected=f"version {log.latest} was ratified before the read began, and was published at request "
            f"{moment + 1} of the read: a snapshot of version {log.latest}",
        )  # fmt: skip
        if len(s.owner.exchanges) - heard <= moment:
            break


@check(Family.STALE_READS, "LOG-13", *FRESH, commit_modes=("staged",))
def a_removed_staged_file_was_published(s: ClientScenario) -> None:
    """The owner names a staged file; before the reader opens it, it is published and removed. The reader reads the
    published commit."""
    log = table_with(s, 2)
    must_read(log, 2, *FRESH, expected="version 2 was ratified before the read began")

    def published_and_removed() -> None:
        log.backfill(2)
        log.hide(*log.staged())

    s.owner.after_commits_are_read(published_and_removed)
    must_read(
        log, 2, "LOG-13",
        expected="a staged file is removed only after its commit is published: a reader that does not find it reads "
        "<version>.json instead",
    )  # fmt: skip


@check(Family.STALE_READS, *FRESH, "CM-READ-09", "MC-LOG-03")
def a_reader_asks_the_owner_for_every_snapshot(s: ClientScenario) -> None:
    """A reader that saw all commits published asks the owner again: later commits may be unpublished."""
    log = table_with(s, 1)
    log.backfill(1)
    must_read(log, 1, *FRESH, expected="version 1 was ratified before the read began")
    log.land(file("later"))
    must_read(
        log, 2, *FRESH, "CM-READ-09", "MC-LOG-03",
        expected="version 2 was ratified before this read began, although the reader's last snapshot had no "
        "unpublished commit",
    )  # fmt: skip
    log.land(file("much-later"))
    log.backfill(3)
    log.land(file("last"))
    must_read(log, 4, *FRESH, expected="version 3 was published and version 4 ratified since the last read")


@check(Family.STALE_READS, "LOG-27", *FRESH)
def a_commit_missing_from_the_listing_fails_the_read(s: ClientScenario) -> None:
    """Some storages list new files late. A reader that knows of version 3 from the owner, and does not find it, fails
    instead of reading version 2 as the newest."""
    log = table_with(s, 3)
    log.backfill(3)
    must_read(log, 3, *FRESH, expected="version 3 was ratified before the read began")
    s.owner.after_commits_are_read(lambda: log.hide(commit_file(3)))
    call, _ = ask(log)
    log.restore()
    if not isinstance(call.answer, m.SnapshotRead):
        return
    if does_without_its_owner(s) or (call.answer.stale and s.feature == "managedCommit"):
        raise Inconclusive("the reader did not ask the owner, so it cannot know of version 3")
    s.require(
        call.answer.version == 3, "LOG-27", *FRESH, evidence=(call, log.committed[3]), table=log.table, version=3,
        expected="the owner returned latest version 3, and the listing lacked it: version 3, found in another "
        "way, or an error",
        observed=f"the read returned a snapshot of version {call.answer.version}",
    )  # fmt: skip


# Publishing by clients
