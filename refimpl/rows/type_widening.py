"""Type widening: a column gets a type that holds every value of its old type, and its files stay as they are.

Delta's protocol, "Type Widening"; DELTA.md#type-widening. `refimpl.schema.schema.widens` says which changes are
permitted. Each change is recorded in the metadata of its column, or of the nearest enclosing member of a struct: from
this record readers know that they must convert the values of older files, and two schemas with different types fit
each other only if it exists.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.errors import InvalidRequestError
from refimpl.schema.features import (
    ENABLE_TYPE_WIDENING,
    GENERATION,
    IDENTITY_PREFIX,
    INVARIANTS,
    TYPE_WIDENING,
    rules_of_rows,
    uses,
    writer_features,
)
from refimpl.schema.schema import (
    TYPE_CHANGES,
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    TypeChange,
    joined,
    parts,
    widens,
    with_parts,
)

_PERMITTED: Final = (
    "byte to short to integer to long; float to double; byte, short and integer to double; date to timestamp_ntz; "
    "a decimal to one with as many digits before and after the point, or more; byte, short and integer to a decimal "
    "with 10 digits before the point, and long to one with 20"
)

_History = list[dict[str, Any]]
"""The history as the schema has it, including fields that this client does not know."""


def enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether types may change. This client does not change types of a table that has only the preview feature."""
    return obstacle(protocol, metadata) is None


def obstacle(protocol: Protocol, metadata: Metadata) -> str | None:
    """Why types cannot change, and what to do; None if they can."""
    feature, preview = TYPE_WIDENING
    listed = writer_features(protocol)
    if feature not in listed and preview in listed:
        return (
            f"the table has only the preview of type widening; drop it with Delta Spark (ALTER TABLE ... DROP FEATURE "
            f"`{preview}`), then set the property {ENABLE_TYPE_WIDENING}=true"
        )
    if not uses(protocol, metadata, feature):
        return (
            f"type widening is off; set the property {ENABLE_TYPE_WIDENING}=true; then only readers with the table "
            f"feature {feature} can read the table"
        )
    return None


def widens_unasked(before: DataType, after: DataType) -> bool:
    """Whether a write that merges schemas may change the type: DELTA.md#merged-types."""
    whole = before in _WHOLE_NUMBERS and after not in _WHOLE_NUMBERS
    return widens(before, after) and not whole


_WHOLE_NUMBERS: Final = tuple(Primitive(name=name) for name in ("byte", "short", "integer", "long"))


def retyped(schema: Struct, path: str, to: DataType) -> Struct:
    """The schema in which the column, the member, or the element, key or value at `path` (`price`, `lines.element.id`)
    has the type `to`. Raises `InvalidRequestError` for an unknown path, and for a change that is not permitted."""
    types: list[DataType] = []

    def visit(kind: DataType, here: str) -> DataType:
        if here == path:
            types.append(kind)
            return to
        return with_parts(kind, lambda part, name: visit(part, joined(here, name)))

    changed = visit(schema, "")
    assert isinstance(changed, Struct)
    if len(types) != 1:
        problem = "several columns have this name" if types else f"the columns are {', '.join(schema.names)}"
        raise InvalidRequestError(f"unknown column {path!r}; {problem}", column=path)
    if not widens(types[0], to):
        raise InvalidRequestError(
            f"the type of {path!r} cannot change from {types[0]} to {to}; permitted changes: {_PERMITTED}", column=path
        )
    return changed


def recorded(before: Struct, after: Struct, *, records: bool) -> Struct:
    """`after` with the history of its columns' types: that of `before`, and the changes of now if `records`.

    Columns with the same name in data files are the same. A history in the caller's schema is ignored: a wrong one
    would let readers misinterpret files.
    """
    kept = _members(before, after, records)
    return after if kept == after else kept


def _members(before: Struct, after: Struct, records: bool) -> Struct:
    known = {column.physical_name: column for column in before.fields}
    return Struct(fields=tuple(_column(known.get(column.physical_name), column, records) for column in after.fields))


