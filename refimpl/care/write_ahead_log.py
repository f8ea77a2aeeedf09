"""SQLite's write-ahead log as bytes, for two tasks that SQLite lacks: write its end again, and tell damage from its
end.

The format is part of SQLite's file format: a header, then frames, each a header and a page. The checksum of a frame
continues that of the frame before it; the last frame of a transaction is marked. SQLite says which frames are valid.
"""

import struct
from collections.abc import Iterator
from typing import Final, Protocol

_MOST_AT_ONCE: Final = 65_536
"""Bytes in one write. SQLite itself writes at most a page, and reports a full disk for 128 KiB or more."""


class File(Protocol):
    """The used methods of a file that SQLite opened."""

    def xFileSize(self) -> int: ...  # noqa: N802
    def xRead(self, amount: int, offset: int) -> bytes: ...  # noqa: N802
    def xWrite(self, data: bytes, offset: int) -> None: ...  # noqa: N802


class WriteAheadLog:
    """The current log in an open file. The caller prevents other writers."""

    HEADER: Final = 32
    FRAME_HEADER: Final = 24

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.xFileSize()
        self._header = file.xRead(self.HEADER, 0) if self._size >= self.HEADER else bytes(self.HEADER)
        magic, _, page_size = struct.unpack_from(">3I", self._header)
        self._frame_size: int = self.FRAME_HEADER + page_size
        self._words = ">" if magic & 1 else "<"

    def _offset(self, frame: int) -> int:
        return self.HEADER + frame * self._frame_size

    def write_again(self, frames: int) -> None:
        """Write the last transaction again, the same bytes at the same place; with the log's header, if it is the only
        transaction. `frames`: how many are valid. The caller must still sync."""
        first = frames - 1
        while first > 0 and not _ends_transaction(self._file.xRead(self.FRAME_HEADER, self._offset(first - 1))):
            first -= 1
        start, end = self._offset(first) if first > 0 else 0, self._offset(frames) if frames else 0
        for offset in range(start, end, _MOST_AT_ONCE):
            self._file.xWrite(self._file.xRead(min(_MOST_AT_ONCE, end - offset), offset), offset)

    def is_damaged_after(self, frames: int) -> bool:
        """Whether the bytes after `frames` valid frames prove damage; they may also come from uncommitted transactions.

        A header is written at once, and synced before any frame. A transaction is synced before the next one is
        appended. So in the rest of one uncommitted transaction, no frame follows a valid commit frame: such a pair
        proves damage. An invalid frame alone proves nothing: its header may come from an interrupted write over an
        older frame in the middle of a transaction. Damage to the end of the last transaction but one looks the same,
        and is not detected.
        """
        if not any(self._header):
            return False
        if not frames and self._checksum(self._header[:24], (0, 0)) != struct.unpack_from(">2I", self._header, 24):
            return True
        rest = self._file.xRead(max(self._size - self._offset(frames), 0), self._offset(frames))
        if not frames and self._begins_whole(rest):
            return False
        before, committed = self._before(frames), False
        for frame in self._frames(rest):
            valid = self._follows(frame, before)
            if valid and committed:
                return True
            before, committed = frame, valid and _ends_transaction(frame)
        return False

    def _before(self, frame: int) -> bytes:
        """The header of the frame before this one; before frame 0, the log's header in the form of a frame header."""
        return self._file.xRead(self.FRAME_HEADER, self._offset(frame - 1)) if frame else self._header[8:]

    def _frames(self, content: bytes) -> Iterator[bytes]:
        size = self._frame_size
        return (content[at : at + size] for at in range(0, len(content) - size + 1, size))

    def _begins_whole(self, content: bytes) -> bool:
        """Whether the log's first transaction is valid although SQLite reports no frame. So it is after a process
        restarted the log in shared memory and died, or failed, before it wrote the new header: then everything in the
        log is in the database."""
        before = self._before(0)
        for frame in self._frames(content):
            if not self._follows(frame, before):
                return False
            if _ends_transaction(frame):
                return True
            before = frame
        return False

    def _follows(self, frame: bytes, before: bytes) -> bool:
        """Whether a frame belongs to this log, and its checksum continues that of the frame before it, or the
        header's."""
        if not before[8:16] == self._header[16:24] == frame[8:16]:
            return False
        seed = struct.unpack_from(">2I", before, 16)
        return self._checksum(frame[:8] + frame[self.FRAME_HEADER :], seed) == struct.unpack_from(">2I", frame, 16)

    def _checksum(self, content: bytes, seed: tuple[int, ...]) -> tuple[int, ...]:
        first, second = seed
        words = struct.unpack(f"{self._words}{len(content) // 4}I", content)
        for even, odd in zip(words[::2], words[1::2], strict=True):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        return first, second


def _ends_transaction(frame_header: bytes) -> bool:
    return frame_header[4:8] != bytes(4)
