"""File names of a Delta log: the kind of a file and its version.

DELTA.md#file-names; managed-commits, "Commit Files"; catalog-managed,
"Delta Log Entries". Names only: the log segment and the owner decide which files count.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from refimpl.protocol.errors import InvalidRequestError

Version = int
"""A table version: 0, 1, 2, ... up to `MAX_VERSION`."""

MAX_VERSION: Final = 2**63 - 1
"""Versions are Delta `long`s, although file names have twenty digits."""

LOG_FOLDER: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
SIDECAR_FOLDER: Final = "_sidecars"


class FileKind(Enum):
    """The kind of a log file, by its name."""

    COMMIT = "commit"
    STAGED_COMMIT = "staged commit"
    CHECKSUM = "checksum"
    COMPACTION = "log compaction"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    CHECKPOINT_PART = "checkpoint part"
    V2_CHECKPOINT = "V2 checkpoint"


CHECKPOINT_KINDS: Final = frozenset({FileKind.CLASSIC_CHECKPOINT, FileKind.CHECKPOINT_PART, FileKind.V2_CHECKPOINT})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPath:
    """One file of a log. `size` in bytes and `modified` in ms since the epoch, where a listing has them."""

    name: str
    kind: FileKind
    version: Version
    """For a compaction: the last version that it covers."""
    start_version: Version | None = None
    """For a compaction only: the first version that it covers."""
    uuid: str | None = None
    part: int | None = None
    parts: int | None = None
    size: int = 0
    modified: int = 0


_V = r"(?P<version>\d{20})"
_UUID = "(?P<uuid>" + "-".join(f"[0-9a-fA-F]{{{digits}}}" for digits in (8, 4, 4, 4, 12)) + ")"
_UUID_ALONE = re.compile(_UUID)
_STAGED = re.compile(rf"{_V}\.{_UUID}\.json", re.ASCII)
_PATTERNS: Final = (
    (FileKind.COMMIT, re.compile(rf"{_V}\.json", re.ASCII)),
    (FileKind.CHECKSUM, re.compile(rf"{_V}\.crc", re.ASCII)),
    (FileKind.CLASSIC_CHECKPOINT, re.compile(rf"{_V}\.checkpoint\.parquet", re.ASCII)),
    (
        FileKind.CHECKPOINT_PART,
        re.compile(rf"{_V}\.checkpoint\.(?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet", re.ASCII),
    ),
    (FileKind.V2_CHECKPOINT, re.compile(rf"{_V}\.checkpoint\.{_UUID}\.(?:json|parquet)", re.ASCII)),
    (FileKind.COMPACTION, re.compile(rf"(?P<start_version>\d{{20}})\.{_V}\.compacted\.json", re.ASCII)),
)


def parse(name: str, *, size: int = 0, modified: int = 0) -> LogPath | None:
    """Parse the name of a file directly inside `_delta_log`; None for a name that Delta does not define."""
    for kind, pattern in _PATTERNS:
        if match := pattern.fullmatch(name):
            return _path(kind, match, size, modified)
    return None


def parse_staged(name: str, *, size: int = 0, modified: int = 0) -> LogPath | None:
    """Parse the name of a staged file, `<version>.<uuid>.json`; None for any other name."""
    match = _STAGED.fullmatch(name)
    return None if match is None else _path(FileKind.STAGED_COMMIT, match, size, modified)


def _path(kind: FileKind, match: re.Match[str], size: int, modified: int) -> LogPath | None:
    groups = match.groupdict()
    uuid = groups.pop("uuid", None)
    numbers = {member: int(digits) for member, digits in groups.items()}
    uuid = None if uuid is None else uuid.lower()
    path = LogPath(name=match.string, kind=kind, uuid=uuid, size=size, modified=modified, **numbers)
    return path if _is_valid(path) else None


def _is_valid(path: LogPath) -> bool:
    if path.version > MAX_VERSION:
        return False
    if path.kind is FileKind.COMPACTION:
        assert path.start_version is not None
        return path.start_version <= path.version
    if path.kind is FileKind.CHECKPOINT_PART:
        assert path.part is not None
        assert path.parts is not None
        return 1 <= path.part <= path.parts
    return True


def commit(version: Version) -> str:
    """`<version>.json`, version zero-padded to 20 digits."""
    return f"{checked(version):020d}.json"


def staged_commit(version: Version, uuid: str) -> str:
    """`<version>.<uuid>.json`; the folder depends on the table feature. Rejects anything but a uuid."""
    if _UUID_ALONE.fullmatch(uuid) is None:
        raise InvalidRequestError(f"{uuid!r} is not a uuid, so it cannot name a staged file", uuid=uuid)
    return f"{checked(version):020d}.{uuid}.json"


def checksum(version: Version) -> str:
    return f"{checked(version):020d}.crc"


def classic_checkpoint(version: Version) -> str:
    return f"{checked(version):020d}.checkpoint.parquet"


def checkpoint_part(version: Version, part: int, parts: int) -> str:
    """One file of a multi-part checkpoint; `part` counts from 1."""
    return f"{checked(version):020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def v2_checkpoint(version: Version, uuid: str) -> str:
    """The file of a V2 checkpoint that names its sidecars."""
    return f"{checked(version):020d}.checkpoint.{uuid}.parquet"


def check_range(start: Version | None, end: Version | None) -> None:
    """Raise `InvalidRequestError` for an invalid bound, and for a range that is empty. None: no bound."""
    for bound in (start, end):
        if bound is not None:
            checked(bound)
    if start is not None and end is not None and start > end:
        raise InvalidRequestError(f"the range from {start} to {end} is empty; expected start <= end")


def checked(version: Version) -> Version:
    """The version itself, or `InvalidRequestError` for one that no table can have."""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MAX_VERSION:
        raise InvalidRequestError(
            f"{version!r} is not a table version; expected an integer from 0 to {MAX_VERSION}", version=version
        )
    return version
