"""Read a history line by line, in bounded memory, and say precisely where it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from conformance.history.errors import InvalidHistoryError
from conformance.history.events import Event

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes. Something longer is no history, and is not worth the memory to find out."""

_SHOWN: Final = 60
"""Bytes of a bad line that its message quotes."""


def read_events(stream: BinaryIO) -> Iterator[Event]:
    """The events of a history, one per line. Raises `InvalidHistoryError` for a line that is none."""
    decode = msgspec.json.Decoder(Event).decode
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if not line.endswith(b"\n"):
            raise _cut_off(line, number)
        try:
            yield decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidHistoryError(f"not an event of a history: {error} (it reads {_start(line)})", number) from None


def read(path: Path) -> Iterator[Event]:
    """The events of the history in a file. Raises `InvalidHistoryError`, also for a file that cannot be read."""
    try:
        with path.open("rb") as stream:
            yield from read_events(stream)
    except OSError as error:
        raise InvalidHistoryError(f"cannot be read: {error.strerror or error}") from None


def _start(line: bytes) -> str:
    text = line[:_SHOWN].decode("utf-8", "replace").strip()
    return repr(text) + (" ..." if len(line) > _SHOWN else "")


def _cut_off(line: bytes, number: int) -> InvalidHistoryError:
    if len(line) >= LONGEST_LINE:
        return InvalidHistoryError(f"longer than {LONGEST_LINE} bytes; an event is one short line", number)
    return InvalidHistoryError(
        f"cut off after {len(line)} bytes: the last line has no end, and no footer follows; it reads {_start(line)}",
        number,
    )
