"""A seal in the footer of a Parquet file: checksums of the bytes and of the file's name.

Arrow does not notice most altered bits, and some end the process. So a seal is checked before Arrow sees the bytes.

DELTA.md#seals. The seal is an entry of the footer's key-value metadata, which other readers ignore: two CRC-32, of the
body, and of the file's name and the other bytes with zeros for itself. Of a checkpoint or a sidecar, which is read as a
whole, the body is empty. The body of a data file is all before its footer: a read may need few of its columns, and
compares only the second checksum; Parquet's own checksums are those of the values in pages, not of the pages' headers.
"""

import zlib
from typing import Final

KEY: Final = "delta-commit-owner.crc32"
EMPTY: Final = "0000000000000000"
_PLACE: Final = KEY.encode() + b"\x18\x10"
"""In Thrift's compact protocol, the value follows: a text of 16 bytes."""
_ENDING: Final = 65_536
"""The seal is in the last bytes of the footer."""
TAIL: Final = 8
"""Bytes after the footer: its size, and the magic number."""


def sealed(content: bytes, name: str, body: int = 0) -> bytes:
    """The same bytes with the seal for this name; unchanged without a place for it. `body`: the CRC-32 of the body."""
    place = _found(content)
    if place is None:
        return content
    return content[:place] + _seal(content, place, name, b"%08x" % body) + content[place + len(EMPTY) :]


def is_broken(content: bytes, name: str, body: int | None = None) -> bool:
    """Whether the bytes have a seal that is not theirs, or that of another name or body. None: any body."""
    place = _found(content)
    if place is None:
        return False
    stated = content[place : place + len(EMPTY)]
    return stated not in (EMPTY.encode(), _seal(content, place, name, stated[:8] if body is None else b"%08x" % body))


def _found(content: bytes) -> int | None:
    place = content.rfind(_PLACE, max(0, len(content) - _ENDING))
    return None if place < 0 else place + len(_PLACE)


def _seal(content: bytes, place: int, name: str, body: bytes) -> bytes:
    view, sum_ = memoryview(content), zlib.crc32(name.encode())
    for part in (view[:place], body, EMPTY[8:].encode(), view[place + len(EMPTY) :]):
        sum_ = zlib.crc32(part, sum_)
    return body + b"%08x" % (sum_ or 1)


def footer_size(tail: bytes) -> int:
    """The size of the footer with the bytes after it, as the last bytes of a file state it."""
    return int.from_bytes(tail[:4], "little") + TAIL
