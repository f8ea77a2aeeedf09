"""Backfill: the published commits are a prefix of the ratified ones, with their content, and none is lost.

managed-commits, "Commit Backfills", "Commit Files"; catalog-managed, "Publishing Commits", "Terminology: Commits".

Backlogs grow and are published in parts; foreign files block a publication; the log folder is watched while requests
are under way. A client under test publishes, and reads while others do. The content of a commit is all of its actions,
one per line, in one file that never changes (both documents, "Delta Log Entries").

Why examples: in the measured time programs found the mutants of these checks not at all, or under other requirements.
The other examples are those that the course and the findings name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.checks import check, families
from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file
from conformance.interface.messages import Commit, Conflict, Ratified, Rejected
from conformance.interface.results import Layer
from conformance.models import proposals
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.requirements.catalogue import Profile
from conformance.scenario import reads, storage_access
from conformance.scenario.check import Family
from conformance.scenario.client import ClientScenario
from conformance.scenario.formatting import difference, different_action, versions_in_words
from conformance.scenario.ownership import restart
from conformance.scenario.scenario import TRIES, Exchange, Inconclusive, Scenario, TableHandle


@check(Family.BACKFILL, *families.PUBLISHING, *families.CONTENT, *families.READING, layer=Layer.MODEL)
def any_sequence_of_publications(g: Generation) -> None:
    """Generated backlogs that are published in parts, with foreign files in the way: each commit is published after its
    predecessor, with its content, and never changes."""
    g.run(OwnerFamily(name=g.check.family, factors={"backfill": 4, "block": 4, "many": 4, "read": 2, "drop": 0}))


@check(Family.BACKFILL, *families.MAINTAINING, *families.LOGS, layer=Layer.MODEL, side="client")
def any_publication_and_the_client(g: Generation) -> None:
    """Generated logs that are published in parts, by the client too: it reads each version from the right place, and
    replaces no published file."""
    factors = {"backfill": 4, "leftover": 3, "maintain": 2, "of_readers": 2, "create": 0, "transfer": 0}
    g.run(ClientFamily(name=g.check.family, factors=factors))


ORDER = ("MC-BACKFILL-03", "CM-PUBLISH-06")
DONE = ("MC-BACKFILL-05", "PROFILE-CORE-10")
CONTENT = ("MC-BACKFILL-01", "CM-PUBLISH-01", "CM-PUBLISH-02", "CM-PUBLISH-03")
TRACKED = ("MC-FILES-06", "CM-STORE-04", "CM-STORE-05", "PROFILE-DIRECT-01", "MC-GET-01", "CM-STORE-09")
CHECKPOINTED = ("MC-CHECKPOINT-03", "CM-MAINT-01")
UNPUBLISHED = ("staged", "inline")
"""Commit modes that leave something to publish."""


def prefix(s: Scenario, table: TableHandle, *because: Exchange) -> dict[int, str]:
    """The published versions, which form a prefix. A listing is not atomic, so the kit lists again after a gap."""
    seen = s.published(table)
    for version in range(max(seen, default=-1)):
        if version not in seen:
            again = s.published(table)
            s.require(version in again, *ORDER, evidence=because, table=table, version=version,
                      expected=f"version {version} is published before version {version + 1}",
                      observed=f"published are versions {versions_in_words(sorted(again))}")  # fmt: skip
            return again
    return seen


def complete(s: Scenario, table: TableHandle, done: Exchange) -> dict[int, str]:
    """A backfill was answered `done`: every version up to the requested one is published. Returns what is published."""
    assert isinstance(done.request, m.BackfillToVersion)
    target = done.request.version
    seen = prefix(s, table, done)
    missing = [version for version in range(min(target + 1, table.versions)) if version not in seen]
    s.require(not missing, *DONE, evidence=(done,), table=table,
              expected=f"commits up to version {target} are published",
              observed=f"a listing shows versions {versions_in_words(sorted(seen))}, without "
              f"{versions_in_words(missing)}")  # fmt: skip
    return seen


def tracked(s: Scenario, table: TableHandle, *because: Exchange) -> reads.Listed:
    """Every ratified commit is published, or listed by the owner, with its staged file in the staging folder."""
    listed = reads.ask(s, table)
    names = {file.name for file in s.observe(table)}
    unpublished = [version for version in range(table.versions) if commit_file(version) not in names]
    early = [version for version in unpublished if any(name.startswith(f"{version:020}.checkpoint") for name in names)]
    if early:  # a listing is not atomic
        early = [version for version in early if version not in s.published(table)]
    s.require(not early, *CHECKPOINTED, evidence=(listed.exchange, *because), table=table,
              version=early[0] if early else None,
              expected="the owner writes checkpoints of published versions only",
              observed=f"checkpoints of unpublished versions exist: {versions_in_words(early)}")  # fmt: skip
    lost = [version for version in unpublished if version not in listed.commits]
    s.require(not lost, *TRACKED, evidence=(listed.exchange, *because), table=table, version=lost[0] if lost else None,
              expected=f"each of the versions up to {table.versions - 1} is listed by its owner until it is published",
              observed=f"neither listed nor published: {versions_in_words(lost)}; "
              f"listed: {versions_in_words(listed.order)}")  # fmt: skip
    for version in unpublished:
        name = (listed.commits[version].file_name or "").rpartition("/")[2]
        s.require(not name or f"{STAGING[s.feature]}/{name}" in names, "MC-FILES-06", "CM-STORE-04", "CM-STORE-09",
                  evidence=(listed.exchange, *because), table=table, version=version,
                  expected=f"the staged file of version {version} is kept until the version is published",
                  observed=f"the owner lists version {version} as `{name}`, and that file does not exist: the log has "
                  f"{sorted(names)}"[:400])  # fmt: skip
    return listed


def same_content(s: Scenario, table: TableHandle, landed: Exchange, published: str, staged: str | None = None) -> None:
    """A published commit says what was ratified: the bytes of its staged file, or the actions of the proposal."""
    proposal = landed.request
    assert isinstance(proposal, m.Commit)
    if staged is not None:
        s.require(published == staged, *CONTENT, evidence=(landed,), table=table, version=proposal.version,
                  expected=f"version {proposal.version} is published with exactly the bytes of its staged file",
                  observed=difference("staged", staged, "published", published))  # fmt: skip
    same = digests.of_actions(proposal.actions or ()) == _actions(published)
    s.require(same, *CONTENT, evidence=(landed,), table=table, version=proposal.version,
              expected=f"version {proposal.version} is published with the actions that were ratified",
              observed=different_action("proposed", proposal.actions or (), "published", lines(published)))  # fmt: skip


def _actions(content: str) -> str | None:
    """The digest of a file's actions; None if the file is not a commit."""
    try:
        return digests.of_actions(lines(content))
    except ValueError:
        return None


