"""Which files make up a version: DELTA.md#log-segment."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from refimpl.client.log_segment import LogSegment, build, known_commits
from refimpl.commits import RatifiedCommit
from refimpl.errors import CorruptionError, CorruptLogError, NotFoundInHistoryError, TableNotFoundError
from refimpl.log_path import FileKind, LogPath
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, TableFeature
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


def sources(segment: LogSegment) -> dict[int, str]:
    """Where each commit is read from."""
    return {commit.version: source(commit) for commit in segment.commits}


def source(commit: LogPath | RatifiedCommit) -> str:
    if isinstance(commit, LogPath):
        return "published"
    return "inline" if commit.content is not None else "staged"


class TestTheDocumentsOwnExamples:
    LISTING = (*published(0, 1, 2, 3, 4, 5, 6, 7), classic(2), compaction(3, 5))

    def test_catalog_managed_reads_its_example_as_it_says(self) -> None:
        """catalog-managed, "Reading Catalog-managed Tables": 7 from the owner although it is published."""
        owner = answer(staged(7), staged(8), inline(9), latest=9)
        segment = build(self.LISTING, owner, CATALOG_MANAGED)
        assert segment.version == 9
        assert segment.checkpoint == (classic(2),)
        assert sources(segment) == {
            3: "published", 4: "published", 5: "published", 6: "published", 7: "staged", 8: "staged", 9: "inline",
        }  # fmt: skip
        assert segment.compactions == (compaction(3, 5),)
        assert [delta.version for delta in segment.deltas()] == [5, 6, 7, 8, 9]

    def test_managed_commit_reads_its_example_through_the_owner(self) -> None:
        """managed-commits, "Reading managed-commit tables", second choice: 0 to 7 published, 8 and 9 from the owner."""
        owner = answer(staged(6), staged(7), staged(8), staged(9), latest=9)
        segment = build(self.LISTING, owner, MANAGED_COMMIT)
        assert segment.version == 9
        assert sources(segment) == {
            3: "published", 4: "published", 5: "published", 6: "published", 7: "published", 8: "staged", 9: "staged",
        }  # fmt: skip

    def test_managed_commit_without_the_owner_ends_at_the_newest_published_version(self) -> None:
        """managed-commits, "Reading managed-commit tables", first choice."""
        segment = build(self.LISTING)
        assert segment.version == 7
        assert set(sources(segment).values()) == {"published"}


class TestTheOwnersAnswer:
    @both_features
    def test_contiguous_ascending_commits_up_to_the_latest_are_taken(self, feature: TableFeature) -> None:
        segment = build(published(0, 1), answer(staged(2), staged(3), latest=3), feature)
        assert sources(segment) == {0: "published", 1: "published", 2: "staged", 3: "staged"}

    @both_features
    @pytest.mark.parametrize(
        "commits",
        [(staged(3), staged(2)), (staged(2), staged(4)), (staged(2), staged(2))],
        ids=["descending", "with a hole", "with a duplicate"],
    )
    def test_commits_out_of_order_are_no_answer(
        self, feature: TableFeature, commits: tuple[RatifiedCommit, ...]
    ) -> None:
        with pytest.raises(CorruptionError):
            build(published(0, 1, 2, 3, 4), answer(*commits, latest=4), feature)

    @both_features
    def test_a_commit_above_the_latest_version_is_no_answer(self, feature: TableFeature) -> None:
        with pytest.raises(CorruptionError) as caught:
            build(published(0, 1), answer(staged(2), latest=1), feature)
        assert caught.value.version == 2

    @both_features
    def test_a_commit_without_a_latest_version_is_no_answer(self, feature: TableFeature) -> None:
        with pytest.raises(CorruptionError):
            build(published(0), answer(staged(1), latest=None), feature)

    @both_features
    @pytest.mark.parametrize(
        "file_name",
        [
            "00000000000000000009.3a0d65cd-4056-49b8-937b-000000000002.json",
            "../00000000000000000002.3a0d65cd-4056-49b8-937b-000000000002.json",
            "00000000000000000002.json",
        ],
        ids=["of another version", "with a folder", "without a uuid"],
    )
    def test_a_staged_file_must_be_named_after_its_version(self, feature: TableFeature, file_name: str) -> None:
        """catalog-managed, "Delta Log Entries": the version in the name is authoritative."""
        with pytest.raises(CorruptionError):
            build(published(0, 1), answer(staged(2, file_name=file_name), latest=2), feature)

    @both_features
    def test_an_empty_list_is_an_answer(self, feature: TableFeature) -> None:
        assert build(published(0, 1, 2), answer(latest=2), feature).version == 2

    @both_features
    def test_commits_published_directly_after_the_listed_ones_come_from_the_listing(
        self, feature: TableFeature
    ) -> None:
        segment = build(published(0, 1, 2, 3, 4), answer(staged(2), latest=4), feature)
        assert segment.version == 4
        assert sources(segment)[3] == sources(segment)[4] == "published"

    @both_features
    def test_a_commit_that_the_owner_knows_and_nobody_published_is_a_gap(self, feature: TableFeature) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(0, 1), answer(staged(2), latest=4), feature)
        assert caught.value.missing_version == 3

    @both_features
    def test_the_owner_may_list_commits_that_it_knows_to_be_published(self, feature: TableFeature) -> None:
        """RULINGS.md#free-commit-lists: published commits listed."""
        segment = build(published(0, 1), answer(direct(1), staged(2), latest=2), feature)
        assert [commit.version for commit in segment.commits] == [0, 1, 2]

    @both_features
    def test_a_staged_file_is_enough_where_the_listing_lacks_the_published_one(self, feature: TableFeature) -> None:
        segment = build(published(0), answer(staged(1), staged(2), latest=2), feature)
        assert sources(segment) == {0: "published", 1: "staged", 2: "staged"}


