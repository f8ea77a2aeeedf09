"""A model of a commit owner: which answers the documents allow, without an implementation.

A `World` is one possible state of a table. An answer that was lost leaves several: the proposal landed, or it did
not. `judge` keeps the worlds in which an answer is possible; if none remains, `Wrong` says what was expected. What the
documents leave open is allowed in some world. Requests are handled one at a time, so that their order is certain; a
request without an answer may still land later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from conformance.interface import messages as m
from conformance.interface.log_names import attempt_of, version_of
from conformance.models import proposals

IDENTITY: Final = ("MC-FEATURE-02", "CM-FEATURE-01", "CM-LOG-07")
"""The requirements that the owner gives every client the same answer about which attempt is a version."""
NEEDED: Final[dict[type[m.Request], str]] = {
    m.AttemptOutcome: "attempt-outcome", m.DropTable: "discovery", m.LoadTable: "discovery",
    m.MaintenancePolicy: "maintenance-policy",
}  # fmt: skip
"""The profile whose owners support the request."""
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


class State(StrEnum):
    """Who may commit to a table."""

    PLAIN = "plain"
    """Filesystem writers: the table never had this owner."""
    OWNED = "owned"
    RELEASED = "released"
    """Filesystem writers: the owner handed the table back."""
    ELSEWHERE = "elsewhere"
    """Another owner, to which a commit gave the table."""
    DROPPED = "dropped"

    @property
    def is_filesystem(self) -> bool:
        return self in (State.PLAIN, State.RELEASED)

    @property
    def can_be_taken_over(self) -> bool:
        """An owner may take over another owner's table, or reject that."""
        return self.is_filesystem or self is State.ELSEWHERE


Pending = tuple[m.Version, m.AttemptId, State]
"""A proposal, and the state of the table after it landed."""


class World(NamedTuple):
    """One possible state of a table."""

    log: tuple[m.AttemptId, ...] = ()
    """The attempts that are its versions, from `base` on; empty if it was not created."""
    never: frozenset[m.AttemptId] = frozenset()
    """Attempts that were resolved as not landed."""
    pending: frozenset[Pending] = frozenset()
    """Proposals whose outcome the subject left open: they may land at any time."""
    returned: m.Version = -1
    """The newest version that a read returned."""
    state: State = State.OWNED
    base: m.Version = 0
    """The first version of the log, which a cleanup may have cut."""
    taken: m.Version = 0
    """The version with which the owner got the table."""

    @property
    def newest(self) -> m.Version:
        return self.base + len(self.log) - 1

    @property
    def is_gone(self) -> bool:
        """Whether the owner ratifies nothing more: the table was dropped or handed back."""
        return self.state is not State.OWNED

    def attempt_at(self, version: m.Version) -> m.AttemptId | None:
        return self.log[version - self.base] if self.base <= version <= self.newest else None

    def landed(self, attempt: m.AttemptId) -> m.Version | None:
        return self.base + self.log.index(attempt) if attempt in self.log else None

    def replayed(self, attempt: m.AttemptId, version: m.Version) -> bool:
        """Whether the attempt landed as that version since the owner has the table: it may have forgotten the rest."""
        landed = self.landed(attempt)
        return landed is not None and landed == version and landed >= self.taken

    def appended(self, attempt: m.AttemptId, state: State | None = None) -> "World":
        state = self.state if state is None else state
        taken = self.newest + 1 if state is State.OWNED and self.state is not State.OWNED else self.taken
        return self._replace(log=(*self.log, attempt), state=state, taken=taken)

    def with_next(self, version: m.Version, attempt: m.AttemptId, after: State = State.OWNED) -> "World | None":
        """After that proposal landed; None if it cannot. A filesystem table can only be taken over."""
        lands = self.state is State.OWNED or (self.state.can_be_taken_over and after is State.OWNED)
        never = attempt in self.never and not self.state.can_be_taken_over
        free = version == self.newest + 1 and attempt not in self.log and not never
        return self.appended(attempt, after) if free and lands else None


