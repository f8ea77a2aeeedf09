"""All rules for committing, in one place and in the order of evaluation.

examine: (table feature, version, proposal, its bytes)     -> Examined       the parsed bytes
decide:  (table, Examined, the recorded attempt)           -> Ratify | Outcome

No I/O, no clock, no randomness. `Ratify` is only a decision: it takes effect when the ledger records it.

The order of `decide`, with its reasons. `admission` applies 1 to 4: the caller looks up what the later rules need only
for a proposal that passes these.
1. an attempt that landed gets the same answer again, even if the table changed since;
2. an attempt that was resolved as not landed stays so;
3. a table that accepts no commits answers why;
4. the version is taken, or too high. This comes before the content, because a proposal that lost is rebased, and its
content changes then;
5. the content;
6. room in the backlog.
The rules for a commit that starts or ends ownership follow below it: registration, adoption, take-over, hand-back.
A catalog's requests have more rules: `served.catalog_requests`.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from refimpl.owner import records
from refimpl.owner.records import AttemptRecord, Examined, TableRecord, unknown_attempt
from refimpl.protocol import actions, commits, log_path, table_feature
from refimpl.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import (
    COMMIT_MODE_OF,
    AttemptId,
    Conflict,
    Outcome,
    Proposal,
    Ratified,
    Rejected,
    RejectionReason,
    StagedProposal,
    VersionGap,
    is_attempt_id,
)
from refimpl.protocol.errors import CorruptionError, CorruptLogError, OutcomeUnknown
from refimpl.protocol.log_path import Version
from refimpl.protocol.owner_conf import conf_flaw

Current = tuple[Protocol, Metadata]
"""A table's protocol and metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratify:
    """The proposal wins `version`."""

    examined: Examined


def message_flaw(version: Version, proposal: Proposal) -> Rejected | None:
    """What is wrong with the message itself; reads no table.

    managed-commits, "Commit Files", and catalog-managed, "Staged commit": the name's pattern, its
    version is authoritative, its uuid is the attempt.
    """
    if not is_attempt_id(proposal.attempt):
        return _rejected(RejectionReason.BAD_FILE_NAME, f"the attempt id {proposal.attempt!r} is not a lower-case uuid")
    if not isinstance(proposal, StagedProposal):
        return None
    expected = log_path.staged_commit(version, proposal.attempt)
    if proposal.file_name != expected:
        return _rejected(
            RejectionReason.BAD_FILE_NAME,
            f"the staged file of attempt {proposal.attempt} for version {version} must be called {expected}, "
            f"not {proposal.file_name!r}",
        )
    return None


def unread(version: Version, proposal: StagedProposal, size: int | None) -> Examined:
    """The result for a staged file that is not read: it is too large, or (`size` None) missing."""
    if size is None:
        flaw = _rejected(
            RejectionReason.STAGED_FILE_MISSING,
            f"the staged file for version {version} of attempt {proposal.attempt} is missing; write it, make it "
            f"durable, then propose it",
        )
    else:
        flaw = _too_large(table_feature.CommitMode.STAGED, size)
    return Examined(version=version, proposal=proposal, content=b"", digest=b"", flaw=flaw)


def size_limit(commit_mode: table_feature.CommitMode) -> int:
    """The maximum size of a commit in bytes."""
    return records.MAX_INLINE_BYTES if commit_mode is table_feature.CommitMode.INLINE else commits.MAX_COMMIT_BYTES


def _too_large(commit_mode: table_feature.CommitMode, size: int) -> Rejected:
    return _rejected(
        RejectionReason.TOO_LARGE,
        f"{size} bytes of actions; the limit for {commit_mode.value} commits is {size_limit(commit_mode)}",
    )


