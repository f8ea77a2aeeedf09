"""What kind of storage the owner stands on. A host lock on a network file system locks nobody out."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph-fuse",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs",
    }
)  # fmt: skip
"""File systems that several hosts share. Where the kernel does not tell (not Linux) nothing is detected."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel spells blanks and backslashes in a mount point."""

MOUNTS: Final = Path("/proc/self/mounts")


def network_file_system(directory: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that holds `directory`, or None. `mounts`: as in /proc/self/mounts."""
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    return _kind_of_place(directory, mounts)


@lru_cache(maxsize=16)
def _kind_of_place(directory: Path, mounts: str) -> str | None:
    """A table of mounts is long, stays as it is, and is asked at every start."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if directory.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