class Facts(NamedTuple):
    """What happened to a table, as far as it decides which requirements an observation breaks."""

    restarted: bool = False
    """The subject was restarted."""
    refused: frozenset[tuple[m.Version, m.AttemptId]] = frozenset()
    """Proposals that were answered by a refusal."""
    early: frozenset[m.AttemptId] = frozenset()
    """Attempts that were refused with a gap."""
    beaten: frozenset[m.AttemptId] = frozenset()
    """Attempts that were refused with a conflict."""
    around: bool = False
    """Filesystem writers committed without the owner."""
    again: bool = False
    """A table of this name was dropped before."""
    similar: bool = False
    """Another table has a similar name."""
    old: frozenset[m.AttemptId] = frozenset()
    """Attempts at an earlier table of this name that were sent to this one."""
    left: frozenset[m.TableRef] = frozenset()
    """The owner's references to it before a hand-back: under these the table is unknown, or as it was then."""
    asked: bool = False
    """A take-over was requested."""
    ratified: frozenset[tuple[m.TableRef, m.AttemptId]] = frozenset()
    """Commits that were answered as ratified, each by the reference in its request: there the owner knows them after a
    hand-back, too."""
    altered: frozenset[m.AttemptId] = frozenset()
    """Attempts that were sent with other actions, too: the owner may refuse them."""


NOTHING: Final = Facts()


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


def commit(
    world: World, contract: Contract, request: m.Commit | m.HandBack, answer: m.Answer, facts: Facts = NOTHING
) -> World | Wrong:
    """managed-commits and catalog-managed, "Commit Protocol". A hand-back is the last commit."""
    version, landed = request.version, world.landed(request.attempt)
    mine = world.replayed(request.attempt, version) and request.attempt not in facts.altered
    known = landed == version and (request.table, request.attempt) in facts.ratified
    known = known and request.attempt not in facts.altered
    match answer:
        case m.Ratified():
            return ratified(world, request, answer.version, landed, facts)
        case m.Rejected(retryable=True):  # retryable, and possible for a replay too
            return world
        case m.Conflict() | m.Gap() if (mine or known) and "idempotent-retry" in contract.profiles:
            forgotten = mine and answer.latest is not None and -1 < answer.latest < version
            lost = ("MC-COMMIT-05", "CM-COMMIT-05") if forgotten and facts.restarted else ()
            what = f"the attempt is version {version}: `ratified`, again"
            return Wrong(("PROFILE-RETRY-01", *lost), what, version)
        case m.Rejected() if mine and world.state is State.RELEASED and isinstance(request, m.HandBack):
            return Wrong(("PROFILE-RETRY-01",), f"the attempt is version {version}: `ratified`, again", version)
        case _ if world.is_gone or request.table in facts.left:
            return world
        case m.Rejected() if mine and "idempotent-retry" in contract.profiles:
            return Wrong(("PROFILE-RETRY-01",), f"the attempt is version {version}: `ratified`, again", version)
        case m.Conflict() | m.Gap() if _is_tombstone_first(world, contract, request.attempt):
            return Wrong(("PROFILE-CORE-07",), "the attempt was resolved: `rejected`, as promised: `tombstone-first`")
        case m.Conflict() if version > world.newest:
            again = ("PROFILE-RETRY-03",) if request.attempt in facts.early else ()
            more = ("PROFILE-RETRY-02",) if request.attempt in facts.beaten else ()
            next_ = ("MC-API-03", "CM-CATALOG-03") if version == world.newest + 1 else ()
            what = f"version {version} is not taken, the latest is {world.newest}"
            return Wrong((*again, *more, "PROFILE-CORE-05", *next_, *_not_refused(world.newest + 1, facts)), what)
        case m.Conflict():
            return _latest_of_refusal(world, contract, answer.latest, facts, at_least=version) or _winners(
                world, request, answer, facts
            )
        case m.Gap() if world.base <= version <= world.newest + 1:
            again = ("PROFILE-RETRY-03",) if request.attempt in facts.early else ()
            around = ("MC-COMMIT-05", "CM-COMMIT-05") if facts.around or facts.restarted else ()
            what = f"version {version - 1} is ratified: no gap before {version}"
            return Wrong((*again, "PROFILE-CORE-05", *around), what, version - 1)
        case m.Gap():
            return _latest_of_refusal(world, contract, answer.latest, facts) or world
        case _:  # an owner may have a policy, and a gap may be any kind of error
            return world


