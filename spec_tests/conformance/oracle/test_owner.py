"""The pure model: the answers that a table may give. Each rule has a test with a valid answer, and one with a similar
invalid answer.
"""

import pytest

from conformance.interface import messages as m
from conformance.models import proposals
from conformance.oracle import groups
from conformance.oracle import owner as model
from conformance.oracle.groups import WrongMember
from conformance.oracle.owner import NOTHING, Contract, State, World, Worlds, Wrong

ALL = frozenset({"core", "idempotent-retry", "attempt-outcome", "discovery", "version-0-by-owner"})
TERMS = Contract(feature="catalogManaged", commit_mode="staged", profiles=ALL, promises=frozenset())
PLAIN = Contract(feature="managedCommit", commit_mode="staged", profiles=frozenset({"core"}), promises=frozenset())
DIRECT = Contract(feature="managedCommit", commit_mode="direct", profiles=frozenset({"core"}), promises=frozenset())
FRESH = Contract(
    feature="catalogManaged", commit_mode="staged", profiles=frozenset({"core"}), promises=frozenset({"fresh-refusals"})
)
TABLE = World(log=("zero", "one", "two"))
DROPPED = TABLE._replace(state=State.DROPPED)


def worlds(*members: World) -> Worlds:
    return frozenset(members)


def commit(version: int, attempt: str = "new") -> m.Commit:
    return m.Commit(table="t", version=version, attempt=attempt, actions=())


def entry(version: int, attempt: str) -> m.CommitEntry:
    return m.CommitEntry(version=version, actions=(proposals.commit_info(attempt, 0),))


def creation(attempt: str) -> m.CreateTable:
    return m.CreateTable(name="t", feature="catalogManaged", commit_mode="staged", attempt=attempt, actions=())


def listing(*commits: m.CommitEntry, latest: int | None = 2) -> m.Commits:
    return m.Commits(commits=commits, latest=latest)


RIGHT: list[tuple[str, World, Contract, m.Request, m.Answer]] = [
    ("the next version is ratified", TABLE, TERMS, commit(3), m.Ratified(version=3)),
    ("a version that is taken is a conflict", TABLE, TERMS, commit(2), m.Conflict(latest=2)),
    ("a conflict may omit all details", TABLE, TERMS, commit(2), m.Conflict()),
    ("a conflict may show fewer winners than it knows", TABLE, TERMS, commit(1), m.Conflict(latest=1)),
    ("a conflict lists winners", TABLE, TERMS, commit(1), m.Conflict(latest=2, winners=(entry(1, "one"),))),
    ("a version above the next one is a gap", TABLE, TERMS, commit(4), m.Gap(latest=2)),
    ("a gap may be answered with any error", TABLE, TERMS, commit(4), m.Rejected()),
    ("an owner may reject a commit by policy", TABLE, TERMS, commit(3), m.Rejected(reason="not today")),
    ("a replay is ratified", TABLE, TERMS, commit(1, "one"), m.Ratified(version=1)),
    ("a replay may be refused for now", TABLE, TERMS, commit(1, "one"), m.Rejected(retryable=True)),
    ("a replay may be a conflict without the profile", TABLE, PLAIN, commit(1, "one"), m.Conflict(latest=2)),
    ("the newest version is listed", TABLE, TERMS, m.GetCommits(table="t"), listing(entry(2, "two"))),
    ("a list may end before published commits", TABLE, TERMS, m.GetCommits(table="t"), listing(entry(1, "one"))),
    ("nothing may be listed", TABLE, TERMS, m.GetCommits(table="t"), listing()),
    ("a list may end where the request says", TABLE, TERMS, m.GetCommits(table="t", end=1), listing(entry(1, "one"))),
    ("direct commits may lag", TABLE, DIRECT, m.GetCommits(table="t"), listing(latest=1)),
    ("direct commits need no latest version", TABLE, DIRECT, m.GetCommits(table="t"), listing(latest=-1)),
    ("a new table may have no latest version", World(log=("zero",)), PLAIN, m.GetCommits(table="t"),
     listing(latest=None)),
    ("a landed attempt is `landed`", TABLE, TERMS, m.AttemptOutcome(table="t", attempt="one"), m.Landed(version=1)),
    ("any other attempt is `not_landed`", TABLE, TERMS, m.AttemptOutcome(table="t", attempt="new"), m.NotLanded()),
    ("a creation is ratified", World(), TERMS, creation("zero"), m.Ratified(version=0, table="t")),
    ("a second creation is a conflict", TABLE, TERMS, creation("new"), m.Conflict()),
    ("an existing table is found", TABLE, TERMS, m.LoadTable(name="t"),
     m.Table(table="t", feature="catalogManaged", commit_mode="staged", latest=2)),
    ("a missing table is not found", World(), TERMS, m.LoadTable(name="t"), m.NotFound()),
    ("a dropped table is not found", DROPPED, TERMS, commit(3), m.NotFound()),
]  # fmt: skip

