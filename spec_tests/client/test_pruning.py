"""Pruning never loses a row: small files at the edges of their types, with statistics as other writers write them.

    python -m spec_tests.client.test_pruning --conditions 20000 --seed 7

tests that many conditions, with statistics in JSON and as columns of a checkpoint. Exit code 1: a file with a matching
row was skipped; the smallest such case is shown.
"""

import argparse
import dataclasses
import datetime as dt
import decimal
import io
import math
import random
import sys
import time
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.actions import Add
from refimpl.client import checkpoint_format
from refimpl.client import schema as s
from refimpl.client.expression import matching
from refimpl.client.predicate import file_test
from spec_tests.client.conftest import adding

ZONES: Final = ("Europe/Moscow", "Africa/Monrovia", "America/Los_Angeles", "Asia/Manila")
"""Before 1917 and until 1972, the offsets of the first two have seconds; before 1883, all have."""
WIDE: Final = decimal.Context(prec=90)
TIMES: Final = [
    dt.datetime.fromisoformat(day) + dt.timedelta(microseconds=microseconds)
    for day in ("0001-01-03", "1500-03-02", "1582-10-14", "1850-01-01", "1910-01-01", "1971-12-31", "9999-12-29")
    for microseconds in (0, 1, 43_200_000_999)
]
ENDS: Final = ("", "?", "b", "\ud7ff", "\ue000", "\ufffd", "\uffff", "\U0001f600", "\U0001f600b", "\U0010ffff")
NUMBERS: Final = [0.0, -0.0, 0.1, 16777216.5, -1.5, 1e20, -1e30, 3e38, math.inf, -math.inf, math.nan]
BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
SIZES: Final = ((5, 2), (16, 2), (38, 10), (38, 38))
ONCE_FLOAT: Final = "double, once float"
VALUES: Final[dict[str, Sequence[Any]]] = {
    **{name: [-(2 ** (bits - 1)), -3, 0, 1, 2 ** (bits - 1) - 1] for name, bits in BITS.items()},
    **{
        f"decimal({digits},{scale})": [
            decimal.Decimal(number).scaleb(-scale, WIDE)
            for number in (0, 1, 10**digits // 7, 10**digits - 1, 7 - 10**digits)
        ]
        for digits, scale in SIZES
    },
    "double": NUMBERS, "float": NUMBERS, ONCE_FLOAT: NUMBERS, "boolean": [False, True], "binary": [b"", b"\xff"],
    "string": [start + end for start in ("", "a", "a" * 31, "a" * 32, "\U0001f600") for end in ENDS],
    "date": [moment.date() for moment in TIMES], "timestamp_ntz": TIMES,
    "timestamp": [moment.replace(tzinfo=dt.UTC) for moment in TIMES], "array": [[], [1], [None]],
}  # fmt: skip


def utf16(text: str, length: int, upper: bool) -> str:
    """The first units and, in an upper bound, U+FFFD after the units that are not less. Java writes half of a character
    as a question mark."""
    units = text.encode("utf-16-be")
    stop = 2 * length
    if len(units) <= stop:
        return text
    while upper and units[stop : stop + 2] >= b"\xff\xfd":
        stop += 2
    kept = units[:stop].decode("utf-16-be", errors="surrogatepass")
    return "".join("?" if "\ud800" <= unit <= "\udfff" else unit for unit in kept) + ("\ufffd" if upper else "")


def rounded(text: str, length: int, upper: bool) -> str:
    if not upper or len(text) <= length:
        return text[:length]
    return text[: length - 1] + chr(ord(text[length - 1]) + 1) if text[length - 1] < "\ud000" else text


def local(moment: dt.datetime, zone: str) -> str:
    """Local time with an offset in minutes."""
    if moment.tzinfo is None or not 1 < moment.year < 9999:
        return milliseconds(moment, zone)
    moment = moment.astimezone(zoneinfo.ZoneInfo(zone))
    offset = int(moment.utcoffset().total_seconds() / 60)  # type: ignore[union-attr]
    sign = "-" if offset < 0 else "+"
    return f"{milliseconds(moment, zone)[:-1]}{sign}{abs(offset) // 60:02}:{abs(offset) % 60:02}"


def milliseconds(moment: dt.datetime, _: str) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if moment.tzinfo else "")


