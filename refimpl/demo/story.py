"""The demonstration: processes race for a table and its versions, two are killed, and Spark reads all rows back.

Eight processes race to create the table; then eight inline commits race for the versions of a second table. Three
writers ingest the parts through Spark, while another process reads. All stage version 1, and propose it at the same
moment. Later, writer 3 is killed after it has staged a file and before it proposes it, writer 2 after the owner has
ratified its commit and before the answer arrives. From outside, the two cases look alike: managed-commits and
catalog-managed leave a client in doubt. This owner's answer about an attempt is final: each proposal is sent once more,
as if it had been delayed; the owner answers one that landed as before, and rejects one that did not land.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

import refimpl
from refimpl.care.explain import explain
from refimpl.care.verify import Severity, verify
from refimpl.client.table import Table
from refimpl.demo import source
from refimpl.demo.roles import JOURNAL, PROPOSING, RATIFIED, create, ingest, read_back, watch
from refimpl.demo.source import ROWS, Source, Totals
from refimpl.demo.workers import GO, Ended, Worker, WorkerPool
from refimpl.protocol import actions
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import Landed, Ratified, Rejected, RejectionReason, StagedProposal
from refimpl.protocol.errors import InvalidRequestError, PathAccessError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.rows.partition_values import local_path
from refimpl.spark import find_java
from refimpl.warehouse import Warehouse

CREATORS, WRITERS = 8, 3
TOTALS, ENDED = "totals", "ended"
TIMEOUT_SECONDS: Final = 180.0
"""Maximum time without a message of any process."""
DEATHS: Final = {"writer 2": RATIFIED, "writer 3": PROPOSING}
"""The writers that are killed, and when."""

Facts = dict[str, Any]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, whether it is true, and the numbers that decided it."""

    name: str
    ok: bool
    detail: str
    facts: Facts = {}


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All versions of one table: who wrote each, and `lost`, who else proposed it. Times are ms since the epoch."""

    table: str
    feature: str
    backfill: str
    rows: list[Facts]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demonstration."""

    ok: bool
    seconds: float
    warehouse: str
    kept: bool
    input: str
    rows: int
    parts: int
    checks: list[Check]
    timelines: list[Timeline]


class Display(Protocol):
    """Shows events as they happen. A status line replaces the previous one."""

    def chapter(self, title: str) -> None: ...
    def line(self, text: str) -> None: ...
    def check(self, check: Check) -> None: ...
    def status(self, text: str) -> None: ...