def _column(before: Field | None, after: Field, records: bool) -> Field:
    history: _History = [] if before is None else list(before.metadata.get(TYPE_CHANGES) or ())
    kind = _type(None if before is None else before.type, after.type, "", history, records)
    metadata = {key: value for key, value in after.metadata.items() if key != TYPE_CHANGES}
    if history:
        metadata[TYPE_CHANGES] = history
    return dataclasses.replace(after, type=kind, metadata=metadata)


def _type(before: DataType | None, after: DataType, path: str, history: _History, records: bool) -> DataType:
    """`after` with the histories of its members; extends `history`, that of the enclosing column."""
    if isinstance(after, Struct):
        return _members(before if isinstance(before, Struct) else Struct(), after, records)
    if isinstance(after, Array | Map):
        known = dict(parts(before)) if type(before) is type(after) else {}
        return with_parts(after, lambda part, name: _type(known.get(name), part, joined(path, name), history, records))
    if before is None or before == after:
        return after
    if not widens(before, after):  # the files are replaced, or the commit is rejected: the old history is void
        history[:] = [change for change in history if change.get("fieldPath", "") != path]
    elif records:
        history.append(TypeChange(before=before, after=after, path=path).to_json())
    return after


def changed_columns(before: Struct, after: Struct) -> Iterator[tuple[str, ...]]:
    """The paths of columns and members whose type, or the type of a part, becomes wider."""
    return (path for path, old, new in _pairs(before, after, ()) if len(new.type_changes) > len(old.type_changes))


def _pairs(before: DataType, after: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field, Field]]:
    match before, after:
        case Struct(), Struct():
            known = {column.physical_name: column for column in before.fields}
            for column in after.fields:
                old = known.get(column.physical_name)
                if old is not None:
                    yield (*path, column.name), old, column
                    yield from _pairs(old.type, column.type, (*path, column.name))
        case (Array(), Array()) | (Map(), Map()):
            for (_, inner), (_, changed) in zip(parts(before), parts(after), strict=True):
                yield from _pairs(inner, changed, path)


def check_rules(protocol: Protocol, metadata: Metadata, schema: Struct, changed: Sequence[tuple[str, ...]]) -> None:
    """Raise `InvalidRequestError` if a rule depends on the type of a changed column: a condition or a generated value
    may have another result with the new type."""
    for path in changed:
        column = schema[path[0]]
        for key, what in ((GENERATION, "a generated column"), (f"{IDENTITY_PREFIX}start", "an identity column")):
            if key in column.metadata:
                raise _depends(path, f"it is {what}")
    for key, text in sorted(rules_of_rows(protocol, metadata)) if changed else ():
        for path in changed:
            if any(_overlap(path, named) for named in _columns_of(key, text)):
                kind = {INVARIANTS: "an invariant", GENERATION: "a generated column"}.get(key, key)
                raise _depends(path, f"{kind} depends on it ({text})")


def _depends(path: Iterable[str], why: str) -> InvalidRequestError:
    name = ".".join(path)
    return InvalidRequestError(f"the type of {name!r} cannot change: {why}; remove that first", column=name)


def _columns_of(key: str, text: str) -> list[tuple[str, ...]]:
    """The columns that an SQL text names, in lower case; for a part of an array or map, the enclosing column."""
    from sqlglot import exp

    from refimpl.rows import predicate
    from refimpl.rows.row_rules import invariant_sql

    sql = invariant_sql(text) if key == INVARIANTS else text
    if sql is None:
        return [()]
    tree = predicate.syntax(sql)
    return [tuple(part.name.lower() for part in column.parts) for column in tree.find_all(exp.Column)]


def _overlap(path: Sequence[str], named: Sequence[str]) -> bool:
    """Whether one path is a prefix of the other."""
    return all(left.lower() == right for left, right in zip(path, named, strict=False))
