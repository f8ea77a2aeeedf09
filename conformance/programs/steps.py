"""The steps of programs for owners. Each is valid after any others, so that any step can be removed.

Tables, clients and earlier requests are numbers, modulo the existing ones; versions are relative to the newest one.
"""

from enum import StrEnum
from typing import Final

import msgspec

from conformance.programs.program import Program

CLIENTS: Final = 3


class Fate(StrEnum):
    """The network's treatment of a request."""

    ANSWERED = "answered"
    LOST = "lost"
    """The request arrives; its answer does not."""
    DELAYED = "delayed"
    """The request arrives with a later `Deliver`, or never."""


class _Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag=str.lower):
    pass


class _OnTable(_Step, frozen=True, kw_only=True):
    table: int = 0
    client: int = 0


class Create(_OnTable, frozen=True, kw_only=True):
    """Propose version 0 of a new table, of an existing one (which must lose), or of a dropped one (to create it
    again)."""

    fate: Fate = Fate.ANSWERED
    limit: int = 0
    """With `backlog-limit`: the maximum number of unbackfilled commits; 0 for no limit."""
    by_subject: bool = False
    """Whether backfilling is left to the subject."""


class Commit(_OnTable, frozen=True, kw_only=True):
    """Propose a version, as a new attempt."""

    ahead: int = 0
    """0: the next version; negative: a taken one; positive: one whose predecessor is missing."""
    fate: Fate = Fate.ANSWERED


class Resend(_OnTable, frozen=True, kw_only=True):
    """Send an earlier proposal again, unchanged."""

    which: int = 0
    """Counted from the last one."""
    unsettled: bool = False
    """Prefer proposals that are not known to have landed."""
    resolved: bool = False
    """Whether a client looks up the outcome first, as careful clients do, and sends it again anyway."""
    fate: Fate = Fate.ANSWERED


class Deliver(_Step, frozen=True, kw_only=True):
    """A delayed request arrives."""

    which: int = 0
    given_up: bool = False
    """Whether its client stopped waiting before."""


class Resolve(_OnTable, frozen=True, kw_only=True):
    """Look up the outcome of an attempt."""

    which: int = 0
    unsettled: bool = False
    fate: Fate = Fate.ANSWERED


class Read(_OnTable, frozen=True, kw_only=True):
    """Request the commits."""

    start: int | None = None
    end: int | None = None


class Load(_OnTable, frozen=True, kw_only=True):
    """Find the table by its name."""


class Backfill(_OnTable, frozen=True, kw_only=True):
    behind: int = 0
    """The distance to the newest version; negative: beyond it."""


class Drop(_OnTable, frozen=True, kw_only=True):
    pass


class Restart(_Step, frozen=True, kw_only=True):
    """The subject crashes, and restarts."""


class Look(_OnTable, frozen=True, kw_only=True):
    """A reader requests the commits, and an external observer lists the files."""


Step = Create | Commit | Resend | Deliver | Resolve | Read | Load | Backfill | Drop | Restart | Look


OwnerProgram = Program[Step]