def run(display: Display, given: Path | None, partition_by: str, wanted: Path | None) -> Result:
    """Run the demonstration on the input `given`, in the directory `wanted`, which is then kept.

    A failed check raises nothing. Raises `InvalidRequestError` for invalid options, and `OwnerUnavailableError` if a
    process fails.
    """
    started = time.perf_counter()
    if find_spec("pyspark") is None:
        raise InvalidRequestError("the demo writes through Spark: pip install 'delta-commit-owner[demo]'")
    find_java()
    if wanted is not None and wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise InvalidRequestError(f"{wanted} is not an empty folder; the demo needs a new or an empty one")
    with tempfile.TemporaryDirectory(prefix="commit-owner-demo-", ignore_cleanup_errors=True) as scratch:
        rows = source.load(given, partition_by, Path(scratch))
        directory = Path(scratch) / "warehouse" if wanted is None else wanted.absolute()
        display.line(f"input: {rows.title}, {rows.rows:,} rows, {len(rows.parts)} parts by {rows.partition_column}")
        display.line(f"warehouse: {directory}")
        with refimpl.open(directory, create=True) as warehouse, WorkerPool() as pool:
            table = "flights" if given is None else "ingested"
            stage = Stage(pool=pool, warehouse=warehouse, source=rows, table=table, display=display)
            timelines = play(stage)
    return Result(
        ok=all(check.ok for check in stage.checks),
        seconds=round(time.perf_counter() - started, 1),
        warehouse=str(directory),
        kept=wanted is not None,
        input=rows.title,
        rows=rows.rows,
        parts=len(rows.parts),
        checks=stage.checks,
        timelines=timelines,
    )


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(slots=True, kw_only=True)
class Stage:
    """What the acts share."""

    pool: WorkerPool
    warehouse: Warehouse
    source: Source
    table: str
    display: Display
    checks: list[Check] = field(default_factory=list)
    events: list[tuple[str, str, Facts]] = field(default_factory=list)
    """The name of the process, the kind, and the facts."""

    def check(self, name: str, ok: bool, detail: str, **facts: Any) -> None:
        """Record a claim and show it. The demonstration continues also if the claim is false."""
        self.checks.append(Check(name=name, ok=ok, detail=detail, facts=facts))
        self.display.check(self.checks[-1])

    def start(self, name: str, act: Callable[..., None]) -> Worker:
        return self.pool.start(name, act, self.warehouse.directory, self.table, self.source)

    def listen(self) -> Iterator[tuple[Worker, str, Facts]]:
        """The events of all processes, without an end. The last of each process is `ENDED`."""
        for worker, message in self.pool.messages(TIMEOUT_SECONDS):
            kind, facts = (ENDED, {}) if isinstance(message, Ended) else message
            self.events.append((worker.name, kind, facts))
            yield worker, kind, facts

    def facts(self, kind: str) -> list[Facts]:
        return [facts for _, other, facts in self.events if other == kind]

    def label(self, part: str) -> str:
        return f"{self.source.partition_column} {part}"

    def timeline(self, table: str, parts: Mapping[int, str]) -> Timeline:
        """All versions of `table`. `parts`: the part of a version, if it has one."""
        owner, resolved = self.warehouse.owner, self.warehouse.owner.resolve(table)
        proposers = {facts["attempt"]: name for name, kind, facts in self.events if kind == PROPOSING}
        rows = []
        for version in range((resolved.commits.latest_ratified_version or 0) + 1):
            shown = explain(owner, table, version)
            operation = str(shown.commit_info.get("operation", "-")).lower()
            keys = ("version", "commit_mode", "in_commit_timestamp", "ratified_at", "published_at")
            facts = {key: getattr(shown, key) for key in keys}
            facts["writer"] = proposers.get(shown.attempt, "demo")
            facts["operation"] = self.label(parts[version]) if version in parts else operation
            facts["lost"] = [proposers.get(attempt, attempt[:8]) for attempt in shown.lost_attempts]
            rows.append(facts)
        return Timeline(table=table, feature=resolved.feature_name, backfill=resolved.policy.backfills, rows=rows)


def play(stage: Stage) -> list[Timeline]:
    race(stage)
    ingestion = Ingestion(stage)
    ingestion.run()
    read_by_path(stage)
    read_through_spark(stage, ingestion)
    findings = verify(stage.warehouse.owner)
    errors = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    tables, notes = counted(len(stage.warehouse.owner.tables()), "table"), counted(len(findings) - len(errors), "note")
    detail = f"{tables} against every invariant: {counted(len(errors), 'error')}, {notes}"
    detail += f", first error: {errors[0]}" if errors else ""
    stage.check("no invariant is violated", not errors, detail, findings=findings)
    parts_of = {stage.table: ingestion.added, JOURNAL: {}, TOTALS: dict(enumerate(stage.source.parts, start=1))}
    return [stage.timeline(table, parts) for table, parts in parts_of.items()]


