"""The bytes of a commit: actions encoded once, stamped anew for every try.

in-commit timestamps, rules 2 to 4; catalog-managed, "Commit Provenance Information".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from refimpl import __version__
from refimpl.actions import Action, CommitInfo, Metadata, encode
from refimpl.client.in_commit_timestamp import stamp_enablement
from refimpl.errors import InvalidRequestError
from refimpl.log_path import Version

ENGINE_INFO = f"delta-commit-owner/{__version__}"


def commit_info(
    *,
    txn_id: str,
    timestamp: int,
    operation: str,
    parameters: Mapping[str, Any],
    read_version: Version | None,
    isolation: str,
    blind_append: bool,
    metrics: Mapping[str, str] | None = None,
) -> CommitInfo:
    """The provenance of a commit, without its in-commit timestamp. `timestamp`: wall clock in ms."""
    fields: dict[str, Any] = {"timestamp": timestamp, "operation": operation, "operationParameters": dict(parameters)}
    if read_version is not None:
        fields["readVersion"] = read_version
    fields |= {"isolationLevel": isolation, "isBlindAppend": blind_append}
    if metrics:
        fields["operationMetrics"] = dict(metrics)
    return CommitInfo(fields | {"engineInfo": ENGINE_INFO, "txnId": txn_id})


class CommitBytes:
    """One transaction as newline-delimited JSON, for any version and time.

    `enables`: the metadata of a commit that turns in-commit timestamps on; it carries version and time too.
    Raises `InvalidRequestError` for what JSON cannot hold.
    """

    def __init__(self, info: CommitInfo, actions: Sequence[Action], *, enables: Metadata | None = None) -> None:
        self._info = info
        self._enables = enables
        self._rest = _encoded([action for action in actions if enables is None or not isinstance(action, Metadata)])

    def stamped(self, version: Version, timestamp: int | None) -> bytes:
        """The commit of `version` at `timestamp`, ms since the epoch; None where the table has no such time."""
        if timestamp is None:
            return _encoded([self._info]) + self._rest
        first: list[Action] = [CommitInfo({"inCommitTimestamp": timestamp, **self._info.fields})]
        if self._enables is not None:
            first.append(stamp_enablement(self._enables, version=version, timestamp=timestamp))
        return _encoded(first) + self._rest


def _encoded(actions: Sequence[Action]) -> bytes:
    try:
        return encode(actions)
    except (TypeError, ValueError, msgspec.EncodeError) as error:
        raise InvalidRequestError(f"an action of this commit cannot be written as JSON: {error}") from error
