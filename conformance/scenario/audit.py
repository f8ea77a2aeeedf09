"""The kit's own owner checks every proposal of a client under test, more strictly than an owner must. Each finding is a
violation in any scenario. A commit that landed is also compared with its neighbours in the log; a rejected one is
checked by itself only."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.models.proposals import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, TIMESTAMPS
from conformance.models.proposals import lines as lines_of

OWNER: Final = "delta.managedCommit.commitOwner"
OWNER_CONF: Final = "delta.managedCommit.commitOwnerConf"


@dataclass(slots=True, kw_only=True)
class Proposed:
    """A proposal as the owner received it."""

    operation: int
    """The number of the client's operation in the history."""
    request: m.Commit | m.CreateTable | m.TakeOver | m.HandBack
    lines: tuple[str, ...] | None
    """Its actions; None if the file that it names could not be read."""
    landed: int | None = None
    """The version as which it was ratified."""
    refused: bool = False
    """Whether the answer was a final refusal (not `retryable`)."""
    files: tuple[Path, ...] = ()
    """Its data files that existed when it was answered, before the client got the answer."""
    late: tuple[Path, ...] = ()
    """Its data files that did not exist then, but at the end of the client's operation."""

    @property
    def version(self) -> int:
        return getattr(self.request, "version", 0)

    def named(self) -> str:
        return f"attempt {self.request.attempt} of version {self.version}"


class Problem(NamedTuple):
    """A finding about a proposal."""

    requirements: tuple[str, ...]
    expected: str
    observed: str


@dataclass(slots=True, kw_only=True)
class Before:
    """The table before a proposal."""

    timestamp: int | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int | None] = field(default_factory=dict)
    """`txnId`s of all commits so far, each with the operation of the client under test that committed it first."""
    lost: bool = False
    """Whether the client lost a race for an earlier version with the same operation."""

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.metadata.get("configuration") or {})


def of_one(proposed: Proposed, feature: str, commit_mode: str) -> Iterator[Problem]:
    """Findings about a single proposal."""
    if proposed.lines is None:
        yield Problem(
            ("MC-WRITE-02", "CM-WRITE-03"),
            "a proposal names a complete file in the staging folder of the table's feature",
            f"{proposed.named()} names {getattr(proposed.request, 'staged_file', None)!r}, which does not exist",
        )
        return
    if commit_mode != "staged" and getattr(proposed.request, "staged_file", None) is not None:
        yield Problem(
            ("MC-WRITE-02", "CM-WRITE-03"),
            f"the owner requires the commit mode {commit_mode} for this table",
            f"{proposed.named()} was staged",
        )
    actions = _parsed(proposed.lines)
    if actions is None:
        yield Problem(
            ("PROFILE-CLIENT-02",),
            "one JSON object with one action on each line",
            f"{proposed.named()}: {proposed.lines}",
        )
        return
    if feature != FILESYSTEM:  # a plain table has no in-commit timestamps
        yield from _commit_info(proposed, actions, feature)
    yield from _files(proposed, actions)


def _commit_info(proposed: Proposed, actions: Sequence[Mapping[str, Any]], feature: str) -> Iterator[Problem]:
    infos = [index for index, action in enumerate(actions) if "commitInfo" in action]
    if not infos:
        yield Problem(("ICT-05",), "every commit has a commitInfo", f"{proposed.named()} has none")
        return
    if infos[0] != 0:
        yield Problem(
            ("ICT-06",),
            "commitInfo is the first action of its commit",
            f"in {proposed.named()} it is action {infos[0]}",
        )
    info = actions[infos[0]]["commitInfo"]
    timestamp = info.get("inCommitTimestamp")
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        yield Problem(
            ("ICT-07",),
            "inCommitTimestamp is a long, in ms since the epoch",
            f"in {proposed.named()} it is {timestamp!r}",
        )
    if feature == "catalogManaged" and not isinstance(info.get("txnId"), str):
        yield Problem(
            ("CM-TXNID-01",), "every commitInfo has a txnId", f"in {proposed.named()} it is {info.get('txnId')!r}"
        )


