"""Log segments against a brute-force reading of the rules, on small random logs.

DELTA.md#log-segment. The oracle looks at one version at a
time and knows nothing of how `build` goes about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.client.log_segment import LogSegment, build, known_commits
from refimpl.commits import CommitsAnswer, RatifiedCommit
from refimpl.errors import CorruptLogError, DeltaError, NotFoundInHistoryError, TableNotFoundError
from refimpl.log_path import FileKind, LogPath
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TableFeature
from spec_tests.support.written_log import checksum, classic, compaction, inline, part, published, staged, v2

steady = settings(deadline=None, derandomize=True)
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
    found: list[LogPath] = []
    for version in draw(st.sets(VERSIONS, max_size=3)):
        kinds = draw(st.sets(st.sampled_from(["classic", "v2", "parts"]), min_size=1))
        found += [classic(version)] if "classic" in kinds else []
        found += [v2(version)] if "v2" in kinds else []
        if "parts" in kinds:
            found += [part(version, number, 3) for number in draw(st.sets(st.integers(1, 3), min_size=1))]
    return found


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
    """What the rules say: an error, or the target, the checkpoint's version and each commit's source."""

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


@steady
@given(worlds())
def test_build_says_what_the_rules_say(world: World) -> None:
    expected = verdict(world)
    if expected.error is not None:
        with pytest.raises(expected.error) as caught:
            world.build()
        assert caught.value.facts.get("missing_version") == expected.missing
        return
    segment = world.build()
    assert (segment.version, segment.checkpoint_version) == (expected.version, expected.checkpoint)
    assert segment.commits == expected.sources


def built(world: World) -> LogSegment | None:
    try:
        return world.build()
    except DeltaError:
        return None


@steady
@given(worlds())
def test_every_version_after_the_checkpoint_is_read_exactly_once(world: World) -> None:
    segment = built(world)
    if segment is None:
        return
    read: list[int] = []
    for delta in segment.deltas():
        start = delta.start_version if isinstance(delta, LogPath) and delta.start_version is not None else delta.version
        read += range(start, delta.version + 1)
    assert read == list(range(segment.first_version, segment.version + 1))


@steady
@given(worlds())
def test_compactions_are_usable_and_a_narrower_one_never_displaces_a_wider_one(world: World) -> None:
    """DELTA.md#compaction-range: usable only if checkpoint < x and y <= target; the widest is preferred."""
    segment = built(world)
    if segment is None:
        return
    owned = {c.version for c in segment.commits if isinstance(c, RatifiedCommit)}
    must_read = owned if world.feature is CATALOG_MANAGED else set()

    def covers(path: LogPath) -> set[int]:
        assert path.start_version is not None
        return set(range(path.start_version, path.version + 1))

    for path in segment.compactions:
        assert covers(path) <= {commit.version for commit in segment.commits}
        assert not covers(path) & must_read
    for path in world.names(FileKind.COMPACTION):
        usable = covers(path) <= {c.version for c in segment.commits} and len(covers(path)) > 1
        if usable and not covers(path) & must_read and not any(v > min(must_read, default=99) for v in covers(path)):
            rivals = [chosen for chosen in segment.compactions if covers(chosen) & covers(path)]
            assert any(len(covers(chosen)) >= len(covers(path)) for chosen in rivals)


@steady
@given(worlds())
def test_the_checksum_is_at_or_below_the_target_and_not_older_than_the_checkpoint(world: World) -> None:
    segment = built(world)
    if segment is None:
        return
    oldest = -1 if segment.checkpoint_version is None else segment.checkpoint_version
    usable = [p.version for p in world.names(FileKind.CHECKSUM) if oldest <= p.version <= segment.version]
    assert (None if segment.checksum is None else segment.checksum.version) == max(usable, default=None)


@steady
@given(worlds(), VERSIONS)
def test_knowing_a_version_leaves_exactly_the_commits_after_it(world: World, known: int) -> None:
    segment = built(World(listing=world.listing, answer=world.answer, feature=world.feature, requested=None))
    if segment is None or not segment.first_version <= known <= segment.version:
        return
    later = build(world.listing, world.answer, world.feature, known=known)
    assert later.version == segment.version
    assert later.commits == tuple(commit for commit in segment.commits if commit.version > known)


@steady
@given(worlds())
def test_files_above_a_requested_version_change_nothing(world: World) -> None:
    segment = built(world)
    if segment is None or world.requested is None:
        return
    below = [path for path in world.listing if path.version <= segment.version]
    if world.answer is not None or any(p.kind is FileKind.COMMIT and p.version == segment.version for p in below):
        assert build(below, world.answer, world.feature, version=world.requested) == segment


@steady
@given(worlds())
def test_history_is_contiguous_and_ends_at_the_latest_version(world: World) -> None:
    found = known_commits(world.listing, world.answer, world.feature)
    versions = [commit.version for commit in found]
    assert versions == list(range(versions[0], versions[-1] + 1)) if versions else True
    latest = built(World(listing=world.listing, answer=world.answer, feature=world.feature, requested=None))
    if latest is not None and latest.last_commit is not None:
        assert versions[-1] == latest.version
        assert found[-1] == latest.last_commit