WRONG: list[tuple[str, World, Contract, m.Request, m.Answer]] = [
    ("MC-COMMIT-02", TABLE, TERMS, commit(2), m.Ratified(version=2)),
    ("MC-COMMIT-01", TABLE, TERMS, commit(4), m.Ratified(version=4)),
    ("MC-API-03", TABLE, TERMS, commit(2), m.Ratified(version=3)),
    ("PROFILE-CORE-06", TABLE, TERMS, commit(3, "one"), m.Ratified(version=3)),
    ("PROFILE-CORE-05", TABLE, TERMS, commit(3), m.Conflict()),
    ("PROFILE-CORE-05", TABLE, TERMS, commit(3), m.Gap()),
    ("PROFILE-CORE-05", TABLE, TERMS, commit(2), m.Conflict(latest=1)),
    ("PROFILE-CORE-07", TABLE, FRESH, commit(1), m.Conflict(latest=1)),
    ("MC-GET-02", TABLE, TERMS, commit(1), m.Conflict(latest=3)),
    ("MC-GET-02", TABLE, TERMS, commit(1), m.Conflict(winners=(entry(3, "three"),))),
    ("MC-FEATURE-02", TABLE, TERMS, commit(1), m.Conflict(winners=(entry(1, "other"),))),
    ("PROFILE-RETRY-01", TABLE, TERMS, commit(1, "one"), m.Conflict(latest=2)),
    ("PROFILE-RETRY-01", TABLE, TERMS, commit(1, "one"), m.Rejected()),
    ("PROFILE-OUTCOME-02", TABLE._replace(never=frozenset({"new"})), TERMS, commit(3), m.Ratified(version=3)),
    ("PROFILE-DISCOVERY-02", DROPPED, TERMS, commit(3), m.Ratified(version=3)),
    ("MC-READ-06", TABLE, TERMS, m.GetCommits(table="t"), listing(latest=1)),
    ("MC-READ-06", TABLE._replace(returned=2), DIRECT, m.GetCommits(table="t"), listing(latest=1)),
    ("MC-GET-02", TABLE, TERMS, m.GetCommits(table="t"), listing(latest=3)),
    ("MC-GET-02", TABLE, PLAIN, m.GetCommits(table="t"), listing(latest=-1)),
    ("PROFILE-VERSION0-02", World(log=("zero",)), TERMS, m.GetCommits(table="t"), listing(latest=None)),
    ("LOG-05", TABLE, TERMS, m.GetCommits(table="t"), listing(entry(2, "two"), entry(1, "one"))),
    ("LOG-05", TABLE, TERMS, m.GetCommits(table="t"), listing(entry(0, "zero"), entry(2, "two"))),
    ("MC-FEATURE-02", TABLE, TERMS, m.GetCommits(table="t"), listing(entry(2, "other"))),
    ("MC-API-04", TABLE, TERMS, m.GetCommits(table="t"), m.NotFound()),
    ("PROFILE-OUTCOME-01", TABLE, TERMS, m.AttemptOutcome(table="t", attempt="one"), m.Landed(version=2)),
    ("PROFILE-OUTCOME-01", TABLE, TERMS, m.AttemptOutcome(table="t", attempt="new"), m.Landed(version=2)),
    ("PROFILE-OUTCOME-01", TABLE, TERMS, m.AttemptOutcome(table="t", attempt="one"), m.NotLanded()),
    ("MC-CREATE-02", TABLE, TERMS, creation("new"), m.Ratified(version=0, table="t")),
    ("PROFILE-CORE-05", World(), TERMS, creation("new"), m.Conflict()),
    ("PROFILE-RETRY-01", TABLE, TERMS, creation("zero"), m.Conflict()),
    ("PROFILE-DISCOVERY-01", TABLE, TERMS, m.LoadTable(name="t"), m.NotFound()),
    ("PROFILE-DISCOVERY-01", World(), TERMS, m.LoadTable(name="t"),
     m.Table(table="t", feature="catalogManaged", commit_mode="staged", latest=0)),
    ("CM-DISCOVER-01", TABLE, TERMS, m.LoadTable(name="t"),
     m.Table(table="t", feature="managedCommit", commit_mode="staged", latest=2)),
]  # fmt: skip


