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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.log import checkpoint_format
from refimpl.log.file_columns import MEMBERS
from refimpl.protocol.actions import Add
from refimpl.rows.expression import matching
from refimpl.rows.predicate import file_test
from refimpl.schema import schema as s
from spec_tests.client.conftest import adding

ZONES: Final = ("Europe/Moscow", "Africa/Monrovia", "Asia/Manila")
"""The offsets of the first two have seconds until 1916 and 1972."""
WIDE: Final = decimal.Context(prec=90)
DAYS: Final = ("0001-01-03", "1500-03-02", "1582-10-14", "1850-01-01", "1910-01-01", "1971-12-31", "9999-12-29")
TIMES: Final = [
    dt.datetime.fromisoformat(day) + dt.timedelta(microseconds=number) for day in DAYS for number in (0, 43_200_000_999)
]
STARTS: Final = ("", "a", "a" * 31)
ENDS: Final = ("", "?", "b", "\ud7ff", "\ue000", "\ufffd", "\uffff", "\U0001f600", "\U0001f600b", "\U0010ffff")
NUMBERS: Final = [0.0, -0.0, 0.1, 16777216.5, -1.5, 1e20, -1e30, 3e38, math.inf, -math.inf, math.nan, math.nan]
BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
SIZES: Final = ((5, 2), (16, 2), (38, 10), (38, 38))
LIMITS: Final = ("minValues", "maxValues")
ONCE_FLOAT: Final = "double, once float"
VALUES: Final[dict[str, Sequence[Any]]] = {
    **{name: [-(2 ** (bits - 1)), -3, 0, 1, 2 ** (bits - 1) - 1] for name, bits in BITS.items()},
    **{f"decimal({p},{q})": [WIDE.scaleb(n, -q) for n in (0, 1, 10**p // 7, 10**p - 1, 7 - 10**p)] for p, q in SIZES},
    "double": NUMBERS, "float": NUMBERS, ONCE_FLOAT: NUMBERS, "boolean": [False, True], "binary": [b"", b"\xff"],
    "string": ENDS, "array": [[], [1], [None]],
    "date": [moment.date() for moment in TIMES], "timestamp_ntz": TIMES,
    "timestamp": [moment.replace(tzinfo=dt.UTC) for moment in TIMES],
}  # fmt: skip
KINDS: Final = (*VALUES, *["timestamp", "timestamp", "string", "date", "double"] * 5)


def utf16(text: str, length: int, upper: bool) -> str:
    """The first units, with U+FFFD in an upper bound. Java writes half of a character as a question mark."""
    units = text.encode("utf-16-be")
    kept = units[: 2 * length].decode("utf-16-be", errors="surrogatepass")
    end = "\ufffd" if upper and len(units) > 2 * length else ""
    return "".join("?" if "\ud800" <= unit <= "\udfff" else unit for unit in kept) + end


def rounded(text: str, length: int, upper: bool) -> str:
    last = text[length - 1 : length]
    cut = upper and len(text) > length and last < "\ud7ff"
    return text[: length - 1] + (chr(ord(last) + 1) if cut else last)


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
    """What Spark in its legacy mode meant by a date or time that the file holds."""
    if value.isoformat() < "1582-10-15":
        value -= dt.timedelta(days=value.year // 100 - value.year // 400 - 2)
    if isinstance(value, dt.datetime) and value.tzinfo and 1 < value.year < 1900:
        there = zoneinfo.ZoneInfo(zone)
        now, then = (moment.astimezone(there).utcoffset() for moment in (value.replace(year=1999), value))
        value += now - then  # type: ignore[operator]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """How a writer spells bounds: of texts, by a length and whether it is the upper one; of times, in a time zone."""

    name: str
    nan: bool = False
    """Whether NaN is the greatest number; otherwise it is left out."""
    meant: Callable[[Any, str], Any] = lambda value, _: value
    decimals: Callable[[decimal.Decimal], Any] = lambda value: value
    text: Callable[[str, int, bool], str] = lambda text, length, _: text[:length]
    time: Callable[[dt.datetime, str], str] = milliseconds

    def bound(self, value: Any, kind: str, zone: str, length: int, upper: bool) -> Any:
        match value:
            case float() if not math.isfinite(value):
                return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN") if self.nan else None
            case float() if "float" in kind:
                return float(str(np.float32(value)))
            case decimal.Decimal():
                return self.decimals(value)
            case str():
                return self.text(value, length, upper)
            case dt.datetime():
                return self.time(self.meant(value, zone), zone)
            case dt.date():
                return self.meant(value, zone).isoformat()
        return value.hex() if isinstance(value, bytes) else value


SPARK: Final = Writer(name="Delta Spark 3.2", nan=True, text=utf16, time=local)
LEGACY: Final = Writer(name="Delta Spark 4.0 in legacy mode", nan=True, text=utf16, meant=julian)
TRINO: Final = Writer(
    name="Trino", decimals=str, text=lambda x, n, up: x if up else x.encode()[:n].decode(errors="replace")
)
WRITERS: Final = (
    *(SPARK, SPARK, LEGACY, LEGACY),
    Writer(name="delta-rs", decimals=float, text=rounded),
    Writer(name="DuckDB", text=lambda text, *_: text, time=lambda moment, _: f"{moment.replace(tzinfo=None)}Z"),
    TRINO,
    Writer(name="Kernel"),
    Writer(name="without zones", time=lambda moment, zone: local(moment, zone)[:23]),
)


def statistics(kind: str, rows: Sequence[dict[str, Any]], writer: Writer, rng: random.Random) -> dict[str, Any]:
    """The statistics of a writer; those of column `a` may be wrong in a way that can be noticed."""
    zone, length = rng.choice(ZONES), rng.choice([1, 2, 32])
    lows, highs = dict[str, Any](), dict[str, Any]()
    nulls = {name: sum(row[name] in (None, [None]) for row in rows) for name in "ab"}  # delta-rs counts elements
    for name in "ab" if kind != "array" else "":
        values = [row[name] for row in rows if row[name] is not None and (writer.nan or row[name] == row[name])]
        for tree, choose in ((lows, min), (highs, max)):
            if values:
                value = choose(values, key=lambda value: (value != value, value))
                tree[name] = writer.bound(value, kind, zone, length, choose is max)
    match rng.choice(["", "", "", "crossed", "invalid", "nulls", "count"]):
        case "crossed":
            lows["a"], highs["a"] = 5, -3
        case "invalid":
            lows["a"], highs["a"] = 2**70 if kind in BITS else {"x": 1} if kind == "string" else "9_0", True
        case "nulls" if kind in BITS and "a" in lows:
            nulls["a"] = len(rows)
        case "count":
            return {"numRecords": True, "nullCount": {"s": {"a": 1}}}
    trees = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    return {"numRecords": len(rows)} | {name: {"s": tree} for name, tree in trees.items()}


def in_checkpoint(document: dict[str, Any], kind: pa.DataType, rng: random.Random) -> Add:
    """The file in a checkpoint with `stats_parsed`, where Spark stores what it reads in the JSON."""
    kind = pa.int64() if pa.types.is_list(kind) else kind
    bounds, counts = (pa.struct({"s": pa.struct({"a": of, "b": of}.items())}.items()) for of in (kind, pa.int64()))
    parsed = pa.struct({"numRecords": pa.int64()} | dict.fromkeys(LIMITS, bounds) | {"nullCount": counts})
    add: dict[str, Any] = {"path": "f", "size": 1, "modificationTime": 0, "dataChange": True}
    members = {name: MEMBERS[Add][name] for name in add} | {"stats_parsed": parsed}
    kept = {tree: {name: stored(value, kind) for name, value in document[tree]["s"].items()} for tree in LIMITS}
    if rng.random() < 0.2:  # a time after the year 9999, or a text that is not UTF-8
        far = {"date32[day]": 2932897, "string": pa.array([b"a\xff"]).cast(pa.string(), safe=False)[0]}
        kept["maxValues"]["b"] = 253402300800000000 if pa.types.is_timestamp(kind) else far.get(str(kind))
    add["stats_parsed"] = document | {tree: {"s": limits} for tree, limits in kept.items()}
    table = pa.Table.from_pylist([{"add": add}], pa.schema({"add": pa.struct(members)}))
    file = io.BytesIO()
    pq.write_table(table, file, use_deprecated_int96_timestamps=rng.random() < 0.3)
    (action,) = checkpoint_format.decode(file.getvalue(), "f.parquet")
    assert isinstance(action, Add)
    return action


def stored(value: Any, kind: pa.DataType) -> Any:
    """A bound of JSON in a column: null if it has another type."""
    if value in (None, "9_0") or isinstance(value, dict | bool) or pa.types.is_binary(kind):
        return None
    try:
        if pa.types.is_decimal(kind):
            least = decimal.Decimal(1).scaleb(-kind.scale)
            return pa.scalar(decimal.Decimal(value).quantize(least, context=WIDE), kind)
        return pa.scalar(str(value)).cast(kind)
    except pa.ArrowInvalid:
        return None


def near(value: Any, rng: random.Random) -> str:
    """The value as a literal, or one of the two next to it."""
    step = rng.choice([0, 0, -1, 1])
    match value:
        case bool() | bytes():
            return str(value) if isinstance(value, bool) else f"X'{value.hex()}'"
        case float() if step:
            value = math.nextafter(value, step * math.inf)
        case decimal.Decimal():
            value = WIDE.add(value, decimal.Decimal(step).scaleb(int(value.as_tuple().exponent), WIDE))
        case str():
            value = (value, value + "\ud7ff", value[:-1])[step]
        case dt.date():
            value += step * dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else dt.timedelta(days=step)
        case int():
            value += step
    return f"'{value}'"


def comparison(kind: str, rows: Sequence[dict[str, Any]], rng: random.Random) -> str:
    name = rng.choice("aab")
    own = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
    form = rng.random()
    negation = rng.choice(["", "NOT "])
    if kind == "array" or not own or form < 0.1:
        return f"s.{name} IS {negation}NULL"
    first, second = (near(rng.choice(own), rng) for _ in range(2))
    if form < 0.3:
        return f"s.{name} {negation}" + rng.choice([f"BETWEEN {first} AND {second}", f"IN ({first}, {second})"])
    if form < 0.4 and kind == "string":
        return f"s.{name} LIKE '{rng.choice(own)[: rng.choice([1, 2, 40])]}{rng.choice(['%', '_', '_%', ''])}'"
    other = f"s.{rng.choice('ab')}" if form > 0.8 else first
    return f"s.{name} {rng.choice(['=', '=', '<>', '<', '<=', '>', '>=', '<=>'])} {other}"


def differences(
    count: int, seed: int, writers: Sequence[Writer] = WRITERS, kinds: Sequence[str] = KINDS
) -> tuple[list[str], int, int]:
    """Test that many conditions: the differences, how many conditions match a row, and how often a file is skipped."""
    rng = random.Random(seed)
    found, matched, skipped = [], 0, 0
    for _ in range(0, count, 4):
        kind, writer = rng.choice(kinds), rng.choice(writers)
        values = VALUES[kind] if kind != "string" else [start + end for start in [rng.choice(STARTS)] for end in ENDS]
        pool = [float(np.float32(v)) if "float" in kind else v for v in rng.choices(values, k=2)]
        rows = [{n: rng.choice([*pool * 3, None]) for n in "ab"} for _ in range(rng.choice([1, 1, 2, 3]))]
        of = s.Array(element=s.type_named("long")) if kind == "array" else s.type_named(kind.split(", ")[0])
        changes = [{"fromType": "float", "toType": "double"}] if kind == ONCE_FLOAT else []
        fields = tuple(s.Field(name=n, type=of, metadata={"delta.typeChanges": changes}) for n in "ab")
        schema = s.Struct(fields=(s.Field(name="s", type=s.Struct(fields=fields)),))
        table = pa.Table.from_pylist([{"s": row} for row in rows], s.to_arrow(schema))
        document = statistics(kind, rows, writer, rng)
        files = [adding("f", stats=msgspec.json.Encoder(decimal_format="number").encode(document).decode())]
        if "minValues" in document:
            files.append(in_checkpoint(document, s.arrow_type(of), rng))
        for _ in range(4):
            first, second = comparison(kind, rows, rng), comparison(kind, rows, rng)
            compound = f"NOT ({first})", f"({first}) AND ({second})", f"({first}) OR ({second})"
            test = file_test(rng.choice([*[first] * 7, *compound]), schema, ())
            matches = any(matching(table, test.condition.to_arrow()).to_pylist())
            matched += matches
            for file in files:
                if not test.may_match(file):
                    skipped += 1
                    if matches:
                        found.append(f"{test.text}\n  {kind}: {rows}\n  {writer.name}: {file.stats}")
    return found, matched, skipped


@pytest.mark.parametrize(
    ("count", "writers", "kinds"),
    [
        (400, WRITERS, KINDS),
        pytest.param(400, [TRINO], ["string"], marks=pytest.mark.longer),
        pytest.param(800, [w for w in WRITERS if not w.nan], ["double", "float"], marks=pytest.mark.longer),
    ],
    ids=["all", "characters that are cut", "NaN beside bounds"],
)
def test_no_file_with_a_matching_row_is_skipped(count: int, writers: Sequence[Writer], kinds: Sequence[str]) -> None:
    found, matched, skipped = differences(count, 11, writers, kinds)
    assert not found, min(found, key=len)
    assert matched > 150
    assert skipped > 30


@pytest.mark.parametrize(
    "planted", [{"time": lambda *_: "2024-02-29T12:00:00.000Z"}, {"text": lambda text, *_: text[1:]}]
)
def test_a_bound_that_is_too_narrow_is_found(planted: dict[str, Any]) -> None:
    assert differences(160, 7, [dataclasses.replace(SPARK, **planted)])[0]


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