def examine(feature: table_feature.TableFeature, version: Version, proposal: Proposal, content: bytes) -> Examined:
    """Parse the proposed bytes."""
    digest, commit_mode = hashlib.sha256(content).digest(), COMMIT_MODE_OF[type(proposal)]
    flaw = _too_large(commit_mode, len(content)) if len(content) > size_limit(commit_mode) else None
    try:
        parsed = [] if flaw else actions.decode(content, source=f"the proposed version {version}")
    except CorruptLogError as error:
        flaw = _rejected(RejectionReason.MALFORMED_ACTIONS, str(error))
    if flaw is not None:
        return Examined(version=version, proposal=proposal, content=content, digest=digest, flaw=flaw)
    infos = [action for action in parsed if isinstance(action, CommitInfo)]
    protocols = [action for action in parsed if isinstance(action, Protocol)]
    metadata = [action for action in parsed if isinstance(action, Metadata)]
    leads = bool(infos) and infos[0] is parsed[0] and _first_is_known(content)
    problem = _provenance_flaw(feature, version, infos[0] if leads else None)
    if len(infos) > 1 or len(protocols) > 1 or len(metadata) > 1:
        problem = _rejected(
            RejectionReason.MALFORMED_ACTIONS,
            f"version {version} has {len(infos)} commitInfo, {len(protocols)} protocol and {len(metadata)} metaData "
            f"actions; one of each at most",
        )
    return Examined(
        version=version,
        proposal=proposal,
        content=content,
        digest=digest,
        in_commit_timestamp=(infos[0].in_commit_timestamp or 0) if infos else 0,
        protocol=protocols[0] if protocols else None,
        metadata=metadata[0] if metadata else None,
        domains=tuple(action for action in parsed if isinstance(action, DomainMetadata)),
        flaw=problem,
    )


def _first_is_known(content: bytes) -> bool:
    """Whether the first line holds a known action: the parser skips unknown ones."""
    if content.startswith(b'{"commitInfo":{'):
        return True
    return bool(actions.decode(content.lstrip().partition(b"\n")[0], source="the first line"))


def _provenance_flaw(feature: table_feature.TableFeature, version: Version, info: CommitInfo | None) -> Rejected | None:
    """in-commit timestamps, rule 2; catalog-managed, "Commit Provenance Information". `info` is None if commitInfo is
    not the first action."""
    if info is None:
        return _rejected(
            RejectionReason.COMMIT_INFO_NOT_FIRST, f"the first action of version {version} must be its commitInfo"
        )
    if info.in_commit_timestamp is None or info.in_commit_timestamp < 0:
        return _rejected(
            RejectionReason.IN_COMMIT_TIMESTAMP,
            f"commitInfo.inCommitTimestamp of version {version} must be a count of ms since the epoch, "
            f"not {info.fields.get('inCommitTimestamp')!r}",
        )
    missing = table_feature.missing_provenance(feature, info)
    return None if missing is None else _rejected(RejectionReason.TXN_ID_MISSING, missing)


def decide(
    table: TableRecord,
    examined: Examined,
    attempt: AttemptRecord | None,
    *,
    unknown_published: Version | None,
    current: Current | None,
) -> Ratify | Outcome:
    """The outcome of a proposal. `current`: the table's protocol and metadata; required only if the proposal changes
    them.

    managed-commits and catalog-managed, "Commit Protocol": v-1 is ratified, v is not, v at most once.
    """
    return (
        admission(table, examined, attempt, unknown_published=unknown_published)
        or content_flaw(table, examined, current)
        or backlog_flaw(table)
        or Ratify(examined=examined)
    )


def content_flaw(table: TableRecord, examined: Examined, current: Current | None) -> Rejected | None:
    """Why the owner rejects what is in the proposal."""
    return (
        _commit_mode_flaw(table, examined)
        or examined.flaw
        or _timestamp_flaw(table, examined)
        or _table_flaw(table, examined, current)
    )


def admission(
    table: TableRecord, examined: Examined, attempt: AttemptRecord | None, *, unknown_published: Version | None
) -> Outcome | None:
    """The outcome if the attempt, the table's state or the version decides it; None: the later rules decide.

    `unknown_published`: a visible version above the latest that the owner did not ratify.
    """
    return (
        replay(table, examined, attempt)
        or not_accepting(table)
        or _out_of_turn(table, examined.version, unknown_published=unknown_published)
    )


