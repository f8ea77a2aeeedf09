"""Proposals, ratified commits, and the closed set of outcomes.

Outcomes are values: losing a race is ordinary. Only an unknown outcome is an exception.
"""

import re
from enum import Enum
from typing import Final

import msgspec

from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode

MAX_COMMIT_BYTES: Final = 512 * 2**20
"""The owner reads a whole commit into memory, to check and to publish it. For an inline commit it may want less."""

AttemptId = str
"""The id of one try to commit one version: a lower-case uuid, new for every try. A staged file has it in its name."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    pass


class StagedProposal(_Value, frozen=True, kw_only=True):
    """The actions are in `<staging folder>/<file_name>`, which the proposer wrote and made durable."""

    attempt: AttemptId
    file_name: str


class InlineProposal(_Value, frozen=True, kw_only=True):
    """The actions are in the message: newline-delimited JSON."""

    attempt: AttemptId
    content: bytes


class DirectProposal(_Value, frozen=True, kw_only=True):
    """Asks the owner to publish these bytes as `<v>.json` by put-if-absent."""

    attempt: AttemptId
    content: bytes


Proposal = StagedProposal | InlineProposal | DirectProposal

COMMIT_MODE_OF: Final[dict[type, CommitMode]] = {
    StagedProposal: CommitMode.STAGED,
    InlineProposal: CommitMode.INLINE,
    DirectProposal: CommitMode.DIRECT,
}


class RatifiedCommit(_Value, frozen=True, kw_only=True):
    """A commit that won. While the owner still stores it, exactly one of `file_name` and `content` is set. Later
    neither is set: the published `<version>.json` is the commit."""

    version: Version
    attempt: AttemptId
    commit_mode: CommitMode
    in_commit_timestamp: int
    """ms since the epoch."""
    size: int
    """Bytes of newline-delimited JSON."""
    ratified_at: int
    """The owner's clock, ms since the epoch: for people, never for ordering."""
    file_name: str | None = None
    content: bytes | None = None


class Ratified(_Value, frozen=True, kw_only=True):
    """The proposal is the version. A replay of the proposal always gets this answer."""

    commit: RatifiedCommit
    replayed: bool = False
    """Whether this attempt had landed before this request."""


class Conflict(_Value, frozen=True, kw_only=True):
    """The version was already ratified. Rebase on `winners`, then propose again with a new attempt id."""

    latest_ratified_version: Version
    winners: tuple[RatifiedCommit, ...] = ()
    """From the proposed version to the latest, ascending and contiguous, at most `MAX_WINNERS`."""


class VersionGap(_Value, frozen=True, kw_only=True):
    """The version before the proposed one is not ratified. `None`: no version is."""

    latest_ratified_version: Version | None


class RejectionReason(Enum):
    """Why an owner rejects a proposal that lost no race. Stable: programs compare these."""

    BAD_FILE_NAME = "bad-file-name"
    STAGED_FILE_MISSING = "staged-file-missing"
    MALFORMED_ACTIONS = "malformed-actions"
    TOO_LARGE = "too-large"
    COMMIT_INFO_NOT_FIRST = "commit-info-not-first"
    IN_COMMIT_TIMESTAMP = "in-commit-timestamp"
    TXN_ID_MISSING = "txn-id-missing"
    INCONSISTENT_TABLE = "inconsistent-table"
    SECRET_IN_CONF = "secret-in-conf"
    COMMIT_MODE_NOT_ALLOWED = "commit-mode-not-allowed"
    OWNERSHIP_CHANGE = "ownership-change"
    OWNER_REFUSES = "owner-refuses"
    ATTEMPT_REUSED = "attempt-reused"
    ATTEMPT_RESOLVED = "attempt-resolved"
    BACKLOG_FULL = "backlog-full"
    NOT_ACTIVE = "not-active"
    HALTED = "halted"


class Rejected(_Value, frozen=True, kw_only=True):
    """The owner rejects the proposal and changed nothing. `detail` gives the fact, the numbers and the next step."""

    reason: RejectionReason
    detail: str

    @property
    def retryable(self) -> bool:
        """Whether the same proposal may succeed later, once a backfill has made room."""
        return self.reason is RejectionReason.BACKLOG_FULL


Outcome = Ratified | Conflict | VersionGap | Rejected

MAX_WINNERS: Final = 100
"""The maximum number of winners in a conflict; a client that is further behind calls `get_commits`."""


class Landed(_Value, frozen=True, kw_only=True):
    """The attempt is this commit."""

    commit: RatifiedCommit


class NotLanded(_Value, frozen=True, kw_only=True):
    """The attempt is not in the table and never will be: from this answer on the owner rejects it."""


AttemptOutcome = Landed | NotLanded


class CommitsAnswer(_Value, frozen=True, kw_only=True):
    """The answer of `get_commits`, from one read state.

    managed-commits, "Getting Un-backfilled Commits"; catalog-managed, "Getting Ratified Commits".
    """

    commits: tuple[RatifiedCommit, ...]
    """Ascending and contiguous: the commits in the requested range that the owner still stores."""
    latest_ratified_version: Version | None
    """None: no version was ever ratified."""


def is_attempt_id(text: str) -> bool:
    """Whether `text` is a lower-case uuid of any version, as staged file names carry it."""
    return _UUID.fullmatch(text) is not None


_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
