"""A seal in the footer of a Parquet file: a checksum of the bytes and of the file's name.

Arrow does not notice most altered bits, and some end the process. So a seal is checked before Arrow sees the bytes.

DELTA.md#seals. The seal is an entry of the footer's key-value metadata, which other readers ignore: the CRC-32 of the
file's name and of the bytes with an empty seal. A checkpoint or a sidecar is sealed as a whole, a data file from its
footer on, because a read may need few of its columns: their pages have Parquet's own checksums.
"""

import zlib
from typing import Final

KEY: Final = "delta-commit-owner.crc32"
EMPTY: Final = "00000000"
_PLACE: Final = KEY.encode() + b"\x18\x08"
"""In Thrift's compact protocol, the value follows: a text of eight bytes."""
_ENDING: Final = 65_536
"""The seal is in the last bytes of the footer."""
TAIL: Final = 8
"""Bytes after the footer: its size, and the magic number."""


def sealed(content: bytes, name: str) -> bytes:
    """The same bytes with the seal for this name; unchanged without a place for it."""
    place = _found(content)
    if place is None:
        return content
    return content[:place] + _seal(content, place, name) + content[place + len(EMPTY) :]


def is_broken(content: bytes, name: str) -> bool:
    """Whether the bytes have a seal that is not theirs, or that of another name."""
    place = _found(content)
    if place is None:
        return False
    stated = content[place : place + len(EMPTY)]
    return stated != EMPTY.encode() and stated != _seal(content, place, name)


def _found(content: bytes) -> int | None:
    place = content.rfind(_PLACE, max(0, len(content) - _ENDING))
    return None if place < 0 else place + len(_PLACE)


def _seal(content: bytes, place: int, name: str) -> bytes:
    view, sum_ = memoryview(content), zlib.crc32(name.encode())
    for part in (view[:place], EMPTY.encode(), view[place + len(EMPTY) :]):
        sum_ = zlib.crc32(part, sum_)
    return b"%08x" % (sum_ or 1)


def footer_size(tail: bytes) -> int:
    """The size of the footer with the bytes after it, as the last bytes of a file state it."""
    return int.from_bytes(tail[:4], "little") + TAIL
