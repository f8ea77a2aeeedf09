"""The published files of one log, in the order in which they appear and change: which changes the documents allow.

Answers and listings show a folder's state; these rules judge what happened between two states. A listing after a
backfill cannot tell whether the files appeared in order, or were visible before they were complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from conformance.interface import messages as m
from conformance.oracle.owner import Contract, Wrong

ORDER: Final = ("MC-BACKFILL-03", "CM-PUBLISH-06")
ATOMIC: Final = ("MC-LOG-01", "CM-LOG-01")
STAYS: Final = ("MC-FILES-08", "CM-FILES-07")
UNCHANGED: Final = (*STAYS, "CM-PUBLISH-03")
VISIBLE: Final = ("PROFILE-DIRECT-01", "MC-COMMIT-05", "CM-COMMIT-05")
AFTER_DROP: Final = ("PROFILE-DISCOVERY-02",)


class Kind(StrEnum):
    """What happened to a published file."""

    LISTED = "listed"
    """It was there when the watch of its folder began, so that its order is not known."""
    APPEARED = "appeared"
    MODIFIED = "modified"
    """It was written after it appeared."""
    REPLACED = "replaced"
    """Another file was renamed to its name."""
    REMOVED = "removed"


class Call(NamedTuple):
    """A request as the watch saw it."""

    client: str
    request: m.Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of the file `<version>.json`."""

    kind: Kind
    log: str
    """The path of the log folder."""
    version: m.Version
    at: int
    """The number of requests that had been answered before."""
    during: tuple[Call, ...] = ()
    """The requests that were under way."""
    attempt: m.AttemptId | None = None
    """The attempt in the file, as it was read soon after the change."""
    answer: m.Answer | None = None
    """The answer that the attempt's proposal had before."""
    content: str = ""
    """The digest of the file, as it was read soon after the change."""
    by_kit: bool = False
    """Whether the kit changed the file."""


class PublishedFile(NamedTuple):
    """A published file."""

    content: str
    by_kit: bool = False


Files = Mapping[m.Version, PublishedFile]
"""The published files of a log."""


def judge(files: Files, contract: Contract, event: Event, *, dropped: int | None, newest: m.Version) -> Wrong | None:
    """Why the documents do not allow the event; None if they do.

    `dropped`: `Event.at` when the drop of the table was answered. `newest`: the newest version that any world has.
    """
    if event.by_kit:
        return None
    old = files.get(event.version)
    after_drop = dropped is not None and event.at >= dropped
    match event.kind:
        case Kind.LISTED:
            return None
        case Kind.APPEARED:
            return (
                _appears_while_owned(event, newest, after_drop=after_drop)
                or _appears_in_order(files, event)
                or _appears_before_its_answer(contract, event)
            )
        case Kind.REPLACED:
            return None if old is None else _is_not_replaced(old, event)
        case Kind.MODIFIED:
            return _is_complete_when_it_appears(event)
        case Kind.REMOVED:
            return None if dropped is not None or _drops(event) else _stays(event)


def after(files: Files, event: Event) -> Files:
    """The files after the event."""
    others = {version: file for version, file in files.items() if version != event.version}
    if event.kind is Kind.REMOVED:
        return others
    old = files.get(event.version)
    by_kit = event.by_kit or (event.kind is Kind.MODIFIED and old is not None and old.by_kit)
    return {**others, event.version: PublishedFile(content=event.content, by_kit=by_kit)}


# The rules


def _appears_in_order(files: Files, event: Event) -> Wrong | None:
    """managed-commits, "Commit Backfills"; catalog-managed, "Publishing Commits"."""
    version = event.version
    if version == 0 or version - 1 in files:
        return None
    return Wrong(
        ORDER, f"version {version} is not published before version {version - 1}", version - 1,
        f"version {version} appeared in the folder when {_those(files)}",
    )  # fmt: skip


def _appears_before_its_answer(contract: Contract, event: Event) -> Wrong | None:
    """A direct commit is ratified by being visible."""
    if contract.commit_mode != "direct" or not isinstance(event.answer, m.Ratified) or event.version == 0:
        return None
    return Wrong(
        VISIBLE, f"version {event.version} is visible when it is answered as ratified", event.version,
        f"the file of version {event.version} appeared after that answer",
    )  # fmt: skip


def _appears_while_owned(event: Event, newest: m.Version, *, after_drop: bool) -> Wrong | None:
    """Commits from before a drop may be published late."""
    if not after_drop or event.version <= newest:
        return None
    return Wrong(
        AFTER_DROP, f"nothing is committed after the drop, which left version {newest} as the newest", event.version,
        f"version {event.version} appeared in the folder after the drop was answered",
    )  # fmt: skip


def _is_complete_when_it_appears(event: Event) -> Wrong | None:
    """All actions of a commit become visible together (RULINGS.md#published-whole): its file is written under another
    name, then linked or renamed."""
    return Wrong(
        ATOMIC, f"version {event.version} is complete when it appears, and all its actions are visible together",
        event.version, f"the file of version {event.version} was written after it had appeared",
    )  # fmt: skip


def _is_not_replaced(old: PublishedFile, event: Event) -> Wrong | None:
    """The same bytes may be published again: the content is immutable, so "it does not matter whether the client-side,
    server-side, or both" publish."""
    version = event.version
    if old.content == event.content:
        return None
    if old.by_kit:
        seen = f"the owner replaced the file of version {version}, which another writer had created"
        return Wrong(STAYS, f"version {version} of another writer is not replaced", version, seen)
    seen = f"the file of version {version} was replaced by another content"
    return Wrong(UNCHANGED, f"version {version} never changes", version, seen)


def _stays(event: Event) -> Wrong | None:
    """Only metadata cleanup removes published commits."""
    return Wrong(
        STAYS, f"version {event.version}, which was published, stays until a cleanup", event.version,
        f"the file of version {event.version} was removed",
    )  # fmt: skip


def _drops(event: Event) -> bool:
    return any(isinstance(call.request, m.DropTable) for call in event.during)


def _those(files: Files) -> str:
    return f"the published versions were {sorted(files)}" if files else "no version was published"