def _is_tombstone_first(world: World, contract: Contract, attempt: m.AttemptId) -> bool:
    return attempt in world.never and "tombstone-first" in contract.promises


def ratified(
    world: World, request: m.Commit | m.HandBack | m.TakeOver, claimed: int, landed: int | None, facts: Facts = NOTHING
) -> World | Wrong:
    """The conditions for ratifying a proposal, one on each line."""
    version, attempt = request.version, request.attempt
    taking = isinstance(request, m.TakeOver)
    first = ("MC-CONVERT-02", "MC-CONVERT-05") if taking else ()
    after = State.RELEASED if isinstance(request, m.HandBack) else State.OWNED
    if claimed != version:
        what = f"a proposal of version {version} is ratified as that version or not at all"
        return Wrong((*first, "MC-API-03", "CM-CATALOG-03", "MC-COMMIT-02", "MC-COMMIT-01"), what)
    if landed == version:
        return world
    if landed is not None:
        return Wrong(("PROFILE-CORE-06",), f"the attempt is version {landed}: it is not applied again", landed)
    if attempt in world.never and not taking:  # the profile names commits and hand-backs, not take-overs
        return Wrong(("PROFILE-OUTCOME-02",), "the attempt was resolved as not landed: it never lands")
    if world.state is State.DROPPED:
        return Wrong(("PROFILE-DISCOVERY-02",), "the table was dropped: nothing more is ratified")
    if world.state is State.RELEASED and not taking:
        return Wrong(("MC-RELEASE-04",), "the table was handed back: nothing more is ratified", world.newest)
    if world.state in (State.PLAIN, State.ELSEWHERE) and not taking:
        lost = ("MC-CONVERT-03", "MC-CONVERT-09") if facts.asked else ()
        return Wrong(("MC-CONVERT-01", *lost), "the table has no owner: it gets one only by a take-over")
    if version > world.newest + 1:
        what = f"version {version - 1} is not ratified: no commit of {version}"
        return Wrong((*first, "MC-COMMIT-01", "CM-COMMIT-07", "MC-COMMIT-07"), what)
    if version <= world.newest:
        what = f"version {version} is taken by another attempt: a conflict"
        replaced = ("MC-COMMIT-04", "CM-COMMIT-04") if facts.around else ()
        return Wrong((*first, "MC-COMMIT-02", "CM-COMMIT-08", *replaced), what, version)
    return world.appended(attempt, after)


def take_over(
    world: World, contract: Contract, request: m.TakeOver, answer: m.Answer, facts: Facts = NOTHING
) -> World | Wrong:
    """managed-commits, "Converting an existing filesystem based table to managed-commit table"."""
    version, landed = request.version, world.landed(request.attempt)
    altered = request.attempt in facts.altered
    mine = world.state is State.OWNED and world.replayed(request.attempt, version) and not altered
    match answer:
        case m.Ratified():
            return ratified(world, request, answer.version, landed, facts)
        case m.Rejected(retryable=True):
            return world
        case m.Conflict() | m.Gap() | m.Rejected() if mine and "idempotent-retry" in contract.profiles:
            return Wrong(("PROFILE-RETRY-01",), f"the attempt is version {version}: `ratified`, again", version)
        case m.Conflict() if version > world.newest and world.state.is_filesystem:
            what = f"version {version} is not taken, the newest file is {world.newest}"
            return Wrong(("PROFILE-CORE-05", "MC-CONVERT-02"), what)
        case m.Gap() if version <= world.newest + 1 and world.state.is_filesystem:
            what = f"version {version - 1} exists: no gap before {version}"
            return Wrong(("PROFILE-CORE-05", "MC-CONVERT-02"), what, version - 1)
        case _:
            return world


