"""The steps of programs for owners. Each is valid after any others, so that any step can be removed.

Tables, clients and earlier requests are numbers, modulo the existing ones; versions are relative to the newest one.
"""

from enum import StrEnum
from typing import Final

import msgspec

from conformance.programs.program import Program

CLIENTS: Final = 3
TABLES: Final = 3


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


class _OnAnyTable(_OnTable, frozen=True, kw_only=True):
    gone: bool = False
    """Whether it is sent to the table that had this place before, which was dropped or handed back."""


class Create(_OnTable, frozen=True, kw_only=True):
    """Propose version 0 of a new table, of an existing one (which must lose), or of a dropped one (to create it
    again)."""

    fate: Fate = Fate.ANSWERED
    limit: int = 0
    """With `backlog-limit`: the maximum number of unbackfilled commits; 0 for no limit."""
    by_subject: bool = False
    """Whether backfilling is left to the subject."""
    names: int = 0
    """The class of the names of both tables, which differ in one thing."""
    there: bool = False
    """Whether it is in the folder of the dropped table, whose files are removed."""
    properties: int = 0
    """The number of properties in its metadata."""
    other: bool = False
    """Whether it is a table of the other table feature, with the name of an existing one."""


class Commit(_OnAnyTable, frozen=True, kw_only=True):
    """Propose a version, as a new attempt."""

    ahead: int = 0
    """0: the next version; negative: a taken one; positive: one whose predecessor is missing."""
    fate: Fate = Fate.ANSWERED
    content: str = "plain"
    """A kind of `contents`."""
    size: int = 0
    """The size of the content in bytes; 0 for any."""
    actions: int = 0
    """The number of actions; 0 for any."""
    staged: bool = False
    """Whether the client writes the staged file itself."""
    misnamed: bool = False
    """Whether that file has the name of another version."""
    resolved: bool = False
    """Whether the attempt is one that was looked up before any client made it: it never lands."""
    resembles: int = 0
    """1, 2, 3: the attempt differs from an earlier one in its last characters, its first ones, or the last one."""


class Land(_OnTable, frozen=True, kw_only=True):
    """Commit until that many proposals are ratified: a table that ratifies nothing more is wrong."""

    count: int = 1


class Contend(_OnTable, frozen=True, kw_only=True):
    """Propose the newest version until the race is lost."""

    staged: bool = False
    """Whether the client writes the staged files itself."""
    advised: bool = False
    """Whether the conflict is held to the advice to name a winner or the latest version."""


class Resend(_OnAnyTable, frozen=True, kw_only=True):
    """Send an earlier proposal again, unchanged."""

    which: int = 0
    """Counted from the last one."""
    unsettled: bool = False
    """Prefer proposals that are not known to have landed."""
    resolved: bool = False
    """Whether a client looks up the outcome first, as careful clients do, and sends it again anyway."""
    old: bool = False
    """Whether it is a proposal to the table that had this place before."""
    altered: bool = False
    """Whether it has other actions, which change nothing if the attempt landed."""
    rebased: bool = False
    """Whether it is sent for the next version instead, as a careless client does."""
    fate: Fate = Fate.ANSWERED


class Deliver(_Step, frozen=True, kw_only=True):
    """A delayed request arrives."""

    which: int = 0
    given_up: bool = False
    """Whether its client stopped waiting before."""


class Resolve(_OnAnyTable, frozen=True, kw_only=True):
    """Look up the outcome of an attempt."""

    which: int = 0
    unsettled: bool = False
    unsent: bool = False
    """Whether it is an attempt that no client made."""
    other: bool = False
    """Whether it is an attempt at the other table."""
    fate: Fate = Fate.ANSWERED


class Read(_OnAnyTable, frozen=True, kw_only=True):
    """Request the commits. A negative bound counts from the newest version, which is -1."""

    start: int | None = None
    end: int | None = None
    advised: bool = False
    """Whether the answer about a dropped table is held to the advice to list nothing."""


class Look(_OnTable, frozen=True, kw_only=True):
    """A reader requests the commits, and an external observer lists the files."""


class By(StrEnum):
    """How a table is looked up."""

    NAME = "name"
    PATH = "path"
    ABSENT = "absent"
    """By a name that no table has, but similar."""
    PARENT = "parent"
    """By the path of the folder of its folder."""


class Load(_OnTable, frozen=True, kw_only=True):
    """Find the table."""

    by: By = By.NAME
    advised: bool = False
    """Whether the answer is held to the advice to contain the protocol and the metadata."""


class Backfill(_OnAnyTable, frozen=True, kw_only=True):
    behind: int = 0
    """The distance to the newest version; negative: beyond it."""


class Drop(_OnAnyTable, frozen=True, kw_only=True):
    pass


class Restart(_Step, frozen=True, kw_only=True):
    """The subject crashes, and restarts."""


class Crash(_Step, frozen=True, kw_only=True):
    """The subject crashes when it reaches one of its crash points; the next step restarts it."""

    point: int = 0