def race(stage: Stage) -> None:
    stage.display.chapter(f"{CREATORS} processes race for version 0 of '{stage.table}'")
    columns = {"process": "long", "won": "boolean", "table_id": "string", "milliseconds": "long"}
    policy = MaintenancePolicy(backfill_every=None)
    journal = stage.warehouse.create_table(JOURNAL, columns, commit_mode=CommitMode.INLINE, policy=policy)
    creators = [stage.start(f"creator {number}", create) for number in range(1, CREATORS + 1)]
    winners = []
    for worker, kind, facts in stage.listen():
        if kind == "finished" and facts["won"]:
            winners.append(worker.name)
            milliseconds, pid = facts["milliseconds"], worker.process.pid
            stage.display.line(f"{worker.name} (process {pid}) created it in {milliseconds} ms")
        if kind == "ready" and len(stage.facts("ready")) == CREATORS:
            for creator in creators:
                creator.send(GO)
        if len(stage.facts(ENDED)) == CREATORS:
            break
    finished, proposed = stage.facts("finished"), [facts["version"] for facts in stage.facts(PROPOSING)].count(0)
    detail = f"{len(winners)} of {len(finished)} processes created '{stage.table}' ({', '.join(winners)}), "
    detail += f"{len(finished) - len(winners)} lost; {proposed} of them had a version 0 in place"
    stage.check("one process creates the table", (len(winners), len(finished)) == (1, CREATORS), detail)
    table, named = stage.warehouse.owner.resolve(stage.table), {facts["table_id"] for facts in finished}
    folders, latest = [*stage.warehouse.directory.glob(f"{stage.table}-*")], table.commits.latest_ratified_version
    detail = f"all {len(finished)} name the table {', '.join(sorted(named))}; {counted(len(folders), 'folder')} left, "
    ok = (named, folders, latest) == ({table.table_id}, [table.location], 0)
    stage.check("losers report the winner's table", ok, f"{detail}at version {latest}")
    snapshot, waiting = journal.snapshot(), stage.warehouse.owner.resolve(JOURNAL).commits.commits
    rows, inline = snapshot.to_arrow().to_pylist(), sum(commit.content is not None for commit in waiting)
    detail = f"{len(rows)} rows in {snapshot.version} versions of '{JOURNAL}', "
    detail += f"{counted(len(stage.facts('lost')), 'lost race')} rebased; the owner itself holds the bytes of {inline}"
    processes = sorted(str(creator.process.pid) for creator in creators)
    ok = (snapshot.version, sorted(str(row["process"]) for row in rows)) == (CREATORS, processes)
    stage.check("inline commits race and all land", ok and sum(row["won"] for row in rows) == 1, detail)


@dataclass(slots=True, kw_only=True, eq=False)
class _Writer:
    worker: Worker
    own: list[str]
    """Parts that no other writer gets. Writers 2 and 3 are killed at the last of them."""
    part: str = ""
    proposal: Facts = field(default_factory=dict)
    state: str = ""
    """The kind of its last event, or `busy`."""


