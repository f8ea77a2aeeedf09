"""Whether the files of a table still fit when its metadata are replaced.

A data file is read with the newest schema: columns that it lacks are null, and columns are found by their
names. So a table may gain columns; everything else needs its files replaced (or column mapping and type
widening, which are not written here). A column that were dropped and made again would show its old values.
"""

from __future__ import annotations

from refimpl.actions import Metadata
from refimpl.client.schema import Array, DataType, Map, Struct, parse


def misfit(before: Metadata, after: Metadata) -> str | None:
    """Why files that were written with `before` do not fit `after`, in words; None if they do."""
    if after.partition_columns != before.partition_columns:
        columns = ", ".join(after.partition_columns)
        return f"it would be partitioned by {columns or 'nothing'}"
    if after.schema_string == before.schema_string:
        return None
    return _misfit(parse(before.schema_string), parse(after.schema_string), "")


def _misfit(before: DataType, after: DataType, where: str) -> str | None:
    match before, after:
        case Struct(), Struct():
            return _misfit_of_members(before, after, where)
        case Array(), Array():
            found = _misfit(before.element, after.element, f"{where}.element")
            return found or _required(before.contains_null, after.contains_null, f"{where}.element")
        case Map(), Map():
            found = _misfit(before.key, after.key, f"{where}.key") or _misfit(
                before.value, after.value, f"{where}.value"
            )
            return found or _required(before.value_contains_null, after.value_contains_null, f"{where}.value")
    return None if before == after else f"the column {where!r} would become {after} from {before}"


def _misfit_of_members(before: Struct, after: Struct, where: str) -> str | None:
    prefix = f"{where}." if where else ""
    for column in before.fields:
        if column.name not in after:
            return f"the column {prefix + column.name!r} would be dropped"
        found = _misfit(column.type, after[column.name].type, prefix + column.name)
        found = found or _required(column.nullable, after[column.name].nullable, prefix + column.name)
        if found is not None:
            return found
    added = (column for column in after.fields if column.name not in before and not column.nullable)
    return next((f"the new column {prefix + column.name!r} would be required" for column in added), None)


def _required(before: bool, after: bool, where: str) -> str | None:
    """`before` and `after`: whether nulls are allowed."""
    return f"the column {where!r} would be required" if before and not after else None