class Wait(_Step, frozen=True, kw_only=True):
    ms: int = 0


class Filesystem(_OnTable, frozen=True, kw_only=True):
    """A filesystem writer creates a table, if the place is free."""

    versions: int = 1
    first: int = 0
    """The first version of its log, which a cleanup cut."""
    path: int = 0
    """The kind of its path."""
    hint: int = 0
    """The version that has a checkpoint, which `_last_checkpoint` names: 1 the first one, 2 the newest one, 0 none."""


class Rival(_OnTable, frozen=True, kw_only=True):
    """Two creators of one folder: the subject, and a filesystem writer or another owner, which begin `gap_ms` one after
    the other."""

    giving: bool = False
    """Whether it is another owner."""
    first: bool = False
    """Whether the other creator begins."""
    gap_ms: int = 0


class Write(_OnTable, frozen=True, kw_only=True):
    """A filesystem writer commits by put-if-absent: in a table without an owner, or beside the owner in direct mode."""

    count: int = 1
    metadata: bool = False
    """Whether it changes the metadata of a table with an owner."""
    giving: bool = False
    """Whether its first commit gives the table to another owner, as that owner's take-over does."""


class TakeOver(_OnTable, frozen=True, kw_only=True):
    ahead: int = 0
    fate: Fate = Fate.ANSWERED
    slash: bool = False
    """Whether the path ends with a slash."""
    encoded: bool = False
    """Whether the path is percent-encoded."""
    swapped: bool = False
    """Whether the two tables get each other's name from now on, if the owner has neither."""


class HandBack(_OnAnyTable, frozen=True, kw_only=True):
    ahead: int = 0
    fate: Fate = Fate.ANSWERED


class Block(_OnTable, frozen=True, kw_only=True):
    """A foreign file gets the name of the next version to publish, or of a later one."""

    ahead: int = 0
    torn: bool = False
    """Whether it is the beginning of the commit."""
    short: bool = False
    """Whether it is shorter than any commit that adds a file."""


class Publish(_OnTable, frozen=True, kw_only=True):
    """A client publishes the next commit itself."""


class Misplace(_OnTable, frozen=True, kw_only=True):
    """The staged file of a commit is missing during a backfill."""

    restart: bool = False
    """Whether the owner restarts meanwhile, too."""


class Unblock(_OnTable, frozen=True, kw_only=True):
    """The foreign files are removed."""


class Stray(_OnTable, frozen=True, kw_only=True):
    """A file that is no commit: a writer stages it and proposes nothing, or it has another name."""

    ahead: int = 0
    kind: int = 0


class Unknown(_OnTable, frozen=True, kw_only=True):
    """A request for a table that does not exist."""

    request: int = 0


class ApiCall(_OnTable, frozen=True, kw_only=True):
    """A request of the Delta API about the table."""

    row: str = ""
    """The name of a row of `delta_api.ROWS`."""


class Policy(_OnTable, frozen=True, kw_only=True):
    """Which maintenance is allowed."""


class Tables(_Step, frozen=True, kw_only=True):
    """That many further tables are created, and read."""

    count: int = 0


class Group(_Step, frozen=True, kw_only=True):
    """Propose versions of several tables, as one group of new attempts."""

    members: tuple[int, ...] = (0, 1)
    """The tables, in the order of the members."""
    client: int = 0
    fate: Fate = Fate.ANSWERED
    which: int = 0
    """The member that proposes another version than the next; -1: every one."""
    ahead: int = 0
    """That version, as in `Commit`."""
    staged: bool = False
    """Whether the client writes the staged files itself."""
    surely: bool = False
    """Whether to repeat it until its only possible outcome: ratified, or refused by a conflict of `which`."""


class Again(StrEnum):
    """How an earlier group is sent again."""

    WHOLE = "whole"
    PART = "part"
    """Without its last member."""
    MORE = "more"
    """Its first member with new attempts at the other tables."""
    TURNED = "turned"
    """Its members in the opposite order."""


class Regroup(_Step, frozen=True, kw_only=True):
    """Send an earlier group again."""

    which: int = 0
    client: int = 0
    again: Again = Again.WHOLE
    fate: Fate = Fate.ANSWERED


class LoadAll(_Step, frozen=True, kw_only=True):
    """Find all tables by one request."""

    client: int = 0


Single = (
    Create | Commit | Land | Contend | Resend | Deliver | Resolve | Read | Look | Load | Backfill | Drop | Restart
    | Crash | Wait | Filesystem | Write | TakeOver | HandBack | Publish | Misplace | Block | Unblock | Stray | Unknown
    | ApiCall | Policy | Tables | Rival | Group | Regroup | LoadAll
)  # fmt: skip


class Together(_Step, frozen=True, kw_only=True):
    """The steps of several lanes at the same time, if the subject answers concurrently; else one after the other."""

    lanes: tuple[tuple[Single, ...], ...] = ()
    gap_ms: int = 0
    """How much later each lane begins than the one before it."""


Step = Single | Together
OwnerProgram = Program[Step]