@pytest.mark.parametrize(("world", "contract", "request_", "answer"), [row[1:] for row in RIGHT],
                         ids=[row[0] for row in RIGHT])  # fmt: skip
def test_an_answer_that_the_documents_permit_is_possible(
    world: World, contract: Contract, request_: m.Request, answer: m.Answer
) -> None:
    left = model.judge(worlds(world), contract, request_, answer)
    assert not isinstance(left, Wrong)
    assert len(left) == 1


@pytest.mark.parametrize(("requirement", "world", "contract", "request_", "answer"), WRONG)
def test_any_other_answer_is_wrong_and_names_the_requirement(
    requirement: str, world: World, contract: Contract, request_: m.Request, answer: m.Answer
) -> None:
    judged = model.judge(worlds(world), contract, request_, answer)
    assert isinstance(judged, Wrong)
    assert judged.requirements[0] == requirement
    assert judged.expected


def test_a_ratified_proposal_is_the_next_version() -> None:
    assert model.judge(worlds(TABLE), TERMS, commit(3), m.Ratified(version=3)) == {
        World(log=("zero", "one", "two", "new"))
    }


def test_a_lost_answer_leaves_both_outcomes_possible() -> None:
    both = model.lost(worlds(TABLE), commit(3))
    assert {len(world.log) for world in both} == {3, 4}
    landed = model.judge(both, TERMS, m.GetCommits(table="t"), listing(latest=3))
    assert not isinstance(landed, Wrong)
    assert {world.log for world in landed} == {("zero", "one", "two", "new")}
    lost = model.judge(both, TERMS, m.GetCommits(table="t"), listing(latest=2))
    assert not isinstance(lost, Wrong)
    assert {world.log for world in lost} == {TABLE.log}


def test_a_proposal_that_cannot_land_has_one_outcome() -> None:
    assert model.lost(worlds(TABLE), commit(2)) == {TABLE}
    assert model.lost(worlds(TABLE), commit(4)) == {TABLE}
    assert model.lost(worlds(TABLE._replace(never=frozenset({"new"}))), commit(3)) == {
        TABLE._replace(never=frozenset({"new"}))
    }


def test_a_request_without_an_answer_may_land_later() -> None:
    """It may even land after other answers said that it has not landed."""
    opened = model.judge(worlds(TABLE), TERMS, commit(4), m.Unknown())
    assert not isinstance(opened, Wrong)
    after = model.judge(opened, TERMS, commit(3, "other"), m.Ratified(version=3))
    assert not isinstance(after, Wrong)
    read = model.judge(after, TERMS, m.GetCommits(table="t"), listing(latest=4))
    assert not isinstance(read, Wrong)
    assert {world.log[4] for world in read} == {"new"}


def test_a_resolved_attempt_never_lands_later() -> None:
    opened = model.judge(worlds(TABLE), TERMS, commit(3), m.Unknown())
    assert not isinstance(opened, Wrong)
    resolved = model.judge(opened, TERMS, m.AttemptOutcome(table="t", attempt="new"), m.NotLanded())
    assert not isinstance(resolved, Wrong)
    read = model.judge(resolved, TERMS, m.GetCommits(table="t"), listing(latest=3))
    assert isinstance(read, Wrong)
    assert read.requirements[0] == "MC-GET-02"


