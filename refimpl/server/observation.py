"""What happened: one structured line for each request, and counters for Prometheus.

Neither ever holds a header or a body: a token cannot get into them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from refimpl.owner.records import TableRecord
from refimpl.server.messages import AddCommit

logger = logging.getLogger("refimpl.server")

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is known of a request so far."""

    route: str
    method: str
    deadline: float
    """When it is to be answered at the latest, by the monotonic clock."""
    admitted: bool = False
    """Whether it passed the access check."""
    caller: str | None = None
    path: dict[str, str] = field(default_factory=dict)
    commit: Any = None
    """The updates of an update."""
    error: str | None = None
    message: str | None = None

    @property
    def version(self) -> int | None:
        """The version that it proposed."""
        added = next((update for update in self.commit or () if isinstance(update, AddCommit)), None)
        return None if added is None else added.commit.version


class Observation:
    """The counters of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "commit_owner_requests", "Requests by call and status", ["call", "status"], registry=registry
        )
        self._seconds = Histogram(
            "commit_owner_request_seconds", "Time to answer", ["call"], buckets=_BUCKETS, registry=registry
        )
        self._commits = Counter("commit_owner_commits", "Proposals that landed, replays included", registry=registry)
        self._conflicts = Counter(
            "commit_owner_conflicts", "Proposals that lost a race or met another etag", registry=registry
        )
        self._backlog = Gauge(
            "commit_owner_unpublished_commits", "Ratified commits that wait to be published", ["table"],
            registry=registry,
        )  # fmt: skip
        self._tables = Gauge("commit_owner_tables", "Live tables", registry=registry)
        self._halted = Gauge(
            "commit_owner_halted_tables", "Tables that take no commits until somebody looks", registry=registry
        )

    def answered(self, seen: Seen, status: int, seconds: float) -> None:
        """Count and log an answer."""
        self._requests.labels(seen.route, str(status)).inc()
        self._seconds.labels(seen.route).observe(seconds)
        if seen.version is not None:
            if status == 200:
                self._commits.inc()
            elif status == 409:
                self._conflicts.inc()
        if not logger.isEnabledFor(logging.INFO):
            return
        told = {
            "call": seen.route,
            "method": seen.method,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "caller": seen.caller,
            "on": ".".join(seen.path.values()) or None,
            "version": seen.version,
            "error": seen.error,
            "message": seen.message if status >= 500 else None,
        }
        logger.log(
            logging.WARNING if status >= 500 else logging.INFO,
            "%s",
            line({key: value for key, value in told.items() if value is not None}),
        )

    def defect(self, seen: Seen, error: Exception) -> None:
        """An error that nobody expected: with its traceback, in the log only."""
        logger.error("%s", line({"call": seen.route, "defect": type(error).__name__}), exc_info=error)

    def exposition(self, tables: Sequence[TableRecord]) -> bytes:
        """Everything in Prometheus' text format, with what the ledger says now of the live tables."""
        self._backlog.clear()
        for table in tables:
            self._backlog.labels(table.name or table.table_id).set(table.backlog)
        self._tables.set(len(tables))
        self._halted.set(sum(table.halted is not None for table in tables))
        return generate_latest(self._registry)


def line(told: dict[str, Any]) -> str:
    """One line of JSON."""
    return msgspec.json.encode(told).decode()
