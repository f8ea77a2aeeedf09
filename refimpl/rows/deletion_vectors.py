"""Deletion vectors: which rows of a data file are deleted although the file still holds them.

Delta's protocol, "Deletion Vectors" and "Deletion Vector Format". This client reads all three storage types and writes
none: a file that loses further rows is rewritten.
"""

import base64
import io
import re
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any, Final

from refimpl.protocol.actions import DeletionVector
from refimpl.protocol.errors import CorruptDataError, UnsupportedFeatureError
from refimpl.protocol.release import how_to_install
from refimpl.rows.partition_values import local_path
from refimpl.storage.object_store import ObjectFiles, StoreError

_MAGIC: Final = 1681511377
_FORMAT_VERSION: Final = 1
_ENCODED_UUID: Final = 20
"""Characters of a UUID in Z85, at the end of a relative path; a random prefix may stand before it."""
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85: Final = bytes.maketrans(_Z85, _B85)
_PADDED: Final = re.compile("#{1,3}")
"""The prefix of a last group with fewer than four bytes, as delta-kernel-rs writes it; no valid group of Z85 begins
with it."""


def check_library() -> None:
    """Raise `UnsupportedFeatureError` if the library for deletion vectors is missing."""
    try:
        import pyroaring  # noqa: F401
    except ImportError:
        raise UnsupportedFeatureError(
            "cannot read this table: its files have deletion vectors, and pyroaring is missing; "
            f"install it with: {how_to_install('deletion-vectors')}",
            features=("deletionVectors",),
        ) from None


def relative_file(vector: DeletionVector) -> str | None:
    """The path of a vector's file relative to the table, or, if it is absolute, as in the log.

    None for an inline vector. Raises `CorruptDataError` for an unknown storage type or an invalid path.
    """
    text = vector.path_or_inline_dv
    match vector.storage_type:
        case "i":
            return None
        case "p":
            return text
        case "u":
            name = uuid.UUID(bytes=_decoded(text[-_ENCODED_UUID:], vector))
            prefix = text[:-_ENCODED_UUID]
            return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
    raise CorruptDataError(f"unknown storage type {vector.storage_type!r} of a deletion vector; expected u, i or p")


def kept_rows(location: Path, vector: DeletionVector, rows: int, objects: ObjectFiles | None = None) -> bytearray:
    """For each row of a data file with `rows` rows: 1 if it is kept, 0 if it is deleted. `objects`: the store of the
    table's files, unless they are on this host.

    Raises `CorruptDataError` for a vector that is missing, damaged, or deletes a row beyond the last one.
    """
    from pyroaring import BitMap64

    content = _content(location, vector, objects)
    if len(content) < 4 or struct.unpack_from("<i", content)[0] != _MAGIC:
        raise _corrupt(vector, "it does not begin with the format's magic number")
    try:
        deleted: Any = BitMap64.deserialize(content[4:])
    except (ValueError, RuntimeError, MemoryError) as error:
        raise _corrupt(vector, str(error)) from error
    if len(deleted) != vector.cardinality:
        raise _corrupt(vector, f"it deletes {len(deleted)} rows, but the log says {vector.cardinality}")
    if deleted and deleted.max() >= rows:
        raise _corrupt(vector, f"it deletes row {deleted.max()} of a file that has {rows}")
    kept = bytearray(b"\x01") * rows
    for row in deleted:
        kept[row] = 0
    return kept


def _content(location: Path, vector: DeletionVector, objects: ObjectFiles | None) -> bytes:
    file = relative_file(vector)
    if file is None:
        content = _decoded(vector.path_or_inline_dv, vector)
        if not 0 <= len(content) - vector.size_in_bytes < 4:  # Z85 encodes four bytes at a time
            raise _corrupt(vector, f"it has {len(content)} bytes, but the log says {vector.size_in_bytes}")
        return content[: vector.size_in_bytes]
    path = local_path(location, file, objects)
    try:
        with path.open("rb") if objects is None else io.BytesIO(objects.read(path)) as stream:
            version = stream.read(1)
            stream.seek(vector.offset or 1)
            stored = stream.read(4 + vector.size_in_bytes + 4)
    except StoreError:
        raise
    except OSError as error:
        raise CorruptDataError(f"the deletion vector {path} cannot be read: {error}", path=str(path)) from error
    if version != bytes([_FORMAT_VERSION]):
        raise _corrupt(vector, f"{path} has format version {version.hex() or 'none'}; expected {_FORMAT_VERSION:02}")
    content = stored[4:-4]
    if len(stored) != 8 + vector.size_in_bytes or int.from_bytes(stored[:4]) != vector.size_in_bytes:
        raise _corrupt(vector, f"{path} does not hold {vector.size_in_bytes} bytes at offset {vector.offset or 1}")
    if int.from_bytes(stored[-4:]) != zlib.crc32(content):
        raise _corrupt(vector, f"its checksum in {path} does not match")
    return content


def _decoded(text: str, vector: DeletionVector) -> bytes:
    missing = 0
    if padding := _PADDED.match(text, max(0, len(text) - 5)):
        missing = len(padding[0])
        text = text[:-5] + "0" * missing + text[missing - 5 :]
    try:
        content = base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
        return content[:-4] + content[-4:][missing:] if missing else content
    except ValueError as error:
        raise _corrupt(vector, f"{text!r} is not in Z85: {error}") from error


def _corrupt(vector: DeletionVector, problem: str) -> CorruptDataError:
    return CorruptDataError(f"the deletion vector {vector.unique_id} is damaged: {problem}", vector=vector.unique_id)
