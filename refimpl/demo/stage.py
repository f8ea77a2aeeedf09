"""The state that the acts of the demonstration share: processes, warehouse, input, checks and timelines."""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from refimpl.demo.processes import Event, Task, Worker, WorkerPool
from refimpl.demo.source import Source
from refimpl.owner.explain import explain
from refimpl.warehouse import Warehouse

MAIN_PROCESS: Final = "demo"
"""The name of the process that runs the demonstration."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, whether it is true, and the numbers that decided it."""

    name: str
    ok: bool
    detail: str
    facts: dict[str, Any] = {}


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version. Times are ms since the epoch."""

    version: int
    writer: str
    operation: str
    commit_mode: str
    in_commit_timestamp: int
    ratified_at: int
    published_at: int | None
    lost: list[str]
    """The other processes that proposed this version."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All versions of one table."""

    table: str
    feature: str
    backfill: str
    rows: list[TimelineRow]


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
    """Shows events as they happen."""

    def chapter(self, title: str) -> None: ...
    def line(self, text: str) -> None: ...
    def check(self, check: Check) -> None: ...
    def status(self, text: str) -> None:
        """Show a status line, which replaces the previous one."""
        ...


@dataclass(slots=True, kw_only=True)
class Stage:
    pool: WorkerPool
    warehouse: Warehouse
    source: Source
    table: str
    """The name of the table that the writers fill."""
    display: Display
    checks: list[Check] = field(default_factory=list)
    proposers: dict[str, str] = field(default_factory=dict)
    """The name of the process of each attempt, by attempt id."""

    def check(self, name: str, detail: str, *, ok: bool, **facts: Any) -> None:
        """Record a claim and show it. The demonstration continues also if the claim is false."""
        check = Check(name=name, ok=ok, detail=detail, facts=facts)
        self.checks.append(check)
        self.display.check(check)

    def start(self, name: str, kind: type[Task], **facts: Any) -> Worker:
        """Start a process with a task about the table."""
        column, directory = self.source.partition_column, str(self.warehouse.directory)
        return self.pool.start(name, kind(warehouse=directory, table=self.table, partition_column=column, **facts))

    def record(self, worker: Worker, event: Event) -> None:
        if event.kind == "proposing":
            self.proposers[event.facts["attempt"]] = worker.name

    def timeline(self, table: str, operations: dict[int, str]) -> Timeline:
        """All versions of `table`. `operations`: better descriptions than the commitInfo of these versions has."""
        owner = self.warehouse.owner
        resolved = owner.resolve(table)
        latest = resolved.commits.latest_ratified_version
        rows: list[TimelineRow] = []
        for version in range((-1 if latest is None else latest) + 1):
            explained = explain(owner, table, version)
            operation = str(explained.commit_info.get("operation", "-")).lower()
            rows.append(
                TimelineRow(
                    version=version,
                    writer=self.proposers.get(explained.attempt, MAIN_PROCESS),
                    operation=operations.get(version, operation),
                    commit_mode=explained.commit_mode,
                    in_commit_timestamp=explained.in_commit_timestamp,
                    ratified_at=explained.ratified_at,
                    published_at=explained.published_at,
                    lost=[self.proposers.get(attempt, attempt[:8]) for attempt in explained.lost_attempts],
                )
            )
        return Timeline(table=table, feature=resolved.feature_name, backfill=resolved.policy.backfills, rows=rows)


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
