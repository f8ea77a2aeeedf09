"""Our client and delta-rs make the same rows of the same random changes: append, overwrite, DELETE, UPDATE, MERGE.

    python -m spec_tests.client.test_same_rows --programs 1000 --seed 1

Each program makes one table with each of the two, changes both, and compares the rows after each change. At its end
each reads the other one's table. Exit code 1: the rows differ; the program is shown up to that change.

No condition compares with the literal NULL: delta-rs 1.6.6 deletes all rows where such a condition is unknown.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pytest

import refimpl
from refimpl.client.merging import Merge
from refimpl.client.ownership import hand_back
from refimpl.client.table import Table

SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("n", pa.int32()), ("text", pa.string()), ("x", pa.float64()), ("part", pa.int32())]
)
TYPES: Final = {"id": "long", "n": "integer", "text": "string", "x": "double", "part": "integer"}
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "id": (*range(12), None),
    "n": (-(2**31), -1, 0, 1, 2, 2**31 - 1, None),
    "text": ("", "a", "ab", "b%", "its", "z_", "\U0001f600", None),
    "x": (-1.5, 0.0, 0.25, 1e300, None),
    "part": (0, 1, 2, None),
}
COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
EXPRESSIONS: Final = {
    "n": ("n", "part", "coalesce(n, 7)", "CASE WHEN n > 0 THEN 1 ELSE n END"),
    "text": ("text", "upper(text)", "coalesce(text, 'none')", "text || '!'"),
    "x": ("x", "x * 0.5", "x - 1.0", "coalesce(x, 0.0)"),
    "part": ("part", "CASE WHEN part = 1 THEN 2 ELSE part END", "coalesce(part, 0)"),
}
"""By the column that they are assigned to."""
COLUMNS: Final = tuple(EXPRESSIONS)

Change = Callable[[Table], object]
ChangeThere = Callable[[deltalake.DeltaTable], object]


@dataclass(frozen=True, kw_only=True)
class Step:
    text: str
    ours: Change
    theirs: ChangeThere


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else repr(value)


def rows(draw: random.Random, count: int, *, distinct: bool = False) -> pa.Table:
    ids = draw.sample(VALUES["id"], count) if distinct else draw.choices(VALUES["id"], k=count)
    drawn = [{"id": each, **{name: draw.choice(VALUES[name]) for name in COLUMNS}} for each in ids]
    return pa.Table.from_pylist(drawn, schema=SCHEMA)


def condition(draw: random.Random, depth: int = 2, alias: str = "") -> str:
    kind = draw.randrange(8 if depth else 5)
    column = draw.choice(SCHEMA.names)
    name, value = alias + column, literal(draw.choice(VALUES[column][:-1]))
    if kind == 5:
        return f"NOT ({condition(draw, depth - 1, alias)})"
    if kind > 5:
        parts = [condition(draw, depth - 1, alias) for _ in range(2)]
        return "(" + (" AND " if kind == 6 else " OR ").join(parts) + ")"
    if kind == 0:
        return f"{name} IS {draw.choice(('', 'NOT '))}NULL"
    if kind == 1:
        return f"{name} IN ({', '.join(literal(draw.choice(VALUES[column])) for _ in range(2))})"
    if kind == 2:
        low, high = (literal(draw.choice(VALUES[column][:-1])) for _ in range(2))
        return f"{name} BETWEEN {low} AND {high}"
    if kind == 3 and column == "text":
        return f"{name} LIKE {literal(draw.choice(('a%', '%b', '_', '%')))}"
    return f"{name} {draw.choice(COMPARISONS)} {value}"


def assignments(draw: random.Random, alias: str = "") -> dict[str, str]:
    chosen = draw.sample(COLUMNS, draw.randint(1, 2))
    return {name: _with_alias(draw.choice(EXPRESSIONS[name]), alias) for name in chosen}


def _with_alias(expression: str, alias: str) -> str:
    words = (alias + word if word.rstrip(",") in SCHEMA.names else word for word in expression.split(" "))
    text = " ".join(words)
    for name in SCHEMA.names:
        text = text.replace(f"({name}", f"({alias}{name}")
    return text


def merge(draw: random.Random) -> Step:
    """Source rows have distinct ids, so no row of the table is matched twice."""
    source = rows(draw, draw.randint(0, 6), distinct=True)
    on = "target.id = source.id"
    if draw.random() < 0.3:
        on += f" AND {condition(draw, 1, 'target.')}"
    clauses: list[tuple[str, Any, str | None]] = []

    def add(kind: str, argument: Any, alias: str, *, last: bool = True) -> None:
        clauses.append((kind, argument, None if last and draw.random() < 0.5 else condition(draw, 1, alias)))

    count = draw.randint(0, 2)
    for number in range(1, count + 1):
        kind = draw.choice(("when_matched_update", "when_matched_update_all", "when_matched_delete"))
        argument = assignments(draw, draw.choice(("source.", "target."))) if kind == "when_matched_update" else None
        add(kind, argument, draw.choice(("source.", "target.")), last=number == count)
    if not clauses or draw.random() < 0.6:
        add("when_not_matched_insert_all", None, "source.")
    if draw.random() < 0.3:
        kind = draw.choice(("when_not_matched_by_source_update", "when_not_matched_by_source_delete"))
        add(kind, assignments(draw, "target.") if kind.endswith("update") else None, "target.")

    def ours(table: Table) -> object:
        prepared: Merge = table.merge(source, on)
        for kind, argument, where in clauses:
            call = getattr(prepared, kind)
            prepared = call(where) if argument is None else call(argument, where)
        return prepared.execute()

    def theirs(table: deltalake.DeltaTable) -> object:
        merger = table.merge(source, on, source_alias="source", target_alias="target")
        for kind, argument, where in clauses:
            call = getattr(merger, kind)
            merger = call(predicate=where) if argument is None else call(updates=argument, predicate=where)
        return merger.execute()

    return Step(text=f"merge {source.to_pylist()} on {on}: {clauses}", ours=ours, theirs=theirs)


def step(draw: random.Random) -> Step:
    kind = draw.choices(("append", "overwrite", "delete", "update", "merge"), (4, 0.3, 2, 3, 4))[0]
    if kind in ("append", "overwrite"):
        new = rows(draw, draw.randint(1, 8))
        mode: Any = kind
        return Step(
            text=f"{kind} {new.to_pylist()}",
            ours=lambda table: getattr(table, kind)(new),
            theirs=lambda table: deltalake.write_deltalake(table, new, mode=mode),
        )
    where = condition(draw)
    if kind == "delete":
        return Step(text=f"delete {where}", ours=lambda t: t.delete(where), theirs=lambda t: t.delete(where))
    if kind == "update":
        to = assignments(draw)
        return Step(
            text=f"update {to} where {where}",
            ours=lambda t: t.update(to, where),
            theirs=lambda t: t.update(updates=to, predicate=where),
        )
    return merge(draw)


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr([row[name] for name in SCHEMA.names]) for row in table.to_pylist())


def difference(seed: int, steps: int, folder: Path) -> str | None:
    """The program up to the change after which the rows differ, with the differing rows; None if they never do."""
    draw = random.Random(seed)
    parts = ["part"] if draw.random() < 0.7 else []
    there = folder / "theirs"
    theirs = deltalake.DeltaTable.create(str(there), deltalake.Schema.from_arrow(SCHEMA), partition_by=parts)
    done: list[str] = [f"partitioned by {parts}"]

    def compared(what: str, mine: pa.Table, others: pa.Table) -> str | None:
        left, right = counted(mine), counted(others)
        if left == right:
            return None
        return "\n".join([*done, what, f"only ours: {dict(left - right)}", f"only theirs: {dict(right - left)}"])

    with refimpl.open(folder / "ours", create=True) as warehouse:
        ours = warehouse.create_table("rows", TYPES, partition_columns=parts)
        for _ in range(steps):
            change = step(draw)
            done.append(change.text)
            change.ours(ours)
            change.theirs(theirs)
            found = compared("rows after it", ours.snapshot().to_arrow(), pa.table(theirs.to_pyarrow_table()))
            if found is not None:
                return found
        hand_back(ours)
        mine, location = ours.snapshot().to_arrow(), str(ours.location)
    return compared(
        "our table, and as they read it", mine, deltalake.DeltaTable(location).to_pyarrow_table()
    ) or compared(
        "their table as we read it, and themselves",
        refimpl.open_table(there).snapshot().to_arrow(),
        theirs.to_pyarrow_table(),
    )


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same(seed: int, tmp_path: Path) -> None:
    assert difference(seed, 5, tmp_path) is None


def test_difference_is_shown_with_its_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Table, "append", Table.overwrite)
    found = next(filter(None, (difference(seed, 5, tmp_path / str(seed)) for seed in range(9))))
    assert "append [{" in found and "only theirs: {" in found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8, help="changes in each program")
    wanted = parser.parse_args(arguments)
    started = time.monotonic()
    for number in range(wanted.programs):
        with tempfile.TemporaryDirectory() as folder:
            found = difference(wanted.seed * 1_000_000 + number, wanted.steps, Path(folder))
        if found is not None:
            print(f"program {number} of seed {wanted.seed}: the rows differ\n{found}")
            return 1
        if number % 100 == 99:
            print(f"{number + 1} programs: no difference, {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