def unresolvable(
    table: TableRecord, attempt: AttemptId, *, unknown_published: Version | None, attempts_are_lost: bool
) -> CorruptionError | OutcomeUnknown | None:
    """Why an attempt that is not recorded may have landed; None: it can be resolved as not landed.

    `unknown_published`: see `admission`. `attempts_are_lost`: whether the table has commits with unknown attempt ids.
    """
    if unknown_published is not None:
        return CorruptionError(
            f"version {unknown_published} of {table.label} is published, the ledger's latest is {table.latest}: the "
            f"outcome of {attempt} is unknown; run verify, then repair",
            attempt=attempt,
        )
    if attempts_are_lost:
        return OutcomeUnknown(
            f"{table.label} has commits with unknown attempt ids, so the outcome of {attempt} is unknown; propose the "
            f"same commit again, whose answer is final, or look for it in the table's history",
            attempt=attempt,
        )
    return None


def replay(table: TableRecord, examined: Examined, attempt: AttemptRecord | None) -> Outcome | None:
    """The answer to an attempt that was decided before, or None for one that is new."""
    if attempt is None:
        return None
    landed = attempt.landed
    if landed is not None and landed.attempt == unknown_attempt(table.table_id, landed.version):
        # The commit point was the file, whichever process made it visible: its bytes identify it.
        if examined.version != landed.version or examined.digest != attempt.digest:
            return None
        landed = msgspec.structs.replace(landed, attempt=examined.proposal.attempt)
    if landed is None:
        return _rejected(
            RejectionReason.ATTEMPT_RESOLVED,
            f"attempt {examined.proposal.attempt} was resolved as not landed, finally; propose with a new attempt id",
        )
    same_bytes = not examined.digest or examined.digest == attempt.digest
    same_file = landed.commit_mode is table_feature.CommitMode.STAGED and isinstance(examined.proposal, StagedProposal)
    if landed.version != examined.version or not (same_bytes or same_file):
        return _rejected(
            RejectionReason.ATTEMPT_REUSED,
            f"attempt {landed.attempt} is version {landed.version} of {table.label} already, and this proposal differs "
            f"from it; every try needs a new attempt id",
        )
    return Ratified(commit=landed, replayed=True)


def not_accepting(table: TableRecord) -> Rejected | None:
    """Why the table accepts no commits; None if it does."""
    if table.state is not TableState.ACTIVE:
        return _rejected(
            RejectionReason.NOT_ACTIVE, f"{table.label} is {table.state.value}, so this owner accepts no commits to it"
        )
    if table.halted is not None:
        return _rejected(
            RejectionReason.HALTED, f"{table.label} accepts no commits: {table.halted}; run verify, then repair"
        )
    return None


def _out_of_turn(table: TableRecord, version: Version, *, unknown_published: Version | None) -> Outcome | None:
    """Why this version cannot be the next one; None if it can."""
    latest = table.latest
    if latest is not None and version <= latest:
        return Conflict(latest_ratified_version=latest)
    if unknown_published is not None:  # before the gap: a version that is visible must not be denied
        return _rejected(
            RejectionReason.HALTED,
            f"{log_path.commit(unknown_published)} of {table.label} exists, but the owner did not ratify it (its "
            f"latest version is {latest}): writers must propose their commits to the owner; run verify, then repair "
            f"--adopt-published to record the files",
        )
    if version != table.next:
        return VersionGap(latest_ratified_version=latest)
    return None


def report_flaw(table: TableRecord, through: Version) -> str | None:
    """Why a client cannot have published the versions up to `through`."""
    if table.latest is None or through > table.latest:
        return f"version {through} cannot be published: the latest version of {table.label} is {table.latest}"
    return None


