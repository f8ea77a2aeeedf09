"""Files that are whole at any moment: somebody who looks, or who interrupts, finds the old one or the new one."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".unfinished-report-"
"""What the name of a file begins with until it is whole. One that is left behind belongs to nobody."""


def write_file(path: Path, text: str) -> None:
    """Write a file at once. Lone surrogates, which only a host's own names have, are escaped. Raises `OSError`."""
    unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(6)}")
    try:
        with unfinished.open("xb") as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