def lines(content: str) -> list[str]:
    """The lines of a commit file. Only a line feed ends a line; `str.splitlines` also splits inside strings."""
    return content.removesuffix("\n").split("\n") if content else []


@check(Family.BACKFILL, *DONE, *ORDER)
def a_backfill_publishes_everything_up_to_its_version(s: Scenario) -> None:
    """Of four commits, a backfill to version 2 publishes at least versions 1 and 2; one to version 4 publishes all.
    Published versions always form a prefix."""
    table = s.create()
    s.land_all(table, 4)
    complete(s, table, s.backfill(table, 2))
    complete(s, table, s.backfill(table, 4))


@check(Family.BACKFILL, *ORDER, *TRACKED, "MC-BACKFILL-04", "CM-PUBLISH-05", commit_modes=UNPUBLISHED)
def automatic_backfill_keeps_the_order(s: Scenario) -> None:
    """An owner that publishes without a request may publish any number of versions after each commit, or later. The
    published versions form a prefix, and the owner lists the others."""
    table = s.create(backfill="subject")
    for _ in range(8):
        prefix(s, table, s.land(table))
    listed = tracked(s, table)
    if max(prefix(s, table), default=0) == 0:
        raise Inconclusive(f"operation {listed.exchange.number}: no commit is published yet; the owner may do it later")


