"""The tables that a query of Spark reads, with their versions, so that a write is checked against what it read.

    rule = plan_reads.installed(spark)
    reads = plan_reads.of(rule, frame)

A frame of `delta.read` has a mark (`mark`) in the options of Spark's Parquet reader or, if tasks read through Arrow, in
the metadata of the column with their input. A frame of the data source has it in its partitions. The rule of
`PlanReads.java` finds the marks in the optimized plan, so that cached frames, views and subqueries are included. For a
write of the data source, it runs in Spark's optimizer, and passes the reads and settings of the session in `OPTIONS`.
Janino, with which Spark compiles its own code, compiles it.

A read of a stated version (`versionAsOf`, `timestampAsOf`) has no mark: its rows do not depend on later versions.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec

from refimpl.client.snapshot import Snapshot
from refimpl.client.transaction import Transaction
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows.condition import FileTest
from refimpl.schema.features import IsolationLevel
from refimpl.schema.schema import Primitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY: Final = "__reads"
MODE: Final = "__mode"
ZONE: Final = "__zone"
"""The options with the session's `partitionOverwriteMode` and time zone when a write of the data source is planned."""
OPTIONS: Final = (KEY, MODE, ZONE)
_CLASS: Final = "PlanReads"
_Found = tuple[str | None, str | None]
"""A mark and the condition."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A read of one version of a table."""

    table_id: str | None = None
    """None: Delta Spark reads the table, in a version that is not known here."""
    location: str
    version: int = -1
    condition: str | None = None
    """SQL that is true for all rows that the query uses, in Spark's spelling."""
    missing: tuple[str, ...] = ()
    """The version's columns that the query's schema, which is older or was given, does not have."""

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether it is a read of the snapshot's table, in any version. Raises `InvalidRequestError` if Delta Spark
        reads the table: a conflict could not be seen."""
        if self.table_id is None and os.path.realpath(self.location) == _location(snapshot):
            raise InvalidRequestError(
                f"Delta Spark reads {self.location} in the query that writes to it, so concurrent changes could be "
                "overwritten; read the table with delta.read, or write with Delta Spark",
                location=self.location,
            )
        return (self.table_id, self.location) == (snapshot.metadata.id, _location(snapshot))

    def test(self, snapshot: Snapshot, *, in_utc: bool) -> FileTest | None:
        """The files of the snapshot that it depends on; None for the whole table."""
        if self.condition is None or snapshot.schema.is_mapped:
            return None
        with contextlib.suppress(InvalidRequestError):
            test = snapshot.file_test(self.condition)
            if in_utc or all(column.type != Primitive(name="timestamp") for column in test.condition.columns()):
                return test
        return None


def _location(snapshot: Snapshot) -> str:
    return os.path.realpath(snapshot.location) if snapshot.objects is None else str(snapshot.location)


def mark(snapshot: Snapshot, columns: Collection[str] | None = None) -> str:
    """The mark of a read of this snapshot; by default, of all its columns."""
    missing = () if columns is None else tuple(name for name in snapshot.schema.names if name not in columns)
    version = snapshot.version
    read = Read(table_id=snapshot.metadata.id, location=_location(snapshot), version=version, missing=missing)
    return msgspec.json.encode(read).decode()


def installed(spark: SparkSession) -> Any:
    """The rule of the session; compiled and added to the session's optimizer if it is missing."""
    jvm: Any = spark._jvm
    methods = spark._jsparkSession.experimental()
    rules = methods.extraOptimizations()
    for number in range(rules.size()):
        if rules.apply(number).getClass().getSimpleName() == _CLASS:
            return rules.apply(number)
    rule = _compiled(jvm).newInstance()
    rule.install(methods)
    return rule


@functools.cache
def _compiled(jvm: Any) -> Any:
    """The class of the rule, once for all sessions of a JVM: Py4J calls the methods of the first class of a name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(resources.files("refimpl.spark").joinpath(f"{_CLASS}.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass(f"refimpl.spark.{_CLASS}")


def of(rule: Any, frame: DataFrame) -> tuple[Read, ...]:
    """The reads of the frame's next action. They fix the versions: run the action on this frame, not on another."""
    return decoded(rule.of(frame._jdf.queryExecution().optimizedPlan()))


def decoded(text: str) -> tuple[Read, ...]:
    """The reads in the rule's answer."""
    found = []
    for known, condition in msgspec.json.decode(text, type=list[_Found]):
        if known is not None:
            found.append(msgspec.structs.replace(msgspec.json.decode(known, type=Read), condition=condition))
    return tuple(found)


def oldest(reads: Sequence[Read], snapshot: Snapshot) -> int | None:
    """The oldest version of the snapshot's table that is read: the transaction begins on it. None without a read."""
    return min((read.version for read in reads if read.is_of(snapshot)), default=None)


def missing(reads: Sequence[Read], snapshot: Snapshot) -> list[str]:
    """The columns of the snapshot's table that a read of it does not have."""
    return sorted({name for read in reads if read.is_of(snapshot) for name in read.missing})


def declare(transaction: Transaction, reads: Sequence[Read], *, in_utc: bool) -> None:
    """Add the reads of its table to the transaction, which began on the oldest of them."""
    snapshot = transaction.snapshot
    own = [read for read in reads if read.is_of(snapshot)]
    for read in own:
        transaction.read_files(read.test(snapshot, in_utc=in_utc))
    if len({read.version for read in own}) > 1:
        transaction.isolation = IsolationLevel.SERIALIZABLE  # what landed between the versions may be in the rows
