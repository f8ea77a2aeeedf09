"""The files that make up a version: DELTA.md#log-segment.

Examples, and a brute-force oracle for small random logs. The oracle judges one version at a time, independently of how
`build` works.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.log.log_segment import LogSegment, build, known_commits
from refimpl.protocol.commits import CommitsAnswer
from refimpl.protocol.errors import (
    CorruptionError,
    CorruptLogError,
    DeltaError,
    NotFoundInHistoryError,
    TableNotFoundError,
)
from refimpl.protocol.log_path import FileKind, LogPath
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, TableFeature
from spec_tests.support.written_log import (
    answer,
    checksum,
    classic,
    compaction,
    direct,
    inline,
    part,
    parts,
    published,
    staged,
    v2,
)

both_features = pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=list(TABLE_FEATURES))


WRONG_NAMES = (
    "00000000000000000009.3a0d65cd-4056-49b8-937b-000000000002.json",
    "../00000000000000000002.3a0d65cd-4056-49b8-937b-000000000002.json",
    "00000000000000000002.json",
)


class TestTheOwnersAnswer:
    @both_features
    @pytest.mark.parametrize(
        ("versions", "commits"),
        [
            (range(5), answer(staged(3), staged(2), latest=4)),
            (range(5), answer(staged(2), staged(4), latest=4)),
            (range(5), answer(staged(2), staged(2), latest=4)),
            (range(1), answer(staged(1), latest=None)),
            *((range(2), answer(staged(2, file_name=name), latest=2)) for name in WRONG_NAMES),
        ],
        ids=["descending", "gap", "duplicate", "no latest version", "another version", "folder", "no uuid"],
    )
    def test_an_invalid_answer_is_rejected(
        self, feature: TableFeature, versions: range, commits: CommitsAnswer
    ) -> None:
        """catalog-managed, "Delta Log Entries": the version in a file's name is authoritative."""
        with pytest.raises(CorruptionError):
            build(published(*versions), commits, feature)

    @both_features
    def test_an_answer_with_a_commit_above_the_latest_version_is_rejected(self, feature: TableFeature) -> None:
        with pytest.raises(CorruptionError) as caught:
            build(published(0, 1), answer(staged(2), latest=1), feature)
        assert caught.value.version == 2

    @both_features
    def test_the_owner_may_list_published_commits(self, feature: TableFeature) -> None:
        """RULINGS.md#free-commit-lists: the owner may list commits that it knows to be published."""
        segment = build(published(0, 1), answer(direct(1), staged(2), latest=2), feature)
        assert [commit.version for commit in segment.commits] == [0, 1, 2]


class TestTheTarget:
    def test_a_huge_latest_version_is_reported_as_a_gap_at_once(self) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(0, 1), answer(latest=2**63 - 1), CATALOG_MANAGED)
        assert caught.value.missing_version == 2


class TestCheckpoints:
    def test_v2_wins_over_classic_over_multi_part_at_one_version(self) -> None:
        listing = [*published(0, 1, 2), *parts(2, 2)]
        assert build(listing).checkpoint == tuple(parts(2, 2))
        assert build([*listing, classic(2)]).checkpoint == (classic(2),)
        assert build([*listing, classic(2), v2(2)]).checkpoint == (v2(2),)
        assert build([*listing, classic(2), v2(2, "json")]).checkpoint == (v2(2, "json"),)

    def test_an_unreadable_checkpoint_is_skipped(self) -> None:
        """FB39."""
        listing = [*published(*range(5)), classic(2), classic(4)]
        assert build(listing, distrusted={classic(4).name}).checkpoint == (classic(2),)
        assert build(listing, distrusted={classic(4).name, classic(2).name}).checkpoint == ()

    def test_one_unreadable_part_makes_the_checkpoint_incomplete(self) -> None:
        listing = [*published(*range(5)), *parts(4, 2)]
        assert build(listing, distrusted={part(4, 2, 2).name}).checkpoint == ()