@check(Family.BACKFILL, *DONE, *TRACKED)
def a_fully_published_table_accepts_commits(s: Scenario) -> None:
    """When all commits are published the owner may have nothing to list. The next commit is ratified, listed, and
    published on request."""
    table = s.create()
    for version in (1, 2):
        s.land(table)
        complete(s, table, s.backfill(table, version))
        tracked(s, table)
    s.land(table)
    tracked(s, table)


# Foreign, missing and orphaned files. The kit removes its own files; what it observes until then is not recorded.

STORAGE = (Profile.STORAGE_ACCESS,)


def glance(s: Scenario, table: TableHandle) -> dict[str, str]:
    """The content of all files of the log, by name. The history does not record the request."""
    for _ in range(TRIES):  # an answer may be lost, and the kit must remove its file
        answer = s.answer("external observer", m.Observe(table=table.reference))
        if isinstance(answer, m.Observation):
            return {file.name: file.content or "" for file in answer.files}
    raise Inconclusive(f"`observe` failed for the table {table.name}: {answer}")


@contextmanager
def blocked(s: Scenario, table: TableHandle, version: int, foreign: str | None = None) -> Iterator[str]:
    """Run with a foreign file under the name of an unpublished version; yields its content."""
    foreign = foreign or proposals.content(proposals.append(s.attempt(), s.timestamp(version)))
    call = storage_access.plant(s, table, commit_file(version), foreign, if_absent=True)
    if isinstance(call.answer, m.Conflict):
        raise Inconclusive(f"the owner has already published version {version}: no foreign file can have its name")
    try:
        yield foreign
    finally:
        if glance(s, table).get(commit_file(version)) == foreign:
            storage_access.remove(s, table, commit_file(version))


def in_order(s: Scenario, files: dict[str, str], table: TableHandle, version: int, call: Exchange) -> None:
    """The version could not be published, so no later version is published."""
    later = [number for number in range(version + 1, table.versions) if commit_file(number) in files]
    s.require(not later, *ORDER, evidence=(call,), table=table, version=version + 1,
              expected=f"version {version} could not be published: no later version is published",
              observed=f"versions {later} were published without version {version}")  # fmt: skip


