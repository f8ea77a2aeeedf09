"""Partition values as the log spells them, the folders named after them, and paths in actions.

Three spellings that must not be mixed up, for the string value `a:b c`:

=====================  =========================  ============================================
in `partitionValues`   `a:b c`                    the value itself, as text
on disk                `p=a%3Ab c/part-...`       Hive's escaping of characters that a folder
                                                  name cannot hold
in an action's path    `p=a%253Ab%20c/part-...`   the disk path as a URL-encoded URI, so that
                                                  Hive's percent signs are encoded once more
=====================  =========================  ============================================

Delta's protocol, "Partition Value Serialization"; DELTA.md#partition-values: an empty string and
null both mean null. `_metadata.file_path` of Spark is spelled like an action's path, but absolute.
"""

import ctypes
import datetime
import decimal
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refimpl.protocol.errors import CorruptLogError, UnsupportedFeatureError
from refimpl.schema.properties import DEFAULT_CODEC
from refimpl.schema.schema import DataType, Decimal, Primitive, Struct

if TYPE_CHECKING:
    from refimpl.storage.object_store import ObjectFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """Where the data files of a table are, and the columns of their rows. Picklable, for Spark's tasks."""

    location: Path
    schema: Struct
    """With the partition columns, which are not in the files."""
    partition_columns: tuple[str, ...] = ()
    objects: "ObjectFiles | None" = None
    """The store of the files; None if they are on this host."""
    compression: str = DEFAULT_CODEC
    """Arrow's name of the codec of new files."""
    page_version: str = "1.0"
    """The version of the Parquet pages of new files."""

    def path_of(self, path: str) -> Path:
        """The location of an action's data file. Raises the errors of `local_path`."""
        return local_path(self.location, path, self.objects)


NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder name for a partition value that is null or the empty string."""

_ESCAPED: Final = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{[]^"])
"""The characters that Hive, and therefore Spark, escapes in the folder of a partition."""


def to_text(value: Any, kind: DataType) -> str | None:
    """A partition value as the log spells it; None for null and for the empty string.

    Timestamps are written in UTC with a `Z`, so that no reader's time zone can move them.
    """
    if value is None or value == "":
        return None
    match kind:
        case Primitive(name="boolean"):
            return "true" if value else "false"
        case Primitive(name="timestamp"):
            moment = value.astimezone(datetime.UTC) if value.tzinfo else value
            return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")
        case Primitive(name="timestamp_ntz"):
            return f"{value:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")
        case Primitive(name="date"):
            return str(value.isoformat())
        case Primitive(name="float" | "double"):
            return _float_text(value)
        case Decimal():
            return f"{value:f}"
        case Primitive(name="binary"):
            return bytes(value).decode()
        case _:
            return str(value)


def _float_text(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def from_text(text: str | None, kind: DataType) -> Any:
    """The Python value of a partition value in the log; None for null and for the empty string.

    A timestamp without a zone is taken as UTC. Raises `CorruptLogError` for invalid text.
    """
    if text is None or text == "":
        return None
    try:
        return _from_text(text, kind)
    except (ValueError, KeyError, ArithmeticError) as error:
        years = " of the years 1 to 9999" if str(kind) in _TEMPORAL else ""
        raise CorruptLogError(
            f"the partition value {text!r} is not a {kind}{years}", value=text, type=str(kind)
        ) from error


def _from_text(text: str, kind: DataType) -> Any:
    if str(kind) not in ("string", "binary") and ("_" in text or not text.isascii()):
        raise ValueError(text)  # Python's numbers may have `_` and digits of other scripts
    match kind:
        case Primitive(name="string"):
            return text
        case Primitive(name="long" | "integer" | "short" | "byte"):
            return int(text)
        case Primitive(name="double"):
            return float(text)
        case Primitive(name="float"):  # 0.1 and 0.100000001 are the same float
            return single(float(text))
        case Primitive(name="boolean"):
            return _BOOLEANS[text.lower()]
        case Primitive(name="date"):
            return datetime.date.fromisoformat(text[:10])
        case Primitive(name="timestamp"):
            moment = datetime.datetime.fromisoformat(text)
            return moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        case Primitive(name="timestamp_ntz"):
            return datetime.datetime.fromisoformat(text).replace(tzinfo=None)
        case Primitive(name="binary"):
            return text.encode()
        case Decimal(scale=scale):
            return decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE)
        case _:
            raise ValueError(text)


def single(value: float) -> float:
    """The value in single precision; one that is too large becomes infinite, as in Java and Spark."""
    return ctypes.c_float(value).value


_TEMPORAL: Final = ("date", "timestamp", "timestamp_ntz")
_BOOLEANS: Final = {"true": True, "false": False}
_WIDE: Final = decimal.Context(prec=76, traps=[decimal.InvalidOperation])


def folder(values: Iterable[tuple[str, str | None]]) -> str:
    """The folder on disk, relative to the table, for (column, text) pairs in partition order; '' without any."""
    return "/".join(
        f"{escape(column)}={NULL_FOLDER if text is None or text == '' else escape(text)}" for column, text in values
    )


def escape(text: str) -> str:
    """Hive's escaping of one column name or value in a folder's name."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def encode_path(relative: str) -> str:
    """A path on disk, relative to the table, as an action's `path`."""
    return urllib.parse.quote(relative, safe="/=-_.~!$&'()*+,;@")


def decode_path(path: str) -> str:
    """The path on disk that an action's relative `path` means."""
    return urllib.parse.unquote(path)


def local_path(location: Path, path: str, objects: "ObjectFiles | None" = None) -> Path:
    """The location of an action's data file: relative to the table, or absolute (`/...` or `file:...`).

    `objects`: the store of the table's files, unless they are on this host; these also have URLs (`s3://...`).
    Raises `UnsupportedFeatureError` for another scheme or host: this client reads the host's file systems only;
    `CorruptLogError` for an invalid URI.
    """
    try:
        parts = urllib.parse.urlsplit(path)
    except ValueError as error:
        raise CorruptLogError(f"invalid path {path!r} of a data file; expected a URI: {error}", path=path) from error
    object_path = None if objects is None else objects.path_of(path)
    if object_path is not None:
        return object_path
    if parts.scheme and (parts.scheme != "file" or parts.netloc.lower() not in ("", "localhost")):
        raise UnsupportedFeatureError(f"the data file {path} is not on this host's file system", path=path)
    target = urllib.parse.unquote(parts.path if parts.scheme else path)
    return location / target