def _commit_mode_flaw(table: TableRecord, examined: Examined) -> Rejected | None:
    """A table of inline commits accepts staged files too: some commits are too large for inline storage."""
    commit_mode = COMMIT_MODE_OF[type(examined.proposal)]
    accepted = {table.commit_mode}
    if table.commit_mode is table_feature.CommitMode.INLINE:
        accepted.add(table_feature.CommitMode.STAGED)
    if commit_mode in accepted:
        return None
    return _rejected(
        RejectionReason.COMMIT_MODE_NOT_ALLOWED,
        f"{table.label} accepts {' and '.join(sorted(w.value for w in accepted))} commits, not {commit_mode.value}",
    )


def _timestamp_flaw(table: TableRecord, examined: Examined) -> Rejected | None:
    previous = table.in_commit_timestamp
    return None if previous is None else timestamp_flaw(examined, previous)


def timestamp_flaw(examined: Examined, previous: int) -> Rejected | None:
    """in-commit timestamps, rule 2: greater than the previous commit's."""
    if examined.in_commit_timestamp > previous:
        return None
    return _rejected(
        RejectionReason.IN_COMMIT_TIMESTAMP,
        f"inCommitTimestamp {examined.in_commit_timestamp} of version {examined.version} is not greater than "
        f"{previous} of version {examined.version - 1}; use max(now, {previous + 1})",
    )


def leaves_owner(table: TableRecord, examined: Examined, current: Current | None) -> bool:
    """Whether an already published version takes the table from this owner; arguments as in `decide`.

    managed-commits, "Converting a managed-commit table to filesystem table": it removes the feature, or it removes or
    changes the property that names the owner.
    """
    protocol = examined.protocol or (current and current[0])
    metadata = examined.metadata or (current and current[1])
    if protocol is not None and not table.feature.mentioned_in(protocol):
        return True
    owner = table.feature.owner_property
    if owner is None or metadata is None or current is None:
        return False
    return metadata.configuration.get(owner) != current[1].configuration.get(owner)


def _table_flaw(table: TableRecord, examined: Examined, current: Current | None) -> Rejected | None:
    """managed-commits and catalog-managed, "Enablement": the feature and its properties go together."""
    if examined.protocol is None and examined.metadata is None:
        return None
    protocol = examined.protocol or (current and current[0])
    metadata = examined.metadata or (current and current[1])
    if protocol is None or metadata is None:
        return _rejected(
            RejectionReason.INCONSISTENT_TABLE, f"the first version of {table.label} needs a protocol and metaData"
        )
    if not table.feature.mentioned_in(protocol):
        return _rejected(
            RejectionReason.OWNERSHIP_CHANGE,
            f"version {examined.version} would remove {table.feature.name} from {table.label}; use hand-back for that",
        )
    return (
        (_identity_flaw(table, current[1], examined.metadata) if current and examined.metadata else None)
        or table_flaw(table.feature, protocol, metadata)
        or (_metadata_flaw(table, examined.metadata) if examined.metadata else None)
    )


def _identity_flaw(table: TableRecord, before: Metadata, after: Metadata) -> Rejected | None:
    """Properties that cannot change while the table has this owner: its owner, its id, and the enablement of in-commit
    timestamps. managed-commits, "Enablement"; in-commit timestamps, "Enablement"; Delta's protocol, "Change Metadata".
    """
    owner, table_id = table.feature.owner_property, table.feature.table_id_property
    if owner is not None and before.configuration.get(owner) != after.configuration.get(owner):
        return _rejected(
            RejectionReason.OWNERSHIP_CHANGE,
            f"{owner} of {table.label} cannot change from {before.configuration.get(owner)!r} to "
            f"{after.configuration.get(owner)!r}; use hand-back and take-over for that",
        )
    since = (table_feature.ENABLEMENT_VERSION, table_feature.ENABLEMENT_TIMESTAMP)
    kept = {name: (before.configuration.get(name), after.configuration.get(name)) for name in since}
    kept |= {"metaData.id": (before.id, after.id), "metaData.format": (before.format.provider, after.format.provider)}
    if table_id is not None and table_id in before.configuration:
        kept[table_id] = (before.configuration[table_id], after.configuration.get(table_id))
    for name, (was, is_now) in kept.items():
        if was != is_now:
            return _rejected(
                RejectionReason.INCONSISTENT_TABLE,
                f"{name} of {table.label} cannot change from {was!r} to {is_now!r}; propose {was!r}",
            )
    return None


