"""Generated pipelines: the same short programs on our Spark pipeline and on Delta Spark, in one JVM.

    python -m spec_tests.engines.pipelines --steps 2000 --seed 7
    python -m spec_tests.engines.pipelines --program file.json

Each side applies a step to its own copy of two tables. Then the copies must have equal rows, columns and partition
columns, unless a side rejects the step with an error class of its own. If our side rejects it, our tables must be
unchanged, and Delta Spark restores its version before the step. If only Delta Spark rejects it, the program ends.
Anything else is a difference, and its program is shrunk.

A program is JSON. A value is a number: its position in `VALUES` of the column's type. A column is a number, too: its
position. Both are taken modulo the number of entries. So a step is valid after any others, and a program stays valid
while it shrinks.

Exit status: 0 no difference; 1 a difference; 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

import refimpl
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.table import Table
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import DeltaError
from refimpl.spark import DeltaConnection, connect, local_session
from refimpl.spark.frames import spark_schema
from spec_tests.engines.prerequisites import TINY, delta_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = dict[str, Any]
Program = dict[str, Any]
Columns = Sequence[Sequence[str]]
TABLES: Final = ("a", "b")
ROUTES: Final = ("pipeline", "source", "sql")
MODES: Final = ("append", "append", "static", "static", "dynamic", "replaceWhere", "mergeSchema", "overwriteSchema")
ZONES: Final = ("UTC", "America/St_Johns", "Asia/Kathmandu", "Europe/Berlin")
ON: Final = ("target.id = source.id", "target.id <=> source.id", "target.id = source.id AND target.p <=> source.p")
WIDER: Final = {"int": "bigint", "float": "double"}
PARTITION_TYPES: Final = ("string", "string", "int", "date", "timestamp", "boolean", "decimal(10,2)", "double")
SETTINGS: Final = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",  # else a VACUUM of Delta Spark has 10,000 tasks
}
VALUES: Final[Mapping[str, tuple[pa.DataType, str]]] = {
    "bigint": (pa.int64(), "1|2|3|NULL|4|4611686018427387904"),
    "int": (pa.int32(), "1|2|NULL|-1|2147483647"),
    "string": (pa.string(), "x|y|NULL||ä/ö=%41|a b'\"|A:b\\|__HIVE| x |x\ny"),
    "double": (pa.float64(), "0.5|1.5|NULL|NaN|-0.0|0.0|Infinity|1e300"),
    "float": (pa.float32(), "0.5|1.5|NULL|NaN|-0.0|0.1"),
    "boolean": (pa.bool_(), "true|false|NULL"),
    "decimal(10,2)": (pa.decimal128(10, 2), "1.00|-0.50|NULL|99999999.99"),
    "date": (pa.date32(), "2024-01-01|2024-02-29|NULL|0001-01-01|1582-10-04"),
    "timestamp": (pa.timestamp("us", "UTC"), "2024-01-01 12:00Z|2024-03-31 01:00:00.000001Z|NULL|1500-03-01 00:00Z"),
    "timestamp_ntz": (pa.timestamp("us"), "2024-01-01 12:00:00|NULL|2024-03-31 02:30:00|1500-03-01 00:00:00"),
    "binary": (pa.binary(), "x|NULL||\x00y"),
}


def drawn(seed: int) -> Program:
    """A program. Each has its own subset of the steps (swarm testing)."""
    chooser = random.Random(seed)
    pick, number = chooser.choice, chooser.randrange

    def rows(most: int) -> list[list[int]]:
        return [[number(5), number(8), number(8)] for _ in range(number(most) + 1)]

    def where(share: int = 10) -> list[list[Any]]:
        """Comparisons that must all be true; none in the other of 10 cases."""
        count, operators = pick((1, 1, 1, 2)), ("=", "=", "<=>", "<", ">=", "<>", "null", "not null", "in")
        return [[number(3), pick(operators), number(8)] for _ in range(count if number(10) < share else 0)]

    def source() -> Step:
        literal, kept = {"rows": rows(3), "tasks": pick((0, 0, 1, 2))}, {"kept": number(2), "where": where(5)}
        table: Step = {"from": number(2), "route": pick(ROUTES), "where": where(5)}
        return pick((literal, literal, kept, kept, table))

    def write(given: Step | None = None) -> Step:
        step: Step = {"mode": pick(MODES), "route": pick(ROUTES), "source": given or source()}
        if step["mode"] == "replaceWhere":
            step["where"] = step["source"]["where"] = [[1, "=", number(3)]]
        step |= {"add": pick((None, "int", "string")), "widen": number(2)} if "Schema" in step["mode"] else {}
        return step | pick(({}, {}, {}, {}, {"txn": number(3)}, {"txn": 1, "abort": 1}, {"abort": 1}))

    def keep() -> Step:
        how = pick(("plain", "plain", "cache", "localCheckpoint"))
        return {"how": how, "route": "pipeline" if how == "cache" else pick(ROUTES), "where": where(5)}

    def values() -> list[list[Any]]:
        return [[column, pick(("value", "change")), number(8)] for column in chooser.sample(range(3), pick((1, 1, 2)))]

    def clauses() -> Iterator[Step]:
        for kind in ("matched", "not matched", "not matched by source"):
            for share in pick(((), (4,), (4,), (10, 4))):
                action = pick(("all", "set") if kind == "not matched" else ("all", "set", "delete"))
                yield {"kind": kind, "action": action, "where": where(share), "set": values()}

    steps: dict[str, Callable[[], Step]] = {
        "write": write,
        "keep": keep,
        "other": lambda: {"rows": rows(2)} if number(3) else {"where": where(), "client": 1},
        "delete": lambda: {"where": where(9), "client": not number(3)},
        "update": lambda: {"where": where(8), "client": not number(3), "set": values()},
        "merge": lambda: {"source": source(), "on": number(len(ON)), "clauses": [*clauses()]},
        "stream": lambda: {"to": 1, "how": pick(("sink", "foreachBatch", "crash")), "skip": number(3)},
        "maintain": lambda: {"how": pick(("OPTIMIZE", "OPTIMIZE", "VACUUM", "VACUUM 0"))},
        "restart": lambda: {"zone": pick(("UTC", *ZONES))},
    }
    rare = ("stream", "restart")  # a stream takes as long as several other steps
    weights = [3 if name == "write" else pick((0, 0, 3, 6)) // (3 if name in rare else 1) for name in steps]
    tables = [{"partitions": pick((["p"], ["p"], [], ["v"])), "rows": rows(4)} for _ in TABLES]
    for table in tables:
        one = pick(("delta.checkpointInterval=2", "delta.enableChangeDataFeed=true", "delta.columnMapping.mode=name"))
        table["properties"] = dict(name.split("=") for name in (one, "delta.enableTypeWidening=true") if number(2))
    names = chooser.choices([*steps], weights, k=4 + number(7))
    chosen = [{"step": name, "table": pick((0, 0, 0, 1)), **steps[name]()} for name in names]
    if number(2):  # a frame is read, another writer appends, and the frame is written
        race = {"keep": keep(), "other": {"rows": rows(2)}, "write": write({"kept": -1, "where": where(5)})}
        at, target = number(len(chosen) + 1), number(2)
        chosen[at:at] = [{"step": name, "table": target, **step} for name, step in race.items()]
    columns = [["id", "bigint"], ["p", pick(PARTITION_TYPES)], ["v", pick([*VALUES])]]
    return {"columns": columns, "tables": tables, "zone": pick(ZONES), "steps": chosen}


def text_of(kind: str, number: int) -> str | None:
    texts = VALUES[kind][1].split("|")
    return None if texts[number % len(texts)] == "NULL" else texts[number % len(texts)]


def literal(kind: str, number: int) -> str:
    text = text_of(kind, number)
    if text is None or kind in ("double", "float"):
        return f"CAST({'NULL' if text is None else repr(text)} AS {kind})"
    if kind in ("string", "binary"):
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"X'{text.encode().hex()}'" if kind == "binary" else f"'{escaped}'"
    return f"{kind} '{text}'" if "-" in text[1:] else text


def condition(given: Sequence[Sequence[Any]] | None, columns: Columns, prefix: str = "") -> str | None:
    parts = []
    for position, operator, number in given or ():
        name, kind = columns[position % len(columns)]
        value = f"({literal(kind, number)}, {literal(kind, number + 1)})" if operator == "in" else literal(kind, number)
        parts.append(f"{prefix}`{name}` {f'IS {operator}' if 'null' in operator else f'{operator} {value}'}")
    return " AND ".join(parts) or None


def assignments(given: Sequence[Sequence[Any]], columns: Columns, prefix: str = "") -> dict[str, str]:
    """SQL by column."""
    values, changes = {}, {"string": "concat({}, 'z')", "boolean": "NOT {}"} | dict.fromkeys(WIDER.values(), "{} + 1")
    for position, what, number in given:
        name, kind = columns[position % len(columns)]
        changed = changes[kind].format(f"{prefix}`{name}`") if kind in changes and what == "change" else None
        values[name] = changed or literal(kind, number)
    return values


def arrow_rows(rows: Sequence[Sequence[int]], columns: Columns) -> pa.Table:
    kinds = [kind for _, kind in columns]
    texts = [pa.array([text_of(kind, row[at % 3]) for row in rows], pa.string()) for at, kind in enumerate(kinds)]
    arrays = [column.cast(VALUES[kind][0]) for column, kind in zip(texts, kinds, strict=True)]
    return pa.table(arrays, [name for name, _ in columns])


def canonical(rows: pa.Table) -> list[str]:
    """The rows as sorted text, which tells NaN, -0.0 and null apart, and does not depend on a time zone."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return sorted(map(repr, zip(*(column.to_pylist() for column in plain), strict=True)))


