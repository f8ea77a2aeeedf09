"""The demonstration: processes race for a table and its versions, two are killed, and Spark reads all rows back.

Eight processes race to create the table; then eight inline commits race for the versions of a second table. Three
writers ingest the parts through Spark, while another process reads. They stage the same version, and propose it at the
same moment. In the last such race, writer 3 is killed after it has staged a file and before it proposes it, writer 2
after the owner has ratified its commit and before the answer arrives. Writer 1 ingests the rest. From outside, the two
cases look alike: managed-commits and catalog-managed leave a client in doubt. This owner's answer about an attempt is
final: each proposal is sent once more, as if it had been delayed; the owner answers one that landed as before, and
rejects one that did not land.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from refimpl.protocol.release import how_to_install
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.spark import find_java
from refimpl.warehouse import Warehouse

CREATORS, WRITERS = 8, 3
TOTALS, ENDED = "totals", "ended"
TIMEOUT_SECONDS: Final = 180.0
"""Maximum time without a message of any process."""
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
        raise InvalidRequestError(f"the demo writes through Spark: {how_to_install('demo')}")
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
    added: dict[int, str] = field(default_factory=dict)
    """The part of each version of the table."""

    def check(self, name: str, ok: bool, detail: str, **facts: Any) -> None:
        """Record a claim and show it. The demonstration continues also if the claim is false."""
        self.checks.append(Check(name=name, ok=ok, detail=detail, facts=facts))
        self.display.check(self.checks[-1])

    def start(self, name: str, act: Callable[..., None]) -> Worker:
        return self.pool.start(name, act, self.warehouse.directory, self.table, self.source)

    def wait(self, expected: Mapping[Worker, str]) -> dict[Worker, Facts]:
        """Wait until each worker has reported an event of its expected kind; returns the facts. The last event of a
        worker is `ENDED`. Shows what happens meanwhile."""
        found: dict[Worker, Facts] = {}
        for worker, message in self.pool.messages(TIMEOUT_SECONDS):
            kind, facts = (ENDED, {}) if isinstance(message, Ended) else message
            self.events.append((worker.name, kind, facts))
            self._show(worker, kind, facts)
            if kind == expected.get(worker):
                found[worker] = facts
            if len(found) == len(expected):
                break
        return found

    def _show(self, worker: Worker, kind: str, facts: Facts) -> None:
        if kind == "finished" and facts["won"]:
            text = f"{worker.name} (process {worker.process.pid}) created it in {facts['milliseconds']} ms"
            self.display.line(text)
        elif kind == "saw":
            seen = f"{counted(len(facts['parts']), 'part')}, {counted(sum(facts['parts'].values()), 'row')}"
            self.display.status(f"the reader sees version {facts['version']}: {seen}")
        elif kind == "lost" and worker.name.startswith("writer"):
            rebase = f"lost version {facts['version']} (the latest is {facts['latest']}) and rebases"
            self.display.line(f"{worker.name} {rebase}")
        elif kind == "idle" and facts:
            self.added[facts["version"]] = facts["part"]
            rows, label = counted(facts["rows"], "row"), self.label(facts["part"])
            self.display.line(f"{worker.name} committed version {facts['version']}: {label}, {rows}")

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
    spark_reader = ingest_parts(stage)
    read_by_path(stage)
    read_through_spark(stage, spark_reader)
    findings = verify(stage.warehouse.owner)
    errors = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    tables, notes = counted(len(stage.warehouse.owner.tables()), "table"), counted(len(findings) - len(errors), "note")
    detail = f"{tables} against every invariant: {counted(len(errors), 'error')}, {notes}"
    detail += f", first error: {errors[0]}" if errors else ""
    stage.check("no invariant is violated", not errors, detail, findings=findings)
    parts_of = {stage.table: stage.added, JOURNAL: {}, TOTALS: dict(enumerate(stage.source.parts, start=1))}
    return [stage.timeline(table, parts) for table, parts in parts_of.items()]


def race(stage: Stage) -> None:
    stage.display.chapter(f"{CREATORS} processes race for version 0 of '{stage.table}'")
    columns = {"process": "long", "won": "boolean", "table_id": "string", "milliseconds": "long"}
    policy = MaintenancePolicy(backfill_every=None)
    journal = stage.warehouse.create_table(JOURNAL, columns, commit_mode=CommitMode.INLINE, policy=policy)
    creators = [stage.start(f"creator {number}", create) for number in range(1, CREATORS + 1)]
    stage.wait(dict.fromkeys(creators, "ready"))
    for creator in creators:
        creator.send(GO)
    stage.wait(dict.fromkeys(creators, ENDED))
    winners = [name for name, kind, facts in stage.events if kind == "finished" and facts["won"]]
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


def ingest_parts(stage: Stage) -> Worker:
    """Returns the process that reads back: it starts Spark when a processor is free."""
    rows, parts = f"{stage.source.rows:,} rows", list(stage.source.parts)
    title = f"{WRITERS} writers ingest {rows} in {len(parts)} parts through Spark; another process reads"
    stage.display.chapter(title)
    reader = stage.start("reader", watch)
    writers = [stage.start(f"writer {number}", ingest) for number in range(1, WRITERS + 1)]
    stage.display.status(f"Spark is starting in {WRITERS} processes")
    stage.wait(dict.fromkeys(writers, "idle"))
    first, *_ = writers
    races = 2 if len(parts) >= 2 * WRITERS else 1
    for number in range(races):
        deaths = {writers[1]: RATIFIED, writers[2]: PROPOSING} if number == races - 1 else {}
        left = compete(stage, writers, parts[:WRITERS], deaths)
        parts = parts[WRITERS:]
    spark_reader = stage.start("Spark reader", read_back)
    for part in left:
        stage.display.line(f"{first.name} takes over {stage.label(part)}")
    for part in [*left, *parts]:
        first.send((part, set()))
        stage.wait({first: "idle"})
    first.send(None)
    stage.wait({first: ENDED})
    reader.send(GO)
    stage.wait({reader: ENDED})
    check_versions(stage, writers, list(left.values()))
    return spark_reader


def compete(
    stage: Stage, writers: Sequence[Worker], parts: Sequence[str], deaths: Mapping[Worker, str]
) -> dict[str, str]:
    """Let the writers propose the same version at the same moment. `deaths`: the writers that are killed, and when.

    Returns the parts of attempts that did not land, with their staged files.
    """
    part_of = dict(zip(writers, parts, strict=True))
    for writer, part in part_of.items():
        writer.send((part, {PROPOSING, *([RATIFIED] if deaths.get(writer) == RATIFIED else [])}))
    proposals = stage.wait(dict.fromkeys(writers, PROPOSING))
    version = proposals[writers[0]]["version"]
    stage.display.line(f"{WRITERS} writers have staged version {version}, and now all propose it")
    for writer in writers:
        if deaths.get(writer) == PROPOSING:
            kill(stage, writer, f"before it proposed version {version}")
        else:
            writer.send(GO)
    proposing = [writer for writer in writers if deaths.get(writer) != PROPOSING]
    reported = stage.wait({writer: deaths.get(writer, "idle") for writer in proposing})
    left = {}
    for writer, when in deaths.items():
        if when == RATIFIED:
            proposals[writer] = reported[writer]
            kill(stage, writer, f"after the owner ratified version {reported[writer]['version']}")
        if not resolve(stage, writer, part_of[writer], proposals[writer]):
            left[part_of[writer]] = proposals[writer]["file"]
    return left


def kill(stage: Stage, writer: Worker, when: str) -> None:
    writer.kill()
    stage.display.line(f"{writer.name} (process {writer.process.pid}) gets SIGKILL {when}")


def resolve(stage: Stage, writer: Worker, part: str, proposal: Facts) -> bool:
    """Whether the killed writer's last proposal landed. If not, its part is to be ingested again."""
    owner, label = stage.warehouse.owner, stage.label(part)
    table_id = owner.resolve(stage.table).table_id
    version, attempt, file = (proposal[key] for key in ("version", "attempt", "file"))
    outcome = owner.attempt_outcome(table_id, attempt)
    again = owner.commit(table_id, version, StagedProposal(attempt=attempt, file_name=file))
    detail = f"attempt {attempt[:8]} of {writer.name} "
    if isinstance(outcome, Landed):
        stage.added[version] = part
        detail += f"landed as version {version}; sent again it gets the same answer, and {label} is not written twice"
        ok = isinstance(again, Ratified) and again.replayed and again.commit == outcome.commit
        stage.check("killed after ratification", ok, detail, attempt=attempt, version=version)
        return True
    answer = again.reason.value if isinstance(again, Rejected) else type(again).__name__
    detail += f"has not landed and cannot land: sent late, it is rejected ({answer}); {label} is written again"
    ok = answer == RejectionReason.ATTEMPT_RESOLVED.value
    stage.check("killed before proposing", ok, detail, attempt=attempt)
    return False