def _metadata_flaw(table: TableRecord, metadata: Metadata) -> Rejected | None:
    """Why the metadata would make the table unreadable, or give it another table's id."""
    flaw = table_feature.unreadable(metadata)
    named = table.feature.table_id_property
    given = metadata.configuration.get(named) if named is not None else None
    if flaw is None and given is not None and given != table.table_id:
        flaw = f"{named} is {given!r}, but the id of {table.label} is {table.table_id!r}"
    return None if flaw is None else _rejected(RejectionReason.INCONSISTENT_TABLE, flaw)


def table_flaw(feature: table_feature.TableFeature, protocol: Protocol, metadata: Metadata) -> Rejected | None:
    """Contradictions in the protocol and metadata of a table that this owner is to own."""
    contradictions = table_feature.inconsistencies(protocol, metadata)
    if contradictions:
        return _rejected(RejectionReason.INCONSISTENT_TABLE, "; ".join(contradictions))
    if not feature.enabled_in(protocol):
        return _rejected(RejectionReason.INCONSISTENT_TABLE, f"the protocol does not enable {feature.name}")
    conf = feature.owner_conf_property
    return conf_flaw(metadata.configuration.get(conf)) if conf is not None else None


def first_version_flaw(table: TableRecord, examined: Examined, owner_name: str) -> Rejected | None:
    """What is wrong with a commit that makes this owner own a table: version 0, or an ownership change."""
    feature = table.feature
    if examined.flaw is not None:
        return examined.flaw
    if examined.protocol is None or examined.metadata is None:
        return _rejected(
            RejectionReason.INCONSISTENT_TABLE,
            f"version {examined.version} makes {owner_name!r} the owner: it needs a protocol and a metaData action",
        )
    owner = feature.owner_property
    named = examined.metadata.configuration.get(owner, owner_name) if owner is not None else owner_name
    if named != owner_name:
        return _rejected(
            RejectionReason.INCONSISTENT_TABLE, f"{owner} names {named!r}, but this owner is {owner_name!r}"
        )
    return table_flaw(feature, examined.protocol, examined.metadata) or _metadata_flaw(table, examined.metadata)


def decide_registration(
    table: TableRecord,
    examined: Examined,
    attempt: AttemptRecord | None,
    *,
    holder: TableRecord | None,
    owner_name: str,
) -> Ratify | Outcome | TableRecord:
    """The outcome of version 0 of a staged table, or the other table that has its name. `holder`: the table that has
    the name now; otherwise see `first_version_flaw`.

    catalog-managed, "Creating and Dropping": the first registration gets the name.
    """
    return (
        replay(table, examined, attempt)
        or (holder if holder is not None and holder.key != table.key else None)
        or not_new(table)
        or first_version_flaw(table, examined, owner_name)
        or Ratify(examined=examined)
    )


def not_new(table: TableRecord) -> Outcome | None:
    """Why a staged or announced table cannot get its first version from this owner any more; None if it can."""
    if table.state is TableState.ACTIVE:
        return Conflict(latest_ratified_version=table.latest or 0)
    if table.state is not TableState.STAGING:
        return _rejected(
            RejectionReason.NOT_ACTIVE,
            f"{table.label} is {table.state.value}, so it cannot be registered or adopted; create a new table",
        )
    return None


def owned_already(table: TableRecord) -> Rejected:
    """The answer to a take-over at the location of `table`."""
    return _rejected(RejectionReason.OWNERSHIP_CHANGE, f"{table.label} at {table.location} is owned already")


