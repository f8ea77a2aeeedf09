"""Backfill ordering: what is published is a prefix of what is ratified, with its content, and nothing is lost.

The variations: how much is published (nothing, a part, all, more than there is), how often, by whom (one publisher,
two, the owner itself), and what writers do meanwhile. managed-commits, "Commit Backfills"; catalog-managed, "Publishing
Commits".
"""

from __future__ import annotations

from conformance.checks.registry import Family, check
from conformance.history import digests
from conformance.interface.messages import BackfillToVersion, Commit, Done, Rejected
from conformance.scenario import hands, reads
from conformance.scenario.scenario import Scenario, TableHandle, Told
from conformance.scenario.words import difference

ORDER = ("MC-BACKFILL-03", "CM-PUBLISH-06")
DONE = ("MC-BACKFILL-05", "CM-PUBLISH-06")
RATIFIED_ONLY = ("MC-FILES-08", "CM-FILES-07")
CONTENT = ("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
TRACKED = ("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "PROFILE-DIRECT-01", "MC-GET-01", "CM-STORE-09")
UNPUBLISHED = ("staged", "inline")
"""Commit modes that leave something to publish."""


def prefix(s: Scenario, table: TableHandle, *because: Told) -> dict[int, str]:
    """What is published, which is a prefix. A listing is not one moment, so a hole is looked at twice: whoever saw a
    version must see the one before it after that."""
    seen = s.published(table)
    for version in range(max(seen, default=-1)):
        if version not in seen:
            again = s.published(table)
            s.require(version in again, *ORDER, told=because, table=table, version=version,
                      expected=f"version {version} is published before version {version + 1}",
                      observed=f"one listing shows versions {sorted(seen)}, the next one {sorted(again)}")  # fmt: skip
            return again
    return seen


def complete(s: Scenario, table: TableHandle, done: Told) -> dict[int, str]:
    """What is published after a backfill that was answered as done."""
    assert isinstance(done.request, BackfillToVersion)
    asked = done.request.version
    seen = prefix(s, table, done)
    missing = [version for version in range(min(asked + 1, table.versions)) if version not in seen]
    s.require(not missing, *DONE, told=(done,), table=table, expected=f"commits up to version {asked} are published",
              observed=f"versions {missing} are not; a listing shows {sorted(seen)}")  # fmt: skip
    return seen


def tracked(s: Scenario, table: TableHandle, *because: Told) -> reads.Listed:
    """Everybody can find every ratified commit: the owner lists it, or it is published."""
    listed = reads.ask(s, table)
    seen = s.published(table)
    lost = [version for version in range(table.versions) if version not in listed.commits and version not in seen]
    s.require(not lost, *TRACKED, told=(listed.told, *because), table=table, version=lost[0] if lost else None,
              expected=f"each of the versions up to {table.versions - 1} is listed by its owner until it is published",
              observed=f"{lost} are neither: listed are {list(listed.order)}, published {sorted(seen)}")  # fmt: skip
    return listed


def same_content(s: Scenario, table: TableHandle, landed: Told, published: str, staged: str | None = None) -> None:
    """A published commit says what was ratified: the bytes of its staged file, or the actions of the proposal."""
    proposal = landed.request
    assert isinstance(proposal, Commit)
    if staged is not None:
        s.require(published == staged, *CONTENT, told=(landed,), table=table, version=proposal.version,
                  expected=f"version {proposal.version} is published with exactly the bytes of its staged file",
                  observed=difference("staged", staged, "published", published))  # fmt: skip
    same = digests.of_actions(proposal.actions or ()) == _actions(published)
    s.require(same, *CONTENT, told=(landed,), table=table, version=proposal.version,
              expected=f"version {proposal.version} is published with the actions that were ratified",
              observed=f"published is {published[:300]!r}")  # fmt: skip


def _actions(content: str) -> str | None:
    """The digest of a file's actions; None if it is no commit."""
    try:
        return digests.of_actions(content.splitlines())
    except ValueError:
        return None


@check(Family.BACKFILL, *DONE, *ORDER)
def a_backfill_publishes_everything_up_to_its_version(s: Scenario) -> None:
    """Of four commits, a backfill to version 2 publishes versions 1 and 2, and perhaps more; one to version 4 publishes
    all. Each time what is published is a prefix."""
    table = s.create()
    for _ in range(4):
        s.land(table)
    complete(s, table, s.backfill(table, 2))
    complete(s, table, s.backfill(table, 4))


@check(Family.BACKFILL, *TRACKED, "MC-GET-01", "CM-GET-03")
def what_is_not_published_yet_stays_listed(s: Scenario) -> None:
    """After a backfill of versions 1 and 2 of four, the owner goes on to list versions 3 and 4, until they are
    published too. At no moment a ratified commit can be found nowhere."""
    table = s.create()
    for _ in range(4):
        s.land(table)
    tracked(s, table)
    part = s.backfill(table, 2)
    tracked(s, table, part)
    s.land(table)
    tracked(s, table, part)
    everything = s.backfill(table, 5)
    tracked(s, table, everything)


@check(Family.BACKFILL, *RATIFIED_ONLY, "MC-FEATURE-03", "CM-COMMIT-01")
def only_what_is_ratified_is_published(s: Scenario) -> None:
    """One proposal of version 1 is ratified, another loses, and one of version 3 comes too early. Whatever is published
    before and after a backfill, it is version 1 with the winner's content, and no version beyond it."""
    table = s.create()
    won = s.land(table, client="first")
    lost = s.contend(table, 1, client="second")
    early = s.commit(table, 3, client="hasty")
    for backfilled in (False, True):
        if backfilled:
            s.backfill(table, 1)
        seen = s.published(table)
        beyond = [version for version in seen if version > 1]
        s.require(not beyond, *RATIFIED_ONLY, told=(early,), table=table, version=3,
                  expected="version 1 is the latest that was ratified: no file of a later one appears",
                  observed=f"a listing shows versions {sorted(seen)}")  # fmt: skip
        loser = lost.request.attempt  # type: ignore[union-attr]
        s.require(loser not in seen.get(1, ""), *RATIFIED_ONLY, told=(won, lost), table=table, version=1,
                  expected="the published file of version 1 is the commit that was ratified",
                  observed="it is the commit of the writer that lost the version")  # fmt: skip


@check(Family.BACKFILL, *ORDER, *DONE)
def backfills_step_by_step_keep_the_order(s: Scenario) -> None:
    """Commits and backfills in turns, each a little behind: after every step what is published is a prefix that goes as
    far as was asked."""
    table = s.create()
    for version in (1, 2, 3, 4):
        s.land(table)
        if version > 1:
            complete(s, table, s.backfill(table, version - 1))
    complete(s, table, s.backfill(table, 4))


@check(Family.BACKFILL, *DONE, *CONTENT)
def a_backfill_can_be_asked_for_again(s: Scenario) -> None:
    """A backfill to a version that is published already, the same or a lower one, is done: it answers so, and changes
    nothing of what is there."""
    table = s.create()
    for _ in range(2):
        s.land(table)
    before = complete(s, table, s.backfill(table, 2))
    for version in (2, 1, 0):
        again = s.backfill(table, version)
        after = s.published(table)
        s.require(before == after, *CONTENT, told=(again,), table=table, version=version,
                  expected="what was published stays as it is",
                  observed=f"it was {before}, and is {after}")  # fmt: skip
    s.land(table)


@check(Family.BACKFILL, *RATIFIED_ONLY, *DONE)
def a_backfill_beyond_the_latest_version_invents_nothing(s: Scenario) -> None:
    """Asked to backfill up to version 7 of a table with two commits, the owner may do what it can, or refuse. No
    version that was not ratified appears, and the table goes on."""
    table = s.create()
    for _ in range(2):
        s.land(table)
    early = s.commit(table, 4, client="hasty")
    told = s.ask("publisher", BackfillToVersion(table=table.reference, version=7))
    seen = complete(s, table, told) if isinstance(told.answer, Done) else prefix(s, table, told)
    s.require(max(seen, default=0) <= 2, *RATIFIED_ONLY, told=(told, early), table=table,
              expected="versions 0 to 2 are ratified: no other is published",
              observed=f"a listing shows versions {sorted(seen)}")  # fmt: skip
    s.land(table)
    complete(s, table, s.backfill(table, 3))


@check(Family.BACKFILL, *ORDER, *DONE, *TRACKED)
def two_publishers_and_a_writer_do_not_disturb_each_other(s: Scenario) -> None:
    """Two publishers send requests for versions 3 and 2, and a writer commits in between, before the older request
    arrives. All are done, in order, and the new commit is neither lost nor published by mistake."""
    table = s.create()
    for _ in range(3):
        s.land(table)
    slow = s.delay("slow publisher", BackfillToVersion(table=table.reference, version=2))
    complete(s, table, s.backfill(table, 3, client="fast publisher"))
    s.land(table)
    late = s.deliver(slow)
    if isinstance(late.answer, Rejected) and late.answer.retryable:
        late = s.ask_to_backfill(table, 2, client="slow publisher")
    s.expect(late, Done, *DONE, may_refuse=s.feature == "catalogManaged", expected="version 2 is published: done")
    complete(s, table, late)
    tracked(s, table, late)
    complete(s, table, s.backfill(table, 4, client="slow publisher"))


@check(Family.BACKFILL, *CONTENT, commit_modes=UNPUBLISHED)
def what_is_published_is_what_was_ratified(s: Scenario) -> None:
    """Of two proposals of version 1 one won. Published is the winner's commit: the bytes of its staged file, or the
    actions of its inline proposal. So is version 2."""
    table = s.create()
    landed = [s.land(table, client="first")]
    s.contend(table, 1, client="second")
    landed.append(s.land(table, client="second"))
    files = hands.staged(s, table)
    seen = complete(s, table, s.backfill(table, 2))
    for told in landed:
        assert isinstance(told.request, Commit)
        name = hands.staged_name(told.request.version, told.request.attempt)
        same_content(s, table, told, seen[told.request.version], files.get(name))


@check(Family.BACKFILL, *RATIFIED_ONLY)
def what_is_published_stays(s: Scenario) -> None:
    """Published commits stay where they are, with the content that they have, while the table goes on and more is
    published."""
    table = s.create()
    seen: dict[int, str] = {}
    for version in (1, 2, 3, 4):
        s.land(table)
        s.backfill(table, version)
        now = s.published(table)
        changed = [each for each, content in seen.items() if now.get(each) != content]
        s.require(not changed, *RATIFIED_ONLY, table=table, version=changed[0] if changed else None,
                  expected="every published commit is still there, as it was",
                  observed=f"{changed} are not")  # fmt: skip
        seen = now


@check(Family.BACKFILL, *ORDER, *TRACKED)
def an_owner_that_backfills_by_itself_does_so_in_order(s: Scenario) -> None:
    """Left to publish when it likes, the owner may publish everything, something or nothing after each commit:
    always a prefix, and what it has not published it lists."""
    table = s.create(backfill="subject")
    for _ in range(6):
        prefix(s, table, s.land(table))
    tracked(s, table)


@check(Family.BACKFILL, *DONE, *TRACKED)
def a_table_goes_on_after_everything_is_published(s: Scenario) -> None:
    """With all commits published the owner may have nothing left to list. The next commit is ratified, listed, and
    published on request like those before it."""
    table = s.create()
    for version in (1, 2):
        s.land(table)
        complete(s, table, s.backfill(table, version))
        tracked(s, table)
    s.land(table)
    tracked(s, table)