class Ingestion:
    """Run it once. Then `added` has the part of each version, and `spark_reader` is the process that reads back."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._show = stage, stage.display
        self._parts = list(stage.source.parts)
        self._left = self._parts[2 * WRITERS :]
        self._writers: dict[str, _Writer] = {}
        self._racing = False
        self._returned: list[str] = []
        """Parts that killed writers did not commit."""
        self._never_landed = ""
        """The staged file of the attempt that did not land."""
        self.added: dict[int, str] = {}
        self.spark_reader: Worker | None = None

    def run(self) -> None:
        rows, parts = f"{self._stage.source.rows:,} rows", f"{len(self._parts)} parts"
        self._show.chapter(f"{WRITERS} writers ingest {rows} in {parts} through Spark; another process reads")
        reader = self._stage.start("reader", watch)
        for number in range(WRITERS):
            worker = self._stage.start(f"writer {number + 1}", ingest)
            self._writers[worker.name] = _Writer(worker=worker, own=self._parts[number : 2 * WRITERS : WRITERS])
        self._show.status(f"Spark is starting in {WRITERS} processes")
        for worker, kind, facts in self._stage.listen():
            if writer := self._writers.get(worker.name):
                self._on_writer(writer, kind, facts)
                if kind == ENDED and all(other.state == ENDED for other in self._writers.values()):
                    reader.send(GO)
            elif kind == "saw":
                seen = f"{counted(len(facts['parts']), 'part')}, {counted(sum(facts['parts'].values()), 'row')}"
                self._show.status(f"the reader sees version {facts['version']}: {seen}")
            elif worker is reader and kind == ENDED:
                break
        self._check()

    def _on_writer(self, writer: _Writer, kind: str, facts: Facts) -> None:
        name, writer.state = writer.worker.name, kind
        if kind == PROPOSING:
            writer.proposal = facts
        if facts.get("holding"):
            self._on_holding(writer)
        elif kind == "lost":
            self._show.line(f"{name} lost version {facts['version']} (the latest is {facts['latest']}) and rebases")
        elif kind == "idle" and facts:
            self.added[facts["version"]] = writer.part
            rows, label = counted(facts["rows"], "row"), self._stage.label(writer.part)
            self._show.line(f"{name} committed version {facts['version']}: {label}, {rows}")
        elif kind == ENDED:
            if writer.worker.killed:
                self._resolve(writer)
            if self.spark_reader is None:  # a processor is free now
                self.spark_reader = self._stage.start("Spark reader", read_back)
        self._hand_out()

    def _on_holding(self, writer: _Writer) -> None:
        """At version 1, each writer waits for the others. Later, a writer pauses only to be killed."""
        if self._racing:
            self._kill(writer)
        elif all(other.proposal for other in self._writers.values()):
            self._racing = True
            self._show.line(f"{WRITERS} writers have staged version 1, and now all propose it")
            for other in self._writers.values():
                if not other.own and DEATHS.get(other.worker.name) == PROPOSING:
                    self._kill(other)
                else:
                    other.worker.send(GO)

    def _kill(self, writer: _Writer) -> None:
        worker, version = writer.worker, writer.proposal["version"]
        worker.kill()
        when = "before it proposed" if DEATHS[worker.name] == PROPOSING else "after the owner ratified"
        self._show.line(f"{worker.name} (process {worker.process.pid}) gets SIGKILL {when} version {version}")

    def _resolve(self, writer: _Writer) -> None:
        """Find out whether the killed writer's last proposal landed. If not, its part is ingested again."""
        owner, label = self._stage.warehouse.owner, self._stage.label(writer.part)
        table_id = owner.resolve(self._stage.table).table_id
        version, attempt, file = (writer.proposal[key] for key in ("version", "attempt", "file"))
        outcome = owner.attempt_outcome(table_id, attempt)
        again = owner.commit(table_id, version, StagedProposal(attempt=attempt, file_name=file))
        detail = f"attempt {attempt[:8]} of {writer.worker.name} "
        if isinstance(outcome, Landed):
            self.added[version] = writer.part
            detail += (
                f"landed as version {version}; sent again it gets the same answer, and {label} is not written twice"
            )
            ok = isinstance(again, Ratified) and again.replayed and again.commit == outcome.commit
            self._stage.check("killed after ratification", ok, detail, attempt=attempt, version=version)
        else:
            self._returned.append(writer.part)
            self._never_landed = file
            answer = again.reason.value if isinstance(again, Rejected) else type(again).__name__
            detail += f"has not landed and cannot land: sent late, it is rejected ({answer}); {label} is written again"
            ok = answer == RejectionReason.ATTEMPT_RESOLVED.value
            self._stage.check("killed before proposing", ok, detail, attempt=attempt)

    def _hand_out(self) -> None:
        """Give each idle writer its next part. When all that run are idle, end them."""
        running = [writer for writer in self._writers.values() if writer.state != ENDED]
        for writer in [writer for writer in running if writer.state == "idle"]:
            name, queue = writer.worker.name, writer.own or self._returned or self._left
            if not queue:
                continue
            if queue is self._returned:
                self._show.line(f"{name} takes over {self._stage.label(queue[0])}")
            writer.part, writer.state = queue.pop(0), "busy"
            holds = set() if self._racing else {PROPOSING}
            holds |= {DEATHS[name]} if name in DEATHS and not writer.own else set()
            writer.worker.send((writer.part, holds))
        if all(writer.state == "idle" for writer in running):
            for writer in running:
                writer.worker.send(None)

    def _check(self) -> None:
        stage, parts = self._stage, self._parts
        table, versions = stage.warehouse.table(stage.table), list(range(1, len(parts) + 1))
        snapshot = table.snapshot()
        lost = counted(sum(kind == "lost" and name in self._writers for name, kind, _ in stage.events), "lost race")
        killed = sum(writer.worker.killed for writer in self._writers.values())
        detail = f"{len(self.added)} versions for {len(parts)} parts, the latest is {snapshot.version}; "
        ok = (sorted(self.added), sorted(self.added.values())) == (versions, sorted(parts))
        ok = ok and (snapshot.version, killed) == (len(parts), WRITERS - 1)
        stage.check("every part lands once", ok, f"{detail}{lost} rebased, {killed} writers killed")
        folder, never = CATALOG_MANAGED.staging_folder, self._never_landed
        staged = actions.decode(table.log.read_staged(folder, never), source=never) if never else ()
        added = [action for action in staged if isinstance(action, actions.Add)]
        left = {add.path for add in added if local_path(table.location, add.path).exists()}
        active = {add.path for add in snapshot.files.values()}
        detail = f"the killed writer left {counted(len(left), 'data file')} besides the {len(active)} of the table; "
        detail += f"the newest version names {len(active & left)} of them"
        ok = 0 < len(left) == len(added) and active.isdisjoint(left)
        stage.check("attempts that did not land stay invisible", ok, detail)
        seen, found = stage.facts("saw"), list(faults(stage.facts("saw"), stage.source.parts))
        detail = f"{counted(stage.facts('watched')[0]['reads'], 'read')}, {counted(len(seen), 'version')} read row by "
        detail += f"row, the last was {seen[-1]['version']}: "
        detail += found[0] if found else "every part complete, no part lost, timestamps increasing"
        ok = not found and seen[-1]["version"] == len(parts)
        stage.check("every snapshot holds whole parts", ok, detail, faults=found)


