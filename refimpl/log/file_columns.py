"""File actions as Arrow columns, as a checkpoint stores them and a table's state keeps them.

A checkpoint may hold millions of files, and most callers need only their number or a few of them. So its columns are
checked when they are read, and become actions only when a caller needs them.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refimpl.log.table_state import collector_paused
from refimpl.protocol.actions import Add, DeletionVector, FileKey, Remove, canonical_path

FileAction = TypeVar("FileAction", bound=Add | Remove)

TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_BOTH: Final = {
    "path": pa.string(),
    "partitionValues": TEXTS,
    "size": pa.int64(),
    "tags": TEXTS,
    "deletionVector": _VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
MEMBERS: Final[Mapping[type, dict[str, pa.DataType]]] = {
    Remove: _BOTH | {"deletionTimestamp": pa.int64(), "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_()},
    Add: _BOTH
    | {
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
        "clusteringProvider": pa.string(),
    },
}
"""The members of the structs `remove` and `add` that this client reads and writes."""


@dataclass(frozen=True, slots=True)
class FileRows(Generic[FileAction]):
    """Rows of one kind of action, with the columns of `MEMBERS`."""

    kind: type[FileAction]
    batch: pa.RecordBatch

    @classmethod
    def checked(cls, kind: type[FileAction], rows: pa.StructArray) -> "FileRows[FileAction]":
        """The checked columns of `rows`, none of which is null; other members are left out.

        Raises `ValueError` for a required member that is missing or null, and for a time that is not a number; Arrow's
        errors for a member that does not fit its type and for text that is not UTF-8.
        """
        stored = {member.name: rows.field(number) for number, member in enumerate(rows.type)}
        for name in MEMBERS[kind].keys() & stored.keys():
            if pa.types.is_temporal(stored[name].type):
                raise ValueError(f"{name} is {stored[name].type}; expected int64, ms since the epoch")
        columns = {name: _as(stored.get(name), wanted, len(rows)) for name, wanted in MEMBERS[kind].items()}
        if kind is Add:  # required: an empty map if a writer left it out, as in `actions`
            columns["partitionValues"] = _present_maps(columns["partitionValues"])
        _check_required(kind, columns, f"an action {kind.__name__.lower()}")
        vectors = columns["deletionVector"]
        if vectors.null_count < len(rows):
            present = vectors.drop_null()
            members = {member.name: present.field(member.name) for member in _VECTOR}
            _check_required(DeletionVector, members, "a deletion vector")
        batch = pa.RecordBatch.from_pydict(columns)
        batch.validate(full=True)
        return cls(kind, batch)

    def actions(self) -> Iterator[FileAction]:
        """The actions of the rows. Built column by column, because there may be millions."""
        fields = dict(zip(self.kind.__struct_encode_fields__, self.kind.__struct_fields__, strict=True))
        columns = {
            fields[name]: _plain(values)
            for name, values in zip(self.batch.schema.names, self.batch.columns, strict=True)
            if values.null_count < len(values)
        }
        kind: Any = self.kind
        return map(_constructor(kind, tuple(columns)), *columns.values()) if columns else iter(())


def _as(values: pa.Array | None, wanted: pa.DataType, count: int) -> pa.Array:
    if values is None or values.null_count == count:
        return pa.nulls(count, wanted)
    if values.type == wanted:
        return values
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(values.type)):
        return values.cast(wanted)
    stored = {member.name: child for member, child in zip(values.type, values.flatten(), strict=True)}
    members = [_as(stored.get(member.name), member.type, count) for member in wanted]
    return pa.StructArray.from_arrays(members, fields=list(wanted), mask=values.is_null())


def _present_maps(maps: pa.MapArray) -> pa.MapArray:
    """Empty maps instead of nulls."""
    if not maps.null_count:
        return maps
    return pa.array([() if pairs is None else pairs for pairs in maps.to_pylist()], maps.type)


def _check_required(kind: type[msgspec.Struct], columns: Mapping[str, pa.Array], what: str) -> None:
    for member in msgspec.structs.fields(kind):
        if member.required and member.name != "partition_values" and columns[member.encode_name].null_count:
            raise ValueError(f"{what} has no {member.encode_name}")


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_map(values.type):
        return _dictionaries(values)
    plain: list[Any] = values.to_pylist()
    if pa.types.is_struct(values.type):
        return [value and msgspec.convert(value, DeletionVector) for value in plain]
    return plain


def _dictionaries(values: pa.MapArray) -> list[dict[str, str | None] | None]:
    """Converts all keys and all values at once: `to_pylist` would make an object for each map and each pair."""
    ends = values.offsets.to_pylist()
    first, count = ends[0], ends[-1] - ends[0]
    keys, items = (half.slice(first, count).to_pylist() for half in (values.keys, values.items))
    pairs = list(zip(keys, items, strict=True))
    return [
        dict(pairs[start - first : end - first]) if valid else None
        for (start, end), valid in zip(itertools.pairwise(ends), values.is_valid().to_pylist(), strict=True)
    ]


@lru_cache
def _constructor(kind: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function that makes `kind` from these fields by position. It is compiled from text, like
    `collections.namedtuple`: passing a dictionary for each of a million files costs four times as much as the files."""
    fields = ", ".join(f"{name}={name}" for name in names)
    made: Callable[..., Any] = eval(f"lambda {', '.join(names)}: kind({fields})", {"kind": kind})  # noqa: S307 - fields of our structs
    return made