def id_flaw(table: TableRecord, same_id: TableRecord | None) -> Rejected | None:
    """The id of a table that is taken over must be valid and new: not that of an earlier table at this location either.
    `same_id`: the table that has the id."""
    if same_id is None and is_attempt_id(table.table_id):
        return None
    what = f"is the id of {same_id.label} at {same_id.location}" if same_id is not None else "is not a lower-case uuid"
    return _rejected(
        RejectionReason.INCONSISTENT_TABLE,
        f"{table.feature.table_id_property} is {table.table_id!r}, which {what}; set it to a new uuid",
    )


def take_over_turn(taken: Version | None, *, follows: bool) -> Outcome | None:
    """Why the proposed version of a take-over cannot be the next one in the log; None if it can.

    `taken`: the last published version, if the proposed one is published. `follows`: whether the version before it is
    published.
    """
    if taken is not None:
        return Conflict(latest_ratified_version=taken)
    return None if follows else VersionGap(latest_ratified_version=None)


def previous_is_missing(examined: Examined, file: Path) -> Rejected:
    """The answer to a first version of this owner after a gap: `file`, the previous version, is missing."""
    what = f"version {examined.version - 1} is in no file and no checkpoint; restore {file}"
    return _rejected(RejectionReason.INCONSISTENT_TABLE, what)


def decide_hand_back(
    table: TableRecord,
    examined: Examined,
    attempt: AttemptRecord | None,
    *,
    unknown_published: Version | None,
    current: Current | None,
) -> Ratify | Outcome:
    """The outcome of a commit that gives the table back to the filesystem; arguments as in `decide`.

    managed-commits, "Converting a managed-commit table to filesystem table": it removes the owner
    from the metadata and the feature from the protocol; the owner may reject it.
    """
    return (
        admission(table, examined, attempt, unknown_published=unknown_published)
        or _policy_flaw(table)
        or examined.flaw
        or _still_owned_flaw(table, examined, current)
        or _timestamp_flaw(table, examined)
        or Ratify(examined=examined)
    )


def _policy_flaw(table: TableRecord) -> Rejected | None:
    if table.policy.hand_back:
        return None
    return _rejected(
        RejectionReason.OWNER_REFUSES, f"the policy of {table.label} does not allow a hand-back to the filesystem"
    )


def _still_owned_flaw(table: TableRecord, examined: Examined, current: Current | None) -> Rejected | None:
    protocol = examined.protocol
    metadata = examined.metadata or (current and current[1])
    if table.feature.owner_leaves_first and protocol is None:
        return _still_named_flaw(table, metadata)
    if protocol is None or metadata is None or table_feature.feature_of(protocol) is not None:
        return _rejected(
            RejectionReason.INCONSISTENT_TABLE,
            f"a hand-back of {table.label} must remove {table.feature.name} from the protocol, and add no other owner",
        )
    contradictions = table_feature.inconsistencies(protocol, metadata)
    flaw = "; ".join(contradictions) if contradictions else table_feature.unreadable(metadata)
    return _rejected(RejectionReason.INCONSISTENT_TABLE, flaw) if flaw else None


def _still_named_flaw(table: TableRecord, metadata: Metadata | None) -> Rejected | None:
    """For a table feature that stays in the protocol after the hand-back: the metadata must name no owner."""
    owner = table.feature.owner_property
    if metadata is None or owner is None or owner not in metadata.configuration:
        return None
    return _rejected(
        RejectionReason.INCONSISTENT_TABLE, f"a hand-back of {table.label} must remove the property {owner}"
    )


def backlog_flaw(table: TableRecord) -> Rejected | None:
    limit = table.policy.backlog_limit
    if table.backlog < limit:
        return None
    return _rejected(
        RejectionReason.BACKLOG_FULL,
        f"{table.label} has {table.backlog} unbackfilled commits, the limit is {limit}; "
        f"backfill to version {table.latest}, then propose the same again",
    )


def _rejected(reason: RejectionReason, detail: str) -> Rejected:
    return Rejected(reason=reason, detail=detail)