@check(Family.BACKFILL, *CONTENT, *ORDER, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_foreign_file_is_not_taken_for_the_commit(s: Scenario) -> None:
    """A file with other content has the name that version 1 must get. A backfill is not answered as done and publishes
    nothing after it; the owner restarts, the file is removed, and all three commits are published as ratified. The same
    holds for a file with only the first line of the commit, which a killed publisher left behind."""
    _foreign(s, s.create(), torn=False)
    _foreign(s, s.create("torn"), torn=True)


def _foreign(s: Scenario, table: TableHandle, *, torn: bool) -> None:
    landed = s.land_all(table, 3)
    first = landed[0].request
    assert isinstance(first, m.Commit)
    with blocked(s, table, 1, f"{(first.actions or ())[0]}\n" if torn else None) as foreign:
        call = s.ask("publisher", m.BackfillToVersion(table=table.reference, version=3))
        files = glance(s, table)
        if Profile.DURABLE_RESTART.value in s.identity.profiles:
            restart(s)  # an owner that derives from the listing what is published forgets the commit
    stands = files.get(commit_file(1)) == foreign
    s.require(not (stands and isinstance(call.answer, m.Done)), *CONTENT, evidence=(landed[0], call), table=table,
              version=1,
              expected="version 1 was ratified with other actions than the foreign file: the backfill is not done",
              observed="the backfill was answered `done`, but the file of version 1 is the foreign one")  # fmt: skip
    if stands:
        in_order(s, files, table, 1, call)
    s.backfill(table, 3)
    seen = s.published(table)
    for commit in landed:
        assert isinstance(commit.request, m.Commit)
        same_content(s, table, commit, seen.get(commit.request.version, ""))


@check(Family.BACKFILL, *ORDER, *TRACKED, *DONE, needs=STORAGE, commit_modes=UNPUBLISHED)
def a_failed_publication_stops_later_ones(s: Scenario) -> None:
    """Of four commits the second cannot be published, because another file has its name. No later commit is published,
    and all stay listed; after the file is removed, all are published."""
    table = s.create()
    s.land_all(table, 4)
    with blocked(s, table, 2) as foreign:
        call = s.ask("publisher", m.BackfillToVersion(table=table.reference, version=4))
        files = glance(s, table)
        listed = reads.ask(s, table)
    if files.get(commit_file(2)) == foreign:
        in_order(s, files, table, 2, call)
        lost = [version for version in (2, 3, 4) if version not in listed.commits]
        s.require(not lost, *TRACKED, evidence=(listed.exchange, call), table=table, version=lost[0] if lost else None,
                  expected="versions 2 to 4 are ratified and not published: they are listed",
                  observed=f"listed are {list(listed.order)}")  # fmt: skip
    done = s.backfill(table, 4)
    complete(s, table, done)


@check(Family.BACKFILL, "FIELD-05", features=("catalogManaged",), commit_modes=("staged",))
def a_client_publishes_nothing_after_a_foreign_file(s: ClientScenario) -> None:
    """A client that publishes finds a file with other content under the name of version 1. It does not report success,
    and publishes no later version."""
    table = s.create()
    s.land_all(table, 3)
    with blocked(s, table, 1) as foreign:
        call = s.act("publisher", m.BackfillToVersion(table=s.name_of(table), version=3))
        files = glance(s, table)
        s.require(
            not isinstance(call.answer, m.Done) or files.get(commit_file(1)) != foreign, "FIELD-05",
            evidence=(call,), expected="version 1 was ratified with other content than the file of that name has",
            observed="the client answered `done`, but the file of version 1 is not the ratified commit",
        )  # fmt: skip
        s.require(
            commit_file(2) not in files, "FIELD-05", evidence=(call,),
            expected="version 1 is not published: no later version is published", observed="version 2 is published",
        )  # fmt: skip


# Content


@check(Family.CONTENT, *families.CONTENT, *families.PUBLISHING, layer=Layer.MODEL)
def any_sequence_of_contents(g: Generation) -> None:
    """Generated commits with every size at which buffers end, every escape of JSON and unknown fields: each one is
    listed and published as it was proposed."""
    g.run(OwnerFamily(name=g.check.family, factors={"commit": 3, "metadata": 4, "backfill": 2, "stray": 3, "drop": 0}))


# Staged files

STAGED = ("staged",)


def propose_staged(s: Scenario, proposal: Commit) -> Exchange:
    """Propose a file that the kit staged. Raises `Inconclusive` if a policy of the owner rejects it."""
    call = s.ask("writer", proposal)
    if isinstance(call.answer, Rejected):
        raise Inconclusive(f"operation {call.number}: the owner rejects a staged file: {call.answer.reason}")
    return call


@check(Family.CONTENT, "CM-LOG-05", needs=STORAGE, features=("catalogManaged",), commit_modes=STAGED)
def a_staged_file_is_valid_for_one_version(s: Scenario) -> None:
    """A writer proposes files staged for versions 0 and 2 as version 1, which is free. They are not ratified; a file
    staged for version 1 is."""
    table = s.create()
    for version in (2, 0):
        staged = storage_access.stage(s, table, version)
        reused = Commit(table=table.reference, version=1, attempt=staged.attempt, staged_file=staged.staged_file)
        call = s.ask("writer", reused)
        s.expect(call, (Rejected, Conflict), "CM-LOG-05",
                 expected=f"`{staged.staged_file}` is a proposal of version {version}: not ratified as version 1"
                 )  # fmt: skip
    call = propose_staged(s, storage_access.stage(s, table, 1))
    s.expect(call, Ratified, "PROFILE-CORE-05", expected="version 1 is free, and the file was staged for it: ratified")
    table.versions += 1
    s.land(table)
