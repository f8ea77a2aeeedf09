"""Conditions in SQL, applied to files: for pruning and for conflicts.

    test = file_test("month = 3 AND carrier IN ('UA', 'DL')", snapshot.schema, snapshot.partition_columns)
    test.may_match(add)

Supported: comparisons of a column with a literal or another column, BETWEEN, IN, LIKE, IS [NOT] NULL, boolean columns,
TRUE, FALSE, NULL, NOT, AND, OR, parentheses; Spark's spelling of literals, parsed by sqlglot. Names of
columns are case-insensitive, as in Spark. A timestamp without a zone is taken as UTC. Anything else is rejected, never
ignored.

Integers and decimals are compared with all digits of a literal, but as in Spark in double precision with a double
(`1e3`, `CAST(1 AS DOUBLE)`) and, if they are decimals, with a text. With one of these in an IN list, all values are; so
are integers if a text follows a decimal (`IN (1.5, '2')`).
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import sqlglot
from sqlglot import exp

from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.condition import (
    And,
    Column,
    ColumnComparison,
    Condition,
    Constant,
    FileTest,
    IsNull,
    Like,
    Not,
    Operator,
    compared,
    compared_in_double,
    either,
    is_exact,
    next_below,
)
from refimpl.rows.partition_values import single
from refimpl.schema.schema import FLOATS, DataType, Decimal, Field, Primitive, Struct

_DIALECT: Final = "spark"


def condition(text: str, schema: Struct) -> Condition:
    """The condition on the columns of a schema. Raises `InvalidRequestError` if it is not supported or does not fit."""
    return condition_of(parse(text), schema)


def file_test(text: str, schema: Struct, partition_columns: tuple[str, ...]) -> FileTest:
    """The condition as a test of files."""
    return FileTest(text=text, condition=condition(text, schema), partition_columns=partition_columns)


def parse(text: str) -> exp.Expression:
    """The syntax tree of one SQL condition. Raises `InvalidRequestError` for syntax that is not supported."""
    tree = syntax(text)
    check_deterministic(tree)
    for node in tree.walk():
        surplus = {name for name, value in node.args.items() if value} - _ARGUMENTS
        if surplus - (_NEGATED if isinstance(node, exp.Like) else set()):
            refuse(node, _UNSUPPORTED)
    return tree


def syntax(text: str) -> exp.Expression:
    """The syntax tree of one SQL expression. Raises `InvalidRequestError` with the position of a syntax error."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"expected SQL text, such as 'id = 5', not {text!r}")
    try:
        trees = sqlglot.parse(text, read=_DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise InvalidRequestError(
            f"the expression {text!r} is not SQL: {_described(text, error)}", condition=text
        ) from error
    except RecursionError:
        raise InvalidRequestError(f"the expression {text[:80]!r}... is nested too deeply", condition=text) from None
    if len(trees) != 1 or trees[0] is None:
        raise InvalidRequestError(f"expected one expression, not {text!r}", condition=text)
    return trees[0]


def _described(text: str, error: sqlglot.errors.SqlglotError) -> str:
    """The problem and its position."""
    if not isinstance(error, sqlglot.errors.ParseError):
        match = re.fullmatch(r"(.*) from \d+:(\d+)", str(error.__cause__))
        if match is None:
            return f"it ends too early (position {len(text)})"
        return f"{match[1].lower()} (position {int(match[2]) + 1})"
    first = error.errors[0]
    problem = re.sub(r"^Required keyword: .*", "an operand is missing", first["description"])
    return f"{problem} (line {first['line']}, column {first['col']})"


_ARGUMENTS: Final = frozenset(
    {"this", "expression", "expressions", "low", "high", "to", "is_string", "quoted", "table", "db", "catalog", "query"}
)
"""The parts of a syntax tree that are supported below. A node with another part is rejected."""
_NEGATED: Final = frozenset({"negate"})
_UNSUPPORTED: Final = "is not supported in a condition; expected comparisons, BETWEEN, IN, LIKE, IS NULL, NOT, AND, OR"


def refuse(node: exp.Expression, problem: str) -> NoReturn:
    text = node.sql(dialect=_DIALECT)
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    where = f" at position {min(starts) + 1}" if starts else ""
    raise InvalidRequestError(f"the expression {text!r}{where} {problem}", condition=text)


def check_deterministic(tree: exp.Expression) -> None:
    """Raise `InvalidRequestError` for a function whose result can differ between two calls."""
    for node in tree.walk():
        if isinstance(node, _VOLATILE) or (isinstance(node, exp.Anonymous) and node.name.lower() in _VOLATILE_NAMES):
            refuse(node, "is not deterministic: a second evaluation may give another result; write a literal instead")


_VOLATILE: Final = (
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentDatetime,
    exp.CurrentTime,
    exp.CurrentTimestamp,
)
_VOLATILE_NAMES: Final = frozenset({"random", "now", "monotonically_increasing_id", "input_file_name", "shuffle"})


def condition_of(node: exp.Expression, schema: Struct) -> Condition:
    match node:
        case exp.Paren():
            return condition_of(node.this, schema)
        case exp.Not():
            return Not(operand=condition_of(node.this, schema))
        case exp.And():
            return And(operands=tuple(condition_of(operand, schema) for operand in node.flatten()))
        case exp.Or():
            return either(*(condition_of(operand, schema) for operand in node.flatten()))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.NullSafeEQ():
            return _comparison(node, schema)
        case exp.Between() if not node.args.get("symmetric"):
            column = column_of(node.this, schema)
            return And(
                operands=(
                    _compare(column, exp.GTE, literal_of(node.args["low"]), node),
                    _compare(column, exp.LTE, literal_of(node.args["high"]), node),
                )
            )
        case exp.In() if node.args.get("query") is None and node.expressions:
            column = column_of(node.this, schema)
            values = [literal_of(item) for item in node.expressions]
            if is_exact(column.type) and _has_double(node.expressions, values, column):
                values = [float(_number(v, node)) if isinstance(v, decimal.Decimal | str) else v for v in values]
            return either(*(_compare(column, exp.EQ, value, node) for value in values))
        case exp.Is():
            return _is(node, schema)
        case exp.Like() | exp.Escape():
            return _like(node, schema)
        case exp.Boolean():
            return Constant(value=node.this)
        case exp.Null():
            return Constant(value=None)
        case exp.Column():
            column = column_of(node, schema)
            if column.type != Primitive(name="boolean"):
                refuse(node, f"is not a condition: the column is {column.type}; expected a comparison or a BOOLEAN")
            return _compare(column, exp.EQ, True, node)
        case _:
            refuse(node, _UNSUPPORTED)


def _comparison(node: exp.Binary, schema: Struct) -> Condition:
    left, right, kind = node.left, node.right, type(node)
    if isinstance(bare(right), exp.Column) and not isinstance(bare(left), exp.Column):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    column = column_of(left, schema)
    if isinstance(bare(right), exp.Column):
        return _compare_columns(column, kind, column_of(right, schema), node)
    if kind is exp.NullSafeEQ:
        value = literal_of(right)
        if value is None:
            return IsNull(column=column)
        equal = _compare(column, exp.EQ, value, node)
        return And(operands=(equal, Not(operand=IsNull(column=column))))
    return _compare(column, kind, literal_of(right), node)


_MIRRORED: Final[dict[type[exp.Expression], type[exp.Expression]]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
"""The operator after its sides are exchanged."""


def _compare(column: Column, kind: type[exp.Expression], literal: Any, node: exp.Expression) -> Condition:
    if literal is None:
        return Constant(value=None)
    value = fitted(literal, column, node)
    operator, negated = _OPERATORS[kind]
    if _is_double(literal, column):
        comparison = compared_in_double(column, operator, float(value))
    else:
        comparison = compared(column, operator, value)
    return Not(operand=comparison) if negated else comparison


def _is_double(literal: Any, column: Column) -> bool:
    """Whether Spark compares an exact column with this literal in double precision."""
    return is_exact(column.type) and isinstance(literal, (float, str) if isinstance(column.type, Decimal) else float)


def _has_double(items: Sequence[exp.Expression], values: Sequence[_Literal], column: Column) -> bool:
    """Whether Spark converts the values of an IN list to doubles. It derives their common type from left to right: an
    integer and a text become an integer, a decimal and a text a double."""
    decimals = False
    for item, value in zip(items, values, strict=True):
        if _is_double(value, column) or (decimals and isinstance(value, str)):
            return True
        if isinstance(value, decimal.Decimal):
            cast = item.find(exp.Cast)
            whole = cast.to.this in NUMBERS if cast else is_whole(bare(item)) and -(2**63) <= value < 2**63
            decimals = decimals or not whole
    return False


def is_whole(node: exp.Expression) -> bool:
    """Whether this is a number without a decimal point."""
    node = bare(node.this if isinstance(node, exp.Neg) else node)
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()


def _compare_columns(left: Column, kind: type[exp.Expression], right: Column, node: exp.Expression) -> Condition:
    if left.type != right.type and not (_is_number(left.type) and _is_number(right.type)):
        refuse(node, f"does not fit: {left.path[-1]} is {left.type}, {right.path[-1]} is {right.type}")
    if kind is exp.NullSafeEQ:
        nulls = (IsNull(column=left), IsNull(column=right))
        equal = ColumnComparison(left=left, operator=Operator.EQUAL, right=right)
        return either(And(operands=nulls), And(operands=(equal, *(Not(operand=null) for null in nulls))))
    operator, negated = _OPERATORS[kind]
    comparison = ColumnComparison(left=left, operator=operator, right=right)
    return Not(operand=comparison) if negated else comparison


def _is_number(kind: DataType) -> bool:
    return is_exact(kind) or kind in FLOATS


_OPERATORS: Final[dict[type[exp.Expression], tuple[Operator, bool]]] = {
    exp.EQ: (Operator.EQUAL, False),
    exp.NEQ: (Operator.EQUAL, True),
    exp.LT: (Operator.LESS, False),
    exp.GTE: (Operator.LESS, True),
    exp.LTE: (Operator.LESS_OR_EQUAL, False),
    exp.GT: (Operator.LESS_OR_EQUAL, True),
}


def _is(node: exp.Is, schema: Struct) -> Condition:
    column = column_of(node.this, schema)
    if isinstance(node.expression, exp.Null):
        return IsNull(column=column)
    if isinstance(node.expression, exp.Boolean):
        same = _compare(column, exp.EQ, node.expression.this, node)
        return And(operands=(same, Not(operand=IsNull(column=column))))
    refuse(node, "is not supported: IS takes NULL, TRUE or FALSE")


def _like(node: exp.Like | exp.Escape, schema: Struct) -> Condition:
    like, escape = (node.this, literal_of(node.expression)) if isinstance(node, exp.Escape) else (node, "\\")
    if not isinstance(like, exp.Like):
        refuse(node, "is not supported; expected LIKE with an escape character")
    column, text = column_of(like.this, schema), literal_of(like.expression)
    if column.type != Primitive(name="string") or not isinstance(text, str) or len(str(escape)) != 1:
        refuse(
            node, f"does not fit: LIKE takes a string column and a quoted pattern, {column.path[-1]} is {column.type}"
        )
    prefix, pattern = _pattern(text, str(escape))
    condition = Like(column=column, prefix=prefix, pattern=pattern)
    return Not(operand=condition) if like.args.get("negate") else condition


def _pattern(text: str, escape: str) -> tuple[str, re.Pattern[str]]:
    prefix: list[str] = []
    parts: list[str] = []
    literal, escaped = True, False
    for character in text:
        if not escaped and character == escape:
            escaped = True
            continue
        if not escaped and character in "%_":
            literal = False
            parts.append(".*" if character == "%" else ".")
        else:
            parts.append(re.escape(character))
            if literal:
                prefix.append(character)
        escaped = False
    return "".join(prefix), re.compile("".join(parts), re.DOTALL)


def bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def column_of(node: exp.Expression, schema: Struct) -> Column:
    node = bare(node)
    if not isinstance(node, exp.Column):
        refuse(node, "is not the name of a column, which is expected here")
    fields: list[Field] = []
    kind: DataType = schema
    for name in _side(node, schema) + [part.name for part in node.parts]:
        members = kind.fields if isinstance(kind, Struct) else ()
        candidates = [m for m in members if m.name == name] or [m for m in members if m.name.lower() == name.lower()]
        if len(candidates) != 1:
            names = ", ".join(member.name for member in members)
            refuse(
                node,
                f"is not a column; expected {names}" if names else f"is not a column: {fields[-1].name} is a {kind}",
            )
        fields.append(candidates[0])
        kind = candidates[0].type
    column = Column(
        path=tuple(field.name for field in fields),
        type=kind,
        physical=tuple(field.physical_name for field in fields),
        was_float=fields[-1].was_float,
    )
    return column.inner() if isinstance(schema, _Members) else column


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides(Struct):
    """The scope of a MERGE: the target and the source, each a column of structs that is named by its alias.

    A column is named with the alias, or without it if only one side has the column.
    """

    @classmethod
    def of(cls, *, target_alias: str, target: Struct, source_alias: str, source: Struct) -> Sides:
        return cls(fields=(Field(name=target_alias, type=target), Field(name=source_alias, type=source)))

    def only(self, alias: str) -> Sides:
        """One side alone."""
        return Sides(fields=(self[alias],))

    def members(self, alias: str) -> Sides:
        """The columns of one side, without the alias in their path."""
        return _Members(fields=(self[alias],))


class _Members(Sides):
    """See `Sides.members`."""


def _side(node: exp.Column, schema: Struct) -> list[str]:
    """The alias that a column in the scope of a MERGE was written without."""
    if not isinstance(schema, Sides) or node.parts[0].name.lower() in (alias.lower() for alias in schema.names):
        return []
    name = node.parts[0].name.lower()
    candidates = [
        side.name
        for side in schema.fields
        if isinstance(side.type, Struct) and name in (member.lower() for member in side.type.names)
    ]
    if len(candidates) != 1:
        aliases = ", ".join(f"{alias}.{name}" for alias in candidates or schema.names)
        refuse(node, f"is {'a column of both sides' if candidates else 'not a column'}; expected {aliases}")
    return candidates


_Literal = str | decimal.Decimal | float | bool | bytes | datetime.date | None


def literal_of(node: exp.Expression) -> _Literal:
    """The value of a literal; `fitted` converts it to the type of a column."""
    node = bare(node)
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Neg():
            value = literal_of(node.this)
            if isinstance(value, decimal.Decimal):
                return value.copy_negate()
            if isinstance(value, float):
                return -value
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal():
            number = _number(node.this, node)
            double = float(number)
            return double if "e" in node.this.lower() and math.isfinite(double) else number
        case exp.HexString():
            return bytes.fromhex(node.this.rjust(len(node.this) + len(node.this) % 2, "0"))
        case exp.Cast():
            return _cast(node)
        case exp.Concat():
            refuse(node, "is two strings side by side; write a quote inside a string as \\'")
        case _:
            pass
    refuse(node, "is not a literal; compare a column with one")


def _cast(node: exp.Cast) -> _Literal:
    value = literal_of(node.this)
    target = node.to.this
    if value is None:
        return None
    try:
        if target == exp.DataType.Type.DATE and isinstance(value, str):
            return _time(value).date()
        if target in _TIMESTAMPS and isinstance(value, str):
            return _time(value)
        numeric = target in NUMBERS or target == exp.DataType.Type.DECIMAL
        if numeric and isinstance(value, str | decimal.Decimal | float):
            return _cast_number(_number(value, node), node)
    except (ValueError, OverflowError):
        refuse(node, f"is not a valid {node.to.sql(dialect=_DIALECT)}")
    refuse(node, "is not a literal; compare a column with one")


def _number(given: str | decimal.Decimal | float, node: exp.Expression) -> decimal.Decimal:
    try:
        number = _exact(given)
    except (decimal.InvalidOperation, ValueError):
        refuse(node, "is not a number")
    if not number.is_finite():
        refuse(node, "is not a number")
    return number


def _exact(number: str | decimal.Decimal | float) -> decimal.Decimal:
    """The number; for a double, the shortest number that it stands for. Raises `ValueError` for a text like `1_000` and
    for digits of other scripts: Python takes them for a number, but Spark does not."""
    if isinstance(number, str) and ("_" in number or not number.isascii()):
        raise ValueError(number)
    return decimal.Decimal(repr(number) if isinstance(number, float) else number)


def _time(text: str) -> datetime.datetime:
    """A date or time. Raises `ValueError`, also for text in other forms of ISO 8601, which Spark does not take."""
    if _TIME.fullmatch(text) is None:
        raise ValueError(text)
    return datetime.datetime.fromisoformat(text)


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?", re.ASCII)


def _cast_number(number: decimal.Decimal, node: exp.Cast) -> decimal.Decimal | float:
    """The number, if the result of Spark's cast is known; otherwise the cast is rejected."""
    kind = NUMBERS.get(node.to.this)
    if kind is None:
        sizes = [int(parameter.name) for parameter in node.to.expressions] or [10]
        kind = Decimal(precision=sizes[0], scale=sizes[1] if len(sizes) > 1 else 0)
    if kind in FLOATS:
        double = single(float(number)) if kind == Primitive(name="float") else float(number)
        if not math.isfinite(double):
            refuse(node, f"is not a valid {node.to.sql(dialect=_DIALECT)}: the number is too large")
        return double
    if is_exact(kind) and next_below(number, kind) != number:
        refuse(node, f"changes the number {number}; write the resulting number")
    return number


NUMBERS: Final[dict[exp.DataType.Type, DataType]] = {
    exp.DataType.Type.TINYINT: Primitive(name="byte"),
    exp.DataType.Type.SMALLINT: Primitive(name="short"),
    exp.DataType.Type.INT: Primitive(name="integer"),
    exp.DataType.Type.BIGINT: Primitive(name="long"),
    exp.DataType.Type.FLOAT: Primitive(name="float"),
    exp.DataType.Type.DOUBLE: Primitive(name="double"),
}
_TIMESTAMPS: Final = frozenset(
    {
        exp.DataType.Type.TIMESTAMP,
        exp.DataType.Type.TIMESTAMPTZ,
        exp.DataType.Type.TIMESTAMPLTZ,
        exp.DataType.Type.TIMESTAMPNTZ,
    }
)


def fitted(literal: Any, column: Column, node: exp.Expression) -> Any:
    """The literal as a value of the column's Python type, as Spark would cast it; rejected if digits would be lost."""
    try:
        value = converted(literal, column.type)
    except (ValueError, TypeError, ArithmeticError):
        value = None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        given = repr(literal) if isinstance(literal, str | bytes) else literal
        refuse(node, f"does not fit: the column {'.'.join(column.path)} is {column.type}, not {given}")
    return value


def converted(literal: Any, kind: DataType) -> Any:
    match kind:
        case Primitive(name="string"):
            return literal if isinstance(literal, str) else None
        case _ if is_exact(kind) and isinstance(literal, decimal.Decimal | str | float):
            exact = _exact(literal)
            if isinstance(literal, str) and not isinstance(kind, Decimal) and exact % 1:
                return None  # Spark rejects it or, without ANSI mode, drops the fraction
            return exact if exact.is_finite() else None
        case _ if kind in FLOATS and isinstance(literal, decimal.Decimal | str | float):
            return float(_exact(literal))
        case Primitive(name="boolean"):
            return literal if isinstance(literal, bool) else {"true": True, "false": False}.get(literal)
        case Primitive(name="date"):
            return _date(literal)
        case Primitive(name="timestamp"):
            moment = _moment(literal)
            return moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        case Primitive(name="timestamp_ntz"):
            return _without_zone(_moment(literal), literal)
        case Primitive(name="binary"):
            return literal if isinstance(literal, bytes) else None
        case _:
            return None


def _without_zone(moment: datetime.datetime, literal: Any) -> datetime.datetime:
    """Spark ignores the time zone of a text, but converts a TIMESTAMP with one to the time zone of the session."""
    if moment.tzinfo is not None and not isinstance(literal, str):
        raise ValueError("a TIMESTAMP with a time zone")
    return moment.replace(tzinfo=None)


def _date(literal: Any) -> datetime.date | None:
    moment = _without_zone(_moment(literal), literal)
    return moment.date() if moment.time() == datetime.time() else None


def _moment(literal: Any) -> datetime.datetime:
    if isinstance(literal, str):
        return _time(literal)
    if isinstance(literal, datetime.datetime):
        return literal
    return datetime.datetime.combine(literal, datetime.time())
