"""The rules that rows must meet when they join a table, and the values that the table gives them.

    rows = transaction.rules.completed(rows)

DELTA.md#rules-of-rows. In this order: missing columns get their default, or their next identity value; values are cast
to the table's types; generated columns are computed, or compared with the given values; then nulls, invariants and
CHECK constraints are checked. Rules apply to rows that are appended, inserted or changed, not to rows that are only
copied. A rule is in effect only if its feature is listed, or implied by the writer version.

A table with a rule that `refimpl.rows.expression` cannot evaluate cannot be written here: `UnsupportedFeatureError`
names the rule before anything is written. Times without a zone are UTC.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from refimpl.protocol.actions import Add, Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.rows import arrow_columns, expression
from refimpl.rows.data_files import read_file
from refimpl.rows.partition_values import FileLayout
from refimpl.schema import column_mapping
from refimpl.schema.features import (
    CONSTRAINT_PREFIX,
    DEFAULT,
    GENERATION,
    HIGH_WATER_MARK,
    IDENTITY_PREFIX,
    INVARIANTS,
    TEXT_TYPE,
    writer_features,
)
from refimpl.schema.schema import Array, DataType, Field, Map, Primitive, Struct, to_arrow

SPLITS: Final = 4096
"""Maximum number of tasks of one write to a table with identity columns. It is fixed, because a task does not know how
many there are."""


_LIMITED_TEXT: Final = re.compile(r"(?:var)?char\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A condition that must be true for every row: neither false nor null."""

    label: str
    text: str
    condition: pc.Expression
    facts: Mapping[str, str]
    """Facts of the error: the name of the constraint, or of the column."""


