"""The life of each version, as the owner's ledger and the log tell it."""

from __future__ import annotations

from refimpl.demo.results import Timeline, TimelineRow
from refimpl.demo.stage import HERE, Stage
from refimpl.owner.explain import Explanation, explain


def timeline(stage: Stage, table: str, did: dict[int, str]) -> Timeline:
    """All versions of `table`. `did`: what a version did, where its commitInfo does not say enough."""
    resolved = stage.warehouse.owner.resolve(table)
    every = resolved.policy.backfill_every
    latest = resolved.commits.latest_ratified_version
    rows: list[TimelineRow] = []
    for version in range((-1 if latest is None else latest) + 1):
        told = explain(stage.warehouse.owner, table, version)
        rows.append(
            TimelineRow(
                version=version,
                who=stage.proposers.get(told.attempt, HERE),
                did=did.get(version) or _operation(told),
                commit_mode=told.commit_mode,
                in_commit_timestamp=told.in_commit_timestamp,
                ratified_at=told.ratified_at,
                published_at=told.published_at,
                lost=[stage.proposers.get(attempt, attempt[:8]) for attempt in told.lost_attempts],
            )
        )
    return Timeline(
        table=table,
        feature=resolved.feature_name,
        backfill="on request" if every is None else f"after every {every}",
        rows=rows,
    )


def _operation(told: Explanation) -> str:
    return str(told.commit_info.get("operation", "-")).lower()