def create(
    world: World, contract: Contract, request: m.CreateTable, answer: m.Answer, facts: Facts = NOTHING
) -> World | Wrong:
    """ "Creating a new managed-commit table": of several creators of one name, one succeeds."""
    mine = world.landed(request.attempt) == 0
    if request.attempt in world.never and isinstance(answer, m.Ratified):
        return Wrong(("PROFILE-OUTCOME-02",), "the attempt was resolved as not landed: it never lands")
    match answer:
        case m.Ratified(version=0) if mine or not world.log:
            return world if mine else world.appended(request.attempt)
        case m.Ratified():
            what = "version 0 is another creator's: a conflict" if world.log else "a table begins with version 0"
            other = ("PROFILE-VERSION0-04",) if world.state.can_be_taken_over else ()
            return Wrong((*other, "MC-CREATE-02", "CM-COMMIT-08"), what, 0)
        case m.Rejected(retryable=True):
            return world
        case _ if mine and not world.is_gone and "idempotent-retry" in contract.profiles:
            return Wrong(("PROFILE-RETRY-01",), "the attempt is version 0: `ratified`, again", 0)
        case m.Conflict() if not world.log:
            dropped = ("PROFILE-DISCOVERY-01",) if facts.again or facts.similar else ()
            kept = ": an owner that keeps the name of a dropped table answers `rejected`" if facts.again else ""
            return Wrong((*dropped, "PROFILE-CORE-05", "PROFILE-VERSION0-01"), f"no table has this name{kept}")
        case _:
            return world


def get_commits(
    world: World, contract: Contract, request: m.GetCommits, answer: m.Answer, facts: Facts = NOTHING
) -> World | Wrong:
    """ "Getting Un-backfilled Commits from Commit Owner", "Getting Ratified Commits from the Catalog"."""
    if world.is_gone or not world.log:
        return world
    start, end = request.start or 0, request.end
    if isinstance(answer, m.Commits):
        if any(commit.version < start or (end is not None and commit.version > end) for commit in answer.commits):
            return Wrong(
                ("PROFILE-CORE-09",), f"no commit outside of versions {start} to {'the latest' if end is None else end}"
            )
        return _read(world, contract, answer.commits, answer.latest, facts)
    if isinstance(answer, m.Rejected) and start > (world.newest if end is None else min(end, world.newest)):
        return world  # a range that ends before it begins, or begins beyond the table, may be an error
    after: tuple[str, ...] = ("PROFILE-DURABLE-03",) if facts.restarted else ()
    after += ("PROFILE-DISCOVERY-01",) if facts.again and isinstance(answer, m.NotFound) else ()
    return Wrong(
        ("MC-API-04", "CM-CATALOG-04", *after), f"the commits, and {world.newest} as the latest version", world.newest
    )


def load_table(world: World, contract: Contract, answer: m.Answer, facts: Facts = NOTHING) -> World | Wrong:
    """ "Table Discovery"."""
    if isinstance(answer, m.Table):
        if world.state is State.DROPPED or not world.log:
            return Wrong(("PROFILE-DISCOVERY-01",), "the table does not exist: `not_found`")
        if world.is_gone:
            return world
        if (answer.feature, answer.commit_mode) != (contract.feature, contract.commit_mode):
            return Wrong(
                ("CM-DISCOVER-01", "PROFILE-DISCOVERY-01"), f"a table of {contract.feature}, by {contract.commit_mode}"
            )
        judged = _read(world, contract, answer.commits, answer.latest, facts)
        return (
            judged._replace(requirements=(*judged.requirements, "CM-GET-05")) if isinstance(judged, Wrong) else judged
        )
    if isinstance(answer, m.NotFound) and world.log and not world.is_gone:
        taken = ("MC-CONVERT-07", "MC-CONVERT-08") if facts.asked and facts.restarted else ()
        after = ("PROFILE-DURABLE-03",) if facts.restarted else ()
        return Wrong(("PROFILE-DISCOVERY-01", *taken, *after), "the table was created, and is found", 0)
    return world


def _read(
    world: World, contract: Contract, commits: tuple[m.CommitEntry, ...] | None, latest: int | None, facts: Facts
) -> World | Wrong:
    """The answer shows a single state, which is fresh and never older than that of an earlier answer."""
    wrong = _latest_of_read(world, contract, latest, facts)
    if wrong is not None:
        return wrong
    versions = [commit.version for commit in commits or ()]
    last = world.newest if latest in NONE else latest
    assert last is not None
    if versions != list(range(min(versions, default=0), max(versions, default=-1) + 1)):
        gap = ("MC-GET-01", "CM-GET-03") if versions == sorted(set(versions)) else ()
        return Wrong(("LOG-05", *gap), f"commits by ascending version, without duplicates or gaps; not {versions[:9]}")
    if versions and versions[-1] > world.newest:
        more = _not_refused(world.newest + 1, facts)
        return Wrong(("MC-GET-02", "CM-GET-04", "CM-LOG-07", *more), f"no commit after {world.newest} is ratified")
    wrong = _identities(world, commits or (), facts)
    return wrong or world._replace(returned=max(world.returned, last if latest not in NONE else -1))


