"""A model of a commit owner: which answers the documents allow, without an implementation.

A `World` is one possible state of a table. An answer that was lost leaves several: the proposal landed, or it did
not. `judge` keeps the worlds in which an answer is possible; if none remains, `Wrong` says what was expected. What the
documents leave open is allowed in some world. Requests are handled one at a time, so that their order is certain; a
request without an answer may still land later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from conformance.interface import messages as m
from conformance.interface.log_names import attempt_of
from conformance.models import proposals

NONE: Final = (None, -1)
"""The answers of owners without a latest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The rules for the subject: a table feature, a commit mode, and its profiles and promises."""

    feature: str
    commit_mode: str
    profiles: frozenset[str]
    promises: frozenset[str]

    @property
    def direct_commits_may_lag(self) -> bool:
        return self.commit_mode == "direct" and "fresh-direct" not in self.promises


class World(NamedTuple):
    """One possible state of a table."""

    log: tuple[m.AttemptId, ...] = ()
    """The attempts that are its versions; empty if it was not created."""
    never: frozenset[m.AttemptId] = frozenset()
    """Attempts that were resolved as not landed."""
    pending: frozenset[tuple[m.Version, m.AttemptId]] = frozenset()
    """Proposals whose outcome the subject left open: they may land at any time."""
    returned: m.Version = -1
    """The newest version that a read returned."""
    dropped: bool = False

    @property
    def newest(self) -> m.Version:
        return len(self.log) - 1

    def landed(self, attempt: m.AttemptId) -> m.Version | None:
        return self.log.index(attempt) if attempt in self.log else None

    def with_next(self, version: m.Version, attempt: m.AttemptId) -> "World | None":
        """After that proposal landed; None if it cannot."""
        free = version == len(self.log) and attempt not in self.log and attempt not in self.never and not self.dropped
        return self._replace(log=(*self.log, attempt)) if free else None


class Wrong(NamedTuple):
    """The reason why an answer is not possible in any world."""

    requirements: tuple[str, ...]
    expected: str
    version: m.Version | None = None
    """The version whose ratification proves it."""
    observed: str = ""
    """The observation, if it is not an answer."""


Worlds = frozenset[World]
UNKNOWN_TABLE: Final[Worlds] = frozenset({World()})
"""The state before the creation."""


# The rules: whether a world allows an answer, and the world after it.


def commit(world: World, contract: Contract, request: m.Commit, answer: m.Answer) -> World | Wrong:
    """managed-commits and catalog-managed, "Commit Protocol"."""
    version, landed = request.version, world.landed(request.attempt)
    match answer:
        case m.Ratified():
            return _ratified(world, request, answer.version, landed)
        case _ if world.dropped:
            return world
        case m.Rejected(retryable=True):  # retryable, and possible for a replay too
            return world
        case _ if landed == version and "idempotent-retry" in contract.profiles:
            return Wrong(("PROFILE-RETRY-01",), f"the attempt is version {version}: `ratified`, again", version)
        case m.Conflict() if version > world.newest:
            return Wrong(("PROFILE-CORE-05",), f"version {version} is not taken, the latest is {world.newest}")
        case m.Conflict():
            return _latest_of_refusal(world, contract, answer.latest, at_least=version) or _winners(world, answer)
        case m.Gap() if version <= len(world.log):
            return Wrong(
                ("PROFILE-CORE-05",), f"version {version - 1} is ratified: no gap before {version}", version - 1
            )
        case m.Gap():
            return _latest_of_refusal(world, contract, answer.latest) or world
        case _:  # an owner may have a policy, and a gap may be any kind of error
            return world


def _ratified(world: World, request: m.Commit, claimed: int, landed: int | None) -> World | Wrong:
    """The conditions for ratifying a proposal, one on each line."""
    version, attempt = request.version, request.attempt
    if claimed != version:
        return Wrong(
            ("MC-API-03", "CM-CATALOG-03"), f"a proposal of version {version} is ratified as that version or not at all"
        )
    if landed == version:
        return world
    if landed is not None:
        return Wrong(("PROFILE-CORE-06",), f"the attempt is version {landed}: it is not applied again", landed)
    if attempt in world.never:
        return Wrong(("PROFILE-OUTCOME-02",), "the attempt was resolved as not landed: it never lands")
    if world.dropped:
        return Wrong(("PROFILE-DISCOVERY-02",), "the table was dropped: nothing more is ratified")
    if version > len(world.log):
        return Wrong(("MC-COMMIT-01", "CM-COMMIT-07"), f"version {version - 1} is not ratified: no commit of {version}")
    if version <= world.newest:
        what = f"version {version} is taken by another attempt: a conflict"
        return Wrong(("MC-COMMIT-02", "CM-COMMIT-08"), what, version)
    return world._replace(log=(*world.log, attempt))


def create(world: World, contract: Contract, request: m.CreateTable, answer: m.Answer) -> World | Wrong:
    """ "Creating a new managed-commit table": of several creators of one name, one succeeds."""
    mine = world.landed(request.attempt) == 0
    match answer:
        case m.Ratified(version=0) if mine or not world.log:
            return world if mine else world._replace(log=(request.attempt,))
        case m.Ratified():
            what = "version 0 is another creator's: a conflict" if world.log else "a table begins with version 0"
            return Wrong(("MC-CREATE-02", "CM-COMMIT-08"), what, 0)
        case _ if mine and "idempotent-retry" in contract.profiles:
            return Wrong(("PROFILE-RETRY-01",), "the attempt is version 0: `ratified`, again", 0)
        case m.Conflict() if not world.log:
            return Wrong(("PROFILE-CORE-05",), "no table of this name was created")
        case _:
            return world


def get_commits(world: World, contract: Contract, request: m.GetCommits, answer: m.Answer) -> World | Wrong:
    """ "Getting Un-backfilled Commits from Commit Owner", "Getting Ratified Commits from the Catalog"."""
    if world.dropped or not world.log:
        return world
    start, end = request.start or 0, request.end
    if isinstance(answer, m.Commits):
        if any(commit.version < start or (end is not None and commit.version > end) for commit in answer.commits):
            return Wrong(
                ("PROFILE-CORE-09",), f"no commit outside of versions {start} to {'the latest' if end is None else end}"
            )
        return _read(world, contract, answer.commits, answer.latest, end)
    if isinstance(answer, m.Rejected) and start > (world.newest if end is None else min(end, world.newest)):
        return world  # a range that ends before it begins, or begins beyond the table, may be an error
    return Wrong(("MC-API-04", "CM-CATALOG-04"), f"the commits, and {world.newest} as the latest version")


def load_table(world: World, contract: Contract, answer: m.Answer) -> World | Wrong:
    """ "Table Discovery"."""
    if isinstance(answer, m.Table):
        if world.dropped or not world.log:
            return Wrong(("PROFILE-DISCOVERY-01",), "the table does not exist: `not_found`")
        if (answer.feature, answer.commit_mode) != (contract.feature, contract.commit_mode):
            return Wrong(
                ("CM-DISCOVER-01", "PROFILE-DISCOVERY-01"), f"a table of {contract.feature}, by {contract.commit_mode}"
            )
        return _read(world, contract, answer.commits, answer.latest, None)
    if isinstance(answer, m.NotFound) and world.log and not world.dropped:
        return Wrong(("PROFILE-DISCOVERY-01",), "the table was created, and is found", 0)
    return world


def _read(
    world: World, contract: Contract, commits: tuple[m.CommitEntry, ...] | None, latest: int | None, end: int | None
) -> World | Wrong:
    """The answer shows a single state, which is fresh and never older than that of an earlier answer."""
    wrong = _latest_of_read(world, contract, latest)
    if wrong is not None:
        return wrong
    versions = [commit.version for commit in commits or ()]
    last = world.newest if latest in NONE else latest
    assert last is not None
    if versions != list(range(min(versions, default=0), max(versions, default=-1) + 1)):
        return Wrong(("LOG-05",), f"commits by ascending version, without duplicates or gaps; not {versions}")
    if versions and versions[-1] > world.newest:
        return Wrong(("MC-GET-02", "CM-GET-04"), f"no commit after version {world.newest} is ratified")
    if versions and versions[-1] < min(last, last if end is None else end) and contract.commit_mode != "direct":
        return Wrong(("LOG-07",), f"a list up to version {min(last, last if end is None else end)}", versions[-1])
    wrong = _identities(world, commits or ())
    return wrong or world._replace(returned=max(world.returned, last if latest not in NONE else -1))


def _latest_of_read(world: World, contract: Contract, claimed: int | None) -> Wrong | None:
    newest = world.newest
    if claimed in NONE:
        if newest == 0 and "version-0-by-owner" in contract.profiles:
            return Wrong(("PROFILE-VERSION0-02",), "the latest version of a table that was created is 0", 0)
        no_claim = contract.commit_mode == "direct" and (
            contract.feature == "managedCommit" or contract.direct_commits_may_lag
        )
        if newest <= 0 or no_claim:
            return None
        return Wrong(("MC-GET-02", "CM-GET-04"), f"{newest} as the latest version", newest)
    assert claimed is not None
    if claimed > newest:
        return Wrong(("MC-GET-02", "CM-GET-04"), f"the latest ratified version is {newest}, not {claimed}")
    if claimed < world.returned:
        return Wrong(
            ("MC-READ-06", "CM-GET-04"),
            f"an earlier read returned the latest version {world.returned}: it never decreases",
        )
    if claimed < newest and not contract.direct_commits_may_lag:
        return Wrong(("MC-READ-06", "CM-GET-04"), f"version {newest} was ratified before: it is the latest", newest)
    return None


def _latest_of_refusal(world: World, contract: Contract, claimed: int | None, at_least: int = 0) -> Wrong | None:
    """A refusal may omit the latest version; the one that it names exists, and may be stale."""
    newest = world.newest
    if claimed in NONE:
        return None
    assert claimed is not None
    if claimed > newest:
        return Wrong(("MC-GET-02", "CM-GET-04"), f"the latest ratified version is {newest}, not {claimed}")
    if claimed < at_least:
        return Wrong(("PROFILE-CORE-05",), f"a conflict at {at_least} has a latest version of at least that")
    if claimed < newest and "fresh-refusals" in contract.promises and not contract.direct_commits_may_lag:
        return Wrong(("PROFILE-CORE-07",), f"{newest} as the latest version, as promised: `fresh-refusals`", newest)
    return None


def _winners(world: World, answer: m.Conflict) -> World | Wrong:
    listed = answer.winners or ()
    if listed and max(winner.version for winner in listed) > world.newest:
        return Wrong(("MC-GET-02", "CM-GET-04"), f"no winner after version {world.newest}, the latest ratified one")
    return _identities(world, listed) or world


def _identities(world: World, listed: Iterable[m.CommitEntry]) -> Wrong | None:
    for entry in listed:
        attempt = identity_of(entry)
        if attempt is not None and world.log[entry.version] != attempt:
            said = f"version {entry.version} is attempt {world.log[entry.version]} for every client, not {attempt}"
            return Wrong(("MC-FEATURE-02", "CM-FEATURE-01"), said, entry.version)
    return None


def identity_of(entry: m.CommitEntry) -> m.AttemptId | None:
    """The attempt of a listed commit."""
    if entry.file_name is not None:
        return attempt_of(entry.file_name)
    return proposals.attempt_of(entry.actions[0]) if entry.actions else None


def attempt_outcome(world: World, request: m.AttemptOutcome, answer: m.Answer) -> World | Wrong:
    """Profile attempt-outcome: the answer is final."""
    landed = world.landed(request.attempt)
    match answer:
        case m.Landed(version=version) if version != landed:
            what = "it has not landed" if landed is None else f"it is version {landed}"
            return Wrong(("PROFILE-OUTCOME-01",), what, landed)
        case m.NotLanded() if landed is not None:
            return Wrong(("PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02"), f"the attempt is version {landed}", landed)
        case m.NotLanded():
            pending = frozenset(proposal for proposal in world.pending if proposal[1] != request.attempt)
            return world._replace(never=world.never | {request.attempt}, pending=pending)
        case _:
            return world


def rule(world: World, contract: Contract, request: m.Request, answer: m.Answer) -> World | Wrong:
    """The rule for a request. Answers without a rule are checked by the files."""
    match request:
        case m.Commit():
            return commit(world, contract, request, answer)
        case m.CreateTable():
            return create(world, contract, request, answer)
        case m.GetCommits():
            return get_commits(world, contract, request, answer)
        case m.LoadTable():
            return load_table(world, contract, answer)
        case m.AttemptOutcome():
            return attempt_outcome(world, request, answer)
        case m.DropTable() if isinstance(answer, m.Done):
            return world._replace(dropped=True)
        case _:
            return world


# Several worlds


def judge(worlds: Worlds, contract: Contract, request: m.Request, answer: m.Answer) -> Worlds | Wrong:
    """The worlds in which the answer is possible, as they are after it."""
    if isinstance(answer, m.Unknown):
        return frozenset(_open(world, request) for world in lost(worlds, request))
    return kept([rule(world, contract, request, answer) for world in most_first(settled(worlds))])


def lost(worlds: Worlds, request: m.Request) -> Worlds:
    """The request was processed, and its answer was lost."""
    possible = set(settled(worlds))
    for world in settled(worlds):
        match request:
            case m.Commit():
                after = world.with_next(request.version, request.attempt)
            case m.CreateTable():
                after = None if world.log else world.with_next(0, request.attempt)
            case m.AttemptOutcome() if request.attempt not in world.log:
                after = world._replace(never=world.never | {request.attempt})
            case m.DropTable():
                after = world._replace(dropped=True)
            case _:
                after = None
        if after is not None:
            possible.add(after)
    return frozenset(possible)


def visible(worlds: Worlds, published: Mapping[m.Version, m.AttemptId | None]) -> Worlds | Wrong:
    """ "Commit Files": `<v>.json` exists only for ratified versions, with the ratified content."""
    return kept([_visible(world, published) for world in most_first(settled(worlds))])


def _visible(world: World, published: Mapping[m.Version, m.AttemptId | None]) -> World | Wrong:
    for version, attempt in published.items():
        if version > world.newest:
            what = f"version {version} is not ratified: it is not published"
            return Wrong(("MC-FILES-08", "CM-FILES-07"), what, observed=f"version {version} is published")
        if attempt is not None and attempt != world.log[version]:
            said = f"version {version} is attempt {world.log[version]}, and is published as that attempt"
            seen = f"the published file is attempt {attempt}"
            return Wrong(("MC-BACKFILL-01", "CM-PUBLISH-03", "MC-FILES-08"), said, version, seen)
    return world


def settled(worlds: Worlds) -> Worlds:
    """These worlds, and those in which a pending proposal has landed by now."""
    reached, waiting = set(worlds), list(worlds)
    while waiting:
        world = waiting.pop()
        for version, attempt in world.pending:
            after = world.with_next(version, attempt)
            if after is not None and after not in reached:
                reached.add(after)
                waiting.append(after)
    return frozenset(reached)


def most_first(worlds: Worlds) -> list[World]:
    """The worlds with the most commits first, because their errors are the most useful."""
    return sorted(worlds, key=lambda world: (-len(world.log), world.log, world.dropped, sorted(world.never)))


def kept(outcomes: Iterable[World | Wrong]) -> Worlds | Wrong:
    judged = list(outcomes)
    possible = frozenset(outcome for outcome in judged if isinstance(outcome, World))
    return possible or next(outcome for outcome in judged if isinstance(outcome, Wrong))


def _open(world: World, request: m.Request) -> World:
    """The world after the subject itself left the outcome unknown."""
    if isinstance(request, m.Commit):
        return world._replace(pending=world.pending | {(request.version, request.attempt)})
    if isinstance(request, m.CreateTable):
        return world._replace(pending=world.pending | {(0, request.attempt)})
    return world
