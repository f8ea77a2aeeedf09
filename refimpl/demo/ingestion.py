"""Second act: three writers ingest the parts through Spark at the same time, another process keeps reading,
and two of the writers are killed in the middle of a commit.

All three stage version 1 and propose it at the same moment: one wins, the others rebase. Half-way writer 3
is killed when its file is staged and the owner was not asked yet, and writer 2 when the owner has ratified its
commit and the answer is not there yet. From outside the two look alike. `resolution` asks the owner what
became of them, and the writer that is left takes over what is missing, and only that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from refimpl.demo.crew import ENDED, Worker
from refimpl.demo.resolution import check_leftovers, resolve
from refimpl.demo.stage import Stage, counted
from refimpl.demo.tasks import GO, Hold, Ingest, Told, Watch, word_of_parts

WRITERS: Final = 3
_KILLED_AFTER_DECISION, _KILLED_BEFORE_PROPOSAL = "writer 2", "writer 3"


@dataclass(slots=True, kw_only=True)
class _Writer:
    """A writer, and what it has told."""

    worker: Worker
    parts: list[str]
    """What it shall still write."""
    killed_at: Hold | None
    part: str = ""
    """What it is writing."""
    proposal: dict[str, Any] = field(default_factory=dict)
    """The last one."""
    started: bool = False
    ended: bool = False


class Ingestion:
    """Run once. `added` tells then which part each version holds."""

    def __init__(self, stage: Stage, *, when_one_is_gone: Callable[[], None]) -> None:
        """`when_one_is_gone` is called when the first writer has ended: it leaves a processor free."""
        self._stage = stage
        self._when_one_is_gone: Callable[[], None] | None = when_one_is_gone
        self._writers: dict[str, _Writer] = {}
        self._idle: list[_Writer] = []
        self._missing: list[str] = []
        """Parts that a dead writer has left to others."""
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
            self._start(f"writer {number + 1}", parts[number::WRITERS], half=len(parts) // WRITERS // 2)
        stage.display.status(f"Spark is starting in {WRITERS} processes")
        self._listen(reader)
        self._check_versions()
        check_leftovers(stage, self._never_landed)
        self._check_reader()

    def _watch(self) -> Watch:
        source = self._stage.source
        return Watch(
            warehouse=str(self._stage.warehouse.directory),
            table=self._stage.table,
            partition_column=source.partition_column,
            rows={part: totals.rows for part, totals in source.parts.items()},
        )

    def _start(self, name: str, parts: list[str], *, half: int) -> None:
        source = self._stage.source
        killed_at: Hold | None = None
        if name in (_KILLED_AFTER_DECISION, _KILLED_BEFORE_PROPOSAL):
            killed_at = Hold(part=half, ratified=name == _KILLED_AFTER_DECISION)
        holds = {Hold(part=0, ratified=False), *([killed_at] if killed_at is not None else [])}
        task = Ingest(
            warehouse=str(self._stage.warehouse.directory),
            table=self._stage.table,
            path=str(source.path),
            is_csv=source.is_csv,
            partition_column=source.partition_column,
            parts=parts,
            holds=list(holds),
        )
        worker = self._stage.crew.start(name, task)
        self._writers[name] = _Writer(worker=worker, parts=list(parts), killed_at=killed_at)

    def _listen(self, reader: Worker) -> None:
        """Until the last writer has ended, and the reader has had its last look."""
        for worker, told in self._stage.crew.events():
            self._stage.hear(worker, told)
            if worker is reader:
                self._hear_reader(told)
                if told.what == ENDED:
                    return
            elif worker.name in self._writers:
                self._hear_writer(self._writers[worker.name], told)
                if all(writer.ended for writer in self._writers.values()):
                    reader.say(GO)

    def _hear_reader(self, told: Told) -> None:
        if told.what == "saw":
            parts, rows = counted(told.facts["parts"], "part"), counted(told.facts["rows"], "row")
            self._stage.display.status(f"the reader sees version {told.facts['version']}: {parts}, {rows}")
        elif told.what == "watched":
            self._watched = told.facts

    def _hear_writer(self, writer: _Writer, told: Told) -> None:
        name, facts, show = writer.worker.name, told.facts, self._stage.display
        match told.what:
            case "writing":
                writer.part = facts["part"]
            case "proposing":
                writer.proposal = facts
            case "holding":
                self._hear_holding(writer)
            case "lost":
                show.line(f"{name} lost version {facts['version']} (the latest is {facts['latest']}) and rebases")
            case "committed":
                self._record(writer, facts["version"])
                rows = counted(facts["rows"], "row")
                show.line(f"{name} committed version {facts['version']}: {self._label(facts['part'])}, {rows}")
            case "idle":
                self._idle.append(writer)
                self._hand_out()
            case _ if told.what == ENDED:
                self._hear_end(writer)

    def _hear_holding(self, writer: _Writer) -> None:
        """At the start all wait for all; later a writer stands still only to be killed."""
        if writer.started:
            self._kill(writer)
            return
        writer.started = True
        if not all(other.started for other in self._writers.values()):
            return
        version = writer.proposal["version"]
        self._stage.display.line(f"{WRITERS} writers have staged version {version}, and now all propose it")
        for other in self._writers.values():
            if other.killed_at == Hold(part=0, ratified=False):
                self._kill(other)
            else:
                other.worker.say(GO)

    def _kill(self, writer: _Writer) -> None:
        worker, version = writer.worker, writer.proposal["version"]
        worker.kill()
        assert writer.killed_at is not None
        when = "before it heard what became" if writer.killed_at.ratified else "before it proposed what it had staged"
        self._stage.display.line(f"{worker.name} (process {worker.pid}) gets SIGKILL {when} of version {version}")

    def _hear_end(self, writer: _Writer) -> None:
        writer.ended = True
        if writer.worker.killed:
            landed, staged_file = resolve(self._stage, writer.worker.name, writer.proposal, self._label(writer.part))
            if landed is not None:
                self._record(writer, landed)
            else:
                self._never_landed.append(staged_file)
            self._missing += writer.parts
            self._hand_out()
        if self._when_one_is_gone is not None:
            self._when_one_is_gone()
            self._when_one_is_gone = None

    def _hand_out(self) -> None:
        """What dead writers left goes to one that has done its own; when nothing can be left any more, all go home."""
        if self._missing and self._idle:
            heir = self._idle.pop(0)
            labels = ", ".join(self._label(part) for part in self._missing)
            self._stage.display.line(f"{heir.worker.name} takes over {labels}")
            heir.parts += self._missing
            heir.worker.say(word_of_parts(self._missing))
            self._missing = []
        elif len(self._idle) == sum(not writer.ended for writer in self._writers.values()):
            for writer in self._idle:
                writer.worker.say(word_of_parts([]))
            self._idle = []

    def _record(self, writer: _Writer, version: int) -> None:
        self.added[version] = writer.part
        writer.parts.remove(writer.part)

    def _label(self, part: str) -> str:
        return f"{self._stage.source.partition_column} {part}"

    def _check_versions(self) -> None:
        source, writers = self._stage.source, self._writers.values()
        latest = self._stage.warehouse.owner.resolve(self._stage.table).commits.latest_ratified_version
        lost = sum(told.what == "lost" for writer in writers for told in writer.worker.heard)
        killed = sum(writer.worker.killed for writer in writers)
        self._stage.check(
            "every part landed once",
            f"{len(self.added)} versions for {len(source.parts)} parts, the latest is {latest}; "
            f"{counted(lost, 'lost race')} rebased, {killed} writers killed",
            ok=sorted(self.added) == list(range(1, len(source.parts) + 1))
            and sorted(self.added.values()) == sorted(source.parts)
            and latest == len(source.parts)
            and killed == WRITERS - 1,
            lost_races=lost,
        )

    def _check_reader(self) -> None:
        seen, faults = self._watched, self._watched["faults"]
        found = "whole parts only, never fewer, time only forward"
        if faults:
            found = f"{counted(len(faults), 'fault')}, the first: {faults[0]}"
        self._stage.check(
            "every snapshot was whole",
            f"{counted(seen['looks'], 'look')}, {counted(seen['versions'], 'version')} read row by row, "
            f"the last was {seen['last']}: {found}",
            ok=not faults and seen["last"] == len(self._stage.source.parts),
            **seen,
        )
