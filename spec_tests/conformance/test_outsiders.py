"""Subjects written from the documents alone: the mistakes are found, the freedoms are not accused.

Here each meets a few examples. The verdicts of whole runs:
`python -m spec_tests.conformance.mutation_score --outsiders`.
"""

from __future__ import annotations

from typing import Final

import pytest

from conformance.requirements.catalogue import Level, load
from conformance.results import Layer, Verdict
from spec_tests.conformance import kills
from spec_tests.conformance.outsiders import Outsider, all_outsiders

FOUND_BY: Final = {
    "KeyStoredBeforeTheBacklogCheck": "a-full-backlog-rejects-until-a-backfill",
    "RetryStagesAgain": "a-replay-with-other-actions-changes-nothing",
    "KeysInTheMemoryOfANode": "a-replay-is-ratified-after-a-restart",
    "HandBackRebases": "a-hand-back-needs-the-next-version",
    "SameSizeIsTheSameFile": "a-foreign-file-is-not-taken-for-the-commit",
    "MissingStagedFileIsPublished": "a-missing-staged-file-is-not-replaced",
    "YieldsToAnotherPublisher": "a-backfill-accepts-a-client-published-commit",
    "JanitorOffByOne": "unpublished-commits-stay-listed",
    "WatermarkBeyondTheLatest": "a-backfill-beyond-the-latest-version-adds-nothing",
    "SplitsAtUnicodeLineEnds": "unusual-content-is-kept",
    "NumbersAsDoubles": "unusual-content-is-kept",
    "SortsVersionsAsText": "a-long-table-is-listed-and-published",
    "NegativeSlice": "ranges-across-published-versions-are-complete",
    "EmptyAnswerIsCached": "a-fully-published-table-accepts-commits",
    "TimestampsInSeconds": "the-owners-times-are-those-of-the-commits",
    "RowWithTheFirstCommit": "a-take-over-survives-restarts",
    "RedoOverwrites": "a-request-that-lost-while-the-owner-was-dead",
    "HandBackIsForgotten": "a-hand-back-survives-a-restart",
    "SecondTakeOverResumes": "a-second-take-over-uses-the-current-log",
    "RecreatedTableInheritsRows": "a-reused-name-is-a-new-table",
    "StagingFolderDecides": "a-backfill-after-each-answer",
    "SnapshotCachedByName": "a-name-resolves-to-its-current-table",
    "StartsFromTheNewestCheckpoint": "the-catalogs-latest-version-limits-the-snapshot",
    "EnablementBoundaryIsExclusive": "a-time-is-searched-on-its-side-of-the-enablement",
    "TimestampOfTheReadVersion": "a-client-backfills-a-refilled-backlog",
    "ChecksTheNewestWinnerOnly": "every-winner-is-checked",
    "UnlistedMeansLost": "a-client-resolves-a-lost-answer-first",
    "OwnershipAsOfTheReadVersion": "a-filesystem-writer-respects-a-take-over",
    "CompactsFromAPublishedStart": "a-compaction-waits-for-backfilling",
    "CutOffAtAnIncompleteCheckpoint": "an-incomplete-checkpoint-is-no-cut-off",
}
"""By subject: a check that fails."""
SHARE: Final = 7
"""A legal one meets every so many examples."""


def by_name(outsider: Outsider) -> str:
    return outsider.subject.__name__


@pytest.mark.parametrize("outsider", [each for each in all_outsiders() if each.bad], ids=by_name)
def test_a_mistake_is_found(outsider: Outsider) -> None:
    if outsider.unseen:
        pytest.skip(outsider.unseen)
    check = FOUND_BY[by_name(outsider)]
    found = [case for case in kills.cases(kills.identity(outsider.name)) if case.check.name == check]
    assert any(kills.run(case, outsider.name).verdict is Verdict.FAILED for case in found)


@pytest.mark.parametrize("outsider", [each for each in all_outsiders() if not each.bad], ids=by_name)
def test_a_freedom_is_not_accused(outsider: Outsider) -> None:
    examples = [case for case in kills.cases(kills.identity(outsider.name)) if case.check.layer is Layer.EXAMPLE]
    for case in examples[::SHARE]:
        violations = kills.run(case, outsider.name).violations
        accused = [each for each in violations if load().requirement(each.requirements[0]).level is Level.MUST]
        assert not accused, f"{case}: {accused[0].message}"
