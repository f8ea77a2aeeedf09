"""The history of one version: each step, with its reason and the rule behind it."""

from typing import Any

import msgspec

from refimpl.care.owner import LOST_ATTEMPTS, WatchedOwner
from refimpl.owner.records import TableRecord
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commits import AttemptId, RatifiedCommit
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.log_store import LogStore


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what happened, the numbers, and the passage of the documents that requires it."""

    title: str
    facts: dict[str, Any]
    why: str
    source: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one version; times are ms since the epoch."""

    table: str
    version: Version
    attempt: AttemptId
    commit_mode: str
    in_commit_timestamp: int
    ratified_at: int
    published_at: int | None
    lost_attempts: list[AttemptId]
    commit_info: dict[str, Any]
    steps: list[Step]


_PROPOSED = {
    CommitMode.STAGED: "The bytes are in a staged file, durable before it was proposed; the owner stores its name.",
    CommitMode.INLINE: "The bytes were sent to the owner, which stores them until they are published.",
    CommitMode.DIRECT: "The owner recorded a promise durably, then linked the file: the link is the commit.",
}
_PROPOSED_SOURCE = {
    CommitMode.STAGED: 'catalog-managed, "Commit Protocol", option 1; managed-commits, "Commit Protocol", choice 1',
    CommitMode.INLINE: 'catalog-managed, "Commit Protocol", option 2',
    CommitMode.DIRECT: 'catalog-managed, "Commit Protocol", option 3; managed-commits, "Commit Protocol", choice 2',
}


def explain(owner: WatchedOwner, reference: str, version: Version) -> Explanation:
    """The explanation of a ratified version. Raises `InvalidRequestError` for any other version."""
    log_path.checked(version)
    table_id = owner.resolve(reference).table_id
    with owner.ledger.read() as view:
        table = owner.required(view, table_id)
        details = view.commit_details(table, version)
        before = view.commit_details(table, version - 1) if version > 0 else None
        lost: dict[AttemptId, int] = dict(view.rows(tuple, LOST_ATTEMPTS, (table.key, version)))
    if details is None:
        raise InvalidRequestError(_no_such_version(table, version), version=version, latest=table.latest)
    commit, digest, published_at = details
    log = owner.log(table)
    lost |= _staged_losers(log, table, commit)
    info = _commit_info(log, table, commit)
    return Explanation(
        table=table.name or table.table_id,
        version=version,
        attempt=commit.attempt,
        commit_mode=commit.commit_mode.value,
        in_commit_timestamp=commit.in_commit_timestamp,
        ratified_at=commit.ratified_at,
        published_at=published_at,
        lost_attempts=sorted(lost, key=lambda attempt: (lost[attempt], attempt)),
        commit_info=info,
        steps=[
            _proposed(commit, digest, info),
            _timestamped(commit, None if before is None else before[0], info),
            _decided(commit, lost),
            _ratified(commit),
            _published(table, commit, published_at),
        ],
    )


def _no_such_version(table: TableRecord, version: Version) -> str:
    if table.latest is None or version > table.latest:
        return f"version {version} of {table.label} is not ratified; the latest is {table.latest}"
    return f"version {version} of {table.label} was committed before this owner took the table over"


def _staged_losers(log: LogStore, table: TableRecord, commit: RatifiedCommit) -> dict[AttemptId, int]:
    """Staged files for the version other than the commit: they lost, or were never proposed."""
    return {
        path.uuid: path.modified
        for path in log.staged_listing(table.feature.staging_folder)
        if path.version == commit.version and path.uuid is not None and path.uuid != commit.attempt
    }


def _commit_info(log: LogStore, table: TableRecord, commit: RatifiedCommit) -> dict[str, Any]:
    try:
        if commit.content is not None:
            content = commit.content
        elif commit.file_name is not None:
            content = log.read_staged(table.feature.staging_folder, commit.file_name)
        else:
            content = log.read(log_path.commit(commit.version))
    except FileNotFoundError:  # removed by metadata cleanup
        return {}
    parsed = actions.decode(content, source=f"version {commit.version}")
    return parsed[0].fields if parsed and isinstance(parsed[0], CommitInfo) else {}