def julian(value: Any, zone: str) -> Any:
    """What Spark in legacy mode meant by a date or time in its file: the calendar, and the zone's present offset."""
    if value.isoformat() < "1582-10-15":
        value -= dt.timedelta(days=value.year // 100 - value.year // 400 - 2)
    if isinstance(value, dt.datetime) and value.tzinfo and 1 < value.year < 1900:
        there = zoneinfo.ZoneInfo(zone)
        value += there.utcoffset(dt.datetime(1999, 1, 1)) - there.utcoffset(value.replace(tzinfo=there))  # type: ignore[operator] # noqa: DTZ001
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """How a writer spells bounds."""

    name: str
    nan: bool = False
    """Whether NaN is the greatest number; otherwise it is left out."""
    meant: Callable[[Any, str], Any] = lambda value, _: value
    """The date or time that it meant, in a time zone."""
    decimals: Callable[[decimal.Decimal], Any] = lambda value: value
    text: Callable[[str, int, bool], str] = lambda text, length, _: text[:length]
    """Of a text, a length, and whether it is the upper bound."""
    time: Callable[[dt.datetime, str], str] = milliseconds

    def bound(self, value: Any, case: "Case", upper: bool) -> Any:
        match value:
            case float() if not math.isfinite(value):
                return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN") if self.nan else None
            case float() if "float" in case.kind:
                return float(str(np.float32(value)))
            case decimal.Decimal():
                return self.decimals(value)
            case str():
                return self.text(value, case.length, upper)
            case dt.datetime():
                return self.time(self.meant(value, case.zone), case.zone)
            case dt.date():
                return self.meant(value, case.zone).isoformat()
        return value.hex() if isinstance(value, bytes) else value


SPARK: Final = Writer(name="Delta Spark 3.2", nan=True, text=utf16, time=local)
WRITERS: Final = (
    SPARK,
    SPARK,
    Writer(name="Delta Spark 4.0 in legacy mode", nan=True, text=utf16, meant=julian),
    Writer(name="delta-rs", decimals=float, text=rounded),
    Writer(name="DuckDB", text=lambda text, *_: text, time=lambda moment, _: f"{moment.replace(tzinfo=None)}Z"),
    Writer(
        name="Trino",
        decimals=str,
        text=lambda text, length, upper: text if upper else text.encode()[:length].decode(errors="replace"),
    ),
    Writer(name="Kernel"),
    Writer(name="without zones", time=lambda moment, zone: local(moment, zone)[:23]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file with columns `a` and `b` of one type; the statistics of `a` may be faulty."""

    kind: str
    rows: Sequence[dict[str, Any]]
    writer: Writer
    zone: str
    length: int
    fault: str
    int96: bool

    @property
    def type(self) -> s.DataType:
        return s.Array(element=s.type_named("long")) if self.kind == "array" else s.type_named(self.kind.split(", ")[0])

    def schema(self) -> s.Struct:
        changes = [{"fromType": "float", "toType": "double"}] if self.kind == ONCE_FLOAT else []
        fields = [s.Field(name=name, type=self.type, metadata={"delta.typeChanges": changes}) for name in "ab"]
        return s.Struct(fields=(s.Field(name="s", type=s.Struct(fields=tuple(fields))),))

    def statistics(self) -> dict[str, Any]:
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls = {name: sum(row[name] in (None, [None]) for row in self.rows) for name in "ab"}  # delta-rs: elements
        for name in "ab":
            values = [
                row[name] for row in self.rows if row[name] is not None and (self.writer.nan or row[name] == row[name])
            ]
            for tree, choose in ((lows, min), (highs, max)):
                if values and self.kind != "array":
                    value = choose(values, key=lambda value: (value != value, value))
                    tree[name] = self.writer.bound(value, self, choose is max)
        if self.fault == "crossed":
            lows["a"], highs["a"] = 5, -3
        elif self.fault == "invalid":
            lows["a"], highs["a"] = 2**70 if self.kind in BITS else {"x": 1} if self.kind == "string" else "9_0", True
        elif self.fault == "nulls" and self.kind in BITS and lows.get("a") is not None:
            nulls["a"] = len(self.rows)
        elif self.fault == "count":
            return {"numRecords": True, "minValues": {"s": {}}, "maxValues": {"s": {}}, "nullCount": {"s": {"a": 1}}}
        trees = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
        return {"numRecords": len(self.rows)} | {name: {"s": tree} for name, tree in trees.items()}

    def files(self) -> Iterator[Add]:
        """The file with JSON, and in a checkpoint with `stats_parsed`, where Spark stores what it reads in the JSON."""
        document = self.statistics()
        yield adding("f", stats=msgspec.json.Encoder(decimal_format="number").encode(document).decode())
        if self.fault == "count":
            return
        kind = pa.int64() if self.kind == "array" else s.arrow_type(self.type)
        columns: dict[str, pa.Array] = {"numRecords": pa.array([len(self.rows)])}
        for name in ("minValues", "maxValues", "nullCount"):
            of = pa.int64() if name == "nullCount" else kind
            members = [pa.array([stored(document[name]["s"].get(column), of)], of) for column in "ab"]
            if self.fault == "unreadable" and name == "maxValues":
                members[1] = unreadable(kind)
            inner = pa.StructArray.from_arrays(members, names=["a", "b"])
            columns[name] = pa.StructArray.from_arrays([inner], names=["s"])
        given = {"path": "f", "size": 1, "modificationTime": 0, "dataChange": True}
        add = {name: pa.array([value], checkpoint_format.MEMBERS[Add][name]) for name, value in given.items()}
        add["stats_parsed"] = pa.StructArray.from_arrays([*columns.values()], names=[*columns])
        table = pa.table({"add": pa.StructArray.from_arrays([*add.values()], names=[*add])})
        file = io.BytesIO()
        pq.write_table(table, file, use_deprecated_int96_timestamps=self.int96)
        for action in checkpoint_format.decode(file.getvalue(), "f.parquet"):
            assert isinstance(action, Add)
            yield action


def stored(value: Any, kind: pa.DataType) -> Any:
    """A bound of JSON in a column: null if it has another type."""
    if value is None or isinstance(value, dict | bool) or pa.types.is_binary(kind):
        return None
    if pa.types.is_decimal(kind) and value != "9_0":
        value = decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-kind.scale), context=WIDE)
    try:
        return pa.scalar(f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)).cast(kind)
    except pa.ArrowInvalid:
        return None


def unreadable(kind: pa.DataType) -> pa.Array:
    """A time after the year 9999, or a text that is not UTF-8."""
    if pa.types.is_string(kind):
        return pa.array([b"a\xff"]).cast(kind, safe=False)
    return pa.array(
        [2932897 if pa.types.is_date(kind) else 253402300800000000 if pa.types.is_timestamp(kind) else None], kind
    )


def near(value: Any, rng: random.Random) -> str:
    """The value as a literal, or one of the two next to it."""
    step = rng.choice([0, 0, -1, 1])
    match value:
        case bool():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case float():
            value = value if step == 0 else math.nextafter(value, step * math.inf)
        case decimal.Decimal():
            value = WIDE.add(value, decimal.Decimal(step).scaleb(int(value.as_tuple().exponent), WIDE))
        case str():
            value = (value[:-1], value, value + "\ud7ff")[step + 1]
        case dt.date():
            value += step * (dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else dt.timedelta(days=1))
        case _:
            value += step
    return f"'{value}'"


def comparison(case: Case, rng: random.Random) -> str:
    name = rng.choice("aab")
    own = [row[name] for row in case.rows if row[name] is not None and row[name] == row[name]]
    form = rng.random()
    if case.kind == "array" or not own or form < 0.1:
        return f"s.{name} IS {rng.choice(['', 'NOT '])}NULL"
    first, second = (near(rng.choice(own), rng) for _ in range(2))
    if form < 0.3:
        items = rng.choice([f"BETWEEN {first} AND {second}", f"IN ({first}, {second})"])
        return f"s.{name} {rng.choice(['', 'NOT '])}{items}"
    if form < 0.4 and case.kind == "string":
        return f"s.{name} LIKE '{rng.choice(own)[: rng.choice([1, 2, 40])]}{rng.choice(['%', '_', '_%', ''])}'"
    other = f"s.{rng.choice('ab')}" if form > 0.9 else first
    return f"s.{name} {rng.choice(['=', '=', '<>', '<', '<=', '>', '>=', '<=>'])} {other}"


def condition(case: Case, rng: random.Random) -> str:
    first, second = comparison(case, rng), comparison(case, rng)
    return rng.choice([first] * 7 + [f"NOT ({first})", f"({first}) AND ({second})", f"({first}) OR ({second})"])


def drawn(rng: random.Random, writers: Sequence[Writer]) -> Case:
    kind = rng.choice([*VALUES, *["timestamp", "string", "string"] * 3])
    pool = [
        v if v is None or kind not in ("float", ONCE_FLOAT) else float(np.float32(v))
        for v in rng.choices(VALUES[kind], k=3)
    ]
    return Case(
        kind=kind,
        rows=[
            {n: None if rng.random() < 0.1 else rng.choice(pool) for n in "ab"} for _ in range(rng.choice([1, 1, 2, 3]))
        ],
        writer=rng.choice(writers),
        zone=rng.choice(ZONES),
        length=rng.choice([1, 2, 31, 32]),
        fault=rng.choice(["", "", "", "crossed", "invalid", "nulls", "count", "unreadable"]),
        int96=rng.random() < 0.3,
    )


def differences(count: int, seed: int, writers: Sequence[Writer] = WRITERS) -> tuple[list[str], int, int]:
    """Test that many conditions: the differences, how many conditions match a row, and how often a file is skipped."""
    rng = random.Random(seed)
    found, matched, skipped = [], 0, 0
    for _ in range(0, count, 10):
        case = drawn(rng, writers)
        schema = case.schema()
        table = pa.Table.from_pylist([{"s": row} for row in case.rows], s.to_arrow(schema))
        files = list(case.files())
        for _ in range(10):
            test = file_test(condition(case, rng), schema, ())
            matches = any(matching(table, test.condition.to_arrow()).to_pylist())
            matched += matches
            for file in files:
                if not test.may_match(file):
                    skipped += 1
                    if matches:
                        found.append(f"{test.text}\n  {case.kind}: {case.rows}\n  {case.writer.name}: {file.stats}")
    return found, matched, skipped


def test_no_file_with_a_matching_row_is_skipped() -> None:
    found, matched, skipped = differences(500, 7)
    assert not found, min(found, key=len)
    assert matched > 200
    assert skipped > 50


@pytest.mark.parametrize(
    "planted", [{"decimals": int}, {"time": lambda *_: "2024-02-29T12:00:00.000Z"}, {"text": lambda text, *_: text[1:]}]
)
def test_a_bound_that_is_too_narrow_is_found(planted: dict[str, Any]) -> None:
    assert differences(300, 7, [dataclasses.replace(SPARK, **planted)])[0]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conditions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    wanted = parser.parse_args(arguments)
    started, matched, skipped = time.monotonic(), 0, 0
    for done in range(0, wanted.conditions, 1000):
        count = min(1000, wanted.conditions - done)
        found, matching_some, pruned = differences(count, wanted.seed * 1_000_000 + done)
        if found:
            print(f"a file with a matching row was skipped, {len(found)} times; the smallest: {min(found, key=len)}")
            return 1
        matched, skipped = matched + matching_some, skipped + pruned
        figures = f"{done + count} conditions, {matched} match a row, {skipped} files skipped"
        print(f"{figures}: no difference, {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
