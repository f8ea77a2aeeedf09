"""Log compaction: one file `x.y.compacted.json` that stands for the commits x to y.

Delta's protocol, "Log Compaction Files"; DELTA.md#checkpoint-published: only where `<y>.json` is published. The
file holds what is left of the range after the later of two actions on the same thing won; removed files stay in
it, for they hide what was added before x. commitInfo is left out. Lines are kept as they are, with fields that this
client does not know, and all lines of actions that it does not know: others may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl import log_path
from refimpl.actions import Action, Add, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn, decode
from refimpl.client import maintenance
from refimpl.client.log_segment import known_commits
from refimpl.commit_owner import Maintenance
from refimpl.errors import InvalidRequestError, MaintenanceRefusedError
from refimpl.log_path import Version

if TYPE_CHECKING:
    from refimpl.client.table import Table


def compact(table: Table, start: Version, end: Version) -> str:
    """Write the compaction of the commits from `start` to `end`; the file's name.

    Raises `InvalidRequestError` for a range of fewer than two versions, `MaintenanceRefusedError` where the end is
    not published, commits of the range are gone, or the owner forbids it.
    """
    if log_path.checked(start) >= log_path.checked(end):
        raise InvalidRequestError(f"a compaction covers two versions or more, not {start} to {end}")
    maintenance.ask(table, table.snapshot(), Maintenance.LOG_COMPACTION)
    maintenance.check_published(table, end, Maintenance.LOG_COMPACTION)
    answer = table.reader.ask()
    commits = {commit.version: commit for commit in known_commits(table.log.listing(), answer, table.feature)}
    missing = next((version for version in range(start, end + 1) if version not in commits), None)
    if missing is not None:
        raise MaintenanceRefusedError(
            f"version {missing} of {table.label} is no longer in the log; compact from {min(commits, default=end)} on",
            job=Maintenance.LOG_COMPACTION,
            version=missing,
        )
    left: dict[object, bytes] = {}
    for version in range(start, end + 1):
        source = table.reader.source(commits[version])
        for number, line in enumerate(table.reader.content(commits[version]).split(b"\n")):
            if line and not line.isspace():
                found = decode(line, source=f"{source}, line {number + 1}")
                identity = _identity(found[0]) if found else (version, number)
                if identity is not None:
                    left.pop(identity, None)
                    left[identity] = line
    if not left:
        raise InvalidRequestError(
            f"versions {start} to {end} of {table.label} hold no action that a compaction keeps; compact a wider range",
            version=start,
        )
    name = log_path.compaction(start, end)
    table.log.overwrite(name, b"".join(line + b"\n" for line in left.values()))
    return name


def _identity(action: Action) -> object | None:
    """What a known action speaks of: of two about the same, the later one counts. None: it is not kept."""
    match action:
        case Add() | Remove():
            return ("file", action.key)
        case Txn(app_id=app_id):
            return ("txn", app_id)
        case DomainMetadata(domain=domain):
            return ("domain", domain)
        case Protocol() | Metadata():
            return type(action)
        case CommitInfo():
            return None
    return None