class TestTheTarget:
    def test_catalog_managed_is_capped_at_the_owners_latest_version(self) -> None:
        """FB15; catalog-managed, "Reader Requirements": later published files are ignored."""
        segment = build(published(0, 1, 2, 3), answer(latest=2), CATALOG_MANAGED)
        assert segment.version == 2

    def test_managed_commit_takes_the_newest_of_listing_and_owner(self) -> None:
        assert build(published(0, 1, 2, 3), answer(latest=2), MANAGED_COMMIT).version == 3
        assert build(published(0, 1), answer(staged(2), latest=2), MANAGED_COMMIT).version == 2

    def test_managed_commit_without_a_ratified_version_is_the_published_table(self) -> None:
        """FB14; RULINGS.md#latest-minus-one is no claim, and never hides the table."""
        assert build(published(0, 1), answer(latest=None), MANAGED_COMMIT).version == 1

    def test_catalog_managed_without_a_ratified_version_is_no_table(self) -> None:
        with pytest.raises(TableNotFoundError):
            build(published(0), answer(latest=None), CATALOG_MANAGED)

    def test_an_empty_log_is_no_table(self) -> None:
        with pytest.raises(TableNotFoundError):
            build([])

    def test_a_requested_version_is_the_target(self) -> None:
        assert build(published(0, 1, 2, 3), version=2).version == 2

    @both_features
    def test_a_requested_version_above_the_latest_is_an_error(self, feature: TableFeature) -> None:
        owner = answer(staged(2), latest=2)
        assert build(published(0, 1), owner, feature, version=2).version == 2
        with pytest.raises(NotFoundInHistoryError) as caught:
            build(published(0, 1), owner, feature, version=3)
        assert caught.value.latest == 2

    def test_a_requested_version_above_the_cap_is_an_error_although_it_is_published(self) -> None:
        owner = answer(latest=2)
        assert build(published(0, 1, 2, 3), owner, MANAGED_COMMIT, version=3).version == 3
        with pytest.raises(NotFoundInHistoryError):
            build(published(0, 1, 2, 3), owner, CATALOG_MANAGED, version=3)

    @both_features
    def test_an_answer_that_reaches_the_requested_version_is_enough(self, feature: TableFeature) -> None:
        segment = build(published(0, 1), answer(staged(2), latest=9), feature, version=2)
        assert segment.version == 2

    def test_everything_above_the_target_is_ignored(self) -> None:
        listing = [*published(0, 1, 2, 3, 4), classic(3), v2(4), compaction(1, 3), checksum(3), checksum(4)]
        segment = build(listing, version=2)
        assert segment.checkpoint == ()
        assert segment.compactions == ()
        assert segment.checksum is None
        assert [commit.version for commit in segment.commits] == [0, 1, 2]

    def test_a_version_whose_history_was_cleaned_up_is_not_found(self) -> None:
        listing = [*published(10, 11), classic(10)]
        assert build(listing, version=10).version == 10
        with pytest.raises(NotFoundInHistoryError) as caught:
            build(listing, version=9)
        assert caught.value.earliest == 10

    def test_an_absurd_latest_version_is_a_gap_and_costs_nothing(self) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(0, 1), answer(latest=2**63 - 1), CATALOG_MANAGED)
        assert caught.value.missing_version == 2