class TestOnlyWhatIsNew:
    def test_an_owner_whose_latest_version_went_back_is_an_error(self) -> None:
        with pytest.raises(CorruptionError):
            build([], answer(latest=3), CATALOG_MANAGED, known=4)

    def test_a_gap_after_the_known_version_names_the_missing_version(self) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(6), known=4)
        assert caught.value.missing_version == 5


@pytest.mark.parametrize(("latest", "unclaimed"), [(1, True), (2, False)])
def test_a_version_is_unclaimed_if_its_owner_knows_only_older_versions(latest: int, unclaimed: bool) -> None:
    """Without this mark, the client would look up the owner again for each snapshot."""
    segment = build(published(0, 1, 2), answer(latest=latest), MANAGED_COMMIT)
    assert (segment.version, segment.unclaimed) == (2, unclaimed)


def test_a_segment_with_a_gap_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        LogSegment(version=3, commits=tuple(published(0, 1, 3)))
    assert LogSegment(version=2, commits=tuple(published(0, 1, 2))).version == 2


LAST = 8
VERSIONS = st.integers(0, LAST)


@dataclass(frozen=True, kw_only=True)
class World:
    listing: list[LogPath]
    answer: CommitsAnswer | None
    feature: TableFeature | None
    requested: int | None

    def build(self, **options: object) -> LogSegment:
        return build(self.listing, self.answer, self.feature, version=self.requested, **options)  # type: ignore[arg-type]

    def names(self, kind: FileKind) -> list[LogPath]:
        return [path for path in self.listing if path.kind is kind]


@st.composite
def checkpoints(draw: st.DrawFn) -> list[LogPath]:
    paths: list[LogPath] = []
    for version in draw(st.sets(VERSIONS, max_size=3)):
        kinds = draw(st.sets(st.sampled_from(["classic", "v2", "parts"]), min_size=1))
        paths += [classic(version)] if "classic" in kinds else []
        paths += [v2(version)] if "v2" in kinds else []
        if "parts" in kinds:
            paths += [part(version, number, 3) for number in draw(st.sets(st.integers(1, 3), min_size=1))]
    return paths


@st.composite
def worlds(draw: st.DrawFn) -> World:
    holes = draw(st.sets(VERSIONS, max_size=2))
    first, last = draw(st.sampled_from([0, 0, 2])), draw(VERSIONS)
    listing = published(*(version for version in range(first, last + 1) if version not in holes))
    listing += draw(checkpoints())
    ranges = st.tuples(VERSIONS, VERSIONS).map(sorted).map(tuple)
    listing += [compaction(start, end) for start, end in draw(st.sets(ranges, max_size=4))]
    listing += [checksum(version) for version in draw(st.sets(VERSIONS, max_size=3))]
    answer, feature = None, draw(st.sampled_from([None, MANAGED_COMMIT, CATALOG_MANAGED]))
    if feature is not None:
        answer = draw(answers())
    requested = draw(st.none() | VERSIONS)
    return World(listing=draw(st.permutations(listing)), answer=answer, feature=feature, requested=requested)


