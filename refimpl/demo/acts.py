"""The acts: processes race for a table and for its versions, two of them are killed, and Spark reads all rows back.

First act: eight processes race to create the table, and one of them creates it. Then each process appends the id of the
winner's table, as it sees it, to a second table. These eight inline commits race for the versions 1 to 8, and all land.

Second act: three writers ingest the parts through Spark, and another process keeps reading. All three stage version 1
and propose it at the same moment: one wins, the others rebase. Half-way, two writers are killed: writer 3 after it has
staged a file and before it proposes it, writer 2 after the owner has ratified its commit and before the answer arrives.
From outside, the two cases look alike: after a lost answer, managed-commits and catalog-managed leave a client in
doubt. This owner's answer about an attempt is final. The demonstration sends each proposal once more, as if it had been
delayed: the owner answers a proposal that landed as before, and rejects one that did not land. Then the remaining
writer takes over the missing parts, and only these.

Third act: reads by path, which depend on the table feature. By path, a managedCommit table with delayed backfill shows
only its published versions, with a warning. A catalog-managed table cannot be read by path at all. Last act: Spark
reads the table back. Every total that Spark computes must equal Arrow's total of the input.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from refimpl import actions
from refimpl.actions import Add
from refimpl.client.partition_values import local_path
from refimpl.client.schema import Field, Primitive, Struct, from_arrow
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy
from refimpl.commits import Landed, Ratified, Rejected, RejectionReason, StagedProposal
from refimpl.demo.processes import ENDED, GO, Create, Event, Hold, Ingest, ReadBack, Watch, Worker
from refimpl.demo.source import Totals
from refimpl.demo.stage import Stage, counted
from refimpl.errors import PathAccessError
from refimpl.log_path import Version
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot

CREATORS: Final = 8
JOURNAL: Final = "race"
BACKFILL_EVERY: Final = 5

_JOURNAL: Final = {"process": "long", "won": "boolean", "table_id": "string", "milliseconds": "long"}


def race(stage: Stage) -> None:
    stage.display.chapter(f"{CREATORS} processes race for version 0 of '{stage.table}'")
    columns = Struct(fields=tuple(Field(name=name, type=Primitive(name=kind)) for name, kind in _JOURNAL.items()))
    policy = MaintenancePolicy(backfill_every=None)
    stage.warehouse.create_table(
        JOURNAL, columns, feature=CATALOG_MANAGED, commit_mode=CommitMode.INLINE, policy=policy
    )
    facts = {
        "schema_string": from_arrow(stage.source.schema).to_json(),
        "backfill_every": BACKFILL_EVERY,
        "journal": JOURNAL,
    }
    creators = [stage.start(f"creator {number}", Create, **facts) for number in range(1, CREATORS + 1)]
    _race(stage, creators)
    _check_winner(stage, creators)
    _check_journal(stage, creators)


def _race(stage: Stage, creators: list[Worker]) -> None:
    """Wait until all processes are ready; then start the race."""
    ready = ended = 0
    for worker, event in stage.pool.events():
        stage.record(worker, event)
        if event.kind == "ready":
            ready += 1
            if ready == len(creators):
                for creator in creators:
                    creator.send(GO)
        elif event.kind == "created":
            stage.display.line(f"{worker.name} (process {worker.pid}) created it in {event.facts['milliseconds']} ms")
        elif event.kind == ENDED:
            ended += 1
            if ended == len(creators):
                return


def _facts(workers: list[Worker], kind: str) -> list[dict[str, Any]]:
    return [event.facts for worker in workers for event in worker.events if event.kind == kind]


def _check_winner(stage: Stage, creators: list[Worker]) -> None:
    winners = [worker for worker in creators if _facts([worker], "created")]
    beaten = _facts(creators, "beaten")
    ends = [*_facts(creators, "created"), *beaten]
    proposed = [facts for facts in _facts(creators, "proposing") if facts["version"] == 0]
    reported = {facts["table_id"] for facts in ends}
    table = stage.warehouse.owner.resolve(stage.table)
    folders = list(stage.warehouse.directory.glob(f"{stage.table}-*"))
    stage.check(
        "one process creates the table",
        f"{len(winners)} of {len(ends)} processes created '{stage.table}' "
        f"({', '.join(worker.name for worker in winners)}), {len(beaten)} lost; "
        f"{len(proposed)} of them had a version 0 in place",
        ok=len(ends) == CREATORS and len(winners) == 1 and len(beaten) == CREATORS - 1,
        winner_pid=winners[0].pid if winners else None,
    )
    stage.check(
        "losers report the winner's table",
        f"all {len(ends)} name the table {', '.join(sorted(reported))}; {counted(len(folders), 'folder')} left, "
        f"at version {table.commits.latest_ratified_version}",
        ok=reported == {table.table_id} and folders == [table.location] and table.commits.latest_ratified_version == 0,
    )


def _check_journal(stage: Stage, creators: list[Worker]) -> None:
    table = stage.warehouse.table(JOURNAL)
    snapshot = table.snapshot()
    waiting = stage.warehouse.owner.get_commits(table.table_id or JOURNAL).commits
    rows = snapshot.to_arrow().to_pylist()
    versions = sorted(facts["version"] for facts in _facts(creators, "noted"))
    lost = len(_facts(creators, "lost"))
    stage.check(
        "inline commits race and all land",
        f"{len(rows)} rows in versions {versions[0]} to {versions[-1]} of '{JOURNAL}', "
        f"{counted(lost, 'lost race')} rebased; "
        f"the owner itself holds the bytes of {sum(commit.content is not None for commit in waiting)} of them",
        ok=versions == list(range(1, CREATORS + 1))
        and snapshot.version == CREATORS
        and {row["process"] for row in rows} == {worker.pid for worker in creators}
        and sum(row["won"] for row in rows) == 1,
        lost_attempts=lost,
    )


WRITERS: Final = 3
_KILLED: Final = {"writer 2": True, "writer 3": False}
"""The killed writers. True: after the owner has ratified the commit; false: before the proposal."""


@dataclass(slots=True, kw_only=True)
class _Writer:
    worker: Worker
    parts: list[str]
    """The parts that are not committed yet."""
    holds: list[Hold]
    """The pauses at its first proposal, and before it is killed."""
    part: str = ""
    """The part in progress."""
    proposal: dict[str, Any] = field(default_factory=dict)
    """The facts of the last proposal."""
    started: bool = False
    ended: bool = False


class Ingestion:
    """Run it once. Then `added` has the part of each version, and `spark_reader` is the process that reads back."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._writers: dict[str, _Writer] = {}
        self._idle: list[_Writer] = []
        self._missing: list[str] = []
        """Parts that killed writers did not commit."""
        self._watched: dict[str, Any] = {}
        self._never_landed: list[str] = []
        """Staged files of the attempts that did not land."""
        self.added: dict[int, str] = {}
        self.spark_reader: Worker | None = None

    def run(self) -> None:
        stage, source = self._stage, self._stage.source
        parts = list(source.parts)
        stage.display.chapter(
            f"{WRITERS} writers ingest {source.rows:,} rows in {len(parts)} parts through Spark; another process reads"
        )
        watcher = stage.start("reader", Watch, rows={part: totals.rows for part, totals in source.parts.items()})
        for number in range(WRITERS):
            self._start(f"writer {number + 1}", parts[number::WRITERS], half=len(parts) // WRITERS // 2)
        stage.display.status(f"Spark is starting in {WRITERS} processes")
        self._listen(watcher)
        self._check_versions()
        self._check_leftovers()
        self._check_watched()

    def _start(self, name: str, parts: list[str], *, half: int) -> None:
        holds = [Hold(part=0, ratified=False)]
        if name in _KILLED:
            holds.append(Hold(part=half, ratified=_KILLED[name]))
        source = self._stage.source
        facts = {"path": str(source.path), "is_csv": source.is_csv, "parts": parts, "holds": holds}
        worker = self._stage.start(name, Ingest, **facts)
        self._writers[name] = _Writer(worker=worker, parts=list(parts), holds=holds)

    def _listen(self, watcher: Worker) -> None:
        """Handle events until the last writer has ended and the watcher has read once more."""
        for worker, event in self._stage.pool.events():
            self._stage.record(worker, event)
            if worker is watcher:
                self._on_watcher(event)
                if event.kind == ENDED:
                    return
            elif worker.name in self._writers:
                self._on_writer(self._writers[worker.name], event)
                if all(writer.ended for writer in self._writers.values()):
                    watcher.send(GO)

    def _on_watcher(self, event: Event) -> None:
        facts = event.facts
        if event.kind == "saw":
            parts, rows = counted(facts["parts"], "part"), counted(facts["rows"], "row")
            self._stage.display.status(f"the reader sees version {facts['version']}: {parts}, {rows}")
        elif event.kind == "watched":
            self._watched = facts

    def _on_writer(self, writer: _Writer, event: Event) -> None:
        name, facts, show = writer.worker.name, event.facts, self._stage.display
        match event.kind:
            case "writing":
                writer.part = facts["part"]
            case "proposing":
                writer.proposal = facts
            case "holding":
                self._on_holding(writer)
            case "lost":
                show.line(f"{name} lost version {facts['version']} (the latest is {facts['latest']}) and rebases")
            case "committed":
                self._committed(writer, facts["version"])
                rows = counted(facts["rows"], "row")
                show.line(f"{name} committed version {facts['version']}: {self._label(facts['part'])}, {rows}")
            case "idle":
                self._idle.append(writer)
                self._hand_out()
            case _ if event.kind == ENDED:
                self._on_end(writer)

    def _on_holding(self, writer: _Writer) -> None:
        """At the first proposal, each writer waits for the others. Later, a writer pauses only to be killed."""
        if writer.started:
            self._kill(writer)
            return
        writer.started = True
        if not all(other.started for other in self._writers.values()):
            return
        version = writer.proposal["version"]
        self._stage.display.line(f"{WRITERS} writers have staged version {version}, and now all propose it")
        for other in self._writers.values():
            if other.holds.count(other.holds[0]) > 1:  # it is killed at its first proposal
                self._kill(other)
            else:
                other.worker.send(GO)

    def _kill(self, writer: _Writer) -> None:
        worker, version = writer.worker, writer.proposal["version"]
        worker.kill()
        when = "after the owner ratified" if writer.holds[-1].ratified else "before it proposed"
        self._stage.display.line(f"{worker.name} (process {worker.pid}) gets SIGKILL {when} version {version}")

    def _on_end(self, writer: _Writer) -> None:
        writer.ended = True
        if writer.worker.killed:
            landed = self._resolve(writer)
            if landed is not None:
                self._committed(writer, landed)
            else:
                self._never_landed.append(writer.proposal["staged_file"])
            self._missing += writer.parts
            self._hand_out()
        if self.spark_reader is None:  # a processor is free now
            self.spark_reader = start_spark(self._stage)

    def _resolve(self, writer: _Writer) -> Version | None:
        """The version of the killed writer's last proposal; None if it did not land."""
        stage, name, proposal, part = self._stage, writer.worker.name, writer.proposal, self._label(writer.part)
        owner = stage.warehouse.owner
        table_id = owner.resolve(stage.table).table_id
        attempt, staged_file = proposal["attempt"], proposal["staged_file"]
        outcome = owner.attempt_outcome(table_id, attempt)
        again = owner.commit(table_id, proposal["version"], StagedProposal(attempt=attempt, file_name=staged_file))
        if isinstance(outcome, Landed):
            landed = outcome.commit.version
            stage.check(
                "killed after ratification",
                f"attempt {attempt[:8]} of {name} landed as version {landed}; sent again it gets the same answer, "
                f"and {part} is not written twice",
                ok=isinstance(again, Ratified) and again.replayed and again.commit.version == landed,
                attempt=attempt,
                version=landed,
            )
            return landed
        answer = again.reason.value if isinstance(again, Rejected) else type(again).__name__
        stage.check(
            "killed before proposing",
            f"attempt {attempt[:8]} of {name} has not landed and cannot land: sent late, it is rejected ({answer}); "
            f"{part} is written again",
            ok=isinstance(again, Rejected) and again.reason is RejectionReason.ATTEMPT_RESOLVED,
            attempt=attempt,
        )
        return None

    def _check_leftovers(self) -> None:
        """Check that the data files of attempts that did not land exist, and that no version names them."""
        stage = self._stage
        table = stage.warehouse.table(stage.table)
        feature = stage.warehouse.owner.resolve(stage.table).feature
        active = {add.path for add in table.snapshot().files.values()}
        left = [
            action.path
            for name in self._never_landed
            for action in actions.decode(table.log.read_staged(feature.staging_folder, name), source=name)
            if isinstance(action, Add)
        ]
        there = [path for path in left if local_path(table.location, path).exists()]
        stage.check(
            "attempts that did not land stay invisible",
            f"the killed writer left {counted(len(there), 'data file')} besides the {len(active)} of the table; "
            f"the newest version names {len(active & set(left))} of them",
            ok=bool(there) and there == left and active.isdisjoint(left),
        )

    def _hand_out(self) -> None:
        """Give the parts of killed writers to an idle writer. When every running writer is idle, end all."""
        if self._missing and self._idle:
            successor = self._idle.pop(0)
            labels = ", ".join(self._label(part) for part in self._missing)
            self._stage.display.line(f"{successor.worker.name} takes over {labels}")
            successor.parts += self._missing
            successor.worker.send(self._missing)
            self._missing = []
        elif len(self._idle) == sum(not writer.ended for writer in self._writers.values()):
            for writer in self._idle:
                writer.worker.send([])
            self._idle = []

    def _committed(self, writer: _Writer, version: int) -> None:
        self.added[version] = writer.part
        writer.parts.remove(writer.part)

    def _label(self, part: str) -> str:
        return f"{self._stage.source.partition_column} {part}"

    def _check_versions(self) -> None:
        source, writers = self._stage.source, self._writers.values()
        latest = self._stage.warehouse.owner.resolve(self._stage.table).commits.latest_ratified_version
        lost = sum(event.kind == "lost" for writer in writers for event in writer.worker.events)
        killed = sum(writer.worker.killed for writer in writers)
        self._stage.check(
            "every part lands once",
            f"{len(self.added)} versions for {len(source.parts)} parts, the latest is {latest}; "
            f"{counted(lost, 'lost race')} rebased, {killed} writers killed",
            ok=sorted(self.added) == list(range(1, len(source.parts) + 1))
            and sorted(self.added.values()) == sorted(source.parts)
            and latest == len(source.parts)
            and killed == WRITERS - 1,
            lost_races=lost,
        )

    def _check_watched(self) -> None:
        seen, faults = self._watched, self._watched["faults"]
        verdict = "every part complete, no part lost, timestamps increasing"
        if faults:
            verdict = f"{counted(len(faults), 'fault')}, the first: {faults[0]}"
        self._stage.check(
            "every snapshot holds whole parts",
            f"{counted(seen['reads'], 'read')}, {counted(seen['versions'], 'version')} read row by row, "
            f"the last was {seen['last']}: {verdict}",
            ok=not faults and seen["last"] == len(self._stage.source.parts),
            **seen,
        )


# The acts that read


TOTALS: Final = "totals"


def path_access(stage: Stage) -> None:
    stage.display.chapter("the same table by its path and through its owner")
    table, every = _write_totals(stage)
    by_path = Table.by_path(table.location, stage.warehouse.environment)
    stale, fresh = by_path.snapshot(), table.snapshot()
    parts = list(stage.source.parts.values())
    stage.check(
        "stale by path, fresh through the owner",
        f"'{TOTALS}' (managedCommit, published after every {every}): version {stale.version} with {_rows(stale):,} "
        f"rows by path, version {fresh.version} with {_rows(fresh):,} rows through the owner",
        ok=stale.stale
        and not fresh.stale
        and (stale.version, fresh.version) == (every, len(parts))
        and (_rows(stale), _rows(fresh)) == (sum(part.rows for part in parts[:every]), stage.source.rows),
        stale_version=stale.version,
        fresh_version=fresh.version,
    )
    published = stage.warehouse.owner.backfill_to_version(table.table_id or TOTALS)
    after = by_path.snapshot()
    stage.check(
        "backfill on request",
        f"{counted(published.published, 'commit')} published; by path it is version {after.version} now "
        f"({_rows(after):,} rows)",
        ok=after.version == fresh.version and _rows(after) == stage.source.rows,
    )
    try:
        location = stage.warehouse.owner.resolve(stage.table).location
        answer = f"version {Table.by_path(location, stage.warehouse.environment).snapshot().version} was read"
        rejected = False
    except PathAccessError as error:
        answer, rejected = f"rejected, {type(error).__name__}", True
    stage.check(
        "catalog-managed tables reject path access", f"'{stage.table}' (catalogManaged) by path: {answer}", ok=rejected
    )


def _write_totals(stage: Stage) -> tuple[Table, int]:
    """Commit the number of rows of each part, one staged commit for each; backfill runs after just over half of
    them."""
    import pyarrow as pa

    every = len(stage.source.parts) // 2 + 1
    schema = pa.schema([("part", pa.string()), ("rows", pa.int64())])
    policy = MaintenancePolicy(backfill_every=every)
    table = stage.warehouse.create_table(
        TOTALS, schema, feature=MANAGED_COMMIT, commit_mode=CommitMode.STAGED, policy=policy
    )
    for part, totals in stage.source.parts.items():
        table.append(pa.Table.from_pylist([{"part": part, "rows": totals.rows}]))
    return table, every


def _rows(snapshot: "Snapshot") -> int:
    import pyarrow.compute as pc

    return int(pc.sum(snapshot.to_arrow(columns=["rows"])["rows"]).as_py() or 0)


def start_spark(stage: Stage) -> Worker:
    """Start the process that reads the table back. It waits for its command."""
    any_part = next(iter(stage.source.parts.values()))
    counts, sums = list(any_part.counts), list(any_part.sums)
    earlier = len(stage.source.parts) // 2
    return stage.start("Spark reader", ReadBack, counted=counts, summed=sums, earlier_version=earlier)


def read_back(stage: Stage, worker: Worker, added: dict[int, str]) -> None:
    """`added`: the part that each version added."""
    stage.display.chapter("Spark reads the table back")
    stage.display.status("Spark computes the totals of each part")
    results: dict[str, dict[str, Any]] = {}
    worker.send(GO)
    for sender, event in stage.pool.events():
        if sender is worker:
            results[event.kind] = event.facts
            if event.kind == ENDED:
                break
    _check_totals(stage, results["totals"])
    earlier = results["earlier"]
    expected = sum(stage.source.parts[part].rows for version, part in added.items() if version <= earlier["version"])
    stage.check(
        "time travel",
        f"version {earlier['version']} has {earlier['rows']:,} rows; the parts of versions up to it have {expected:,}",
        ok=earlier["rows"] == expected,
    )


def _check_totals(stage: Stage, totals: dict[str, Any]) -> None:
    expected, parts = stage.source.parts, totals["parts"]
    faults = list(differences(expected, parts))
    any_part = next(iter(expected.values()))
    waiting = len(stage.warehouse.owner.resolve(stage.table).commits.commits)
    stage.check(
        "row counts equal the input's",
        f"{sum(row['rows'] for row in parts.values()):,} rows in {len(parts)} parts of version {totals['version']}, "
        f"the newest {counted(waiting, 'commit')} not yet published; the input has {stage.source.rows:,}",
        ok={part: row["rows"] for part, row in parts.items()}
        == {part: wanted.rows for part, wanted in expected.items()},
    )
    stage.check(
        "sums equal the input's",
        f"{counted(len(any_part.sums), 'sum')} and {counted(len(any_part.counts), 'count')} of values for each of "
        f"{len(parts)} parts: "
        + (f"{counted(len(faults), 'difference')}, first: {faults[0]}" if faults else "no difference"),
        ok=not faults,
        compared=len(expected) * (len(any_part.sums) + len(any_part.counts) + 1),
        differences=faults[:20],
    )


def differences(expected: Mapping[str, Totals], computed: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """One message for each difference between Spark's totals (`rows`, `counts`, `sums`) and the input's."""
    for part in sorted(expected.keys() ^ computed.keys()):
        yield f"part {part} is on one side only"
    for part in expected.keys() & computed.keys():
        yield from _differences(part, expected[part], computed[part])


def _differences(part: str, expected: Totals, computed: dict[str, Any]) -> Iterator[str]:
    if computed["rows"] != expected.rows:
        yield f"part {part} has {computed['rows']} rows, the input {expected.rows}"
    for column, count in expected.counts.items():
        if computed["counts"][column] != count:
            yield f"part {part} has {computed['counts'][column]} values of {column}, the input {count}"
    for column, total in expected.sums.items():
        summed = computed["sums"][column] or 0
        same = summed == total if isinstance(total, int) else math.isclose(summed, total, rel_tol=1e-9, abs_tol=1e-9)
        if not same:
            yield f"the sum of {column} in part {part} is {summed}, the input's {total}"