@dataclass(slots=True, kw_only=True)
class Identity:
    """An identity column, and the values that it has used."""

    start: int
    step: int
    mark: int | None
    explicit: bool
    """Whether rows may bring their own values."""
    moved: bool = False
    reached: int | None = None
    """The last value of this transaction, in the direction of the step."""

    def next_values(self, count: int, name: str) -> pa.Array:
        first = self._after(self.mark)
        last = first + (count - 1) * self.step
        if not -(2**63) <= last < 2**63:
            raise InvalidRequestError(
                f"the identity column {name!r} has fewer than {count} values left: the next one is {first}, the step "
                f"{self.step}; write to a new table with another start",
                column=name,
            )
        self.reach(last)
        return pc.add(pc.multiply(pa.arange(0, count), self.step), first)

    def given(self, values: pa.ChunkedArray) -> None:
        """Record values that the rows bring; later values must differ from them."""
        extreme = pc.max(values) if self.step > 0 else pc.min(values)
        if extreme.is_valid:
            self.reach(extreme.as_py())

    def reach(self, value: int) -> None:
        """Record that a row has this value, given or generated."""
        if self.reached is None or (value - self.reached) * self.step > 0:
            self.reached = value
        if self.mark is None or (value - self.mark) * self.step > 0:
            self.mark, self.moved = self._after(value) - self.step, True

    def of_split(self, split: int) -> "Identity":
        """The column for one task: it gets every `SPLITS`th value, beginning with the task's number."""
        start = self._after(self.mark) + split * self.step
        return Identity(start=start, step=self.step * SPLITS, mark=None, explicit=self.explicit)

    def _after(self, value: int | None) -> int:
        """The first value of `start + k * step` beyond another one."""
        return self.start if value is None else self.start + max(0, (value - self.start) // self.step + 1) * self.step


@dataclass(slots=True, kw_only=True)
class RowRules:
    """The rules of one table, for one transaction."""

    schema: Struct
    partition_columns: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    defaults: Mapping[str, tuple[str, pa.Scalar]] = field(default_factory=dict)
    generated: Mapping[str, tuple[str, pc.Expression]] = field(default_factory=dict)
    """The SQL and the expression of each generated column."""
    identities: Mapping[str, Identity] = field(default_factory=dict)

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, *, now: int) -> Self:
        """`now`: ms since the epoch, the value of `current_timestamp()` as a default."""
        schema, supported = column_mapping.of_table(protocol, metadata), frozenset(writer_features(protocol))
        checks = [
            *_lengths(schema),
            *_constraints(metadata, schema, supported),
            *_invariants(schema, schema, supported),
        ]
        defaults, generated, identities = {}, {}, {}
        for column in schema.fields:
            if DEFAULT in column.metadata and "allowColumnDefaults" in supported:
                defaults[column.name] = _default(column, now)
            if GENERATION in column.metadata and "generatedColumns" in supported:
                generated[column.name] = _generation(column, schema)
            if f"{IDENTITY_PREFIX}start" in column.metadata and "identityColumns" in supported:
                identities[column.name] = _identity(column)
        return cls(
            schema=schema,
            partition_columns=metadata.partition_columns,
            checks=tuple(checks),
            defaults=defaults,
            generated=generated,
            identities=identities,
        )

    @property
    def filled(self) -> frozenset[str]:
        """The columns that rows may lack, because the table fills them."""
        return frozenset([*self.defaults, *self.generated, *self.identities])

    @property
    def reached(self) -> dict[str, int]:
        """The last values of the identity columns: for `advance`, in another process."""
        return {name: column.reached for name, column in self.identities.items() if column.reached is not None}

    def __bool__(self) -> bool:
        """Whether there is any rule other than types and `NOT NULL`."""
        return bool(self.checks or self.filled)

    def of_split(self, split: int) -> Self:
        """The rules for one task of a distributed write; no other task has its identity values. The driver calls
        `advance` with the values that the tasks `reached`. Raises `InvalidRequestError` for too many tasks."""
        if self.identities and split >= SPLITS:
            raise InvalidRequestError(
                f"a write to a table with an identity column has at most {SPLITS} tasks, and this is number "
                f"{split + 1}; write fewer partitions, such as df.coalesce({SPLITS})"
            )
        return dataclasses.replace(
            self, identities={name: column.of_split(split) for name, column in self.identities.items()}
        )

    def advance(self, reached: Mapping[str, Iterable[int]]) -> None:
        """Record the values of identity columns that other processes reached."""
        for name, values in reached.items():
            for value in values:
                self.identities[name].reach(value)

    def completed(self, rows: pa.Table | pa.RecordBatch, given: Collection[str] | None = None) -> pa.Table:
        """The rows with all columns of the table, in its order and types.

        `given`: the columns with new values; the rows' other columns come from the table (None: all values are new).
        Raises `InvalidRequestError` with the constraint or the column, the first row and the number of rows.
        """
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        rows = rows.rename_columns(self.schema.spelled(rows.column_names))
        new = set(rows.column_names if given is None else given)
        for name, (_, value) in self.defaults.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        rows = self._with_identities(rows, new)
        fitted = self._with_generated(self._fitted(rows), new)
        for name in new & self.identities.keys():
            self.identities[name].given(fitted.column(name))
        arrow_columns.check_nulls(fitted, self.schema)
        for check in self.checks:
            self._check(check, fitted)
        return fitted

    def check_files(self, layout: FileLayout, files: Iterable[Add]) -> None:
        """Raise `InvalidRequestError` if a row of these files breaks a rule."""
        layout = dataclasses.replace(layout, schema=self.schema, partition_columns=self.partition_columns)
        for add in files:
            self.completed(read_file(layout, add), self.generated)

    def _with_identities(self, rows: pa.Table, new: Collection[str]) -> pa.Table:
        for name, identity in self.identities.items():
            if name in new:
                if not identity.explicit:
                    raise InvalidRequestError(
                        f"the identity column {name!r} is GENERATED ALWAYS: leave it out of the rows", column=name
                    )
            elif name not in rows.column_names and rows.num_rows:
                rows = rows.append_column(name, identity.next_values(rows.num_rows, name))
        return rows

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table; generated columns, and empty partition values, are null."""
        absent = [name for name in self.generated if name not in rows.column_names]
        arrow = to_arrow(self.schema)
        for name in absent:
            position = arrow.get_field_index(name)
            arrow = arrow.set(position, arrow.field(position).with_nullable(True))
        batches = arrow_columns.conform(rows.to_batches(), arrow)
        fitted = pa.Table.from_batches(batches, schema=arrow_columns.all_nullable(arrow))
        for position, item in enumerate(arrow):
            if item.name in self.partition_columns and item.nullable and pa.types.is_string(item.type):
                values = fitted.column(position)
                values = pc.if_else(pc.equal(values, ""), pa.scalar(None, item.type), values)
                fitted = fitted.set_column(position, fitted.field(position), values)
        return fitted

    def _with_generated(self, rows: pa.Table, new: Collection[str]) -> pa.Table:
        if not self.generated or not rows.num_rows:
            return rows
        values = expression.evaluated(rows, {name: value for name, (_, value) in self.generated.items()})
        for name, (text, _) in self.generated.items():
            position = rows.column_names.index(name)
            wanted = rows.schema.field(position)
            computed = pa.chunked_array(
                [arrow_columns.cast(chunk, wanted) for chunk in values.column(name).chunks], type=wanted.type
            )
            if name in new:
                _refuse(
                    rows,
                    _differ(rows.column(position), computed),
                    f"the generated column {name!r} is not {text}",
                    "leave the column out to have it computed",
                    column=name,
                )
            else:
                rows = rows.set_column(position, wanted, computed)
        return rows

    def _check(self, check: Check, rows: pa.Table) -> None:
        if rows.num_rows:
            broken = pc.invert(expression.matching(rows, check.condition))
            _refuse(
                rows,
                broken,
                f"the {check.label} ({check.text}) is not true",
                "correct or leave out these rows",
                **check.facts,
            )

    def advanced(self, before: Metadata) -> Metadata | None:
        """The metadata with the identity columns' new high water marks; None if no mark moved."""
        moved = {name: identity.mark for name, identity in self.identities.items() if identity.moved}
        if not moved:
            return None
        document = json.loads(before.schema_string)
        for column in document["fields"]:
            if column["name"] in moved:
                column["metadata"][HIGH_WATER_MARK] = moved[column["name"]]
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        return msgspec.structs.replace(before, schema_string=text)


