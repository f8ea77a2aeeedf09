"""Limits, names and secrets: the owner's own rules, in addition to those of the documents."""

import re
from typing import Final

import msgspec

from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import Rejected, RejectionReason
from refimpl.protocol.errors import InvalidRequestError, check_type
from refimpl.protocol.table_feature import CommitMode, TableFeature

MAX_INLINE_BYTES: Final = 16 * 2**20
"""An inline commit is held in the ledger and sent to every reader until it is published."""

MAX_COMMIT_BYTES: Final = 512 * 2**20
"""For all other commits: the owner reads the whole commit into memory, to check and to publish it."""

MAX_CATALOG_PROPERTIES_BYTES: Final = 256 * 2**10
"""Per table: they are read with every commit and sent with every answer."""

MAX_BACKLOG_LIMIT: Final = 100_000

SECRET_KEYS: Final = (
    "accesskey",
    "accesskeyid",
    "accountkey",
    "apikey",
    "authorization",
    "bearer",
    "clientsecret",
    "connectionstring",
    "credential",
    "credentials",
    "keyfile",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "sharedaccesssignature",
    "token",
)
"""The complete list of secrets that `commitOwnerConf` must not have: a key is rejected if it ends with one of
these. The comparison ignores case, all characters but letters and digits, and the storage account at the end of
Azure's keys. So `fs.s3a.secret.key` and `AWS_SESSION_TOKEN` are rejected, `authenticationMode` and
`token.endpoint` are not.

managed-commits, "Enablement": every user who can read the table's storage can read this property.
"""

_AZURE_ACCOUNT = re.compile(r"\.[a-z0-9]+\.(blob|dfs)\.core\.windows\.net$")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}", re.ASCII)
MAX_NAME_LENGTH: Final = 255

_COMMIT_MODES_ACCEPTED: Final = {
    CommitMode.STAGED: frozenset({CommitMode.STAGED}),
    CommitMode.INLINE: frozenset({CommitMode.INLINE, CommitMode.STAGED}),
    CommitMode.DIRECT: frozenset({CommitMode.DIRECT}),
}


def commit_modes_accepted(commit_mode: CommitMode) -> frozenset[CommitMode]:
    """How commits may be proposed to a table that was created for `commit_mode`.

    A table of inline commits accepts staged files too: some commits are too large for inline storage.
    """
    return _COMMIT_MODES_ACCEPTED[commit_mode]


def checked_name(name: str) -> str:
    """The name itself, or `InvalidRequestError`: one to three identifiers joined by dots."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"invalid table name {name!r}; expected one to three identifiers of the letters A to Z and a to z, digits "
            f"and _, joined by dots, at most {MAX_NAME_LENGTH} characters",
            name=name,
        )
    return name


def checked_commit_mode(feature: TableFeature, commit_mode: CommitMode | None) -> CommitMode:
    """The commit mode, staged by default; `InvalidRequestError` where the table feature has no such commit mode."""
    chosen = commit_mode or CommitMode.STAGED
    if chosen not in feature.commit_modes:
        known = ", ".join(sorted(w.value for w in feature.commit_modes))
        raise InvalidRequestError(
            f"{feature.name} has no {chosen.value} commits; expected one of {known}", commit_mode=chosen.value
        )
    return chosen


def checked_policy(policy: MaintenancePolicy | None) -> MaintenancePolicy:
    """The policy, by default the default one; `InvalidRequestError` for a field of another type or out of range."""
    policy = MaintenancePolicy() if policy is None else policy
    check_type("policy", policy, MaintenancePolicy, "a `MaintenancePolicy`")
    try:
        policy = msgspec.convert(msgspec.to_builtins(policy), MaintenancePolicy)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"invalid policy {policy!r}: {error}; expected a `MaintenancePolicy`") from None
    if not 1 <= policy.backlog_limit <= MAX_BACKLOG_LIMIT:
        raise InvalidRequestError(f"invalid backlog limit {policy.backlog_limit}; expected 1 to {MAX_BACKLOG_LIMIT}")
    if policy.backfill_every is not None and not 1 <= policy.backfill_every <= policy.backlog_limit:
        raise InvalidRequestError(
            f"cannot publish after every {policy.backfill_every} commits with a backlog limit of "
            f"{policy.backlog_limit}; expected a number from 1 to this limit, or never"
        )
    return policy


def conf_flaw(conf: str | None) -> Rejected | None:
    """What is wrong with a `commitOwnerConf`: not a JSON map of strings, or a key that names a secret."""
    if conf is None:
        return None
    try:
        entries = msgspec.json.decode(conf, type=dict[str, str])
    except msgspec.DecodeError as error:
        return Rejected(
            reason=RejectionReason.INCONSISTENT_TABLE,
            detail=f"commitOwnerConf is not a JSON map of strings to strings: {error}",
        )
    secrets = sorted(key for key in entries if names_a_secret(key))
    if secrets:
        return Rejected(
            reason=RejectionReason.SECRET_IN_CONF,
            detail=f"every reader of the table can read commitOwnerConf; remove {', '.join(secrets)}",
        )
    return None


def names_a_secret(key: str) -> bool:
    """Whether a property of this name would hold a secret; see `SECRET_KEYS`."""
    bare = _AZURE_ACCOUNT.sub("", key.lower())
    return re.sub(r"[^a-z0-9]", "", bare).endswith(SECRET_KEYS)
