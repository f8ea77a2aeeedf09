"""Which requirements of the catalogue a checker's rule stands for. The first that holds for the subject names it."""

from __future__ import annotations

from typing import Final

from conformance.checkers.rules import Rule

REQUIREMENTS: Final[dict[Rule, tuple[str, ...]]] = {
    Rule.LOG_HAS_GAP: ("MC-COMMIT-01", "CM-COMMIT-07"),
    Rule.LANDED_TWICE: ("PROFILE-CORE-06",),
    Rule.NOBODY_PROPOSED: ("MC-FEATURE-02", "CM-FEATURE-01"),
    Rule.REFUSED_BUT_LANDED: ("MC-FEATURE-03", "CM-COMMIT-01"),
    Rule.RATIFIED_BUT_LOST: ("MC-COMMIT-02", "CM-COMMIT-08"),
    Rule.RATIFIED_ELSEWHERE: ("MC-API-03", "CM-CATALOG-03"),
    Rule.VERSION_CHANGED: ("MC-FEATURE-02", "CM-FEATURE-01"),
    Rule.CONTENT_CHANGED: ("MC-BACKFILL-01", "CM-PUBLISH-03", "MC-FEATURE-01"),
    Rule.NEVER_RATIFIED: ("MC-FILES-08", "CM-FILES-07"),
    Rule.REPLAY_REFUSED: ("PROFILE-RETRY-01",),
    Rule.OUTCOME_WRONG: ("PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01"),
    Rule.TOMBSTONE_IGNORED: ("PROFILE-OUTCOME-02",),
    Rule.REFUSAL_CONTRADICTS_ITSELF: ("PROFILE-CORE-05",),
    Rule.LISTED_BEYOND_LATEST: ("MC-GET-02", "CM-GET-04"),
    Rule.RATIFIED_OUT_OF_ORDER: ("MC-COMMIT-01", "CM-COMMIT-07"),
    Rule.FALSE_CONFLICT: ("PROFILE-CORE-05",),
    Rule.FALSE_GAP: ("PROFILE-CORE-05",),
    Rule.STALE_READ: ("MC-READ-06", "CM-GET-04"),
    Rule.STALE_REFUSAL: ("PROFILE-CORE-07",),
    Rule.TOLD_TOO_EARLY: ("MC-GET-02", "CM-GET-04"),
    Rule.PUBLISHED_TOO_EARLY: ("MC-FILES-08", "CM-FILES-07"),
    Rule.PUBLISHED_OUT_OF_ORDER: ("MC-BACKFILL-03", "CM-PUBLISH-06"),
    Rule.PUBLISHED_THEN_GONE: ("MC-FILES-08", "CM-FILES-07"),
    Rule.DIRECT_BUT_INVISIBLE: ("MC-COMMIT-05", "CM-COMMIT-05"),
    Rule.COMMIT_FORGOTTEN: ("MC-FILES-06", "MC-GET-01", "CM-STORE-09", "CM-GET-03"),
    Rule.BACKFILL_NOT_DONE: ("MC-BACKFILL-05", "CM-PUBLISH-06"),
    Rule.HANDED_BACK_UNPUBLISHED: ("MC-RELEASE-03", "CM-PUBLISH-06"),
    Rule.CHECKPOINT_UNPUBLISHED: ("MC-CHECKPOINT-03", "CM-MAINT-01"),
    Rule.READ_UNPUBLISHED: ("MC-READ-04", "CM-ACCESS-01"),
}

OF_CLIENTS: Final[dict[Rule, tuple[str, ...]]] = {
    **REQUIREMENTS,
    Rule.STALE_READ: ("MC-READ-07", "CM-READ-05"),
    Rule.TOLD_TOO_EARLY: ("MC-FILES-05", "CM-FILES-04"),
    Rule.NEVER_RATIFIED: ("MC-FILES-05", "CM-FILES-04"),
    Rule.LANDED_TWICE: ("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02"),
    Rule.REFUSED_BUT_LANDED: ("PROFILE-CLIENT-02",),
    Rule.RATIFIED_BUT_LOST: ("PROFILE-CLIENT-02",),
    Rule.RATIFIED_ELSEWHERE: ("PROFILE-CLIENT-02",),
}
"""The same for a client under test, whose owner is the kit's own and does nothing wrong."""

OF_RESTARTS: Final = frozenset({Rule.RATIFIED_BUT_LOST, Rule.COMMIT_FORGOTTEN})
"""What a subject that was started again has forgotten breaks its promise of durability first of all."""
