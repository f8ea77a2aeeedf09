"""Arrow columns between data files and a table: casts, partitioning, checks of nulls, dictionary encoding."""

import datetime
import decimal
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.file_statistics import Leaf, struct_leaves
from refimpl.schema.schema import FLOATS, PARQUET_FIELD_ID, Array, ColumnMapping, DataType, Field, Map, Struct

SAMPLE_ROWS: Final = 10_000
REPETITIVE: Final = 0.1
"""A column is dictionary-encoded where a sample has at most this share of distinct values. For other columns
a dictionary does not pay: used unconditionally, it makes a write two and a half times as expensive."""

DESCRIBED: Final = 300
"""Maximum number of characters of a row in a message."""

_GREGORIAN: Final = datetime.date(1582, 10, 15)
"""The first day of the Gregorian calendar."""
_UNIFORM: Final = datetime.datetime(1900, 1, 1)  # noqa: DTZ001 - Spark's limit, in UTC
"""From this moment on, calendars and time zones agree in all of Spark's rebase modes."""


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """The schema of the files: every column is optional, as in Spark's files; nulls are checked before. Keeps only the
    field ids of the metadata."""
    return pa.schema([_nullable(item) for item in schema])


_Leaf = Callable[[pa.DataType], pa.DataType]


def _unchanged(kind: pa.DataType) -> pa.DataType:
    return kind


def _nullable(item: pa.Field, leaf: _Leaf = _unchanged) -> pa.Field:
    number = (item.metadata or {}).get(PARQUET_FIELD_ID)
    metadata = None if number is None else {PARQUET_FIELD_ID: number}
    return pa.field(item.name, _nullable_type(item.type, leaf), nullable=True, metadata=metadata)


def _nullable_type(kind: pa.DataType, leaf: _Leaf = _unchanged) -> pa.DataType:
    """Without details that only Arrow's own footer has, too: dictionaries, and other kinds of lists."""
    if pa.types.is_dictionary(kind):
        return _nullable_type(kind.value_type, leaf)
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(i), leaf) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type, leaf), _nullable(kind.item_field, leaf))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_nullable(kind.value_field, leaf))
    return leaf(kind)