class FileColumns(Generic[FileAction]):
    """The files of a checkpoint, no two with the same key: the `Entries` of a `LayeredMap`.

    A lookup makes actions only of the rows that it finds. When a caller needs all actions, all are made once, and the
    columns are dropped.
    """

    __slots__ = ("_actions", "_columns", "_kind", "_numbers", "_searched")

    def __init__(self, kind: type[FileAction], rows: pa.Table) -> None:
        """`rows`: the batches of `FileRows`."""
        self._kind = kind
        names = pa.chunked_array([_names(batch) for batch in rows.to_batches()], pa.string())
        self._columns: tuple[pa.Table, pa.ChunkedArray] | None = (rows, names)
        """The rows, and the key of each row as one text."""
        self._actions: dict[FileKey, FileAction] = {}
        """All actions, once the columns were dropped."""
        self._searched = False
        self._numbers: dict[str, int] | None = None
        """The number of each row, by its key."""

    def __len__(self) -> int:
        columns = self._columns
        return len(self._actions) if columns is None else len(columns[1])

    def look_up(self, keys: Collection[FileKey]) -> dict[FileKey, FileAction]:
        """The actions of the keys that exist. The first call scans the rows, which is enough for the commits after a
        checkpoint; an index pays off from the second call on, or for many keys."""
        columns = self._columns
        if columns is None:
            return {key: self._actions[key] for key in keys if key in self._actions}
        rows, names = columns
        wanted = [_name(key) for key in keys]
        if self._searched and len(wanted) <= _FEW:
            numbers = self._numbers
            if numbers is None:
                self._numbers = numbers = {name: number for number, name in enumerate(names.to_pylist())}
            picked = [rows.slice(numbers[name], 1) for name in wanted if name in numbers]
        else:
            self._searched = True
            picked = [rows.filter(_is_among(names, wanted))]
        return {action.key: action for part in picked for action in self._made(part)}

    def are_distinct(self, others: "FileColumns[Any]") -> bool:
        """Whether no two rows of both have the same key. Only for columns that were not dropped."""
        assert self._columns is not None
        assert others._columns is not None
        chunks = [*self._columns[1].chunks, *others._columns[1].chunks]
        if _tails_are_distinct(chunks):
            return True
        names = pa.chunked_array(chunks, pa.string()).cast(pa.large_string())  # together they may be larger than 2 GB
        return len(pc.unique(names)) == len(names)

    def as_dict(self) -> dict[FileKey, FileAction]:
        columns = self._columns
        if columns is not None:
            with collector_paused():
                self._actions = {action.key: action for action in self._made(columns[0])}
            self._columns = self._numbers = None  # last: another thread sees either the columns or the actions
        return self._actions

    def rows_without(self, keys: Collection[FileKey]) -> pa.Table | None:
        """The rows of all files except these; None if the columns were dropped."""
        columns = self._columns
        if columns is None:
            return None
        rows, names = columns
        return rows.filter(pc.invert(_is_among(names, [_name(key) for key in keys])))

    def _made(self, rows: pa.Table) -> Iterator[FileAction]:
        return itertools.chain.from_iterable(FileRows(self._kind, batch).actions() for batch in rows.to_batches())


_FEW: Final = 1000
_FACTOR: Final = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer((0x9E3779B97F4A7C1).to_bytes(8, "little"))])[
    0
]
"""Not from a number of Python: the first conversion of one makes Arrow import pandas, if it is installed (0.2 s)."""
_WORDS: Final = ((-36, -28), (-28, -20))
"""Bytes of a name, from its end: digits of the UUID before `.snappy.parquet` or `-c000.snappy.parquet`."""


def _tails_are_distinct(chunks: Iterable[pa.Array]) -> bool:
    """Whether the ends of the names alone are distinct, compared as numbers. Twice as fast as comparing the names, and
    with a tenth of the memory."""
    numbers: list[pa.Array] = []
    for names in filter(len, chunks):
        if (pc.min(pc.binary_length(names)).as_py() or 0) < 36:
            return False
        parts = (pc.binary_slice(names.cast(pa.binary()), start, stop).buffers()[2] for start, stop in _WORDS)
        high, low = (pa.Array.from_buffers(pa.int64(), len(names), [None, part]) for part in parts)
        numbers.append(pc.add(high, pc.multiply(low, _FACTOR)))
    tails = pa.chunked_array(numbers, pa.int64())
    return len(pc.unique(tails)) == len(tails)


def _names(batch: pa.RecordBatch) -> pa.Array:
    names, vectors = batch.column("path"), batch.column("deletionVector")
    data = names.buffers()[2]
    text = b"" if data is None else data.to_pybytes()  # faster than a search in each path
    if b"%" in text or b":" in text:
        unusual = pc.match_substring_regex(names, _CANONICALIZED)
        spelled = [canonical_path(path) for path in names.filter(unusual).to_pylist()]
        names = pc.replace_with_mask(names, unusual, pa.array(spelled, pa.string()))
    if vectors.null_count < len(vectors):
        storage, path_or_inline, offset = (
            pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
        )
        suffix = pc.fill_null(pc.binary_join_element_wise("@", offset.cast(pa.string()), ""), "")
        identity = pc.fill_null(pc.binary_join_element_wise("\0", storage, path_or_inline, suffix, ""), "")
        names = pc.binary_join_element_wise(names, identity, "")
    return names


_CANONICALIZED: Final = "^(?i:file:)|%(?:[a-f]|.[a-f])"
"""Finds every path that `canonical_path` changes."""


def _name(key: FileKey) -> str:
    path, vector = key
    return path if vector is None else f"{path}\0{vector}"


def _is_among(names: pa.ChunkedArray, wanted: list[str]) -> pa.ChunkedArray:
    return pc.is_in(names, value_set=pa.array(wanted, pa.string()))
