"""Version checksums `<v>.crc`: an independent summary of a version, which is compared with the log, not trusted.

Delta's protocol, "Version Checksum File". DELTA.md#checksum-disagrees: a corrupt checksum is ignored; one that parses
and disagrees is reported. Spark writes them, so they are a second opinion on our replay.
"""

from typing import Any, Final

import msgspec

from refimpl.log.table_state import ReplayedState
from refimpl.protocol.actions import DomainMetadata, Metadata, Protocol, Txn
from refimpl.schema.properties import oldest_transaction

_ENCODER: Final = msgspec.json.Encoder()


def encode(state: ReplayedState, in_commit_timestamp: int | None, now: int) -> bytes:
    """The bytes of `<v>.crc`, without expired transactions of applications. `now`: ms since the epoch."""
    assert state.metadata is not None
    transactions = state.transactions_after(oldest_transaction(state.metadata, now))
    fields: dict[str, Any] = {
        "tableSizeBytes": state.size_in_bytes,
        "numFiles": len(state.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": list(transactions.values()),
        "domainMetadata": list(state.domains.values()),
        "metadata": state.metadata,
        "protocol": state.protocol,
    }
    if in_commit_timestamp is not None:
        fields["inCommitTimestampOpt"] = in_commit_timestamp
    return _ENCODER.encode(fields)


class Checksum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of `<v>.crc` that are compared; any of them may be absent."""

    table_size_bytes: int | None = None
    num_files: int | None = None
    in_commit_timestamp_opt: int | None = None
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None


_DECODER = msgspec.json.Decoder(Checksum)


def parse(content: bytes) -> Checksum | None:
    """Decode a checksum file; None if it is invalid."""
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def disagreements(checksum: Checksum, state: ReplayedState, in_commit_timestamp: int | None, now: int) -> list[str]:
    """Differences between the checksum and the replayed state, one sentence each. Transactions of applications that
    have expired may be missing. `now`: ms since the epoch."""
    sentences: list[str] = []

    def compare(what: str, stated: object, replayed: object) -> None:
        if stated is not None and stated != replayed:
            sentences.append(f"its {what} is {stated}, the log's is {replayed}")

    compare("number of files", checksum.num_files, len(state.files))
    compare("number of bytes", checksum.table_size_bytes, state.size_in_bytes)
    if in_commit_timestamp is not None:
        compare("in-commit timestamp", checksum.in_commit_timestamp_opt, in_commit_timestamp)
    if checksum.protocol is not None and _unordered(checksum.protocol) != _unordered(state.protocol):
        sentences.append(f"its protocol is {checksum.protocol}, the log's is {state.protocol}")
    if checksum.metadata is not None and checksum.metadata != state.metadata:
        sentences.append("its metadata differ from the log's")
    if checksum.set_transactions is not None:
        oldest = None if state.metadata is None else oldest_transaction(state.metadata, now)
        live = state.transactions_after(oldest)
        expired = state.transactions.keys() - live.keys()
        stated_versions = {txn.app_id: txn.version for txn in checksum.set_transactions if txn.app_id not in expired}
        versions = {txn.app_id: txn.version for txn in live.values()}
        compare("record of application transactions", stated_versions, versions)
    if checksum.domain_metadata is not None:
        stated_domains = {d.domain: d.configuration for d in checksum.domain_metadata if not d.removed}
        domains = {d.domain: d.configuration for d in state.domains.values()}
        compare("record of metadata domains", stated_domains, domains)
    return sentences


def _unordered(protocol: Protocol | None) -> object:
    """Feature lists are sets: their order has no meaning."""
    if protocol is None:
        return None
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    return versions, frozenset(protocol.reader_features or ()), frozenset(protocol.writer_features or ())