def faults(seen: list[Facts], expected: Mapping[str, Totals]) -> Iterator[str]:
    """The faults of the snapshots that a reader saw. Each must hold whole parts: one for each version, none lost."""
    for before, now in pairwise([{"version": -1, "timestamp": -1, "parts": {}}, *seen]):
        version, parts = now["version"], now["parts"]
        incomplete = [part for part, rows in parts.items() if rows != expected.get(part, {}).get(ROWS)]
        flaws = {
            f"came after version {before['version']}": version < before["version"],
            "has an in-commit timestamp that is not after the previous": now["timestamp"] <= before["timestamp"],
            f"holds {len(parts)} parts, but each version adds one": len(parts) != version,
            "has lost a part": not before["parts"].keys() <= parts.keys(),
            f"holds parts that do not have the input's rows: {', '.join(incomplete)}": bool(incomplete),
        }
        yield from (f"version {version} {flaw}" for flaw, present in flaws.items() if present)


def read_by_path(stage: Stage) -> None:
    """Commit the rows of each part to a managedCommit table, whose backfill runs after just over half of them."""
    import pyarrow as pa

    stage.display.chapter("the same table by its path and through its owner")
    owner, environment = stage.warehouse.owner, stage.warehouse.environment
    rows = [int(totals[ROWS]) for totals in stage.source.parts.values()]
    every = len(rows) // 2 + 1
    columns, policy = {"part": "string", "rows": "long"}, MaintenancePolicy(backfill_every=every)
    shape: dict[str, Any] = {"feature": MANAGED_COMMIT, "commit_mode": CommitMode.STAGED}
    table = stage.warehouse.create_table(TOTALS, columns, policy=policy, **shape)
    for part, totals in stage.source.parts.items():
        table.append(pa.Table.from_pylist([{"part": part, "rows": totals[ROWS]}]))

    def seen(snapshot: Any) -> tuple[bool, int, int]:
        return snapshot.stale, snapshot.version, sum(snapshot.to_arrow(columns=["rows"])["rows"].to_pylist())

    by_path = Table.by_path(table.location, environment)
    stale, fresh = seen(by_path.snapshot()), seen(table.snapshot())
    detail = f"'{TOTALS}' (managedCommit, published after every {every}): version {stale[1]} with {stale[2]:,} rows "
    detail += f"by path, version {fresh[1]} with {fresh[2]:,} rows through the owner"
    ok = (stale, fresh) == ((True, every, sum(rows[:every])), (False, len(rows), sum(rows)))
    stage.check("stale by path, fresh through the owner", ok, detail)
    published, after = owner.backfill_to_version(owner.resolve(TOTALS).table_id).published, seen(by_path.snapshot())
    detail = f"{counted(published, 'commit')} published; by path it is version {after[1]} now ({after[2]:,} rows)"
    stage.check("backfill on request", after[1:] == fresh[1:], detail)
    try:
        latest = Table.by_path(owner.resolve(stage.table).location, environment).snapshot().version
        ok, answer = False, f"version {latest} was read"
    except PathAccessError as error:
        ok, answer = True, f"rejected, {type(error).__name__}"
    detail = f"'{stage.table}' (catalogManaged) by path: {answer}"
    stage.check("catalog-managed tables reject path access", ok, detail)


