"""Which schemas a table may get while the files that were written with the older one stay."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refimpl.actions import Metadata
from refimpl.client.schema import from_arrow, misfit

LONG, TEXT = pa.int64(), pa.string()


def described(*columns: pa.Field, partitioned: tuple[str, ...] = ()) -> Metadata:
    return Metadata(id="t", schema_string=from_arrow(pa.schema(columns)).to_json(), partition_columns=partitioned)


def of(kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field("x", kind, nullable=nullable)


def members(*names: str) -> pa.DataType:
    return pa.struct([pa.field(name, LONG) for name in names])


INSIDE = [
    lambda kind: kind,
    lambda kind: pa.struct([pa.field("y", kind)]),
    pa.list_,
    lambda kind: pa.map_(TEXT, kind),
    lambda kind: pa.map_(kind, TEXT),
]


@pytest.mark.parametrize("inside", INSIDE, ids=["column", "struct", "array", "value", "key"])
def test_structs_may_gain_members_and_lose_none(inside: object) -> None:
    assert callable(inside)
    fewer, more = described(of(inside(members("a")))), described(of(inside(members("b", "a"))))
    assert misfit(fewer, more) is None
    assert "would be dropped" in str(misfit(more, fewer))


@pytest.mark.parametrize("inside", INSIDE, ids=["column", "struct", "array", "value", "key"])
def test_types_stay(inside: object) -> None:
    assert callable(inside)
    for other in (pa.int32(), TEXT, members("a"), pa.list_(LONG)):
        assert misfit(described(of(inside(LONG))), described(of(inside(other)))) is not None
    assert misfit(described(of(inside(LONG))), described(of(inside(LONG)))) is None


@pytest.mark.parametrize(
    "kind",
    [
        lambda nullable: of(LONG, nullable=nullable),
        lambda nullable: of(pa.struct([pa.field("y", LONG, nullable=nullable)])),
        lambda nullable: of(pa.list_(pa.field("element", LONG, nullable=nullable))),
        lambda nullable: of(pa.map_(TEXT, pa.field("value", LONG, nullable=nullable))),
    ],
    ids=["column", "member", "element", "value"],
)
def test_nulls_may_become_allowed_but_not_forbidden(kind: object) -> None:
    assert callable(kind)
    assert misfit(described(kind(False)), described(kind(True))) is None
    assert "would be required" in str(misfit(described(kind(True)), described(kind(False))))


def test_new_columns_are_null_in_older_files() -> None:
    before = described(of(LONG))
    assert misfit(before, described(pa.field("new", TEXT), of(LONG))) is None
    assert "'new'" in str(misfit(before, described(of(LONG), pa.field("new", TEXT, nullable=False))))


def test_a_comment_changes_nothing() -> None:
    commented = pa.field("x", LONG, metadata={"comment": "what it is"})
    assert misfit(described(of(LONG)), described(commented)) is None


def test_another_partitioning_fits_no_file() -> None:
    columns = (of(LONG), pa.field("month", TEXT))
    assert misfit(described(*columns), described(*columns, partitioned=("month",))) is not None