def check_versions(stage: Stage, writers: Sequence[Worker], never_landed: Sequence[str]) -> None:
    """`never_landed`: staged files of the attempts that did not land."""
    parts = list(stage.source.parts)
    table, versions = stage.warehouse.table(stage.table), list(range(1, len(parts) + 1))
    snapshot, names = table.snapshot(), {writer.name for writer in writers}
    lost = counted(sum(kind == "lost" and name in names for name, kind, _ in stage.events), "lost race")
    killed = sum(writer.killed for writer in writers)
    detail = f"{len(stage.added)} versions for {len(parts)} parts, the latest is {snapshot.version}; "
    ok = (sorted(stage.added), sorted(stage.added.values())) == (versions, sorted(parts))
    ok = ok and (snapshot.version, killed) == (len(parts), WRITERS - 1)
    stage.check("every part lands once", ok, f"{detail}{lost} rebased, {killed} writers killed")
    staged = [table.log.read_staged(CATALOG_MANAGED.staging_folder, file) for file in never_landed]
    decoded = actions.decode(b"".join(staged), source=f"the staged files {', '.join(never_landed)}")
    added = [action for action in decoded if isinstance(action, actions.Add)]
    left = {add.path for add in added if snapshot.layout.path_of(add.path).exists()}
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


def read_through_spark(stage: Stage, spark_reader: Worker) -> None:
    stage.display.chapter("Spark reads the table back")
    stage.display.status("Spark computes the totals of each part")
    expected, added, earlier = stage.source.parts, stage.added, len(stage.added) // 2
    spark_reader.send(earlier)
    result = stage.wait({spark_reader: "totals"})[spark_reader]
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