def _refuse(rows: pa.Table, broken: pa.ChunkedArray, what: str, remedy: str, **facts: str) -> None:
    """Raise `InvalidRequestError` if a row is `broken`."""
    count = pc.sum(broken).as_py() or 0
    if count:
        first = pc.index(broken, True).as_py()
        raise InvalidRequestError(
            f"{what} for {count} of {rows.num_rows} rows; the first is {arrow_columns.described_row(rows, first)}; "
            f"{remedy}",
            count=count,
            row=first,
            **facts,
        )


def _differ(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether values differ, a null from a value too: the opposite of SQL's `<=>`."""
    same = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return pc.invert(pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right))))


def _lengths(schema: Struct) -> Iterator[Check]:
    """DELTA.md#limited-text."""
    for column in schema.fields:
        limited = _LIMITED_TEXT.fullmatch(str(column.metadata.get(TEXT_TYPE)))
        if limited is not None and column.type == Primitive(name="string"):
            name = exp.column(column.name, quoted=True).sql(dialect="spark")
            text = f"length({name}) <= {limited[1]}"
            condition = expression.condition(f"{name} IS NULL OR {text}", schema)
            label = f"type {limited[0]} of the column {column.name!r}"
            yield Check(label=label, text=text, condition=condition, facts={"column": column.name})


def _constraints(metadata: Metadata, schema: Struct, supported: Collection[str]) -> Iterator[Check]:
    if "checkConstraints" not in supported:
        return
    for key, text in sorted(metadata.configuration.items()):
        if key.lower().startswith(CONSTRAINT_PREFIX):
            name = key[len(CONSTRAINT_PREFIX) :]
            yield _bound(f"CHECK constraint {name!r}", "checkConstraints", text, schema, constraint=name)