class Side:
    """Our pipeline (`ours`) or Delta Spark, with its tables. Methods with the names of steps apply them."""

    def __init__(self, spark: SparkSession, folder: Path, program: Program, *, ours: bool) -> None:
        self.spark, self.folder, self.ours, self.columns = spark, folder, ours, program["columns"]
        self.format = "delta-owner" if ours else "delta"
        self.states: dict[int, dict[str, Any]] = {}
        self.application = "pipeline"
        if ours:
            refimpl.open(folder, create=True).close()
        self.restart(program)

    def restart(self, step: Step) -> None:
        """The driver starts again, in this time zone: it opens the tables again, and has no frames."""
        self.spark.conf.set("spark.sql.session.timeZone", step["zone"])
        self.kept: list[tuple[int, DataFrame, DataFrame, bool]] = []
        self.views: dict[int, Any] = {}
        if self.ours:
            self.warehouse = refimpl.open(self.folder)
            self.delta: DeltaConnection = connect(self.spark, self.warehouse)
        else:
            jvm: Any = self.spark._jvm
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def place(self, table: int) -> str:
        return TABLES[table] if self.ours else str(self.folder / TABLES[table])

    def table(self, number: int) -> Table:
        """The table in our client."""
        return self.warehouse.table(self.place(number)) if self.ours else Table.by_path(Path(self.place(number)))

    def state(self, table: int, reader: int) -> dict[str, Any]:
        """The table as a query sees it; `reader` chooses one of our three ways to read."""
        snapshot, route = self.table(table).snapshot(), ("client", "pipeline", "source")[reader % 3]
        frame = None if self.ours and route == "client" else self.read(table, route)
        schema = spark_schema(snapshot.schema) if frame is None else frame.schema
        return {
            "columns": [[column.name, column.dataType.simpleString()] for column in schema.fields],
            "partitions": [*snapshot.partition_columns],
            "rows": canonical(snapshot.to_arrow() if frame is None else frame.toArrow()),
        }

    def sql_name(self, table: int) -> str:
        columns, name = self.states[table]["columns"], f"ours_{table}" if self.ours else f"delta.`{self.place(table)}`"
        if self.ours and self.views.get(table) != columns:  # a view has the columns of its creation
            view = f"CREATE OR REPLACE TEMPORARY VIEW {name} USING `delta-owner`"
            self.spark.sql(f"{view} OPTIONS (table '{self.place(table)}')")
            self.views[table] = columns
        return name

    def read(self, table: int, route: str, **options: Any) -> DataFrame:
        if route == "sql":
            return self.spark.sql(f"SELECT * FROM {self.sql_name(table)}")
        if route == "pipeline" and self.ours:
            return self.delta.read.table(self.place(table))
        return self.spark.read.format(self.format).options(**options).load(self.place(table))

    def keep(self, step: Step) -> None:
        """A frame of `delta.read` has one version. So has Delta Spark's, except for a write to the table itself: our
        write must then conflict, or equal that of a frame with the newest rows."""
        table, route, how = step["table"], step["route"], step["how"]
        where = condition(step["where"], self.columns) or "true"
        pinned = newest = self.read(table, route).where(where)
        if how == "localCheckpoint":
            pinned = newest = newest.localCheckpoint()
        elif how == "cache" and self.ours:
            newest.cache().count()
        elif route == "pipeline" and not self.ours:
            pinned = self.read(table, route, versionAsOf=self.table(table).snapshot().version).where(where)
        self.kept.append((table, pinned, newest, not self.table(table).snapshot().files))

    def source(self, given: Step, target: int, columns: Columns) -> DataFrame:
        if "from" in given:
            frame = self.read(given["from"], given["route"])
        elif "kept" in given and self.kept:
            table, pinned, newest, _ = self.kept[given["kept"] % len(self.kept)]
            frame = newest if table == target else pinned
        else:
            frame = self.frame(given.get("rows", [[0, 0, 0]]), columns)
            frame = frame.repartition(given["tasks"]) if given.get("tasks") else frame
        where = condition(given.get("where"), columns)
        return frame.where(where) if where else frame

    def frame(self, rows: Sequence[Sequence[int]], columns: Columns) -> DataFrame:
        """With its types: by default, Spark takes an Arrow time without a zone for one of the session's zone."""
        types = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        return self.spark.createDataFrame(arrow_rows(rows, columns), types)

    def nothing_to_write(self, step: Step) -> bool:
        """Whether a write has no rows, because the version of the table that its kept frame has had none. Without a
        file to remove either, it takes place before what arrived since, and commits nothing."""
        given = step.get("source", {})
        if step["step"] != "write" or "kept" not in given or not self.kept:
            return False
        table, *_, empty = self.kept[given["kept"] % len(self.kept)]
        if table != step["table"] or not (empty or step["mode"] in ("append", "mergeSchema")):
            return False
        return not self.source(given, table, self.states[table]["columns"]).take(1)

    def create(self, step: Step) -> None:
        self.save(
            self.frame(step["rows"], self.columns),
            step["table"],
            {"mode": "append", "route": "pipeline", **step},
            **step["properties"],
        )
        if self.ours:  # by default, clients run no OPTIMIZE and no VACUUM
            table_id = self.warehouse.owner.resolve(self.place(step["table"])).table_id
            self.warehouse.owner.set_policy(table_id, MaintenancePolicy(allowed=frozenset(Maintenance)))

    def save(self, frame: DataFrame, table: int, step: Step, **options: Any) -> None:
        mode, place = "append" if step["mode"] in ("append", "mergeSchema") else "overwrite", self.place(table)
        if step["route"] == "sql" and step["mode"] in ("append", "static") and not options:
            frame.createOrReplaceTempView("rows_to_write")
            verb = "INTO" if mode == "append" else "OVERWRITE"
            self.spark.sql(f"INSERT {verb} {self.sql_name(table)} SELECT * FROM rows_to_write")
            return
        named = step["route"] == "pipeline" and self.ours
        writer: Any = self.delta.write(frame) if named else frame.write.format(self.format)
        writer = writer.mode(mode).options(**options)
        if "partitions" in step:
            writer = writer.partitionBy(*step["partitions"])
        elif step["mode"] == "overwriteSchema" and not self.ours:  # by default it has none; with ours, the table's
            writer = writer.partitionBy(*self.states[table]["partitions"])
        writer.saveAsTable(place) if named else writer.save(place)

    def write(self, step: Step) -> None:
        table, mode, columns = step["table"], step["mode"], self.states[step["table"]]["columns"]
        wanted = [[name, WIDER.get(kind, kind) if step.get("widen") else kind] for name, kind in columns]
        wanted += [["added", step["add"]]] if step.get("add") and "added" not in dict(columns) else []
        frame = self.source(step["source"], table, wanted)
        options: dict[str, Any] = {mode: True} if mode.endswith("Schema") else {}
        if mode == "dynamic":
            options = {"partitionOverwriteMode": mode}
        elif mode == "replaceWhere":
            options = {mode: condition(step["where"], columns) or "true"}
        if step.get("txn"):
            options |= {"txnAppId": self.application, "txnVersion": step["txn"]}
        if step.get("abort"):  # a driver that fails within the write, and writes again
            first, *others = (f"`{name}`" for name in frame.columns)
            with expected("aborted"):
                failing = frame.selectExpr(f"IF(rand() >= 0, raise_error('aborted'), {first}) AS {first}", *others)
                self.save(failing, table, step, **options)
        self.save(frame, table, step, **options)

    def other(self, step: Step) -> None:
        """Another writer's commit: our plain client's, which opens the warehouse again."""
        table = step["table"]
        if "rows" not in step:
            self.delete(step)
            return
        columns = self.states[table]["columns"]
        if self.ours:
            with refimpl.open(self.folder) as warehouse:
                warehouse.table(self.place(table)).append(arrow_rows(step["rows"], columns))
        else:
            self.save(self.frame(step["rows"], columns), table, {"mode": "append", "route": "source"})

    def delete(self, step: Step) -> None:
        """Also UPDATE, if the step has values."""
        columns, place = self.states[step["table"]]["columns"], self.place(step["table"])
        values, where = assignments(step.get("set", ()), columns), condition(step["where"], columns)
        if self.ours:
            table: Any = self.table(step["table"]) if step["client"] else self.delta.table(place)
            table.update(values, where) if "set" in step else table.delete(where)
        else:
            sets = ", ".join(f"`{name}` = {value}" for name, value in values.items())
            verb = f"UPDATE delta.`{place}` SET {sets}" if "set" in step else f"DELETE FROM delta.`{place}`"
            self.spark.sql(f"{verb} WHERE {where or 'true'}")

    update = delete

    def merge(self, step: Step) -> None:
        table, columns, on = step["table"], self.states[step["table"]]["columns"], ON[step["on"]]
        source = self.source(step["source"], table, columns)
        source.createOrReplaceTempView("rows_to_merge")
        text = f"MERGE INTO delta.`{self.place(table)}` AS target USING rows_to_merge AS source ON {on}"
        merge: Any = self.delta.table(self.place(table)).merge(source, on) if self.ours else None
        for clause in step["clauses"]:
            kind, side = clause["kind"], "target." if "by source" in clause["kind"] else "source."
            where, values = condition(clause["where"], columns, side), assignments(clause["set"], columns, side)
            everything = clause["action"] == "all" and side == "source."
            verb = "Insert" if kind == "not matched" else "Delete" if clause["action"] == "delete" else "Update"
            if self.ours:
                method = "when" + kind.title().replace(" ", "") + verb + ("All" if everything else "")
                getattr(merge, method)(where, *(() if everything or verb == "Delete" else (values,)))
            sets = "*" if everything else ", ".join(f"`{name}` = {value}" for name, value in values.items())
            if verb == "Insert" and not everything:
                sets = f"({', '.join(f'`{name}`' for name in values)}) VALUES ({', '.join(values.values())})"
            text += f" WHEN {kind}{f' AND {where}' if where else ''} THEN {verb}"
            text += {"Insert": f" {sets}", "Update": f" SET {sets}", "Delete": ""}[verb]
        merge.execute() if self.ours else self.spark.sql(text)

    def stream(self, step: Step) -> None:
        """All batches that are due, of the query that earlier steps of the same kind have begun."""
        table, to, sink = step["table"], step["to"], step["how"] == "sink"
        crashes = ["the driver, after a commit"] if step["how"] == "crash" else []

        def write(batch: DataFrame, number: int) -> None:
            options = {"txnAppId": f"{table}{to}", "txnVersion": number}
            self.save(batch, to, {"mode": "append", "route": "pipeline"}, **options)
            if crashes:
                raise RuntimeError(crashes.pop())

        for _ in range(1 + len(crashes)):
            reader = self.spark.readStream.format(self.format).option("skipChangeCommits", bool(step["skip"]))
            writer = reader.load(self.place(table)).writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{self.folder}-checkpoint-{table}{to}{sink}")
            with expected("the driver, after a commit"):
                query = writer.format(self.format).start(self.place(to)) if sink else writer.foreachBatch(write).start()
                query.awaitTermination()

    def maintain(self, step: Step) -> None:
        table, (verb, *zero) = self.table(step["table"]), step["how"].split()
        if not self.ours:
            self.spark.sql(f"{verb} delta.`{self.place(step['table'])}`{' RETAIN 0 HOURS' if zero else ''}")
        elif verb == "OPTIMIZE":
            optimize(table)
        else:
            vacuum(table, dry_run=False, older_than=0 if zero else None, force=bool(zero))