def conform(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches with exactly the columns of `schema`, in its order and types, all of them nullable.

    A nullable column that a batch lacks is null. Raises `InvalidRequestError` with the column's name for any
    other difference, for a type whose values would change, and for a value that the wanted type cannot hold.
    """
    target = all_nullable(schema)
    return (
        batch if batch.schema.equals(target, check_metadata=True) else _conformed(batch, schema, target)
        for batch in batches
    )


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, target: pa.Schema) -> pa.RecordBatch:
    names = batch.schema.names
    surplus = sorted(set(names) - set(schema.names)) or sorted({name for name in names if names.count(name) > 1})
    if surplus:
        problem = "the rows repeat columns" if set(surplus) <= set(schema.names) else "the table has no column"
        raise InvalidRequestError(
            f"{problem}: {', '.join(map(repr, surplus))}; the table's columns are {', '.join(schema.names)}"
        )
    columns = []
    for field, given in zip(target, schema, strict=True):
        if field.name in names:
            columns.append(cast(batch.column(field.name), field))
        elif given.nullable:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise InvalidRequestError(f"the column {field.name!r} must not be null, and the rows do not have it")
    return pa.RecordBatch.from_arrays(columns, schema=target)


def stored_name(stored: Sequence[str], column: str) -> str | None:
    """The name of the table's `column` among a file's columns, or a struct's members; None if it is missing.

    Delta compares names case-insensitively. Raises `InvalidRequestError` if several differ only in case.
    """
    if column in stored:
        return column
    alike = [name for name in stored if name.lower() == column.lower()]
    if len(alike) > 1:
        raise InvalidRequestError(
            f"the columns {' and '.join(map(repr, alike))} are both candidates for {column!r}; rename one of them",
            column=column,
        )
    return alike[0] if alike else None


def stored_field(stored: Sequence[pa.Field], column: Field) -> int | None:
    """The position of the table's `column` among a file's columns, or a struct's members; None if it is missing.

    By field id, physical name or name, depending on the table's column mapping. Raises the errors of `stored_name`.
    """
    if column.mapping is ColumnMapping.ID:
        ids = [int((item.metadata or {}).get(PARQUET_FIELD_ID, -1)) for item in stored]
        assert column.field_id is not None
        if set(ids) == {-1}:
            raise InvalidRequestError(
                f"the column {column.name!r} is mapped by field id, but the file has no field ids; "
                "rewrite the file with those of the schema"
            )
        return ids.index(column.field_id) if column.field_id in ids else None
    names = [item.name for item in stored]
    name = stored_name(names, column.physical_name)
    return None if name is None else names.index(name)


def without_void(rows: pa.RecordBatch, stored: pa.Schema) -> pa.RecordBatch:
    """The columns and members that data files have: all but `void` ones."""
    if rows.schema.equals(stored):
        return rows
    columns = [rows.column(field.name) for field in stored]
    return pa.RecordBatch.from_arrays(
        [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, stored, strict=True)
        ],
        schema=stored,
    )


def relabelled(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns in the same order under other names, at any depth."""
    columns = [
        _labelled(pa.chunked_array([column]), field.type).chunk(0) if pa.types.is_nested(field.type) else column
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fitted(values: pa.ChunkedArray, column: Field, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of a data file as `kind`, the Arrow type of the table's `column`.

    `stored_field` finds members. A required member may be null if its parent is. Raises `InvalidRequestError` for any
    other null below the top level, and Arrow's errors for a value that cannot be cast.
    """
    plain = _nullable_type(values.type)
    values = _labelled(values.cast(plain), _named(plain, column.type)).cast(_nullable_type(kind))
    if _holds_required(True, column.type):
        for chunk in values.chunks:
            _check_nulls(chunk, column.name, column.type, nullable=True)
        values = _labelled(values, kind)
    assert isinstance(values, pa.ChunkedArray)
    return values


def _named(stored: pa.DataType, wanted: DataType) -> pa.DataType:
    """The stored type, in which the members of structs have the table's names."""
    is_ = pa.types
    match wanted:
        case Struct(fields=members) if is_.is_struct(stored):
            wanted_at = {stored_field(list(stored), member): member for member in members}
            return pa.struct(
                [
                    item.with_name(f"\0{number}")  # not a member of the table: the cast drops it
                    if member is None
                    else item.with_name(member.name).with_type(_named(item.type, member.type))
                    for number, (item, member) in enumerate((item, wanted_at.get(i)) for i, item in enumerate(stored))
                ]
            )
        case Array(element=element) if is_.is_list(stored):
            item = stored.value_field
            return pa.list_(item.with_type(_named(item.type, element)))
        case Map(key=key, value=value) if is_.is_map(stored):
            item = stored.item_field
            return pa.map_(_named(stored.key_type, key), item.with_type(_named(item.type, value)))
    return stored


def _labelled(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same buffers under a type of equal layout: the names of members, and whether they may be null, are labels.

    Arrow's cast does not work here: it ignores the parent's nulls when it checks a member's.
    """
    if values.type == kind:
        return values
    schema = pa.schema([pa.field("values", kind)])
    batches = [pa.record_batch([chunk], names=["values"]).serialize() for chunk in values.chunks]
    return pa.chunked_array([pa.ipc.read_record_batch(batch, schema).column(0) for batch in batches], type=kind)


def cast(column: pa.Array, wanted: pa.Field) -> pa.Array:
    """The values in the wanted type; members of structs are found by `stored_name`. Raises `InvalidRequestError` if a
    value would change."""
    if column.type == wanted.type:
        return column
    if pa.types.is_nested(column.type):
        plain = _nullable_type(column.type)
        spelled = _spelled(plain, wanted.type)
        if spelled != plain:
            column = _labelled(pa.chunked_array([column.cast(plain)]), spelled).chunk(0)
    problem: object = "cast it to that type first"
    if pa.types.is_timestamp(column.type) and column.type.tz is None and pa.types.is_timestamp(wanted.type):
        problem = "give its values a time zone with pyarrow.compute.assume_timezone(column, 'UTC')"
    if _fits(column.type, wanted.type):
        try:
            return column.cast(wanted.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            problem = error
    raise InvalidRequestError(
        f"the column {wanted.name!r} is {column.type} and does not fit the table's {wanted.type}: {problem}",
        column=wanted.name,
    )


def _spelled(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The given type, in which the members of structs have the wanted names."""
    is_ = pa.types
    if is_.is_struct(given) and is_.is_struct(wanted):
        names = [item.name for item in given]
        members = {stored_name(names, member.name): member for member in wanted}
        pairs = [(item, members.get(item.name, item)) for item in given]
        return pa.struct([item.with_name(own.name).with_type(_spelled(item.type, own.type)) for item, own in pairs])
    if is_.is_map(given) and is_.is_map(wanted):
        return pa.map_(_spelled(given.key_type, wanted.key_type), _spelled(given.item_type, wanted.item_type))
    return (
        pa.list_(_spelled(given.value_type, wanted.value_type)) if is_.is_list(given) and is_.is_list(wanted) else given
    )


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning of the values; Arrow's cast then checks that each value fits. For other pairs
    of types it would silently round, truncate or reinterpret values, and drop members of structs."""
    is_ = pa.types
    if is_.is_dictionary(given):
        return _fits(given.value_type, wanted)
    if is_.is_struct(given) and is_.is_struct(wanted):
        members = {member.name: member.type for member in wanted}
        return all(member.name in members and _fits(member.type, members[member.name]) for member in given)
    if is_.is_map(given) and is_.is_map(wanted):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if is_.is_list(wanted) and (is_.is_list(given) or is_.is_large_list(given) or is_.is_fixed_size_list(given)):
        return _fits(given.value_type, wanted.value_type)
    if is_.is_floating(given):
        return bool(is_.is_floating(wanted) and given.bit_width <= wanted.bit_width)
    if is_.is_integer(given):
        return bool(is_.is_integer(wanted) or is_.is_floating(wanted) or is_.is_decimal(wanted))
    return bool(is_.is_null(given)) or _family(given) == _family(wanted)


def _family(kind: pa.DataType) -> str:
    """Types of one family differ in how they store the same values."""
    is_ = pa.types
    families = {
        "text": (is_.is_string, is_.is_large_string, is_.is_string_view),
        "bytes": (is_.is_binary, is_.is_large_binary, is_.is_binary_view, is_.is_fixed_size_binary),
        "decimal": (is_.is_decimal,),
        "timestamp without a time zone": (lambda kind: is_.is_timestamp(kind) and kind.tz is None,),
        "timestamp with a time zone": (is_.is_timestamp,),
        "date": (is_.is_date,),
    }
    return next((name for name, tests in families.items() if any(test(kind) for test in tests)), str(kind))


LONGEST_DECIMAL: Final = 38
"""Maximum precision of a decimal in Delta and in Arrow's `decimal128`; that of `decimal256` is twice as large."""
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""As in Spark, which gives a long one more than it needs."""


def digits(kind: pa.DataType) -> tuple[int, int] | None:
    """The precision and the scale of a decimal or integer type; None for other types."""
    if pa.types.is_decimal(kind):
        return kind.precision, kind.scale
    return (_DIGITS[kind], 0) if kind in _DIGITS else None


def comparable(values: list[pc.Expression], kinds: Sequence[pa.DataType]) -> list[pc.Expression]:
    """Convert decimals, and integers that are compared with them, to one type if necessary: Arrow compares them itself
    only if a type of 38 digits can hold the values of all of them."""
    sizes = [digits(kind) for kind in kinds]
    known = [size for size in sizes if size is not None]
    scale = max((after for _, after in known), default=0)
    if not scale or scale + max(all_ - after for all_, after in known) <= LONGEST_DECIMAL:
        return values
    wide = pa.decimal256(2 * LONGEST_DECIMAL, scale)
    return [value if size is None else value.cast(wide) for value, size in zip(values, sizes, strict=True)]


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A scalar of a value that Python's type for `kind` holds. `pa.scalar` is the same, but the first call makes Arrow
    import pandas, if it is installed: 0.3 s."""
    if value is None:
        return pa.nulls(1, kind)[0]
    text = f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
    data = value if isinstance(value, bytes) else text.encode()
    sizes = pa.py_buffer(struct.pack("=ii", 0, len(data)))
    array = pa.Array.from_buffers(pa.binary(), 1, [None, sizes, pa.py_buffer(data)])
    via = [pa.float64()] if pa.types.is_floating(kind) else []  # rounded once, as Python's number is
    try:
        for step in [*via, kind] if isinstance(value, bytes) else [pa.string(), *via, kind]:
            array = array.cast(step)
        return array[0]
    except pa.ArrowException:
        return pa.scalar(value, kind)  # an error that names the value


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows as one batch; a table whose text does not fit into one (2 GB) is rejected."""
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        raise InvalidRequestError(f"{table.num_rows} rows hold more than 2 GB in one column; write fewer rows at once")
    return batches[0]


def split(rows: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows grouped by the values of the partition columns, without those columns; order kept in a group."""
    rest = rows.drop_columns(list(columns)) if columns else rows
    if not columns:
        yield (), rest
        return
    codes = _group_codes(rows, columns)
    order = pc.sort_indices(codes)
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    if len(ends) == 1:
        yield _values(rows, columns, 0), rest
        return
    start = 0
    for end in ends:
        picked = order.slice(start, end - start)
        first = picked[0].as_py()
        yield (
            _values(rows, columns, first),
            pa.RecordBatch.from_arrays([column.take(picked) for column in rest.columns], schema=rest.schema),
        )
        start = end


def _group_codes(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """One small integer per row, equal for two rows if and only if all their partition values are equal."""
    codes: pa.Array | None = None
    for name in columns:
        values = rows.column(name)
        if pa.types.is_string(values.type):  # the empty string means null
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
        encoded = values.dictionary_encode(null_encoding="encode")
        own = encoded.indices.cast(pa.int64())
        if codes is None:
            codes = own
        else:
            combined = pc.add(pc.multiply(codes, len(encoded.dictionary)), own)
            codes = combined.dictionary_encode().indices.cast(pa.int64())
    return codes


def _values(rows: pa.RecordBatch, columns: Sequence[str], row: int) -> tuple[Any, ...]:
    return tuple(_value(rows, name, row) for name in columns)


def _value(rows: pa.RecordBatch, name: str, row: int) -> Any:
    value = rows.column(name)[row]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        raise InvalidRequestError(
            f"the column {name!r} holds a {value.type} outside the years 1 to 9999, which a partition value "
            "cannot have; partition by another column",
            column=name,
        ) from None


def check_nulls(rows: pa.RecordBatch | pa.Table, schema: Struct) -> None:
    """Raise `InvalidRequestError`, with the column's name, for a null at any depth that the schema forbids."""
    for column in schema.fields:
        if not _holds_required(column.nullable, column.type):
            continue
        values = rows.column(column.name)
        if isinstance(values, pa.ChunkedArray) and isinstance(column.type, Struct | Array | Map):
            values = values.combine_chunks()
        try:
            _check_nulls(values, column.name, column.type, nullable=column.nullable)
        except InvalidRequestError as error:
            first = _first_refused(values, column)
            raise InvalidRequestError(
                f"{error.message}; the first is in {described_row(rows, first)}", **error.facts | {"row": first}
            ) from None


def _first_refused(values: pa.Array, column: Field) -> int:
    """The number of the row with the first null that the column forbids, at any depth. There must be one."""
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        try:
            _check_nulls(values.slice(first, half), column.name, column.type, nullable=column.nullable)
        except InvalidRequestError:
            count = half
        else:
            first, count = first + half, count - half
    return first


def described_row(rows: pa.RecordBatch | pa.Table, number: int) -> str:
    """A row for a message: its number, counted from 0, and its values."""
    text = str(python_rows(rows.slice(number, 1))[0])
    return f"row {number}: {text if len(text) <= DESCRIBED else text[:DESCRIBED] + '...'}"


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows as Python values. Dates and times are texts, because Python cannot represent all of them; a 32-bit float
    has only its own digits."""

    def schema(of_single: pa.DataType) -> pa.Schema:
        def leaf(kind: pa.DataType) -> pa.DataType:
            return of_single if kind == pa.float32() else _text_of_a_time(kind)

        return pa.schema([_nullable(item, leaf) for item in rows.schema])

    values: list[dict[str, Any]] = rows.cast(schema(pa.string())).cast(schema(pa.float64())).to_pylist()
    return values


def _text_of_a_time(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(kind) and not pa.types.is_interval(kind) else kind


def _holds_required(nullable: bool, kind: DataType) -> bool:
    if not nullable:
        return True
    match kind:
        case Struct(fields=fields):
            return any(_holds_required(item.nullable, item.type) for item in fields)
        case Array(element=element, contains_null=contains_null):
            return _holds_required(contains_null, element)
        case Map(key=key, value=value, value_contains_null=value_contains_null):
            return _holds_required(True, key) or _holds_required(value_contains_null, value)
        case _:
            return False


def _check_nulls(values: pa.Array, where: str, kind: DataType, *, nullable: bool) -> None:
    """Check the `values` whose parents are all present."""
    if not nullable and values.null_count:
        raise InvalidRequestError(
            f"the column {where!r} must not be null, but {values.null_count} of {len(values)} values are", column=where
        )
    present = values.drop_null() if values.null_count else values
    match kind:
        case Struct(fields=fields):
            for item, member in zip(fields, present.flatten(), strict=True):
                _check_nulls(member, f"{where}.{item.name}", item.type, nullable=item.nullable)
        case Array(element=element, contains_null=contains_null):
            _check_nulls(present.flatten(), f"{where}.element", element, nullable=contains_null)
        case Map(key=key, value=value, value_contains_null=value_contains_null):
            pairs = [pa.field("key", present.type.key_type), pa.field("value", present.type.item_type)]
            entries = present.cast(pa.list_(pa.struct(pairs))).flatten()
            names, members = entries.flatten()
            _check_nulls(names, f"{where}.key", key, nullable=False)
            _check_nulls(members, f"{where}.value", value, nullable=value_contains_null)
        case _:
            pass


def leaf_arrays(values: Any, path: str = "") -> Iterator[tuple[str, pa.Array]]:
    """The arrays of primitive values in an array, with the paths of their Parquet columns."""
    kind = values.type
    if pa.types.is_struct(kind):
        for item, member in zip(kind, values.flatten(), strict=True):
            yield from leaf_arrays(member, f"{path}.{item.name}")
    elif pa.types.is_map(kind):
        yield from leaf_arrays(values.keys, f"{path}.key_value.key")
        yield from leaf_arrays(values.items, f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from leaf_arrays(values.flatten(), f"{path}.list.element")
    else:
        yield path, values


def is_ancient(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether an array holds, at any depth, a date before 1582-10-15 or a time before 1900: for these, calendars
    differ."""
    if isinstance(values, pa.ChunkedArray):
        return any(is_ancient(chunk) for chunk in values.chunks)
    limits = ((pa.types.is_date, _GREGORIAN), (pa.types.is_timestamp, _UNIFORM))
    return any(
        is_time(leaf.type) and pc.any(pc.less(leaf, pa.scalar(first).cast(leaf.type))).as_py()
        for _, leaf in leaf_arrays(values)
        for is_time, first in limits
    )


def without_footer_statistics(table: pa.Table, schema: Struct) -> Iterator[tuple[Leaf, pa.ChunkedArray]]:
    """The leaves whose statistics `file_statistics.LeafStatistics` computes: floats, arrays and maps, but none inside
    an array or a map."""
    for leaf, kind in struct_leaves(schema):
        if kind in FLOATS or isinstance(kind, Array | Map):
            yield leaf, _member(table, leaf)


def _member(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The values of a leaf; null where an enclosing struct is null."""
    values = table.column(leaf[0])
    for name in leaf[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values


def repetitive_leaves(table: pa.Table) -> list[str]:
    """The Parquet paths of the leaves that a dictionary makes smaller, judged by a sample of the first rows."""
    sample = table.slice(0, SAMPLE_ROWS)
    leaves = (leaf_arrays(sample.column(name).combine_chunks(), name) for name in sample.schema.names)
    return [path for path, values in itertools.chain.from_iterable(leaves) if _is_repetitive(values)]


def _is_repetitive(values: pa.Array) -> bool:
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    return bool(distinct <= max(1, len(values) * REPETITIVE))
