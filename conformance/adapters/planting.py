"""A stranger's write into a log: whole at once, and past the subject."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def planted(target: Path, content: str, *, beside: Path, if_absent: bool, modified: int | None) -> bool:
    """Create or replace `target`, `modified` in ms since the epoch; False if `if_absent` and it was there.

    It is written in the folder `beside` first, where nobody who lists the log sees it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = beside / f".planting-{uuid.uuid4()}"
    temporary.write_bytes(content.encode("utf-8", "surrogateescape"))
    try:
        if modified is not None:
            os.utime(temporary, ns=(modified * 1_000_000, modified * 1_000_000))
        if not if_absent:
            temporary.replace(target)
            return True
        with contextlib.suppress(FileExistsError):
            os.link(temporary, target)
            return True
        return False
    finally:
        temporary.unlink(missing_ok=True)