def _invariants(kind: DataType, schema: Struct, supported: Collection[str], where: str = "") -> Iterator[Check]:
    """The invariants of columns and of members of structs."""
    if "invariants" not in supported or not isinstance(kind, Struct):
        return
    for column in kind.fields:
        path = f"{where}{column.name}"
        if INVARIANTS in column.metadata:
            text = invariant_sql(column.metadata[INVARIANTS])
            if text is None:
                _unsupported(f"invariant of the column {path!r}", "invariants", str(column.metadata[INVARIANTS]), path)
            yield _bound(f"invariant of the column {path!r}", "invariants", text, schema, column=path)
        alone = Struct(fields=(Field(name=column.name, type=column.type),))
        if isinstance(column.type, Array | Map) and INVARIANTS in alone.to_json():
            _unsupported(f"invariant in the elements of {path!r}", "invariants", str(column.type), path)
        yield from _invariants(column.type, schema, supported, f"{path}.")


def invariant_sql(given: Any) -> str | None:
    """The condition in the value of `delta.invariants`; None for an invalid value."""
    try:
        text = msgspec.json.decode(given)["expression"]["expression"]
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return None
    return text if isinstance(text, str) else None


def _bound(label: str, feature: str, text: str, schema: Struct, **facts: str) -> Check:
    try:
        condition = expression.condition(text, schema)
    except InvalidRequestError as error:
        _unsupported(label, feature, text, facts.get("column"), error)
    return Check(label=label, text=text, condition=condition, facts=facts)


def _generation(column: Field, schema: Struct) -> tuple[str, pc.Expression]:
    text = str(column.metadata[GENERATION])
    try:
        return text, expression.value(text, column, schema)
    except InvalidRequestError as error:
        _unsupported(f"generated column {column.name!r}", "generatedColumns", text, column.name, error)


def _default(column: Field, now: int) -> tuple[str, pa.Scalar]:
    text = str(column.metadata[DEFAULT])
    moment = datetime.datetime.fromtimestamp(now / 1000, datetime.UTC)
    current = {
        ("current_timestamp()", "timestamp"): moment,
        ("now()", "timestamp"): moment,
        ("current_date()", "date"): moment.date(),
    }
    known = current.get((text.strip().lower().removesuffix("()") + "()", str(column.type)))
    wanted = to_arrow(Struct(fields=(column,))).field(0)
    try:
        if known is not None:
            return text, pa.scalar(known, wanted.type)
        row = expression.evaluated(pa.table({"_": [0]}), {"value": expression.value(text, column, Struct())})
        return text, arrow_columns.cast(row.column(0).combine_chunks(), wanted)[0]
    except InvalidRequestError as error:
        _unsupported(f"default of the column {column.name!r}", "allowColumnDefaults", text, column.name, error)


def _identity(column: Field) -> Identity:
    properties = {key.removeprefix(IDENTITY_PREFIX): value for key, value in column.metadata.items()}
    start, step, mark = properties.get("start"), properties.get("step"), properties.get("highWaterMark")
    explicit = properties.get("allowExplicitInsert")
    if (
        type(start) is not int
        or type(step) is not int
        or step == 0
        or type(mark) not in (int, type(None))
        or type(explicit) is not bool
        or column.type != Primitive(name="long")
    ):
        raise InvalidTableError(
            f"the identity column {column.name!r} is {column.type} with start {start!r}, step {step!r}, high water "
            f"mark {mark!r} and allowExplicitInsert {explicit!r}; expected a long, whole numbers, the step not 0, and "
            "true or false",
            column=column.name,
        )
    return Identity(start=start, step=step, mark=mark, explicit=explicit)


def _unsupported(
    label: str, feature: str, text: str, column: str | None, error: InvalidRequestError | None = None
) -> NoReturn:
    reason = "" if error is None else f": {error.message}"
    raise UnsupportedFeatureError(
        f"cannot write this table: its {label} ({text}) cannot be evaluated here{reason}; correct the "
        "SQL, or write the table with Delta Spark",
        features=(feature,),
        column=column,
    )
