"""The rules that a history can violate. A closed list: reports and the catalogue name them."""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """Its value is stable once released; `meaning` is the requirement in words."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Rule:
        member = object.__new__(cls)
        member._value_ = value
        member.meaning = member.__doc__ = meaning
        return member

    # What the log says, whenever it happened

    LOG_HAS_GAP = "log-has-gap", "The versions of a log are contiguous: v is ratified only after v-1."
    LANDED_TWICE = "landed-twice", "An attempt is applied at most once, however often it is sent."
    NOT_PROPOSED = "not-proposed", "A version is an attempt that a client proposed for that version."
    REFUSED_BUT_LANDED = (
        "refused-but-landed",
        "An attempt all of whose requests were refused is not in the log: a refusal says that nothing changed.",
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
        "The outcome of an attempt is final: landed means that the log has it at that version, not landed that the "
        "log never will.",
    )
    TOMBSTONE_IGNORED = (
        "tombstone-ignored",
        "With the promise `tombstone-first`, an attempt that was resolved as not landed gets no conflict and no gap "
        "computed anew.",
    )
    REFUSAL_CONTRADICTS_ITSELF = (
        "refusal-contradicts-itself",
        "A conflict tells a latest version not below the proposed one; a gap tells one at least two below it, and "
        "nothing can be missing before version 0.",
    )
    LISTED_BEYOND_LATEST = "listed-beyond-latest", "The listed commits and the latest version are of one state."

    # What happened when

    RATIFIED_OUT_OF_ORDER = "ratified-out-of-order", "Version v-1 is ratified before version v."
    FALSE_CONFLICT = "false-conflict", "A conflict is answered only when the proposed version is ratified already."
    FALSE_GAP = "false-gap", "A gap is answered only when the version before the proposed one is not ratified yet."
    STALE_READ = ("stale-read", "A request for the latest version returns every commit that was ratified before it.")
    STALE_REFUSAL = (
        "stale-refusal",
        "With the promise `fresh-refusals`, a refusal tells of every commit that was ratified before the request.",
    )
    REPORTED_TOO_EARLY = "reported-too-early", "No answer names a version before it is ratified."

    # What is published when

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
        "A table is given back to the filesystem only after all its earlier commits are published.",
    )
    CHECKPOINT_UNPUBLISHED = (
        "checkpoint-unpublished",
        "A checkpoint or a compaction is made only of versions that are published.",
    )
    READ_UNPUBLISHED = "read-unpublished", "A reader by path reads a prefix of the published versions."