def _not_refused(version: m.Version, facts: Facts) -> tuple[str, ...]:
    """For a version that is not ratified: the requirements that a refused proposal changes nothing."""
    return ("MC-FEATURE-03", "CM-COMMIT-01") if any(number == version for number, _ in facts.refused) else ()


def _latest_of_read(world: World, contract: Contract, claimed: int | None, facts: Facts) -> Wrong | None:
    newest = world.newest
    after = ("PROFILE-DURABLE-02", "PROFILE-DURABLE-01") if facts.restarted else ()
    if claimed in NONE:
        if newest == 0 and "version-0-by-owner" in contract.profiles:
            return Wrong(("PROFILE-VERSION0-02",), "the latest version of a table that was created is 0", 0)
        no_claim = contract.commit_mode == "direct" and (
            contract.feature == "managedCommit" or contract.direct_commits_may_lag
        )
        if newest <= world.taken or no_claim:
            return None
        return Wrong(("MC-GET-02", "CM-GET-04", "PROFILE-CORE-03", *after), f"{newest} as the latest version", newest)
    assert claimed is not None
    if claimed > newest:
        what = f"the latest ratified version is {newest}, not {claimed}"
        return Wrong(("MC-GET-02", "CM-GET-04", *_not_refused(newest + 1, facts)), what)
    if claimed < world.returned:
        return Wrong(
            ("MC-READ-06", "CM-GET-04", *after),
            f"version {world.returned} or a later one as the latest, as an earlier read returned",
        )
    if claimed < newest and not contract.direct_commits_may_lag:
        promised = ("PROFILE-CORE-07", "MC-COMMIT-05", "CM-COMMIT-05") if contract.commit_mode == "direct" else ()
        old = ("MC-COMMIT-02", "CM-COMMIT-08") if world.log[-1] in facts.old else ()
        what = f"version {newest} was ratified before: it is the latest"
        return Wrong(("MC-READ-06", "CM-GET-04", *promised, *after, *old), what, newest)
    return None


def _latest_of_refusal(
    world: World, contract: Contract, claimed: int | None, facts: Facts, at_least: int = 0
) -> Wrong | None:
    """A refusal may omit the latest version; the one that it names exists, and may be stale."""
    newest = world.newest
    if claimed in NONE:
        return None
    assert claimed is not None
    if claimed > newest:
        more = _not_refused(newest + 1, facts)
        return Wrong(("MC-GET-02", "CM-GET-04", *more), f"the latest ratified version is {newest}, not {claimed}")
    if claimed < at_least:
        return Wrong(("PROFILE-CORE-05",), f"a conflict at {at_least} has a latest version of at least that")
    if claimed < newest and "fresh-refusals" in contract.promises and not contract.direct_commits_may_lag:
        what = f"{newest} as the latest version, as promised: `fresh-refusals`"
        return Wrong(("PROFILE-CORE-07", "PROFILE-RETRY-02"), what, newest)
    return None


def _winners(world: World, request: m.Commit | m.HandBack, answer: m.Conflict, facts: Facts) -> World | Wrong:
    """The winners are the commits from the proposed version on; only published ones are left out. A list of direct
    commits may be of any length, and so may that for a replay, which did not lose."""
    listed = answer.winners or ()
    versions = [winner.version for winner in listed]
    if versions and max(versions) > world.newest:
        return Wrong(("MC-GET-02", "CM-GET-04"), f"no winner after version {world.newest}, the latest ratified one")
    wrong = _identities(world, listed, facts)
    if wrong is not None:
        return wrong
    if any(version < request.version for version in versions):
        return Wrong(("PROFILE-CORE-08",), f"no winner before version {request.version}, which was proposed")
    if versions != sorted(set(versions)):
        return Wrong(("PROFILE-CORE-08",), f"winners by ascending version; not {versions[:9]}")
    return world


