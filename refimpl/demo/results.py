"""What the demonstration finds: checks with their numbers, and the timelines of its tables."""

from __future__ import annotations

from typing import Any

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, whether it holds, and the numbers that were computed for it."""

    name: str
    ok: bool
    detail: str
    facts: dict[str, Any] = {}


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version. Times are ms since the epoch."""

    version: int
    who: str
    did: str
    commit_mode: str
    in_commit_timestamp: int
    ratified_at: int
    published_at: int | None
    lost: list[str]
    """Who else proposed this version and did not get it."""


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