@st.composite
def answers(draw: st.DrawFn) -> CommitsAnswer:
    latest = draw(st.none() | VERSIONS)
    if latest is None or draw(st.booleans()):
        return CommitsAnswer(commits=(), latest_ratified_version=latest)
    end = draw(st.integers(0, latest))
    start = draw(st.integers(0, end))
    kinds = [draw(st.sampled_from([staged, inline])) for _ in range(start, end + 1)]
    commits = tuple(kind(version) for version, kind in zip(range(start, end + 1), kinds, strict=True))
    return CommitsAnswer(commits=commits, latest_ratified_version=latest)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer by the rules: an error, or the target version, the checkpoint's version and the source of
    each commit.
    """

    error: type[DeltaError] | None = None
    missing: int | None = None
    version: int | None = None
    checkpoint: int | None = None
    sources: tuple[object, ...] = ()


def complete_at(world: World, version: int) -> bool:
    here = [path for path in world.listing if path.version == version]
    kinds = {path.kind for path in here}
    parts = {path.part for path in here if path.kind is FileKind.CHECKPOINT_PART}
    return bool(kinds & {FileKind.CLASSIC_CHECKPOINT, FileKind.V2_CHECKPOINT}) or parts == {1, 2, 3}


def commit_at(world: World, version: int) -> object:
    files = [path for path in world.names(FileKind.COMMIT) if path.version == version]
    owned = [] if world.answer is None else [c for c in world.answer.commits if c.version == version]
    both = [*owned, *files] if world.feature is CATALOG_MANAGED else [*files, *owned]
    return both[0] if both else None


def verdict(world: World) -> Verdict:
    everything = range(LAST + 1)
    latest = None if world.answer is None else world.answer.latest_ratified_version
    visible = [v for v in everything if complete_at(world, v) or isinstance(commit_at(world, v), LogPath)]
    visible += [path.version for path in world.names(FileKind.COMMIT)]
    newest = latest if world.feature is CATALOG_MANAGED else max([*visible, -1 if latest is None else latest, -1])
    if newest is None or newest < 0:
        return Verdict(error=TableNotFoundError)
    if world.requested is not None and world.requested > newest:
        return Verdict(error=NotFoundInHistoryError)
    target = newest if world.requested is None else world.requested
    checkpoint = next((v for v in reversed(range(target + 1)) if complete_at(world, v)), None)
    needed = range(0 if checkpoint is None else checkpoint + 1, target + 1)
    missing = next((v for v in needed if commit_at(world, v) is None), None)
    if missing is None:
        sources = tuple(commit_at(world, v) for v in needed)
        return Verdict(version=target, checkpoint=checkpoint, sources=sources)
    cleaned = missing == 0 and any(complete_at(world, v) for v in everything if v > target)
    if world.requested is not None and cleaned:
        return Verdict(error=NotFoundInHistoryError)
    return Verdict(error=CorruptLogError, missing=missing)


def latest_of(world: World) -> World:
    return replace(world, requested=None)


@given(worlds(), VERSIONS)
def test_the_segment_of_any_log_follows_the_rules(world: World, known: int) -> None:
    latest = None if verdict(latest_of(world)).error else latest_of(world).build()
    check_history(world, latest)
    if latest is not None and latest.first_version <= known <= latest.version:
        check_known(world, latest, known)
    expected = verdict(world)
    if expected.error is not None:
        with pytest.raises(expected.error) as caught:
            world.build()
        assert caught.value.facts.get("missing_version") == expected.missing
        return
    segment = world.build()
    assert (segment.version, segment.checkpoint_version) == (expected.version, expected.checkpoint)
    assert segment.last_commit == commit_at(world, segment.version)
    assert segment.commits == expected.sources
    check_checksum(world, segment)
    if world.requested is not None:
        check_nothing_above_counts(world, segment)


def check_history(world: World, latest: LogSegment | None) -> None:
    """The history has no gap and ends at the latest version."""
    history = known_commits(world.listing, world.answer, world.feature)
    versions = [commit.version for commit in history]
    assert versions == list(range(versions[0], versions[-1] + 1)) if versions else True
    if latest is not None and latest.last_commit is not None:
        assert versions[-1] == latest.version
        assert history[-1] == latest.last_commit


def check_known(world: World, latest: LogSegment, known: int) -> None:
    """A segment after a known version has exactly the commits after that version."""
    later = build(world.listing, world.answer, world.feature, known=known)
    assert (later.version, later.checkpoint) == (latest.version, ())
    assert later.commits == tuple(commit for commit in latest.commits if commit.version > known)


def check_checksum(world: World, segment: LogSegment) -> None:
    """The checksum's version lies between the checkpoint and the target."""
    oldest = -1 if segment.checkpoint_version is None else segment.checkpoint_version
    usable = [p.version for p in world.names(FileKind.CHECKSUM) if oldest <= p.version <= segment.version]
    assert (None if segment.checksum is None else segment.checksum.version) == max(usable, default=None)


def check_nothing_above_counts(world: World, segment: LogSegment) -> None:
    """Files above the requested version change nothing."""
    below = [path for path in world.listing if path.version <= segment.version]
    if world.answer is not None or any(p.kind is FileKind.COMMIT and p.version == segment.version for p in below):
        assert build(below, world.answer, world.feature, version=world.requested) == segment