def read_through_spark(stage: Stage, ingestion: Ingestion) -> None:
    stage.display.chapter("Spark reads the table back")
    stage.display.status("Spark computes the totals of each part")
    expected, added, earlier = stage.source.parts, ingestion.added, len(ingestion.added) // 2
    assert ingestion.spark_reader is not None
    ingestion.spark_reader.send(earlier)
    result = next(facts for _, kind, facts in stage.listen() if kind == "totals")
    computed, waiting = result["parts"], len(stage.warehouse.owner.resolve(stage.table).commits.commits)
    detail = f"{sum(row[ROWS] for row in computed.values()):,} rows in {len(computed)} parts of version "
    detail += f"{result['version']}, the newest {counted(waiting, 'commit')} not yet published; "
    ok = {part: row[ROWS] for part, row in computed.items()} == {part: row[ROWS] for part, row in expected.items()}
    stage.check("row counts equal the input's", ok, f"{detail}the input has {stage.source.rows:,}")
    found, functions = list(differences(expected, computed)), [function for _, function in stage.source.aggregates]
    detail = f"{counted(functions.count('sum'), 'sum')} and {counted(functions.count('count'), 'count')} of values for "
    detail += f"each of {len(computed)} parts: " + (
        f"{len(found)} differ, first: {found[0]}" if found else "no difference"
    )
    stage.check("sums equal the input's", not found, detail, differences=found[:20])
    rows, wanted = result["earlier_rows"], sum(int(expected[added[v]][ROWS]) for v in added if v <= earlier)
    detail = f"version {earlier} has {rows:,} rows; the parts of versions up to it have {wanted:,}"
    stage.check("time travel", rows == wanted, detail)


def differences(expected: Mapping[str, Totals], computed: Mapping[str, Facts]) -> Iterator[str]:
    """One message for each difference between Spark's totals and the input's. A sum of no values is null in SQL."""
    for part in sorted(expected.keys() | computed.keys()):
        if part not in expected or part not in computed:
            yield f"part {part} is on one side only"
            continue
        for name, total in expected[part].items():
            found = computed[part][name] or 0
            if found != total if isinstance(total, int) else not math.isclose(found, total, rel_tol=1e-9, abs_tol=1e-9):
                yield f"{name} of part {part} is {found}; the input's is {total}"
