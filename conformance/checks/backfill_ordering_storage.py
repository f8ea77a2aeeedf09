"""Backfill ordering where the files are not as they should be: something else stands where a commit has to be
published, a file above a hole, staged files that belong to nobody, or none where one should be. Whatever a check puts
there that no owner could have written it takes away again; looks in between are not recorded, because they show the
kit's own doing.

managed-commits, "Commit Files" and "Commit Backfills"; catalog-managed, "Terminology: Commits" and "Publishing
Commits".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.checks.backfill_ordering import (
    CONTENT,
    DONE,
    ORDER,
    RATIFIED_ONLY,
    TRACKED,
    UNPUBLISHED,
    complete,
    same_content,
    tracked,
)
from conformance.checks.registry import Family, check
from conformance.interface.messages import (
    BackfillToVersion,
    Commit,
    Conflict,
    Done,
    Observation,
    Observe,
    Ratified,
    Rejected,
)
from conformance.requirements.catalogue import Profile
from conformance.scenario import hands, proposals, reads
from conformance.scenario.scenario import Inconclusive, Scenario, TableHandle, Told

STORAGE = (Profile.STORAGE_ACCESS,)
STAGED = ("staged",)
FIRST_UUID = "00000000-0000-4000-8000-000000000000"
LAST_UUID = "ffffffff-ffff-4fff-bfff-ffffffffffff"
"""Staged files are listed by name: one before and one after those of any attempt."""


def glance(s: Scenario, table: TableHandle) -> dict[str, str]:
    """Content by name of all files of the log, off the record."""
    answer = s.subject.ask("stranger", Observe(table=table.reference))
    if not isinstance(answer, Observation):
        raise Inconclusive(f"the files of {table.name} cannot be seen: {answer}")
    return {file.name: file.content or "" for file in answer.files}


@contextmanager
def blocked(s: Scenario, table: TableHandle, version: int) -> Iterator[str]:
    """With a file of somebody else where an unpublished version has to be published. Its content."""
    foreign = proposals.content(proposals.append(s.attempt(), s.timestamp(version)))
    told = hands.plant(s, table, hands.published_name(version), foreign, if_absent=True)
    if isinstance(told.answer, Conflict):
        raise Inconclusive(f"the owner has published version {version} already: nothing can stand in its way")
    try:
        yield foreign
    finally:
        if glance(s, table).get(hands.published_name(version)) == foreign:
            hands.remove(s, table, hands.published_name(version))


@check(Family.BACKFILL, *CONTENT, *ORDER, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_file_of_somebody_else_is_not_taken_for_the_commit(s: Scenario) -> None:
    """Where version 1 has to be published stands a file with another content. A backfill does not call that done, and
    publishes nothing after it; once the file is gone, all three commits are published as they were ratified."""
    table = s.create()
    landed = [s.land(table) for _ in range(3)]
    with blocked(s, table, 1) as foreign:
        told = s.ask("publisher", BackfillToVersion(table=table.reference, version=3))
        files = glance(s, table)
    stands = files.get(hands.published_name(1)) == foreign
    s.require(not (stands and isinstance(told.answer, Done)), *CONTENT, told=(landed[0], told), table=table, version=1,
              expected="version 1 is ratified with other actions than the file has that stands in its place: it is not "
              "published, and the backfill is not done",
              observed="the backfill was answered as done, and the other file still stands there")  # fmt: skip
    later = [version for version in (2, 3) if hands.published_name(version) in files]
    s.require(not (stands and later), *ORDER, told=(told,), table=table, version=2,
              expected="version 1 could not be published: no later version is", observed=f"{later} are")  # fmt: skip
    s.backfill(table, 3)
    seen = s.published(table)
    for each in landed:
        assert isinstance(each.request, Commit)
        same_content(s, table, each, seen.get(each.request.version, ""))


@check(Family.BACKFILL, *ORDER, *TRACKED, *DONE, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_publication_that_fails_in_the_middle_holds_back_what_follows(s: Scenario) -> None:
    """Of four commits the second cannot be published, because another file stands in its place. Nothing after it is
    published, and all of it stays listed; once the file is gone, everything is published."""
    table = s.create()
    landed = [s.land(table) for _ in range(4)]
    with blocked(s, table, 2) as foreign:
        told = s.ask("publisher", BackfillToVersion(table=table.reference, version=4))
        files = glance(s, table)
        listed = reads.ask(s, table)
    if files.get(hands.published_name(2)) == foreign:
        later = [version for version in (3, 4) if hands.published_name(version) in files]
        s.require(not later, *ORDER, told=(told, landed[1]), table=table, version=3,
                  expected="version 2 could not be published: no later one is", observed=f"{later} are")  # fmt: skip
        lost = [version for version in (2, 3, 4) if version not in listed.commits]
        s.require(not lost, *TRACKED, told=(listed.told, told), table=table, version=lost[0] if lost else None,
                  expected="versions 2 to 4 are ratified and not published: they are listed",
                  observed=f"listed are {list(listed.order)}")  # fmt: skip
    done = s.backfill(table, 4)
    complete(s, table, done)


@check(Family.BACKFILL, *DONE, *TRACKED, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_commit_that_a_client_published_is_published(s: Scenario) -> None:
    """A client copied version 1 to its place, byte for byte, and nobody told the owner. A backfill finds the file there
    and goes on after it: versions 2 and 3 are published as well."""
    table = s.create()
    landed = [s.land(table) for _ in range(3)]
    first = landed[0].request
    assert isinstance(first, Commit)
    staged = glance(s, table).get(f"{hands.STAGING[s.feature]}/{hands.staged_name(1, first.attempt)}")
    content = proposals.content(first.actions or ()) if staged is None else staged
    hands.plant(s, table, hands.published_name(1), content, if_absent=True, client="helpful publisher")
    tracked(s, table)
    seen = complete(s, table, s.backfill(table, 3))
    same_content(s, table, landed[0], seen.get(1, ""))
    s.land(table)


@check(Family.BACKFILL, *TRACKED, *DONE, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_published_file_above_a_hole_hides_nothing(s: Scenario) -> None:
    """A careless client published version 3 of three before versions 1 and 2. The owner must not conclude that they are
    published too: it goes on to list them, and a backfill publishes them."""
    table = s.create()
    landed = [s.land(table) for _ in range(3)]
    third = landed[2].request
    assert isinstance(third, Commit)
    staged = glance(s, table).get(f"{hands.STAGING[s.feature]}/{hands.staged_name(3, third.attempt)}")
    content = proposals.content(third.actions or ()) if staged is None else staged
    hands.plant(s, table, hands.published_name(3), content, if_absent=True, client="careless publisher")
    listed = reads.ask(s, table)
    files = glance(s, table)
    for version in (1, 2):
        found = version in listed.commits or hands.published_name(version) in files
        s.require(found, *TRACKED, told=(listed.told, landed[version - 1]), table=table, version=version,
                  expected=f"version {version} is ratified and not published: it is listed, although version 3 is "
                  f"published", observed=f"listed are {list(listed.order)}")  # fmt: skip
    done = s.backfill(table, 3)
    seen = s.published(table)
    s.require({1, 2, 3} <= set(seen), *DONE, told=(done,), table=table,
              expected="versions 1 to 3 are published", observed=f"a listing shows {sorted(seen)}")  # fmt: skip


@check(Family.BACKFILL, *CONTENT, "MC-FEATURE-01", "MC-LOG-04", "CM-FILES-05", needs=STORAGE, commit_modes=STAGED)
def staged_files_of_nobody_are_not_published(s: Scenario) -> None:
    """Beside the staged file of version 1 lie others for the same version: of a writer that died, one of them cut off
    in the middle. The owner ratified one of them, and publishes that one."""
    table = s.create()
    orphan = proposals.content(proposals.append(FIRST_UUID, s.timestamp(1)))
    folder = hands.STAGING[s.feature]
    hands.plant(s, table, f"{folder}/{hands.staged_name(1, FIRST_UUID)}", orphan)
    landed = s.land(table)
    hands.plant(s, table, f"{folder}/{hands.staged_name(1, LAST_UUID)}", orphan[: len(orphan) // 2])
    reads.ask(s, table)
    s.backfill(table, 1)
    same_content(s, table, landed, s.published(table).get(1, ""))


@check(Family.BACKFILL, *RATIFIED_ONLY, "MC-LOG-04", "CM-FILES-05", needs=STORAGE, commit_modes=STAGED)
def a_staged_file_that_nobody_proposed_is_not_published(s: Scenario) -> None:
    """A writer staged a file for version 2 and died before it proposed it. A backfill beyond the latest version does
    not publish it; version 2 is free for others."""
    table = s.create()
    s.land(table)
    hands.stage(s, table, 2, client="dead writer")
    told = s.ask("publisher", BackfillToVersion(table=table.reference, version=2))
    seen = s.published(table)
    s.require(2 not in seen, *RATIFIED_ONLY, told=(told,), table=table, version=2,
              expected="nobody proposed version 2: it is not published",
              observed=f"published are {sorted(seen)}")  # fmt: skip
    s.land(table)
    s.backfill(table, 2)
    s.published(table)


@check(Family.BACKFILL, *CONTENT, *DONE, needs=STORAGE, commit_modes=STAGED)
def a_commit_whose_file_is_gone_is_not_published_as_something_else(s: Scenario) -> None:
    """The staged file of version 1 is gone before it was published. There is nothing to publish, so a backfill is not
    done, and no other file appears; when the file is back, version 1 is published as it was ratified."""
    table = s.create()
    landed = s.land(table)
    assert isinstance(landed.request, Commit)
    name = f"{hands.STAGING[s.feature]}/{hands.staged_name(1, landed.request.attempt)}"
    files = glance(s, table)
    if name not in files or hands.published_name(1) in files:
        raise Inconclusive("version 1 is not in the staging folder only: its file cannot get lost")
    hands.remove(s, table, name)
    told = s.ask("publisher", BackfillToVersion(table=table.reference, version=1))
    published = glance(s, table).get(hands.published_name(1))
    if published is not None:
        same_content(s, table, landed, published, files[name])
    s.require(published is not None or not isinstance(told.answer, Done), *DONE, told=(landed, told), table=table,
              version=1, expected="version 1 is not published: the backfill is not done",
              observed="it was answered as done")  # fmt: skip
    hands.plant(s, table, name, files[name])
    s.backfill(table, 1)
    same_content(s, table, landed, s.published(table).get(1, ""), files[name])


@check(Family.BACKFILL, "MC-FEATURE-03", "CM-COMMIT-01", needs=STORAGE, commit_modes=UNPUBLISHED)
def a_publication_that_fails_fails_no_commit(s: Scenario) -> None:
    """The owner publishes by itself, and cannot: a file of somebody else stands in the place of version 1. Commits that
    land meanwhile are answered as ratified; what is answered as refused has not landed."""
    table = s.create(backfill="subject")
    s.land(table)
    refused: Told | None = None
    with blocked(s, table, 1):
        for client in ("first", "second", "third", "fourth"):
            told = s.commit(table, client=client)
            s.expect(told, (Ratified, Rejected), "PROFILE-CORE-05",
                     expected=f"version {table.versions} is next: ratified, or refused and not committed")  # fmt: skip
            if isinstance(told.answer, Rejected):
                refused = told
                break
            table.versions += 1
        seen = reads.ask(s, table)
    latest = table.versions - 1
    s.require(refused is None or seen.latest is None or seen.latest <= latest, "MC-FEATURE-03", "CM-COMMIT-01",
              told=[told for told in (refused, seen.told) if told is not None], table=table, version=table.versions,
              expected=f"version {table.versions} was refused: version {latest} is the latest",
              observed=f"version {seen.latest} is the latest: the commit landed")  # fmt: skip
    s.backfill(table, latest)
    s.published(table)