def _identities(world: World, listed: Iterable[m.CommitEntry], facts: Facts) -> Wrong | None:
    for entry in listed:
        attempt = identity_of(entry)
        ratified = world.attempt_at(entry.version)
        if attempt is not None and ratified is not None and ratified.lower() != attempt.lower():
            said = f"version {entry.version} is attempt {ratified} for every client, not {attempt}"
            return Wrong((*IDENTITY, *(("PROFILE-DURABLE-01",) if facts.restarted else ())), said, entry.version)
    return None


def identity_of(entry: m.CommitEntry) -> m.AttemptId | None:
    """The attempt of a listed commit."""
    if entry.file_name is not None:
        return attempt_of(entry.file_name)
    return proposals.attempt_of(entry.actions[0]) if entry.actions else None


def attempt_outcome(world: World, request: m.AttemptOutcome, answer: m.Answer, facts: Facts) -> World | Wrong:
    """Profile attempt-outcome: the answer is final."""
    landed = world.landed(request.attempt)
    match answer:
        case m.Landed(version=version) if version != landed:
            what = "it has not landed" if landed is None else f"it is version {landed}"
            never = ("PROFILE-OUTCOME-02",) if landed is None else ()
            return Wrong(("PROFILE-OUTCOME-01", *never), what, landed)
        case m.NotLanded() if landed is not None and landed < world.taken:
            return world  # it landed before the owner had the table
        case m.NotLanded() if landed is not None:
            return Wrong(("PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02"), f"the attempt is version {landed}", landed)
        case m.NotLanded() if world.state.can_be_taken_over or request.table in facts.left:
            return world  # the attempt may be that of a later take-over, or of a commit after it
        case m.NotLanded():
            pending = frozenset(proposal for proposal in world.pending if proposal[1] != request.attempt)
            return world._replace(never=world.never | {request.attempt}, pending=pending)
        case _:
            return world


def rule(
    world: World, contract: Contract, request: m.Request, answer: m.Answer, facts: Facts = NOTHING
) -> World | Wrong:
    """The rule for a request. Answers without a rule are checked by the files."""
    profile = NEEDED.get(type(request))
    if isinstance(answer, m.Unsupported) and profile in contract.profiles and getattr(request, "name", "") is not None:
        return Wrong(("PROFILE-CORE-07",), f"the subject declares `{profile}`: it supports its requests")
    match request:
        case m.Commit() | m.HandBack():
            return commit(world, contract, request, answer, facts)
        case m.TakeOver():
            return take_over(world, contract, request, answer, facts)
        case m.CreateTable():
            return create(world, contract, request, answer, facts)
        case m.GetCommits():
            return get_commits(world, contract, request, answer, facts)
        case m.LoadTable():
            return load_table(world, contract, answer, facts)
        case m.AttemptOutcome():
            return attempt_outcome(world, request, answer, facts)
        case m.DropTable() if isinstance(answer, m.Done):
            return world._replace(state=State.DROPPED)
        case m.Plant():
            return _put(world, contract, request, won=isinstance(answer, m.Ratified | m.Done))
        case _:
            return world


# Several worlds


def judge(
    worlds: Worlds, contract: Contract, request: m.Request, answer: m.Answer, facts: Facts = NOTHING
) -> Worlds | Wrong:
    """The worlds in which the answer is possible, as they are after it."""
    if isinstance(answer, m.Unknown):
        return frozenset(opened(world, request) for world in lost(worlds, request))
    return kept([rule(world, contract, request, answer, facts) for world in most_first(settled(worlds))])


def lost(worlds: Worlds, request: m.Request) -> Worlds:
    """The request was processed, and its answer was lost."""
    possible = set(settled(worlds))
    for world in settled(worlds):
        match request:
            case m.Commit():
                after = None if world.is_gone else world.with_next(request.version, request.attempt)
            case m.HandBack():
                after = None if world.is_gone else world.with_next(request.version, request.attempt, State.RELEASED)
            case m.TakeOver():
                after = world.with_next(request.version, request.attempt) if world.state.can_be_taken_over else None
            case m.CreateTable():
                after = None if world.log else world.with_next(0, request.attempt)
            case m.AttemptOutcome() if request.attempt not in world.log and not world.state.can_be_taken_over:
                after = world._replace(never=world.never | {request.attempt})
            case m.DropTable():
                after = world._replace(state=State.DROPPED)
            case _:
                after = None
        if after is not None:
            possible.add(after)
    return frozenset(possible)


