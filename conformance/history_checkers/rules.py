"""The rules that a history can violate: a closed list, which reports and the catalogue refer to."""

from enum import Enum


class Rule(Enum):
    """A rule. Its value is a stable id; `meaning` is the requirement in words."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Rule":
        member = object.__new__(cls)
        member._value_ = value
        member.meaning = member.__doc__ = meaning
        return member

    # Content of the log, independent of times

    LOG_HAS_GAP = "log-has-gap", "The versions of a log are contiguous: v is ratified only after v-1."
    LANDED_TWICE = "landed-twice", "An attempt is applied at most once, however often it is sent."
    NOT_PROPOSED = "not-proposed", "A version is an attempt that a client proposed for that version."
    REFUSED_BUT_LANDED = (
        "refused-but-landed",
        "An attempt whose requests were all rejected is not in the log: a rejection changes nothing.",
    )
    RATIFIED_BUT_LOST = "ratified-but-lost", "An attempt that was answered as ratified stays at its version."
    RATIFIED_ELSEWHERE = (
        "ratified-elsewhere",
        "A proposal is ratified as the version it was proposed for, or not at all.",
    )
    VERSION_CHANGED = (
        "version-changed",
        "A version is ratified at most once: all answers name the same attempt for it.",
    )
    CONTENT_CHANGED = (
        "content-changed",
        "The content of a ratified commit is what was proposed, and never changes; publishing copies it.",
    )
    NEVER_RATIFIED = "never-ratified", "A version that an answer or a published file shows to exist is in the log."
    REPLAY_REFUSED = (
        "replay-refused",
        "With the profile `idempotent-retry`, an attempt that landed is answered as ratified however often it is sent.",
    )
    OUTCOME_WRONG = (
        "outcome-wrong",
        "The outcome of an attempt is final: landed means that the log has it at that version, and not landed "
        "means that it never will.",
    )
    TOMBSTONE_IGNORED = (
        "tombstone-ignored",
        "With the promise `tombstone-first`, an attempt that was resolved as not landed gets no new conflict and no "
        "new gap.",
    )
    REFUSAL_CONTRADICTS_ITSELF = (
        "refusal-contradicts-itself",
        "The latest version in a conflict is not below the proposed one; in a gap it is at least two below it, and no "
        "version is missing before version 0.",
    )
    LISTED_BEYOND_LATEST = "listed-beyond-latest", "The listed commits and the latest version in one answer agree."

    # Times of ratification

    RATIFIED_OUT_OF_ORDER = "ratified-out-of-order", "Version v-1 is ratified before version v."
    FALSE_CONFLICT = "false-conflict", "A conflict is answered only if the proposed version is already ratified."
    FALSE_GAP = "false-gap", "A gap is answered only if the version before the proposed one is not yet ratified."
    STALE_READ = ("stale-read", "A request for the latest version returns every commit that was ratified before it.")
    STALE_REFUSAL = (
        "stale-refusal",
        "With the promise `fresh-refusals`, the latest version in a rejection includes every commit that was ratified "
        "before the request.",
    )
    REPORTED_TOO_EARLY = "reported-too-early", "No answer names a version before it is ratified."

    # Times of publication

    PUBLISHED_TOO_EARLY = "published-too-early", "Only ratified commits are published."
    PUBLISHED_OUT_OF_ORDER = "published-out-of-order", "Version v-1 is published before version v."
    PUBLISHED_THEN_GONE = "published-then-gone", "A published commit stays visible until cleanup may remove it."
    DIRECT_BUT_INVISIBLE = (
        "direct-but-invisible",
        "A commit by put-if-absent is ratified by becoming visible, and not before.",
    )
    COMMIT_FORGOTTEN = "commit-forgotten", "The owner lists every ratified commit until it is published."
    BACKFILL_NOT_DONE = (
        "backfill-not-done",
        "After a backfill to v is answered, every version up to v that was ratified before the request is published.",
    )
    HANDED_BACK_UNPUBLISHED = (
        "handed-back-unpublished",
        "A table is handed back to the filesystem only after all its earlier commits are published.",
    )
    CHECKPOINT_UNPUBLISHED = ("checkpoint-unpublished", "A checkpoint or a compaction covers only published versions.")
    READ_UNPUBLISHED = "read-unpublished", "A reader by path reads a prefix of the published versions."