class TestOverlap:
    OWNER = answer(staged(1), staged(2), latest=2)

    def test_the_owners_copy_wins_where_the_feature_says_so(self) -> None:
        """catalog-managed, "Reader Requirements"."""
        assert sources(build(published(0, 1, 2), self.OWNER, CATALOG_MANAGED)) == {
            0: "published", 1: "staged", 2: "staged",
        }  # fmt: skip

    def test_the_published_file_serves_where_the_feature_leaves_a_choice(self) -> None:
        """managed-commits, "Reading managed-commit tables", the example."""
        assert set(sources(build(published(0, 1, 2), self.OWNER, MANAGED_COMMIT)).values()) == {"published"}

    def test_a_compaction_does_not_stand_for_the_owners_copy_where_that_must_be_read(self) -> None:
        listing = [*published(0, 1, 2), compaction(0, 2)]
        assert build(listing, self.OWNER, CATALOG_MANAGED).compactions == ()
        assert build(listing, self.OWNER, MANAGED_COMMIT).compactions == (compaction(0, 2),)
        assert build(listing, answer(staged(2), latest=2), CATALOG_MANAGED).compactions == ()
        assert build([*listing, compaction(0, 1)], answer(staged(2), latest=2), CATALOG_MANAGED).compactions == (
            compaction(0, 1),
        )

    def test_checkpoints_come_from_the_listing_although_the_owner_lists_their_commits(self) -> None:
        segment = build([*published(0, 1, 2), classic(2)], self.OWNER, CATALOG_MANAGED)
        assert segment.checkpoint == (classic(2),)
        assert segment.commits == ()
        assert segment.last_commit == staged(2)