@contextlib.contextmanager
def expected(text: str) -> Iterator[None]:
    """Ignore an error with this text."""
    try:
        yield
    except Exception as error:
        if text not in str(error):
            raise


def refusal(side: Side, step: Step) -> str:
    """Apply the step. Returns the name of the refusal; a sentence for an error that names no problem; or nothing."""
    try:
        getattr(side, step["step"])(step)
    except DeltaError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - the errors of Spark, Delta and the JVM have no class in common
        named = re.findall(r"refimpl\.protocol\.errors\.(\w+)", str(error))
        java = re.search(r"(?:io\.delta|org\.apache\.spark)[\w.]*\.(\w+Exception)", str(error))
        name = named[-1] if named else getattr(error, "getCondition", lambda: None)() or (java and java[1])
        if name and not name.startswith(("INTERNAL_ERROR", "PYTHON_")):
            return str(name)
        return f"{'our' if side.ours else 'their'} {type(error).__name__} in {step['step']}: {error!s:.3000}"
    return ""


class Difference(NamedTuple):
    kind: str
    step: int
    detail: str


class Laboratory:
    """Runs programs in one session, and counts what the steps did."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.steps, self.outcomes = spark, folder, 0, Counter[str]()
        for key, value in {**TINY, **SETTINGS}.items():
            spark.conf.set(key, value)

    def run(self, program: Program) -> Difference | None:
        """The first difference."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            ours, theirs = (Side(self.spark, folder / who, program, ours=who == "ours") for who in ("ours", "theirs"))
            return self._run(program, ours, theirs)
        finally:
            self.spark.catalog.clearCache()
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, program: Program, ours: Side, theirs: Side) -> Difference | None:
        created = [{"step": "create", "table": table, **given} for table, given in enumerate(program["tables"])]
        for number, step in enumerate([*created, *program["steps"]], start=-len(created)):
            self.steps += number >= 0
            touched = sorted({step["table"], step.get("to", step["table"])})
            versions = [theirs.table(table).snapshot().version for table in touched if number >= 0]
            names = refusal(ours, step), refusal(theirs, step)
            if unnamed := next((name for name in names if " " in name), None):
                return Difference(unnamed.partition(":")[0], number, unnamed)
            if (
                not any(names)
                and ours.nothing_to_write(step)
                and ours.state(touched[0], number) == ours.states[touched[0]]
            ):
                names = "NothingToWrite", ""
            what = f"ours {names[0] or 'applied'}, theirs {names[1] or 'applied'}" if any(names) else "applied"
            self.outcomes[f"{step['step']}: {what}"] += 1
            if any(names) and (number < 0 or step["step"] == "stream" or not names[0]):
                return None
            for table, version in zip(touched, versions, strict=True) if names[0] else ():
                if ours.state(table, number) != ours.states[table]:
                    return Difference("refused and changed", number, names[0])
                if theirs.table(table).snapshot().version != version:
                    self.spark.sql(f"RESTORE TABLE {theirs.sql_name(table)} TO VERSION AS OF {version}")
                    ours.application = theirs.application = f"pipeline {number}"  # RESTORE keeps what was committed
            for table in () if step["step"] in ("keep", "restart") else touched:
                own, other = ours.state(table, number), theirs.state(table, number)
                ours.states[table], theirs.states[table] = own, other
                for kind, value in own.items():
                    if value != other[kind]:
                        detail = f"table {TABLES[table]}\n  ours   {value}\n  theirs {other[kind]}"
                        return Difference(kind, number, detail)
        return None