@pytest.mark.parametrize(("asked", "lands"), [("t", False), ("before the hand-back", True)])
def test_an_answer_about_an_earlier_ownership_says_nothing_about_this_one(asked: str, lands: bool) -> None:
    facts = model.Facts(left=frozenset({"before the hand-back"}))
    question = m.AttemptOutcome(table=asked, attempt="new")
    resolved = model.judge(worlds(TABLE), TERMS, question, m.NotLanded(), facts)
    assert not isinstance(resolved, Wrong)
    landed = model.judge(resolved, TERMS, commit(3), m.Ratified(version=3), facts)
    assert isinstance(landed, Wrong) is not lands


def test_a_visible_commit_was_ratified() -> None:
    both = model.lost(worlds(World(log=("zero",))), commit(1))
    seen = model.visible(both, {0: "zero", 1: "new"})
    assert not isinstance(seen, Wrong)
    assert {world.log for world in seen} == {("zero", "new")}


@pytest.mark.parametrize(
    ("published", "requirement"), [({3: "three"}, "MC-FILES-08"), ({1: "other"}, "MC-BACKFILL-01")]
)
def test_a_visible_commit_that_was_not_ratified_is_wrong(published: dict[int, str | None], requirement: str) -> None:
    judged = model.visible(worlds(TABLE), published)
    assert isinstance(judged, Wrong)
    assert judged.requirements[0] == requirement
    assert judged.observed


def test_a_drop_without_an_answer_leaves_both_outcomes_possible() -> None:
    both = model.lost(worlds(TABLE), m.DropTable(table="t"))
    assert {world.state for world in both} == {State.OWNED, State.DROPPED}
    judged = model.judge(both, TERMS, m.LoadTable(name="t"), m.NotFound())
    assert not isinstance(judged, Wrong)
    assert {world.state for world in judged} == {State.DROPPED}


# Groups


CONTRACT = Contract(
    feature="managedCommit", commit_mode="staged", promises=frozenset(),
    profiles=frozenset({"core", "attempt-outcome", "idempotent-retry", "transaction-group"}),
)  # fmt: skip
EMPTY: Worlds = frozenset({World(log=("zero",))})
FIRST: Worlds = frozenset({World(log=("zero", "a"))})
SECOND: Worlds = frozenset({World(log=("zero", "b"))})
TAKEN: Worlds = frozenset({World(log=("zero", "other"))})
LINK = {0: "a", 1: "b"}
GROUP = m.CommitGroup(
    members=(
        m.GroupMember(table="orders", version=1, attempt="a", actions=()),
        m.GroupMember(table="stock", version=1, attempt="b", actions=()),
    )
)


def refused(member: int, answer: m.Conflict | m.Gap | m.Rejected, *lost: int) -> m.GroupRefused:
    return m.GroupRefused(decided_by=member, answer=answer, lost=lost)


def judged(first: Worlds, second: Worlds, answer: m.Answer) -> list[Worlds] | WrongMember:
    links = [LINK] if (first, second) in ((EMPTY, EMPTY), (FIRST, SECOND)) else []
    return groups.judge(
        [first, second], links, CONTRACT, GROUP, answer, [NOTHING, NOTHING], whole=bool(links)
    )  # fmt: skip