def _files(proposed: Proposed, actions: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for action in actions:
        for body in (action.get("add"), action.get("remove")):
            if body is None:
                continue
            file = (body.get("path"), json.dumps(body.get("deletionVector")))
            if file in seen:
                yield Problem(
                    ("DELAYED-10",), "a commit names every file once", f"{proposed.named()} names {file[0]!r} twice"
                )
            seen.add(file)


def of_a_commit(proposed: Proposed, before: Before, feature: str) -> Iterator[Problem]:
    """Findings about a proposal that landed, compared with the versions before it."""
    actions = _parsed(proposed.lines or ())
    if actions is None:
        return
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    timestamp = info.get("inCommitTimestamp")
    if isinstance(timestamp, int) and before.timestamp is not None and timestamp <= before.timestamp:
        yield Problem(
            ("ICT-14", "ICT-08") if before.lost else ("ICT-08",),
            f"the in-commit timestamp of version {proposed.version} is greater than {before.timestamp}, that of the "
            f"previous version" + (", which won the race that the writer lost" if before.lost else ""),
            f"it is {timestamp}",
        )
    name = str(info.get("txnId"))
    # A transaction that is committed twice has one txnId: that is another violation.
    if feature == "catalogManaged" and before.transactions.get(name, proposed.operation) != proposed.operation:
        yield Problem(("CM-TXNID-02",), "no two transactions share a txnId", f"{proposed.named()} has {name!r} too")
    protocol = next((action["protocol"] for action in actions if "protocol" in action), before.protocol)
    metadata = next((action["metaData"] for action in actions if "metaData" in action), before.metadata)
    properties = dict(metadata.get("configuration") or {})
    if isinstance(proposed.request, m.HandBack):
        yield from _handed_back(proposed, protocol, properties)
    else:
        yield from _owned(proposed, feature, protocol, properties, before)


def _owned(
    proposed: Proposed, feature: str, protocol: Mapping[str, Any], properties: Mapping[str, str], before: Before
) -> Iterator[Problem]:
    """managed-commits and catalog-managed, "Enablement"; in-commit timestamps, "Writer Requirements"."""
    at = f"after version {proposed.version}"
    writer = protocol.get("writerFeatures") or ()
    if protocol.get("minWriterVersion") != 7:
        observed = f"{at} it is {protocol.get('minWriterVersion')}"
        yield Problem(("MC-ENABLE-01", "CM-ENABLE-01", "ICT-03"), "writer version 7", observed)
    if feature not in writer or (feature == "catalogManaged" and feature not in (protocol.get("readerFeatures") or ())):
        yield Problem(
            ("MC-ENABLE-02", "CM-ENABLE-02"), f"the protocol lists the feature {feature}", f"{at}: {dict(protocol)}"
        )
    if feature == "catalogManaged" and protocol.get("minReaderVersion") != 3:
        yield Problem(("CM-ENABLE-01",), "reader version 3", f"{at} it is {protocol.get('minReaderVersion')}")
    if "inCommitTimestamp" not in writer and "inCommitTimestamps" not in writer:
        yield Problem(
            ("ICT-03", "MC-WRITE-01", "CM-WRITE-02"), "the protocol lists inCommitTimestamp", f"{at}: {dict(protocol)}"
        )
    if properties.get(TIMESTAMPS, "").lower() != "true":
        yield Problem(
            ("ICT-04", "MC-WRITE-01", "CM-WRITE-02"), f"{TIMESTAMPS} is true", f"{at}: {properties.get(TIMESTAMPS)!r}"
        )
    yield from _kept(proposed, feature, properties, before)


def _kept(proposed: Proposed, feature: str, properties: Mapping[str, str], before: Before) -> Iterator[Problem]:
    """Findings about properties that a writer must not remove."""
    at = f"after version {proposed.version}"
    if feature == "managedCommit" and isinstance(proposed.request, m.Commit):
        if not properties.get(OWNER):
            yield Problem(
                ("MC-ENABLE-09", "MC-ENABLE-03"), f"the feature stays together with the property {OWNER}", f"{at}: none"
            )
        if properties.get(OWNER_CONF) != before.properties.get(OWNER_CONF):
            yield Problem(
                ("MC-ENABLE-07",), f"{OWNER_CONF} is opaque and stays {before.properties.get(OWNER_CONF)!r}",
                f"{at}: {properties.get(OWNER_CONF)!r}",
            )  # fmt: skip
    enabled = before.properties.get(TIMESTAMPS, "").lower() == "true"  # otherwise they are of an earlier owner
    for name in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP) if enabled else ():
        if name in before.properties and properties.get(name) != before.properties[name]:
            yield Problem(("ICT-21",), f"{name} stays {before.properties[name]}", f"{at}: {properties.get(name)!r}")