def _proposed(commit: RatifiedCommit, digest: bytes, info: dict[str, Any]) -> Step:
    facts = {
        "attempt": commit.attempt,
        "commit_mode": commit.commit_mode.value,
        "bytes": commit.size,
        "sha256": digest.hex(),
        "operation": info.get("operation"),
        "by": info.get("engineInfo"),
        "txnId": info.get("txnId"),
    }
    return Step(
        title="proposed",
        facts={key: value for key, value in facts.items() if value is not None},
        why=_PROPOSED[commit.commit_mode],
        source=_PROPOSED_SOURCE[commit.commit_mode],
    )


def _timestamped(commit: RatifiedCommit, before: RatifiedCommit | None, info: dict[str, Any]) -> Step:
    previous = None if before is None else before.in_commit_timestamp
    if previous is None:
        why = "This owner has no earlier commit: the timestamp is the clock's, or the one before in the log plus 1 ms."
    elif commit.in_commit_timestamp == previous + 1 and info.get("timestamp") != commit.in_commit_timestamp:
        why = "The writer's clock was not later than the previous timestamp: the new one is the previous one plus 1 ms."
    else:
        why = "The writer's clock was later than the previous timestamp: the new one is the clock's."
    facts = {"inCommitTimestamp": commit.in_commit_timestamp, "previous": previous, "clock": info.get("timestamp")}
    return Step(
        title="in-commit timestamp",
        facts={key: value for key, value in facts.items() if value is not None},
        why=why,
        source='in-commit timestamps, "Writer Requirements for In-Commit Timestamps"',
    )


def _decided(commit: RatifiedCommit, lost: dict[AttemptId, int]) -> Step:
    others = "there was no other proposal" if not lost else f"{len(lost)} other proposals lost"
    if commit.version == 0:
        before: dict[str, Any] = {}
        why = f"The table had no version yet, and its name was free; {others}."
    else:
        before = {"previous version": commit.version - 1}
        why = f"The previous version was ratified, and this one was not yet; {others}."
    return Step(
        title="decided",
        facts=before | ({"lost attempts": sorted(lost)} if lost else {}),
        why=why,
        source='managed-commits and catalog-managed, "Commit Protocol"',
    )


_RATIFIED = {
    CommitMode.STAGED: "One transaction of the ledger recorded the file's name; from then on, the commit is ratified.",
    CommitMode.INLINE: "One transaction of the ledger recorded the bytes; from then on, the commit is ratified.",
    CommitMode.DIRECT: "The file became visible; from then on, the commit is ratified, before the owner records it.",
}


def _ratified(commit: RatifiedCommit) -> Step:
    return Step(
        title="ratified",
        facts={"at": commit.ratified_at, "version": commit.version},
        why=_RATIFIED[commit.commit_mode],
        source='managed-commits and catalog-managed, "Commit Protocol"',
    )


def _published(table: TableRecord, commit: RatifiedCommit, published_at: int | None) -> Step:
    if published_at is not None and commit.commit_mode is CommitMode.DIRECT:
        why, facts = (
            "It was published from the start; the owner keeps its attempt id permanently.",
            {"at": published_at},
        )
    elif published_at is not None:
        why, facts = (
            "Copied to the log in order, durably; the owner keeps its attempt id permanently.",
            {"at": published_at},
        )
    else:
        when = table.policy.backfills
        why, facts = f"Not published yet: this owner backfills {when}. Readers get it from the owner.", {}
    return Step(
        title="backfilled",
        facts=facts | {"file": log_path.commit(commit.version)},
        why=why,
        source='managed-commits, "Commit Backfills"; catalog-managed, "Publishing Commits"',
    )