@pytest.mark.parametrize(("first", "second", "answer", "requirement"), [
    (EMPTY, TAKEN, m.GroupRatified(), groups.ATOMIC),
    (FIRST, EMPTY, m.GroupRatified(), groups.REPLAYED),
    (FIRST, SECOND, refused(0, m.Conflict()), groups.REPLAYED),
    (FIRST, SECOND, m.Rejected(), groups.REPLAYED),
    (EMPTY, TAKEN, refused(0, m.Conflict()), groups.NAMED),
    (EMPTY, TAKEN, refused(1, m.Gap()), groups.NAMED),
    (EMPTY, TAKEN, refused(2, m.Conflict()), groups.NAMED),
    (TAKEN, TAKEN, refused(0, m.Conflict(), 0), groups.NAMED),
    (EMPTY, TAKEN, refused(1, m.Conflict(), 0), groups.NAMED),
    (EMPTY, frozenset({World(log=("zero",), never=frozenset({"b"}))}), m.GroupRatified(), groups.ATOMIC),
    (EMPTY, frozenset({World(log=("zero",), state=State.DROPPED)}), m.GroupRatified(), groups.ATOMIC),
])  # fmt: skip
def test_an_impossible_answer_is_wrong(first: Worlds, second: Worlds, answer: m.Answer, requirement: str) -> None:
    outcome = judged(first, second, answer)
    assert isinstance(outcome, WrongMember)
    assert requirement in outcome.wrong.requirements


@pytest.mark.parametrize(("first", "second", "answer", "after"), [
    (EMPTY, EMPTY, m.GroupRatified(), [FIRST, SECOND]),
    (FIRST, SECOND, m.GroupRatified(), [FIRST, SECOND]),
    (FIRST, SECOND, m.Rejected(retryable=True), [FIRST, SECOND]),
    (EMPTY, TAKEN, refused(1, m.Conflict(latest=1), 1), [EMPTY, TAKEN]),
    (EMPTY, TAKEN, refused(1, m.Conflict(), 0, 1), [EMPTY, TAKEN]),
    (TAKEN, TAKEN, refused(1, m.Conflict()), [TAKEN, TAKEN]),
    (EMPTY, EMPTY, refused(1, m.Rejected()), [EMPTY, EMPTY]),
    (FIRST, EMPTY, refused(0, m.Rejected()), [FIRST, EMPTY]),
    (FIRST, EMPTY, m.Rejected(), [FIRST, EMPTY]),
])  # fmt: skip
def test_a_possible_answer_leaves_its_state(
    first: Worlds, second: Worlds, answer: m.Answer, after: list[Worlds]
) -> None:  # fmt: skip
    assert judged(first, second, answer) == after


def test_a_lost_answer_leaves_all_or_none() -> None:
    first, second = groups.lost([EMPTY, EMPTY], [LINK], CONTRACT, GROUP)
    assert (first, second) == (EMPTY | FIRST, EMPTY | SECOND)
    assert groups.agree([FIRST, second], [LINK]) == [FIRST, SECOND]
    assert groups.agree([EMPTY, second], [LINK]) == [EMPTY, EMPTY]
    assert groups.agree([FIRST, EMPTY], [LINK]) is None
    assert groups.lost([EMPTY, TAKEN], [LINK], CONTRACT, GROUP) == [EMPTY, TAKEN]


def test_a_group_whose_outcome_is_open_lands_in_both_tables_later() -> None:
    outcome = judged(EMPTY, EMPTY, m.Unknown())
    assert isinstance(outcome, list)
    shown = groups.agree([FIRST, outcome[1]], [LINK])
    assert shown is not None
    assert {world.log for world in shown[1]} == {("zero", "b")}


def table(reference: str, latest: int) -> m.Table:
    commits = tuple(m.CommitEntry(version=version) for version in range(1, latest + 1))
    return m.Table(table=reference, feature="managedCommit", commit_mode="staged", latest=latest, commits=commits)


@pytest.mark.parametrize(("first", "second", "possible"), [(0, 0, True), (1, 1, True), (0, 1, False), (1, 0, False)])
def test_an_answer_about_both_tables_shows_one_state(first: int, second: int, possible: bool) -> None:
    worlds = groups.lost([EMPTY, EMPTY], [LINK], CONTRACT, GROUP)
    answers = [table("orders", first), table("stock", second)]
    outcome = groups.load_tables(worlds, [LINK], CONTRACT, answers, [NOTHING, NOTHING])
    assert isinstance(outcome, list) is possible
    if isinstance(outcome, WrongMember):
        assert groups.ONE_STATE in outcome.wrong.requirements
    assert groups.half_shown({0: 1, 1: 1}, {0: first, 1: second}) is not possible