def _handed_back(proposed: Proposed, protocol: Mapping[str, Any], properties: Mapping[str, str]) -> Iterator[Problem]:
    """managed-commits, "Converting a managed-commit table to filesystem table"."""
    features = {*(protocol.get("writerFeatures") or ()), *(protocol.get("readerFeatures") or ())}
    if features & {"managedCommit", "catalogManaged"} or OWNER in properties or OWNER_CONF in properties:
        yield Problem(
            ("MC-RELEASE-01",), "one commit removes the owner's properties and the feature",
            f"after version {proposed.version}: {sorted(features)}, {dict(properties)}",
        )  # fmt: skip


def data_files(lines: Sequence[str], kinds: Sequence[str], location: Path) -> set[Path]:
    """The files that actions of these kinds name, in any folder."""
    paths = [action[kind].get("path") for action in _parsed(lines) or () for kind in kinds if kind in action]
    return {location / unquote(path).removeprefix("file://") for path in paths if isinstance(path, str)}


def of_data_files(proposed: Proposed, removed: Set[Path]) -> Iterator[Problem]:
    """Findings about the data files of a proposal that landed. `removed`: what later versions remove."""
    for missing in sorted(path for path in proposed.files if path not in removed and not path.exists()):
        yield Problem(
            ("LOG-37", "PROFILE-UNKNOWN-03"),
            f"a data file of version {proposed.version}, which no later version removes, is not deleted, even if its "
            f"writer does not know the outcome",
            f"the data file {missing.name!r} existed when {proposed.named()} was ratified, and was deleted later",
        )
    for late in proposed.late[:1]:
        yield Problem(
            ("DELAYED-01", "DELAYED-03"), f"the data files of version {proposed.version} exist before it is proposed",
            f"the data file {late.name!r} was written after {proposed.named()} was ratified",
        )  # fmt: skip


def of_all(proposals: Sequence[Proposed]) -> Iterator[tuple[Proposed, Problem]]:
    """Findings about all proposals of a scenario."""
    first: dict[str, Proposed] = {}
    for proposed in proposals:
        known = first.setdefault(proposed.request.attempt, proposed)
        if known is proposed:
            continue
        if known.version != proposed.version:
            reused = f"{known.named()} was proposed again as version {proposed.version}"
        elif known.lines != proposed.lines:
            reused = f"{known.named()} was proposed again with other content"
        elif known.refused and not isinstance(proposed.request, m.CreateTable):  # a creation has no staged file
            reused = f"{known.named()} was proposed again after its rejection"
        else:
            continue
        yield (
            proposed,
            Problem(
                ("CONFLICT-RETRY-07", "CM-LOG-06", "PROFILE-CLIENT-02"),
                "another proposal is a new attempt with its own staged file; only the identical request may be sent "
                "again, while its outcome is unknown or after a retryable rejection",
                reused,
            ),
        )


def _parsed(lines: Sequence[str]) -> list[Mapping[str, Any]] | None:
    try:
        actions = [json.loads(line) for line in lines]
    except ValueError:
        return None
    return actions if all(isinstance(action, dict) and len(action) == 1 for action in actions) else None


def after(before: Before, content: str, operation: int | None) -> Before:
    """Apply the next version to the table. `operation` is that of the client under test, if it committed the
    version."""
    protocol, metadata = before.protocol, before.metadata
    info: Mapping[str, Any] = {}
    for action in _parsed(lines_of(content)) or ():
        protocol = action.get("protocol", protocol)
        metadata = action.get("metaData", metadata)
        info = action.get("commitInfo", info)
    timestamp = info.get("inCommitTimestamp")
    enabled = (metadata.get("configuration") or {}).get(TIMESTAMPS, "").lower() == "true"
    return Before(
        timestamp=timestamp if isinstance(timestamp, int) and enabled else before.timestamp,
        protocol=protocol,
        metadata=metadata,
        transactions={str(info["txnId"]): operation, **before.transactions} if "txnId" in info else before.transactions,
    )