class TestCheckpoints:
    def test_a_checkpoint_clears_the_commits_up_to_its_version(self) -> None:
        segment = build([*published(0, 1, 2, 3), classic(2)])
        assert segment.first_version == 3
        assert [commit.version for commit in segment.commits] == [3]

    def test_the_newest_complete_checkpoint_is_used(self) -> None:
        """managed-commits, "Checkpoints"."""
        listing = [*published(*range(6)), classic(1), classic(4), part(5, 1, 2)]
        assert build(listing).checkpoint == (classic(4),)

    def test_multi_part_checkpoints_count_only_when_complete(self) -> None:
        listing = published(*range(4))
        assert build([*listing, *parts(2, 3)]).checkpoint == tuple(parts(2, 3))
        for absent in (1, 2, 3):
            some = [path for path in parts(2, 3) if path.part != absent]
            assert build([*listing, *some]).checkpoint == ()

    def test_parts_of_two_divisions_do_not_make_one_checkpoint(self) -> None:
        """FB32."""
        listing = [*published(*range(4)), part(2, 1, 2), part(2, 2, 3), part(2, 3, 3)]
        assert build(listing).checkpoint == ()
        assert build([*listing, part(2, 2, 2)]).checkpoint == tuple(parts(2, 2))

    def test_at_one_version_v2_goes_before_classic_before_multi_part(self) -> None:
        listing = [*published(0, 1, 2), *parts(2, 2)]
        assert build(listing).checkpoint == tuple(parts(2, 2))
        assert build([*listing, classic(2)]).checkpoint == (classic(2),)
        assert build([*listing, classic(2), v2(2)]).checkpoint == (v2(2),)
        assert build([*listing, classic(2), v2(2, "json")]).checkpoint == (v2(2, "json"),)

    def test_a_newer_classic_checkpoint_goes_before_an_older_v2_one(self) -> None:
        assert build([*published(0, 1, 2), v2(1), classic(2)]).checkpoint == (classic(2),)

    def test_a_checkpoint_proves_its_version_where_its_commit_is_cleaned_up(self) -> None:
        segment = build([classic(5)])
        assert segment.version == 5
        assert segment.last_commit is None

    def test_a_checkpoint_that_cannot_be_read_is_passed_over(self) -> None:
        """FB39."""
        listing = [*published(*range(5)), classic(2), classic(4)]
        assert build(listing, distrusted={classic(4).name}).checkpoint == (classic(2),)
        assert build(listing, distrusted={classic(4).name, classic(2).name}).checkpoint == ()

    def test_one_bad_part_makes_the_checkpoint_incomplete(self) -> None:
        listing = [*published(*range(5)), *parts(4, 2)]
        assert build(listing, distrusted={part(4, 2, 2).name}).checkpoint == ()


class TestGaps:
    @pytest.mark.parametrize("missing", [0, 1, 2, 3])
    def test_a_gap_in_the_log_names_the_missing_version(self, missing: int) -> None:
        versions = [version for version in range(5) if version != missing]
        with pytest.raises(CorruptLogError) as caught:
            build(published(*versions))
        assert caught.value.missing_version == missing
        assert build(published(*range(5))).version == 4

    def test_a_gap_below_a_checkpoint_is_none(self) -> None:
        assert build([*published(0, 3), classic(2)]).version == 3

    @both_features
    def test_a_gap_between_the_listing_and_the_owners_commits_names_the_missing_version(
        self, feature: TableFeature
    ) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(0, 1), answer(staged(3), latest=3), feature)
        assert caught.value.missing_version == 2

    def test_a_compaction_does_not_hide_a_gap(self) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build([*published(0, 1, 3), compaction(1, 3)])
        assert caught.value.missing_version == 2

    def test_a_listing_that_shows_9_without_8_is_a_gap(self) -> None:
        """RULINGS.md#free-listing: one non-atomic listing may do so; the caller lists again."""
        with pytest.raises(CorruptLogError) as caught:
            build(published(0, 1, 3))
        assert caught.value.missing_version == 2


class TestCompactions:
    LISTING = published(*range(13))

    def test_a_compaction_stands_for_the_commits_that_it_covers(self) -> None:
        segment = build([*self.LISTING, compaction(2, 5)])
        assert [delta.version for delta in segment.deltas()] == [0, 1, 5, *range(6, 13)]
        assert [delta for delta in segment.deltas() if isinstance(delta, LogPath)][2].kind is FileKind.COMPACTION

    def test_a_compaction_must_start_after_the_checkpoint(self) -> None:
        assert build([*self.LISTING, classic(2), compaction(2, 5)]).compactions == ()
        assert build([*self.LISTING, classic(2), compaction(3, 5)]).compactions == (compaction(3, 5),)

    def test_a_compaction_must_end_at_or_before_the_target(self) -> None:
        listing = [*self.LISTING, compaction(2, 5)]
        assert build(listing, version=5).compactions == (compaction(2, 5),)
        assert build(listing, version=4).compactions == ()

    def test_of_overlapping_compactions_the_widest_is_used(self) -> None:
        overlapping = (compaction(1, 3), compaction(3, 9), compaction(8, 10), compaction(9, 10))
        listing = [*self.LISTING, *overlapping, compaction(11, 12)]
        assert build(listing).compactions == (compaction(3, 9), compaction(11, 12))

    def test_a_compaction_of_one_commit_saves_nothing(self) -> None:
        assert build([*self.LISTING, compaction(3, 3)]).compactions == ()