def visible(
    worlds: Worlds, published: Mapping[m.Version, m.AttemptId | None], facts: Facts = NOTHING
) -> Worlds | Wrong:
    """ "Commit Files": `<v>.json` exists only for ratified versions, with the ratified content."""
    return kept([_visible(world, published, facts) for world in most_first(settled(worlds))])


def _visible(world: World, published: Mapping[m.Version, m.AttemptId | None], facts: Facts) -> World | Wrong:
    for version, attempt in published.items():
        if version > world.newest:
            what = f"version {version} is not ratified: it is not published"
            seen = f"version {version} is published"
            lost = ("MC-CONVERT-09",) if facts.asked else ()
            owned = ("MC-CONVERT-01", *lost) if world.state is State.PLAIN else ()
            return Wrong(("MC-FILES-08", "CM-FILES-07", *owned, *_not_refused(version, facts)), what, observed=seen)
        ratified = world.attempt_at(version)
        if attempt is not None and ratified is not None and attempt != ratified:
            said = f"version {version} is attempt {ratified}, and is published as that attempt"
            seen = f"the published file is attempt {attempt}"
            first = ("MC-CREATE-02", "PROFILE-VERSION0-04") if version == 0 else ()
            return Wrong(
                (*first, "MC-BACKFILL-01", "CM-PUBLISH-03", "MC-FILES-08", "CM-FILES-07", "CM-PUBLISH-01"), said,
                version, seen,
            )  # fmt: skip
    return world


def _put(world: World, contract: Contract, request: m.Plant, *, won: bool) -> World | Wrong:
    """A filesystem writer's put-if-absent of `<version>.json`: it won if no file of that name existed. Another owner
    takes the table over in the same way."""
    version = version_of(request.file) or 0
    if won and version == world.newest + 1:
        protocol = proposals.body_of(request.content, "protocol") or {}
        given = contract.feature in protocol.get("writerFeatures", ())
        after = State.ELSEWHERE if given else None if world.log else State.PLAIN
        return world.appended(proposals.attempt_of(request.content) or "", after)
    if won:
        what = f"version {version} is the table's: a filesystem writer finds its file"
        first = ("PROFILE-VERSION0-04", "MC-CREATE-02") if version == 0 else ()
        return Wrong(
            (*first, "MC-CONVERT-05", "MC-CONVERT-03", "MC-CONVERT-08", "MC-RELEASE-05", "MC-CONVERT-09",
             "MC-COMMIT-04", "CM-COMMIT-04"), what, version, "the writer could create the file",
        )  # fmt: skip
    if version > world.newest:
        return Wrong(("MC-FILES-08", "CM-FILES-07"), f"version {version} does not exist: a writer can create its file",
                     None, "the file exists")  # fmt: skip
    return world


def settled(worlds: Worlds) -> Worlds:
    """These worlds, and those in which a pending proposal has landed by now."""
    reached, waiting = set(worlds), list(worlds)
    while waiting:
        world = waiting.pop()
        for version, attempt, state in world.pending:
            after = world.with_next(version, attempt, state)
            if after is not None and after not in reached:
                reached.add(after)
                waiting.append(after)
    return frozenset(reached)


def most_first(worlds: Worlds) -> list[World]:
    """The worlds with the most commits first, because their errors are the most useful."""
    return sorted(worlds, key=lambda world: (-len(world.log), world.log, world.state, sorted(world.never)))


def kept(outcomes: Iterable[World | Wrong]) -> Worlds | Wrong:
    judged = list(outcomes)
    possible = frozenset(outcome for outcome in judged if isinstance(outcome, World))
    return possible or next(outcome for outcome in judged if isinstance(outcome, Wrong))


def opened(world: World, request: m.Request) -> World:
    """The world after the subject itself left the outcome unknown."""
    match request:
        case m.Commit() | m.TakeOver():
            proposal: Pending = (request.version, request.attempt, State.OWNED)
        case m.HandBack():
            proposal = (request.version, request.attempt, State.RELEASED)
        case m.CreateTable():
            proposal = (0, request.attempt, State.OWNED)
        case _:
            return world
    return world._replace(pending=world.pending | {proposal})