def shrunk(program: Program, kind: str, run: Callable[[Program], Difference | None], tries: int) -> Program:
    """The smallest program of `tries` with a difference of this kind: with fewer steps, rows, clauses or conditions, or
    with numbers that are 0."""
    paths: list[tuple[Any, ...]] = [("steps",), ("tables",)]
    for path in paths:  # larger cuts first
        changed = copy.deepcopy(program)
        parent: Any = None
        value: Any = changed
        for key in path:
            parent, value = value, value[key]
        if isinstance(value, dict | list):
            paths += [(*path, key) for key in (value if isinstance(value, dict) else reversed(range(len(value))))]
        if isinstance(parent, list) and isinstance(value, dict | list) and path[:-1] != ("tables",):
            del parent[path[-1]]
        elif isinstance(value, int) and value:
            parent[path[-1]] = 0
        else:
            continue
        if not tries:
            break
        tries, difference = tries - 1, run(changed)
        if difference is not None and difference.kind == kind:
            changed["steps"] = changed["steps"][: difference.step + 1]
            return shrunk(changed, kind, run, tries)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="pipelines", description=__doc__, formatter_class=raw)
    parser.add_argument("--steps", type=int, default=200, help="number of steps (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the programs (default: 1)")
    parser.add_argument("--shrink", type=int, default=60, help="programs to try to shrink one (default: 60)")
    parser.add_argument("--program", type=Path, help="run the program in this file")
    options = parser.parse_args(arguments)
    folder, number = Path(tempfile.mkdtemp(prefix="pipelines-")), 0
    found: list[str] = []
    settings = {**TINY, **delta_settings(), "spark.log.level": "OFF"}
    lab = Laboratory(local_session(cores=2, shuffle_partitions=1, max_failures=2, settings=settings), folder)
    began = time.monotonic()
    while lab.steps < options.steps and not found and not (options.program and number):
        seed, number = options.seed * 1_000_000 + number, number + 1
        program = json.loads(options.program.read_text()) if options.program else drawn(seed)
        if difference := lab.run(program):
            program = shrunk(program, difference.kind, lab.run, options.shrink)
            difference = lab.run(program) or difference
            file = folder.with_name(f"{folder.name}-{seed}.json")
            file.write_text(json.dumps(program))
            replay = f"python -m spec_tests.engines.pipelines --program {file}"
            found = [f"{difference.kind}, step {difference.step}: {difference.detail}", json.dumps(program), replay]
            print(*found, sep="\n", flush=True)
        print(f"{lab.steps} of {options.steps} steps, {number} programs", file=sys.stderr, flush=True)
    shutil.rmtree(folder)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"programs": number, "steps": lab.steps, "seconds": seconds, "outcomes": lab.outcomes}, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
