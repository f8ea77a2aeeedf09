"""Second act: three writers ingest the parts through Spark at the same time, another process keeps reading,
and two of the writers are killed in the middle of a commit.

All three stage version 1. Writer 3 is killed then: its staged file is durable, and the owner was never
asked. The others go at the same moment, and one of them loses the race. Writer 2 is killed later, after the
owner has ratified its commit and before the answer is there. From outside the two look alike; the owner is
asked by attempt id what became of them, and a new process goes on with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from refimpl import actions
from refimpl.actions import Add
from refimpl.client.partition_values import local_path
from refimpl.commits import Landed, Ratified, Rejected, RejectionReason, StagedProposal
from refimpl.demo.crew import ENDED, Worker
from refimpl.demo.stage import Stage
from refimpl.demo.tasks import Hold, Ingest, Told, Watch
from refimpl.table_feature import CATALOG_MANAGED

WRITERS: Final = 3
_SECOND, _THIRD = 1, 2
_KILLED_AT: Final = 1
"""Writer 2 is killed at its second part, if it has one."""


@dataclass(slots=True, kw_only=True)
class _Writer:
    """A writer, and what it has told."""

    worker: Worker
    parts: list[str]
    """What it shall still write."""
    proposal: dict[str, Any] = field(default_factory=dict)
    """The last one."""
    started_race: bool = False


class Ingestion:
    """Run once. `added` tells then which part each version holds."""

    def __init__(self, stage: Stage, *, when_one_is_done: Callable[[], None]) -> None:
        """`when_one_is_done` is called when the first writer has ended by itself: it leaves a processor free."""
        self._stage = stage
        self._when_one_is_done: Callable[[], None] | None = when_one_is_done
        self._owner = stage.warehouse.owner
        self._table_id = self._owner.resolve(stage.table).table_id
        self._writers: dict[str, _Writer] = {}
        self._at_the_start: list[_Writer] = []
        self._watched: dict[str, Any] = {}
        self._never_landed: list[str] = []
        """Staged files of attempts that were resolved so."""
        self.added: dict[int, str] = {}

    def run(self) -> None:
        stage, parts = self._stage, list(self._stage.source.parts)
        stage.display.chapter(
            f"{WRITERS} writers ingest {stage.source.rows:,} rows in {len(parts)} parts through Spark; another reads"
        )
        reader = stage.crew.start("reader", self._watch())
        for number in range(WRITERS):
            mine = parts[number::WRITERS]
            holds = [Hold(part=0, ratified=False)]
            if number == _SECOND:
                holds.append(Hold(part=min(_KILLED_AT, len(mine) - 1), ratified=True))
            self._start(f"writer {number + 1}", mine, holds)
        stage.display.status(f"Spark is starting in {WRITERS} processes")
        self._listen(reader)
        self._check_versions()
        self._check_leftovers()
        self._check_reader()

    def _watch(self) -> Watch:
        source = self._stage.source
        return Watch(
            warehouse=str(self._stage.warehouse.directory),
            table=self._stage.table,
            partition_column=source.partition_column,
            rows={part: totals.rows for part, totals in source.parts.items()},
        )

    def _start(self, name: str, parts: list[str], holds: list[Hold]) -> None:
        source = self._stage.source
        task = Ingest(
            warehouse=str(self._stage.warehouse.directory),
            table=self._stage.table,
            path=str(source.path),
            is_csv=source.is_csv,
            partition_column=source.partition_column,
            parts=parts,
            holds=holds,
        )
        self._writers[name] = _Writer(worker=self._stage.crew.start(name, task), parts=list(parts))

    def _listen(self, reader: Worker) -> None:
        """Until the last writer has ended, and the reader has had its last look."""
        at_work = WRITERS
        for worker, told in self._stage.crew.events():
            self._stage.hear(worker, told)
            if worker is reader:
                self._hear_reader(told)
                if told.what == ENDED:
                    return
                continue
            writer = self._writers.get(worker.name)
            if writer is None:
                continue
            self._hear_writer(writer, told)
            if told.what == ENDED:
                at_work += self._ended(writer) - 1
                if at_work == 0:
                    reader.go()

    def _ended(self, writer: _Writer) -> int:
        """How many processes take the place of one that has ended."""
        if writer.worker.killed:
            return self._go_on(writer)
        if self._when_one_is_done is not None:
            self._when_one_is_done()
            self._when_one_is_done = None
        return 0

    def _hear_reader(self, told: Told) -> None:
        if told.what == "saw":
            facts = told.facts
            self._stage.display.status(
                f"the reader sees version {facts['version']}: {facts['parts']} parts, {facts['rows']:,} rows"
            )
        elif told.what == "watched":
            self._watched = told.facts

    def _hear_writer(self, writer: _Writer, told: Told) -> None:
        name, facts, show = writer.worker.name, told.facts, self._stage.display
        match told.what:
            case "proposing":
                writer.proposal = facts
            case "holding":
                self._hear_holding(writer)
            case "lost":
                show.line(
                    f"{name} lost version {facts['version']} (latest {facts['latest']}): it rebases and stages anew"
                )
            case "committed":
                writer.parts.remove(facts["part"])
                self._record(facts["version"], facts["part"])
                show.line(
                    f"{name} committed version {facts['version']}: {self._part(facts['part'])}, {facts['rows']:,} rows"
                )

    def _hear_holding(self, writer: _Writer) -> None:
        name, version = writer.worker.name, writer.proposal["version"]
        if writer.started_race:
            writer.worker.kill()
            self._stage.display.line(
                f"{name} (process {writer.worker.pid}) is killed: SIGKILL before it heard of version {version}"
            )
            return
        writer.started_race = True
        self._at_the_start.append(writer)
        if len(self._at_the_start) < WRITERS:
            return
        self._stage.display.line(f"{WRITERS} writers have staged version {version}; nobody has proposed it yet")
        third = self._writers[f"writer {_THIRD + 1}"]
        third.worker.kill()
        self._stage.display.line(
            f"{third.worker.name} (process {third.worker.pid}) is killed: SIGKILL with its file staged"
        )
        for other in self._at_the_start:
            other.worker.go()

    def _record(self, version: int, part: str) -> None:
        self.added[version] = part

    def _part(self, part: str) -> str:
        return f"{self._stage.source.partition_column} {part}"

    def _go_on(self, killed: _Writer) -> int:
        """Resolve what the dead writer had proposed, and start another one for what is missing; how many."""
        attempt, version, staged = (killed.proposal[fact] for fact in ("attempt", "version", "staged_file"))
        outcome = self._owner.attempt_outcome(self._table_id, attempt)
        again = self._owner.commit(self._table_id, version, StagedProposal(attempt=attempt, file_name=staged))
        part = killed.parts[0]
        if isinstance(outcome, Landed):
            self._stage.check(
                "killed after the owner's decision",
                f"attempt {attempt[:8]} of {killed.worker.name} landed as version {outcome.commit.version}; "
                f"sent again it is answered the same, and {self._part(part)} is not written twice",
                ok=isinstance(again, Ratified) and again.replayed and again.commit.version == outcome.commit.version,
                attempt=attempt,
                version=outcome.commit.version,
            )
            killed.parts.remove(part)
            self._record(outcome.commit.version, part)
        else:
            refused = isinstance(again, Rejected) and again.reason is RejectionReason.ATTEMPT_RESOLVED
            self._never_landed.append(staged)
            self._stage.check(
                "killed before the owner was asked",
                f"attempt {attempt[:8]} of {killed.worker.name} has not landed and never will: sent late, its version "
                f"{version} is refused ({again.reason.value if isinstance(again, Rejected) else type(again).__name__})",
                ok=refused,
                attempt=attempt,
            )
        if not killed.parts:
            return 0
        self._start(f"{killed.worker.name}b", killed.parts, [])
        self._stage.display.line(f"{killed.worker.name}b goes on with {_count(len(killed.parts), 'part')}")
        return 1

    def _check_versions(self) -> None:
        source, latest = self._stage.source, self._owner.get_commits(self._table_id).latest_ratified_version
        versions = sorted(self.added)
        lost = sum(told.what == "lost" for writer in self._writers.values() for told in writer.worker.heard)
        self._stage.check(
            "every part landed once",
            f"{len(versions)} versions for {len(source.parts)} parts, latest {latest}; "
            f"{lost} lost races were rebased, 2 writers were killed",
            ok=versions == list(range(1, len(source.parts) + 1))
            and sorted(self.added.values()) == sorted(source.parts)
            and latest == len(source.parts)
            and sum(writer.worker.killed for writer in self._writers.values()) == _THIRD,
            lost_races=lost,
        )

    def _check_leftovers(self) -> None:
        """What a killed writer left: data files that no version names."""
        table = self._stage.warehouse.table(self._stage.table)
        active = {add.path for add in table.snapshot().files.values()}
        folder = CATALOG_MANAGED.staging_folder
        left = [
            add.path
            for name in self._never_landed
            for add in actions.decode(table.log.read_staged(folder, name), source=name)
            if isinstance(add, Add)
        ]
        there = [path for path in left if local_path(table.location, path).exists()]
        self._stage.check(
            "what never landed is invisible",
            f"{len(there)} data files of the killed writer lie in the folder beside the {len(active)} of the table; "
            f"the newest version names {len(active & set(left))} of them",
            ok=bool(there) and there == left and active.isdisjoint(left),
        )

    def _check_reader(self) -> None:
        seen = self._watched
        faults = seen["faults"]
        self._stage.check(
            "every snapshot was whole",
            f"{seen['looks']:,} looks, {seen['versions']} different versions read row by row, the last {seen['last']}: "
            + (
                f"{len(faults)} faults, first: {faults[0]}"
                if faults
                else "whole parts only, never fewer, time only forward"
            ),
            ok=not faults and seen["last"] == len(self._stage.source.parts),
            **seen,
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