class TestChecksums:
    def test_the_newest_usable_checksum_is_found(self) -> None:
        listing = [*published(*range(5)), checksum(1), checksum(3)]
        assert build(listing).checksum == checksum(3)

    def test_one_newer_than_the_target_is_ignored(self) -> None:
        assert build([*published(*range(5)), checksum(4)], version=3).checksum is None

    def test_one_older_than_the_checkpoint_is_ignored(self) -> None:
        listing = [*published(*range(5)), classic(3)]
        assert build([*listing, checksum(2)]).checksum is None
        assert build([*listing, checksum(3)]).checksum == checksum(3)

    def test_one_of_an_unpublished_version_counts(self) -> None:
        """catalog-managed, "Maintenance Operations"."""
        owner = answer(staged(2), latest=2)
        assert build([*published(0, 1), checksum(2)], owner, CATALOG_MANAGED).checksum == checksum(2)


class TestOnlyWhatIsNew:
    def test_commits_after_a_known_version_are_enough(self) -> None:
        segment = build(published(5, 6), known=4)
        assert [commit.version for commit in segment.commits] == [5, 6]
        assert segment.checkpoint == ()

    def test_nothing_new_is_the_known_version(self) -> None:
        segment = build([], known=4)
        assert segment.version == 4
        assert segment.commits == ()

    @both_features
    def test_the_owners_commits_may_start_before_the_known_version(self, feature: TableFeature) -> None:
        segment = build([], answer(staged(3), staged(4), staged(5), latest=5), feature, known=4)
        assert [commit.version for commit in segment.commits] == [5]

    def test_a_checkpoint_does_not_replace_what_is_new(self) -> None:
        assert build([*published(5, 6), classic(6)], known=4).checkpoint == ()

    def test_an_owner_whose_latest_version_went_back_is_an_error(self) -> None:
        with pytest.raises(CorruptionError):
            build([], answer(latest=3), CATALOG_MANAGED, known=4)

    def test_a_gap_after_the_known_version_names_the_missing_version(self) -> None:
        with pytest.raises(CorruptLogError) as caught:
            build(published(6), known=4)
        assert caught.value.missing_version == 5


class TestKnownCommits:
    def test_history_is_the_gap_free_run_to_the_latest_version(self) -> None:
        assert [c.version for c in known_commits([*published(1, 2, 5, 6, 7), classic(5)])] == [5, 6, 7]

    def test_history_has_the_unpublished_tail(self) -> None:
        """FB18."""
        found = known_commits(published(0, 1), answer(staged(2), inline(3), latest=3), CATALOG_MANAGED)
        assert [source(commit) for commit in found] == ["published", "published", "staged", "inline"]


def test_the_order_of_the_listing_does_not_matter() -> None:
    """An object store may list in any order."""
    listing = [*published(*range(8)), *parts(3, 3), classic(1), compaction(4, 6), checksum(5)]
    expected = build(listing)
    shuffled = list(listing)
    for seed in range(5):
        random.Random(seed).shuffle(shuffled)
        assert build(shuffled) == expected


def test_a_segment_with_a_hole_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        LogSegment(version=3, commits=tuple(published(0, 1, 3)))
    assert LogSegment(version=2, commits=tuple(published(0, 1, 2))).version == 2


def test_nobody_asks_which_feature_it_is() -> None:
    """Every difference is a field: a third table feature with mixed rules is read by the same code."""
    capped_but_published_first = replace(MANAGED_COMMIT, name="third", capped_at_latest=True)
    segment = build(published(0, 1, 2, 3), answer(staged(1), staged(2), latest=2), capped_but_published_first)
    assert segment.version == 2
    assert set(sources(segment).values()) == {"published"}
